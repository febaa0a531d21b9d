from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import golden_vectors, load_golden
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.profiles import everruns
from toolcrib.profiles.everruns import EverrunsContext, EverrunsDefinition, EverrunsToolSearch, SessionReveals
from toolcrib.search.lexical import keyword

SCHEMA = {"type": "object", "properties": {"depth": {"type": "number"}}, "required": ["depth"]}
KITCHEN = [
    Tool("boil_egg", "Cook an egg in water", SCHEMA),
    Tool("boil_egg_soft", "Cook it less", SCHEMA),
    Tool("wash_up", "Clean every plate", SCHEMA),
    everruns.SEARCH_TOOL,
]


def context(tools: list[Tool] = KITCHEN, session: str | None = None) -> EverrunsContext:
    return EverrunsContext(tools, {tool.name for tool in tools}, session)


def search(query: object, tools: list[Tool] = KITCHEN) -> dict[str, Any]:
    return EverrunsToolSearch().search({"query": query}, context(tools))


def stubbed_names(definitions: list[EverrunsDefinition]) -> list[str]:
    return [item.tool.name for item in definitions if item.stub is not None]


# ------------------------------------------------------------------------------- golden vectors


def recorded_tools(catalog: list[dict[str, Any]]) -> list[Tool]:
    return [Tool(item["name"], item["description"], item["parameters"]) for item in catalog]


@pytest.mark.parametrize("vector", golden_vectors("everruns", "search_vectors"))
def test_search_matches_the_recording(vector: dict[str, Any]) -> None:
    tools = recorded_tools(load_golden("everruns")["catalogs"][vector["catalog"]])
    names_in_order = [tool.name for tool in tools]
    visible = names_in_order if vector["visible"] == "all" else vector["visible"]
    capability = EverrunsToolSearch()
    answer = capability.search(vector["arguments"], EverrunsContext(tools, visible, "session"))
    assert answer == vector["output"]
    assert list(capability.reveals.get_names("session")) == vector["output"].get("loaded", [])
    seen = [tool for tool in tools if tool.name in visible]
    points = [[tool.name, score] for tool, score in everruns.rank_tools(seen, answer["query"])]
    assert points == vector["scores"]


@pytest.mark.parametrize("vector", golden_vectors("everruns", "error_vectors"))
def test_search_errors_match_the_recording(vector: dict[str, Any]) -> None:
    lacking = [None, EverrunsContext(visible=[]), EverrunsContext(registry=[])]
    errors = [EverrunsToolSearch().search({"query": "x"}, item)["error"] for item in lacking]
    assert vector["error"] in errors
    assert len(set(errors)) == len(lacking)


@pytest.mark.parametrize("vector", golden_vectors("everruns", "hook_vectors"))
@pytest.mark.parametrize("stub", [everruns.instructing_stub, everruns.bare_stub])
def test_hidden_parameters_match_the_recording(vector: dict[str, Any], stub: everruns.Stub) -> None:
    generated_tools = vector["constructor"]
    capability = EverrunsToolSearch(generated_tools["threshold"], frozenset(generated_tools["never_defer"]), stub)
    capability.reveals.reveal("session", vector["revealed_this_session"])
    tools = [Tool(item["name"], input_schema=SCHEMA, policy=item["deferrable"]) for item in vector["tools"]]
    definitions = capability.with_config(vector["config"]).advertise(
        tools, "session", hosted_search=vector["hosted_search_active"]
    )
    assert stubbed_names(definitions) == vector["stubbed"]
    assert [item.tool for item in definitions] == tools


@pytest.mark.parametrize("vector", golden_vectors("everruns", "reveal_vectors", "vectors"))
def test_reveals_match_the_recording(vector: dict[str, Any]) -> None:
    reveals = SessionReveals(load_golden("everruns")["reveal_vectors"]["bound"])
    others = 0
    for operation, *rest in vector["ops"]:
        if operation == "reveal":
            reveals.reveal(*rest)
        else:
            assert operation == "reveal_n_other_sessions"
            for number in range(others, others + rest[0]):
                reveals.reveal(f"other {number}", ["x"])
            others += rest[0]
    for session, names in vector["expect"].items():
        assert sorted(reveals.get_names(session)) == sorted(names)


