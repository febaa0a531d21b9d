from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import golden_vectors, load_golden
from toolcrib.profiles import shipit
from toolcrib.profiles.shipit import LoadingToolSearchTool, ToolOutput, ToolSearchTool


@dataclass
class Run:
    """A run of an agent, as its tools see it."""

    state: dict[str, Any] = field(default_factory=dict)


GARDEN = [
    {"name": "water_plants", "description": "Water the beds.", "prompt_instructions": "In summer."},
    {"name": "mowLawn", "description": "Cut the grass."},
    {"name": "plant_tree", "description": "Dig a hole and plant a tree.", "server": "orchard"},
    {"name": "tool_search", "description": "Find a tool."},
]


def run(tool: ToolSearchTool, tools: object = GARDEN, **arguments: Any) -> ToolOutput:
    return tool.run(Run({"available_tools": tools}), **arguments)


def names(output: ToolOutput) -> list[str]:
    return [match["name"] for match in output.metadata["matches"]]


# ------------------------------------------------------------------------------- golden vectors


def state_of(system: dict[str, Any], catalog: str) -> dict[str, Any]:
    """The state a vector ran on: a catalog of the file, or one of two written as `<…>`."""
    if catalog in system["catalogs"]:
        return {"available_tools": system["catalogs"][catalog]}
    return {"available_tools": None} if "null" in catalog else {}


def same(ours: ToolOutput, recorded: dict[str, Any]) -> None:
    assert ours.text == recorded["text"]
    assert _near(ours.metadata) == _near(recorded["metadata"])


