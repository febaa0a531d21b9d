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
    """The context of a running agent, as its tools see it."""

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


def build_state(system: dict[str, Any], catalog: str) -> dict[str, Any]:
    """Return the state of a vector: a catalog of the file, or one of two written as `<…>`."""
    if catalog in system["catalogs"]:
        return {"available_tools": system["catalogs"][catalog]}
    return {"available_tools": None} if "null" in catalog else {}


def same(ours: ToolOutput, recorded: dict[str, Any]) -> None:
    assert ours.text == recorded["text"]
    assert _near(ours.metadata) == _near(recorded["metadata"])


def _near(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata whose scores compare to twelve digits.

    Release 2.2 adds floats in the order of a set, so the last digit differs from run to run.
    """
    matches = [{**match, "score": float(f"{match['score']:.12g}")} for match in metadata["matches"]]
    return {**metadata, "matches": matches}


@pytest.mark.parametrize("vector", golden_vectors("shipit", "vectors"))
def test_release_1_0_matches_the_recording(vector: dict[str, Any]) -> None:
    context = Run(build_state(load_golden("shipit"), vector["catalog"]))
    ours = ToolSearchTool(**vector["config"]).run(context, **vector["arguments"])
    if "raises" in vector["output"]:
        # The original raises; ours answers.
        assert ours.text
    else:
        same(ours, vector["output"])


@pytest.mark.parametrize("vector", golden_vectors("shipit", "later_release", "vectors"))
def test_release_2_2_matches_the_recording(vector: dict[str, Any]) -> None:
    context = Run(build_state(load_golden("shipit"), vector["catalog"]))
    ours = LoadingToolSearchTool(**vector["config"]).run(context, **vector["arguments"])
    if "raises" in vector["output"]:
        # The original raises; ours answers.
        assert ours.text
    else:
        same(ours, vector["output"])


@pytest.mark.parametrize("vector", golden_vectors("shipit", "later_release", "deferral"))
def test_loading_matches_the_recording(vector: dict[str, Any]) -> None:
    context = Run({"available_tools": catalog_with(vector["deferred"])})
    context.state["deferred_tool_names"] = set(vector["deferred"])
    context.state["loaded_tool_names"] = list(vector["loaded_before"])
    context.state["tool_schemas_by_name"] = schemas_in(vector["output"]["text"])
    tool = LoadingToolSearchTool(**vector.get("config", {}))
    same(tool.run(context, **vector["arguments"]), vector["output"])
    assert sorted(context.state["loaded_tool_names"]) == sorted(vector["loaded_after"])


def catalog_with(deferred: list[str]) -> list[dict[str, Any]]:
    """Return the catalog that has these tools; the vectors do not name it."""
    catalogs: dict[str, list[dict[str, Any]]] = load_golden("shipit")["catalogs"]
    return next(tools for tools in catalogs.values() if {*deferred} <= {tool.get("name") for tool in tools})


def schemas_in(text: str) -> dict[str, Any]:
    """Return the schemas behind the signature lines of a text; the vectors do not record them."""
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
def test_schema_matches_the_recording(release: str) -> None:
    system = load_golden("shipit")
    kind = ToolSearchTool if release == "seed" else LoadingToolSearchTool
    recorded = (system if release == "seed" else system["later_release"])["tool_schema"]
    for title, schema in recorded.items():
        limits = re.fullmatch(r"max(\d+)_default(\d+)", title)
        most, default = (int(limits[1]), int(limits[2])) if limits else (10, 5)
        assert kind(max_limit=most, default_limit=default).schema() == schema


def test_core_tools_match_the_recording() -> None:
    assert sorted(load_golden("shipit")["later_release"]["core_tools"]) == sorted(shipit.CORE_TOOLS)


def test_infinite_limit_means_the_maximum() -> None:
    assert load_golden("shipit")["limit_infinity"]["output"]["raises"] == "OverflowError"
    assert run(ToolSearchTool(), query="plant", limit=math.inf).metadata["limit"] == 10


# ------------------------------------------------------------------------------------ our cases


@pytest.mark.parametrize(
    ("requested", "effective"),
    [
        *((unclear, 5) for unclear in (None, 0, "", [], "many", [1], math.nan, "9" * 5000)),
        *((too_few, 1) for too_few in (-3, True, -math.inf)),
        *((some, 2) for some in ("2", 2, 2.9)),
        *((too_many, 10) for too_many in (11, 999, math.inf)),
    ],
)
def test_limit_is_clamped_to_its_range(requested: object, effective: int) -> None:
    assert run(ToolSearchTool(), query="plant", limit=requested).metadata["limit"] == effective


def test_shortlist_contains_score_description_and_hint() -> None:
    output = run(ToolSearchTool(), query="Water plants", limit=1)
    score = output.metadata["matches"][0]["score"]
    assert output.text.splitlines() == [
        "Best tools for 'Water plants' (ranked by relevance):",
        f"1. water_plants (score={score}) — Water the beds.",
        "   ↳ when to use: In summer.",
    ]


def test_tool_without_description_says_so() -> None:
    assert "— No description provided." in run(ToolSearchTool(), [{"name": "dig"}], query="dig").text


@pytest.mark.parametrize("query", [None, "", "  ", 0, False])
@pytest.mark.parametrize(("tool", "extra"), [(ToolSearchTool(), {}), (LoadingToolSearchTool(), {"ok": False})])
def test_empty_query_is_an_error(tool: ToolSearchTool, extra: dict[str, Any], query: object) -> None:
    expected = {"error": "empty_query", "matches": [], **extra}
    assert run(tool, query=query) == ToolOutput(shipit.QUERY_MISSING, expected)


@pytest.mark.parametrize("tools", [None, []])
def test_empty_tool_list_is_reported(tools: object) -> None:
    expected = ToolOutput(shipit.NO_TOOLS, {"query": "dig", "matches": []})
    assert run(ToolSearchTool(), tools, query="dig") == expected


def test_no_match_returns_nearest_tools_as_data_only() -> None:
    output = run(ToolSearchTool(), query="@@", limit=2)
    assert output.text == "No tools matched '@@'. Try rephrasing or broadening the query."
    assert names(output) == ["water_plants", "mowLawn"]


def test_higher_token_bonus_raises_matching_tools() -> None:
    scores = [
        run(ToolSearchTool(token_bonus=bonus), query="grass").metadata["matches"][0]["score"] for bonus in (0.0, 0.5)
    ]
    assert scores[1] == pytest.approx(scores[0] + 0.5)


def test_name_and_texts_can_be_chosen() -> None:
    tool = ToolSearchTool(name="find", description="Finds.", prompt="Find first.")
    assert (tool.schema()["function"]["name"], tool.description) == ("find", "Finds.")
    assert tool.prompt == "Find first."


def test_prompts_name_the_search_tool() -> None:
    tool = ToolSearchTool(name="find")
    assert "`find`" in tool.prompt
    assert "`find`" in tool.search_first("plant a tree")
    assert tool.search_first("plant a tree").endswith("Task: plant a tree")
    assert {worth for _, worth in shipit.WHEN_WORTH_IT} == {True, False}


def test_release_2_2_splits_camel_case_and_excludes_itself() -> None:
    assert names(run(LoadingToolSearchTool(), query="mow a lawn")) == ["mowLawn", "plant_tree"]
    assert "tool_search" not in names(run(LoadingToolSearchTool(), query="find a tool"))


def test_release_2_2_returns_only_an_exactly_named_tool() -> None:
    assert names(run(LoadingToolSearchTool(), query="Plant_Tree")) == ["plant_tree"]


def test_release_2_2_lists_details_of_a_tool() -> None:
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


def test_found_tools_are_appended_to_loaded_ones() -> None:
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


def test_signature_needs_no_schema() -> None:
    assert shipit.render_signature("dig", None) == "dig"
    assert shipit.render_signature("dig", {"function": {}}) == "dig()"
    assert shipit.render_signature("dig", function("dig", [("where", "", "place")])) == "dig(where: place)"


def test_deferral_setting_selects_none_all_or_named_tools() -> None:
    tool = LoadingToolSearchTool(name="find")
    listed_names = ["find", "bash", "dig", "mow"]
    assert tool.select_deferred(listed_names, False) == frozenset()
    assert tool.select_deferred(listed_names, True) == {"dig", "mow"}
    assert tool.select_deferred(listed_names, ["dig", "find", "unknown"]) == {"dig"}


def test_loaded_schemas_follow_those_already_advertised() -> None:
    schemas = {name: {"function": {"name": name}} for name in ("dig", "bash", "mow", "rake")}
    visible = shipit.advertised_schemas(schemas, ["dig", "mow", "rake"], ["mow", "gone", "dig"])
    assert [schema["function"]["name"] for schema in visible] == ["bash", "mow", "dig"]


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
def test_no_call_raises_or_exceeds_the_limit(
    tool: ToolSearchTool, tools: list[dict[str, Any]], query: object, limit: object
) -> None:
    output = run(tool, tools, query=query, limit=limit)
    assert output == run(tool, tools, query=query, limit=limit)
    assert output.text
    assert len(output.metadata["matches"]) <= 3


@pytest.mark.parametrize(
    "schema", [{"function": None}, {"function": {"parameters": {"properties": {"x": True}}}}, {"function": 5}]
)
def test_malformed_schema_has_a_signature(schema: dict[str, Any]) -> None:
    assert shipit.render_signature("f", schema).startswith("f(")