def test_constants_and_stubs_match_the_recording() -> None:
    system = load_golden("everruns")
    constants = system["constants"]
    assert constants["threshold"] == everruns.THRESHOLD
    assert constants["max_results"] == everruns.MAX_RESULTS
    assert constants["max_reveal_sessions"] == everruns.MAX_SESSIONS
    assert constants["name_weight"] == keyword.NAME_POINTS
    assert constants["description_weight"] == keyword.DESCRIPTION_POINTS
    assert constants["exact_name_bonus"] == keyword.EXACT_NAME_POINTS
    assert system["stubs"]["later"] == everruns.bare_stub("<name>")
    assert system["stubs"]["seed_era"] == everruns.instructing_stub("<name>")


# ------------------------------------------------------------------------------------ our cases


def test_exact_name_returns_and_reveals_only_that_tool() -> None:
    capability = EverrunsToolSearch()
    answer = capability.search({"query": " `boil_egg` "}, context(session="s"))
    assert answer == {
        "query": "`boil_egg`",
        "tools": [{"name": "boil_egg", "description": "Cook an egg in water", "parameters": SCHEMA}],
        "loaded": ["boil_egg"],
        "message": everruns.LOADED,
    }
    assert capability.reveals.get_names("s") == ("boil_egg",)


def test_no_match_lists_available_tools_and_reveals_nothing() -> None:
    capability = EverrunsToolSearch()
    answer = capability.search({"query": "fly"}, context(session="s"))
    assert answer["available_tools"] == ["boil_egg", "boil_egg_soft", "wash_up"]
    assert answer["tools"] == []
    assert capability.reveals.get_names("s") == ()


@pytest.mark.parametrize("query", ["", " ", "?!", None, 7])
def test_query_without_terms_lists_the_first_tools(query: object) -> None:
    many = [Tool(f"tool_{number}") for number in range(10)]
    assert search(query, many)["loaded"] == [f"tool_{number}" for number in range(8)]


def test_invisible_tool_is_neither_found_nor_named() -> None:
    for query in ("boil egg", "fly"):
        answer = EverrunsToolSearch().search({"query": query}, EverrunsContext(KITCHEN, {"wash_up"}))
        assert "boil_egg" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("lacking", "error"),
    [
        (None, everruns.NO_CONTEXT),
        (EverrunsContext(visible=["x"]), everruns.NO_REGISTRY),
        (EverrunsContext(registry=KITCHEN), everruns.NO_VISIBLE_TOOLS),
    ],
)
def test_search_without_context_is_an_error(lacking: EverrunsContext | None, error: str) -> None:
    assert EverrunsToolSearch().search({"query": "egg"}, lacking) == {"error": error}


@pytest.mark.parametrize("stub", [everruns.instructing_stub, everruns.bare_stub])
def test_stub_hides_the_parameters_until_a_search_reveals_them(stub: everruns.Stub) -> None:
    capability = EverrunsToolSearch(threshold=4, never_defer=frozenset({"wash_up"}), stub=stub)
    assert stubbed_names(capability.advertise(KITCHEN, "s")) == ["boil_egg", "boil_egg_soft"]
    capability.search({"query": "boil_egg"}, context(session="s"))
    assert stubbed_names(capability.advertise(KITCHEN, "s")) == ["boil_egg_soft"]
    assert stubbed_names(capability.advertise(KITCHEN, "other")) == ["boil_egg", "boil_egg_soft"]
    assert stubbed_names(capability.advertise(KITCHEN)) == ["boil_egg", "boil_egg_soft"]


def test_nothing_is_hidden_below_the_threshold_or_with_hosted_search() -> None:
    assert stubbed_names(EverrunsToolSearch(threshold=5).advertise(KITCHEN)) == []
    assert stubbed_names(EverrunsToolSearch(threshold=0).advertise(KITCHEN, hosted_search=True)) == []


def test_policy_never_is_respected() -> None:
    tools = [Tool("a", policy="always"), Tool("b", policy="automatic"), Tool("c", policy="never")]
    assert stubbed_names(EverrunsToolSearch(threshold=3).advertise(tools)) == ["a", "b"]
    assert stubbed_names(EverrunsToolSearch(threshold=4).advertise(tools)) == []