def _near(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata whose scores compare to twelve digits.

    2.2 adds floats in the order of a set, which differs from run to run in the last digit.
    """
    matches = [{**match, "score": float(f"{match['score']:.12g}")} for match in metadata["matches"]]
    return {**metadata, "matches": matches}


@pytest.mark.parametrize("vector", golden_vectors("shipit", "vectors"))
def test_the_seed_release_answers_as_recorded(vector: dict[str, Any]) -> None:
    context = Run(state_of(load_golden("shipit"), vector["catalog"]))
    ours = ToolSearchTool(**vector["config"]).run(context, **vector["arguments"])
    if "raises" in vector["output"]:
        # What no search may do is raise: ours answers.
        assert ours.text
    else:
        same(ours, vector["output"])


@pytest.mark.parametrize("vector", golden_vectors("shipit", "later_release", "vectors"))
def test_the_later_release_answers_as_recorded(vector: dict[str, Any]) -> None:
    context = Run(state_of(load_golden("shipit"), vector["catalog"]))
    ours = LoadingToolSearchTool(**vector["config"]).run(context, **vector["arguments"])
    if "raises" in vector["output"]:
        # What no search may do is raise: ours answers.
        assert ours.text
    else:
        same(ours, vector["output"])


@pytest.mark.parametrize("vector", golden_vectors("shipit", "later_release", "deferral"))
def test_matches_are_loaded_as_recorded(vector: dict[str, Any]) -> None:
    context = Run({"available_tools": catalog_with(vector["deferred"])})
    context.state["deferred_tool_names"] = set(vector["deferred"])
    context.state["loaded_tool_names"] = list(vector["loaded_before"])
    context.state["tool_schemas_by_name"] = schemas_in(vector["output"]["text"])
    tool = LoadingToolSearchTool(**vector.get("config", {}))
    same(tool.run(context, **vector["arguments"]), vector["output"])
    assert sorted(context.state["loaded_tool_names"]) == sorted(vector["loaded_after"])


def catalog_with(deferred: list[str]) -> list[dict[str, Any]]:
    """The catalog that has these tools; the vectors do not name it."""
    catalogs: dict[str, list[dict[str, Any]]] = load_golden("shipit")["catalogs"]
    return next(
        tools for tools in catalogs.values() if {*deferred} <= {tool.get("name") for tool in tools}
    )


def schemas_in(text: str) -> dict[str, Any]:
    """The schemas behind the signature lines of a text; the vectors do not record them."""
    return {
        name: function(name, re.findall(r"(\w+)(\??): (\w+)", arguments))
        for name, arguments in re.findall(r"^- (\w+)\((.*)\)$", text, re.MULTILINE)
    }


def function(name: str, arguments: list[tuple[str, str, str]]) -> dict[str, Any]:
    parameters = {
        "properties": {argument: {"type": kind} for argument, _, kind in arguments},
        "required": [argument for argument, optional, _ in arguments if not optional],
    }
    return {"function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize("release", ["seed", "later"])
def test_the_schema_is_as_recorded(release: str) -> None:
    system = load_golden("shipit")
    kind = ToolSearchTool if release == "seed" else LoadingToolSearchTool
    recorded = (system if release == "seed" else system["later_release"])["tool_schema"]
    for title, schema in recorded.items():
        limits = re.fullmatch(r"max(\d+)_default(\d+)", title)
        most, default = (int(limits[1]), int(limits[2])) if limits else (10, 5)
        assert kind(max_limit=most, default_limit=default).schema() == schema


def test_the_core_tools_are_as_recorded() -> None:
    assert sorted(load_golden("shipit")["later_release"]["core_tools"]) == sorted(shipit.CORE_TOOLS)


def test_a_limit_of_infinity_means_the_most_where_the_original_raised() -> None:
    assert load_golden("shipit")["limit_infinity"]["output"]["raises"] == "OverflowError"
    assert run(ToolSearchTool(), query="plant", limit=math.inf).metadata["limit"] == 10


# ------------------------------------------------------------------------------------ our cases


@pytest.mark.parametrize(
    ("asked", "effective"),
    [
        *((unclear, 5) for unclear in (None, 0, "", [], "many", [1], math.nan, "9" * 5000)),
        *((too_few, 1) for too_few in (-3, True, -math.inf)),
        *((some, 2) for some in ("2", 2, 2.9)),
        *((too_many, 10) for too_many in (11, 999, math.inf)),
    ],
)
def test_any_limit_is_read_as_a_number_in_range(asked: object, effective: int) -> None:
    assert run(ToolSearchTool(), query="plant", limit=asked).metadata["limit"] == effective


def test_a_shortlist_names_score_description_and_hint() -> None:
    output = run(ToolSearchTool(), query="Water plants", limit=1)
    score = output.metadata["matches"][0]["score"]
    assert output.text.splitlines() == [
        "Best tools for 'Water plants' (ranked by relevance):",
        f"1. water_plants (score={score}) — Water the beds.",
        "   ↳ when to use: In summer.",
    ]


def test_a_tool_without_description_says_so() -> None:
    assert (
        "— No description provided." in run(ToolSearchTool(), [{"name": "dig"}], query="dig").text
    )


@pytest.mark.parametrize("query", [None, "", "  ", 0, False])
@pytest.mark.parametrize(
    ("tool", "extra"), [(ToolSearchTool(), {}), (LoadingToolSearchTool(), {"ok": False})]
)
def test_an_empty_query_is_an_error(
    tool: ToolSearchTool, extra: dict[str, Any], query: object
) -> None:
    expected = {"error": "empty_query", "matches": [], **extra}
    assert run(tool, query=query) == ToolOutput(shipit.QUERY_MISSING, expected)


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_is_said(tools: object) -> None:
    expected = ToolOutput(shipit.NO_TOOLS, {"query": "dig", "matches": []})
    assert run(ToolSearchTool(), tools, query="dig") == expected


def test_a_miss_shows_the_nearest_as_data_only() -> None:
    output = run(ToolSearchTool(), query="@@", limit=2)
    assert output.text == "No tools matched '@@'. Try rephrasing or broadening the query."
    assert names(output) == ["water_plants", "mowLawn"]


def test_a_higher_bonus_lifts_tools_with_the_words() -> None:
    scores = [
        run(ToolSearchTool(token_bonus=bonus), query="grass").metadata["matches"][0]["score"]
        for bonus in (0.0, 0.5)
    ]
    assert scores[1] == pytest.approx(scores[0] + 0.5)


def test_names_and_texts_are_the_callers_to_choose() -> None:
    tool = ToolSearchTool(name="find", description="Finds.", prompt="Find first.")
    assert (tool.schema()["function"]["name"], tool.description) == ("find", "Finds.")
    assert tool.prompt == "Find first."


def test_the_guidance_names_the_tool_it_is_about() -> None:
    tool = ToolSearchTool(name="find")
    assert "`find`" in tool.prompt
    assert "`find`" in tool.search_first("plant a tree")
    assert tool.search_first("plant a tree").endswith("Task: plant a tree")
    assert {worth for _, worth in shipit.WHEN_WORTH_IT} == {True, False}


def test_the_later_release_reads_camel_case_and_leaves_itself_out() -> None:
    assert names(run(LoadingToolSearchTool(), query="mow a lawn")) == ["mowLawn", "plant_tree"]
    assert "tool_search" not in names(run(LoadingToolSearchTool(), query="find a tool"))


def test_the_later_release_returns_only_the_tool_that_was_named() -> None:
    assert names(run(LoadingToolSearchTool(), query="Plant_Tree")) == ["plant_tree"]


def test_the_later_release_tells_what_it_knows_of_a_tool() -> None:
    tools = [
        {"name": "dig", "category": "soil", "read_only": False, "server": "yard"},
        {"name": "look", "read_only": True, "connection_id": "cam", "description": "x" * 500},
        {"name": "smell", "connection_id": "nose", "connection_state": "blocked"},
    ]
    output = run(LoadingToolSearchTool(), tools, query="mutate dig soil yard, read cam, blocked")
    details = [re.findall(r"; (.*)\)", line)[0] for line in output.text.splitlines()[1:]]
    assert details == ["soil, action, MCP: yard", "read-only, cam: unknown", "nose: blocked"]
    assert "x" * 401 not in output.text
    assert [row["read_only"] for row in output.metadata["matches"]] == [False, True, None]


def test_what_a_search_finds_is_appended_to_what_is_loaded() -> None:
    schema = function("plant_tree", [("kind", "", "string"), ("depth", "?", "number")])
    context = Run(
        {
            "available_tools": GARDEN,
            "deferred_tool_names": {"plant_tree", "water_plants"},
            "loaded_tool_names": ["water_plants"],
            "tool_schemas_by_name": {"plant_tree": schema},
        }
    )
    output = LoadingToolSearchTool().run(context, query="plants plant beds")
    assert context.state["loaded_tool_names"] == ["water_plants", "plant_tree"]
    assert output.metadata["loaded"] == ["plant_tree"]
    assert output.metadata["already_loaded"] == ["water_plants"]
    assert output.text.splitlines()[-3:] == [
        shipit.LOADED,
        "- plant_tree(kind: string, depth?: number)",
        "Already loaded; call directly without another search: water_plants",
    ]


def test_a_signature_needs_no_schema() -> None:
    assert shipit.render_signature("dig", None) == "dig"
    assert shipit.render_signature("dig", {"function": {}}) == "dig()"
    assert (
        shipit.render_signature("dig", function("dig", [("where", "", "place")]))
        == "dig(where: place)"
    )


def test_deferral_is_off_all_but_the_core_or_by_name_and_never_the_search_tool() -> None:
    tool = LoadingToolSearchTool(name="find")
    listed = ["find", "bash", "dig", "mow"]
    assert tool.select_deferred(listed, False) == frozenset()
    assert tool.select_deferred(listed, True) == {"dig", "mow"}
    assert tool.select_deferred(listed, ["dig", "find", "unknown"]) == {"dig"}


def test_loaded_schemas_follow_those_already_advertised() -> None:
    schemas = {name: {"function": {"name": name}} for name in ("dig", "bash", "mow", "rake")}
    shown = shipit.advertised_schemas(schemas, ["dig", "mow", "rake"], ["mow", "gone", "dig"])
    assert [schema["function"]["name"] for schema in shown] == ["bash", "mow", "dig"]


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
entries = st.dictionaries(
    st.sampled_from(["name", "description", "prompt_instructions", "category", "read_only"]),
    scalars | st.sampled_from(["dig", "plant_tree", "water"]),
)


@given(
    tool=st.sampled_from([ToolSearchTool(max_limit=3), LoadingToolSearchTool(max_limit=3)]),
    tools=st.lists(entries, max_size=6),
    query=scalars | st.sampled_from(["dig", "plant tree"]),
    limit=scalars | st.lists(st.integers(), max_size=2),
)
def test_no_call_raises_and_none_lists_more_than_allowed(
    tool: ToolSearchTool, tools: list[dict[str, Any]], query: object, limit: object
) -> None:
    output = run(tool, tools, query=query, limit=limit)
    assert output == run(tool, tools, query=query, limit=limit)
    assert output.text
    assert len(output.metadata["matches"]) <= 3


@pytest.mark.parametrize(
    "schema",
    [
        {"function": None},
        {"function": {"parameters": {"properties": {"x": True}}}},
        {"function": 5},
    ],
)
def test_an_odd_schema_still_has_a_signature(schema: dict[str, Any]) -> None:
    assert shipit.render_signature("f", schema).startswith("f(")