def test_definition_survives_storage() -> None:
    for definition in EverrunsToolSearch(threshold=1).advertise(KITCHEN):
        again = EverrunsDefinition.from_dict(json.loads(json.dumps(definition.to_dict())))
        assert again == definition
        assert again.tool.input_schema == definition.tool.input_schema


def test_deferral_reduces_the_size_of_definitions() -> None:
    full = everruns.measure_size(EverrunsDefinition(tool) for tool in KITCHEN)
    hidden = everruns.measure_size(EverrunsToolSearch(threshold=1, stub=everruns.bare_stub).advertise(KITCHEN))
    assert full.tools - hidden.tools == full.parameters - hidden.parameters > 0


def test_oldest_session_is_dropped_first() -> None:
    reveals = SessionReveals(max_sessions=2)
    for session in ("first", "second", "first", "third"):
        reveals.reveal(session, [session])
    assert reveals.get_names("first") == ()
    assert reveals.get_names("second") == ("second",)


@pytest.mark.parametrize("threshold", [-1, "2", 2.0, True, None])
def test_invalid_threshold_is_ignored(threshold: object) -> None:
    assert EverrunsToolSearch(threshold=3).with_config({"threshold": threshold}).threshold == 3


def test_allowlist_takes_any_iterable_of_names() -> None:
    capability = EverrunsToolSearch(1, (name for name in ["wash_up"])).with_never_defer({"boil_egg": 1})
    assert stubbed_names(capability.advertise(KITCHEN)) == ["boil_egg_soft"]
    assert capability.with_never_defer(["boil_egg_soft"]).never_defer == {"boil_egg", "boil_egg_soft", "wash_up"}
    with pytest.raises(InvalidConfig, match=r"write \['bash'\]"):
        EverrunsToolSearch(never_defer="bash")


@pytest.mark.parametrize("listed", [["tool_search"], {"tool_search": {}}, [{"ref": "tool_search", "config": {}}]])
def test_configuration_of_an_agent_is_read_with_its_wrapper(listed: Any) -> None:
    assert EverrunsToolSearch(threshold=3).with_config({"capabilities": listed}).threshold == 3
    config = {"capabilities": {"tool_search": {"threshold": 9, "never_defer": ["a"]}}}
    configured = EverrunsToolSearch().with_config(config)
    assert (configured.threshold, configured.never_defer) == (9, {"a"})
    with pytest.raises(InvalidConfig, match="does not list the capability tool_search"):
        EverrunsToolSearch().with_config({"capabilities": ["memory"]})


def test_stub_names_the_tool_to_search_for_by_default() -> None:
    hidden = EverrunsToolSearch(threshold=1).advertise(KITCHEN)[0]
    assert 'Call tool_search with query "boil_egg"' in hidden.parameters["description"]


def test_system_prompt_explains_hidden_parameters_only_if_there_are_any() -> None:
    capability = EverrunsToolSearch(threshold=4)
    assert capability.build_system_prompt("Be brief.", KITCHEN) == f"Be brief.\n\n{everruns.SYSTEM_PROMPT}"
    assert capability.build_system_prompt("", KITCHEN) == everruns.SYSTEM_PROMPT
    assert capability.build_system_prompt("Be brief.", KITCHEN[:3]) == "Be brief."
    assert capability.build_system_prompt("Be brief.", KITCHEN, hosted_search=True) == "Be brief."


def test_configuration_adds_to_the_allowlist_and_shares_the_reveals() -> None:
    capability = EverrunsToolSearch(never_defer=frozenset({"a"}))
    later = capability.with_config({"threshold": 0, "never_defer": ["b", 7, None]})
    assert (later.threshold, later.never_defer) == (0, frozenset("ab"))
    assert later.reveals is capability.reveals
    assert capability.with_config({"never_defer": "b"}).never_defer == {"a"}


@pytest.mark.parametrize(
    ("capabilities", "config"),
    [
        (["other", "tool_search"], {}),
        ({"tool_search": {"threshold": 2}}, {"threshold": 2}),
        ({"tool_search": None}, {}),
        ([{"ref": "other"}, {"ref": "tool_search", "config": {"threshold": 2}}], {"threshold": 2}),
        ([{"ref": "tool_search"}], {}),
        (["other"], None),
        ({"other": {}}, None),
        ("tool_search", None),
        (None, None),
    ],
)
def test_configuration_is_read_in_three_forms(capabilities: object, config: dict[str, Any] | None) -> None:
    assert everruns.find_capability_config(capabilities) == config


def test_placeholder_reveals_every_tool_of_its_server() -> None:
    placeholder = everruns.build_server_placeholder("pantry", "Everything about food stores")
    shelf = Tool("mcp_pantry__shelf", "Look at a shelf", SCHEMA)
    capability = EverrunsToolSearch(threshold=1)
    answer = capability.search({"query": "food"}, context([placeholder, *KITCHEN], "s"))
    assert answer["loading_mcp_servers"] == ["pantry"]
    assert (answer["loaded"], answer["message"]) == ([], everruns.SERVERS_LOADING)
    assert stubbed_names(capability.advertise([shelf], "s")) == []
    assert stubbed_names(capability.advertise([shelf], "other")) == ["mcp_pantry__shelf"]


def test_ordinary_match_reveals_only_that_tool() -> None:
    placeholder = everruns.build_server_placeholder("pantry", "Everything about food stores")
    answer = search("boil", [placeholder, *KITCHEN])
    assert answer["loaded"] == ["boil_egg", "boil_egg_soft"]
    assert "loading_mcp_servers" not in answer


def test_search_tool_takes_one_query_and_changes_nothing() -> None:
    schema = everruns.SEARCH_TOOL.input_schema
    assert (list(schema["properties"]), schema["required"]) == (["query"], ["query"])
    assert schema["additionalProperties"] is False
    assert everruns.SEARCH_TOOL.read_only
    assert "`tool_search`" in everruns.SYSTEM_PROMPT


words = st.sampled_from(["boil", "EGG", "wash_up", "zz", "?", "every plate"]) | st.text(max_size=8)


@given(query=st.lists(words, max_size=4).map(" ".join) | st.integers() | st.none())
def test_no_query_raises_and_loaded_tools_are_revealed(query: object) -> None:
    capability = EverrunsToolSearch()
    answer = capability.search({"query": query}, context(session="s"))
    assert answer == EverrunsToolSearch().search({"query": query}, context())
    assert len(answer["tools"]) <= everruns.MAX_RESULTS
    assert list(capability.reveals.get_names("s")) == answer.get("loaded", [])
    assert "tool_search" not in answer.get("loaded", [])


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.lists(st.sampled_from("xyz")))))
def test_sessions_are_bounded_and_reveals_only_grow(operations: list[tuple[str, list[str]]]) -> None:
    reveals = SessionReveals(max_sessions=3)
    for session, names in operations:
        before = reveals.get_names(session)
        reveals.reveal(session, names)
        assert reveals.get_names(session)[: len(before)] == before
        assert sum(bool(reveals.get_names(item)) for item in "abcdef") <= 3


@pytest.mark.parametrize(
    ("model", "who"),
    [(None, "generic"), ("gpt-5.4", "openai"), ("claude-opus-4-8", "anthropic"), ("gpt-4o", "generic")],
)
def test_auto_picks_exactly_one_mechanism(model: str | None, who: str) -> None:
    assert everruns.select_mechanism(model) == who


@pytest.mark.parametrize(
    ("provider", "model", "who"),
    [
        ("anthropic", "claude-opus-4-8", "anthropic"),
        ("openai", "gpt-5.4", "openai"),
        ("openai", "claude-opus-4-8", "none"),
        ("anthropic", "claude-3-5-haiku", "none"),
        ("openai", "openai/gpt-5.4", "none"),
        ("openai", None, "none"),
    ],
)
def test_hosted_search_is_none_on_unsupported_models(provider: str, model: str | None, who: str) -> None:
    assert everruns.select_standalone_mechanism(provider, model) == who
    if who == "none":
        # Nothing is deferred, without an error.
        assert stubbed_names(EverrunsToolSearch(threshold=0).advertise(KITCHEN, hosted_search=True)) == []
