from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import golden_vectors, load_golden
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.profiles import mcproxy, mcproxy_source
from toolcrib.profiles.mcproxy import (
    EMPTY_SESSION,
    SEARCH_TOOL_NAME,
    McproxyConfig,
    McproxyListing,
    McproxyReply,
    McproxySession,
    McproxyToolSearch,
    RpcError,
)
from toolcrib.profiles.mcproxy_source import SourceToolSearch

FARM = [
    Tool("barn___feed_cow", "Give hay to the cow"),
    Tool("barn___milk_cow", "Draw milk from the cow"),
    Tool("field___sow_wheat", "Put wheat into the ground"),
    Tool("field___cut_hay", "Mow the meadow for hay"),
    Tool("yard___lock_gate"),
    Tool("ring_bell", "Call everybody to the table"),
]
FARM_NAMES = [tool.name for tool in FARM]
BOTH = [McproxyToolSearch, SourceToolSearch]


def config(limit: int = 50, threshold: float = 0.0, **more: Any) -> McproxyConfig:
    return McproxyConfig(max_tools=limit, threshold=threshold, **more)


def names(tools: tuple[Tool, ...]) -> list[str]:
    return [tool.name for tool in tools]


def search_text(search: McproxyToolSearch, query: str, session: McproxySession = EMPTY_SESSION) -> McproxyReply:
    reply = search.search({"query": query}, session)
    assert isinstance(reply, McproxyReply)
    return reply


def found_names(query: str, variant: type[McproxyToolSearch] = McproxyToolSearch, **more: Any) -> list[str]:
    reply = search_text(variant(FARM, config(**more)), query)
    assert not reply.is_error
    return names(reply.session.exposed)


# ------------------------------------------------------------------------------- golden vectors


def recorded_tools(catalog: str) -> list[Tool]:
    listed_names = load_golden("mcproxy")["catalogs"][catalog]
    return [Tool(item["name"], item["description"] or "") for item in listed_names]


@pytest.mark.parametrize("vector", golden_vectors("mcproxy", "search_vectors"))
def test_source_search_matches_the_recording(vector: dict[str, Any]) -> None:
    search = SourceToolSearch(recorded_tools(vector["catalog"]), McproxyConfig.from_json(vector["config"]))
    reply = search.search(vector["arguments"])
    recorded = vector["output"]
    if "error" in recorded:
        assert isinstance(reply, RpcError)
        assert {"code": reply.code, "message": reply.message} == recorded["error"]
        return
    assert isinstance(reply, McproxyReply)
    if "panic" in recorded:
        # The program panics here; ours answers.
        assert not reply.is_error
        return
    assert [[tool.name, round(score, 4)] for tool, score in reply.matches] == recorded["raw"]
    assert reply.to_dict() == recorded["result"]
    assert names(reply.session.exposed) == vector["exposed_after"]
    question = mcproxy_source.parse_tantivy_query(vector["arguments"]["query"])
    if question is not None:
        assert ("quoted" if question.quoted else "parsed") == recorded["query_read_as"]


@pytest.mark.parametrize("vector", golden_vectors("mcproxy", "list_vectors"))
def test_source_list_matches_the_recording(vector: dict[str, Any]) -> None:
    session = EMPTY_SESSION
    tools: list[Tool] = []
    for (step, argument), recorded in zip(vector["steps"], vector["outputs"], strict=True):
        if step == "list":
            tools = recorded_tools(argument)
            listing = SourceToolSearch(tools, McproxyConfig.from_json(vector["config"])).list_tools(session)
            session = listing.session
            described = [item.description for item in listing.tools if item.name == SEARCH_TOOL_NAME]
            assert names(listing.tools) == recorded["tools"]
            description = recorded["search_tool_description"]
            assert described == ([] if description is None else [description])
        else:
            assert step == "search"
            search = SourceToolSearch(tools, McproxyConfig.from_json(vector["config"]))
            reply = search_text(search, argument, session)
            session = reply.session
            if "panic" not in recorded:
                assert reply.text == recorded["text"]
                assert reply.list_changed == recorded["list_changed_sent"]


@pytest.mark.parametrize("vector", golden_vectors("mcproxy", "seed_document", "selection"))
def test_documented_list_matches_the_page(vector: dict[str, Any]) -> None:
    tools = recorded_tools("gateway22")
    search = McproxyToolSearch(tools, McproxyConfig.from_json(vector["config"]), servers=vector.get("server_order", []))
    listing = search.list_tools()
    if "expect_tools" not in vector:
        assert vector["expect"] == "all tools, no search tool"
        assert names(listing.tools) == [tool.name for tool in tools]
        return
    assert names(listing.tools) == vector["expect_tools"]
    template = load_golden("mcproxy")["seed_document"]["search_tool"]["description"]
    assert listing.tools[-1].description == template.replace("<hidden>", str(vector["hidden"]))


def test_texts_of_both_variants_match_the_recording() -> None:
    system = load_golden("mcproxy")
    page = system["seed_document"]
    assert SourceToolSearch([]).build_search_tool(1).input_schema == system["search_tool_schema"]
    ours = McproxyToolSearch([]).build_search_tool(1)
    assert ours.name == page["search_tool"]["name"]
    query = ours.input_schema["properties"]["query"]
    assert query["description"] == page["search_tool"]["query_description"]
    text = McproxyToolSearch([]).render_found("", [Tool("<name>", "<description>")] * 2)
    assert text == page["result_text"].replace("<n>", "2")
    # The recording lacks the symbol and the indentation of the page.
    lines = [line.format_map(Placeholders()).lstrip("🔍 ") for line in mcproxy.DEBUG_LINES]
    assert lines == page["debug_lines"]
    assert McproxyConfig.from_json(system["defaults"]) == McproxyConfig()


class Placeholders(dict[str, str]):
    """Provides a placeholder for every value of a debug line."""

    def __missing__(self, key: str) -> str:
        return "<q>" if key == "query" else "<n>"


# -------------------------------------------------------------------------------- configuration


def test_configuration_is_read_from_its_json_form() -> None:
    read = McproxyConfig.from_json(
        {"enabled": False, "maxToolsLimit": 7, "searchThreshold": 1, "toolSelectionOrder": ["random"], "debug": True}
    )
    assert read == McproxyConfig(False, 7, 1, ("random",), True)
    assert McproxyConfig.from_json(None) == McproxyConfig.from_json({}) == McproxyConfig()


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ([], "config"),
        ({"enabled": 1}, "enabled"),
        ({"enabled": None}, "enabled"),
        ({"maxToolsLimit": -1}, "maxToolsLimit"),
        ({"maxToolsLimit": 2.0}, "maxToolsLimit"),
        ({"maxToolsLimit": True}, "maxToolsLimit"),
        ({"searchThreshold": "0.1"}, "searchThreshold"),
        ({"searchThreshold": False}, "searchThreshold"),
        ({"searchThreshold": float("nan")}, "searchThreshold"),
        ({"toolSelectionOrder": "random"}, "toolSelectionOrder"),
        ({"toolSelectionOrder": [1]}, "toolSelectionOrder"),
        ({"debug": "yes"}, "debug"),
    ],
)
def test_configuration_of_wrong_type_names_the_key(wrong: object, key: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{key} must be"):
        McproxyConfig.from_json(wrong)


@pytest.mark.parametrize(
    ("name", "server"),
    [("a___b", "a"), ("a___b___c", "a"), ("plain", "unknown"), ("___b", "unknown"), ("a__b", "unknown")],
)
def test_server_is_the_part_before_the_first_separator(name: str, server: str) -> None:
    assert mcproxy.server_from_name(name) == server
    assert next(iter(McproxyToolSearch([Tool(name)]).catalog)).server == server


def test_tool_with_server_is_listed_under_its_public_name() -> None:
    listing = McproxyToolSearch([Tool("feed_cow", server="barn")]).list_tools()
    assert names(listing.tools) == ["barn___feed_cow"]


# -------------------------------------------------------------------------------------- listing


@pytest.mark.parametrize("variant", BOTH)
@pytest.mark.parametrize("settings", [config(6), config(7), config(2, enabled=False)])
def test_few_tools_or_a_disabled_middleware_hide_nothing(
    variant: type[McproxyToolSearch], settings: McproxyConfig
) -> None:
    assert variant(FARM, settings).list_tools() == McproxyListing(tuple(variant(FARM).catalog), EMPTY_SESSION)


def test_servers_come_in_the_order_of_the_configuration_or_of_their_names() -> None:
    settings = config(3)
    servers = ["field", "yard"]
    ours = McproxyToolSearch(FARM, settings, servers=servers).list_tools()
    assert names(ours.tools) == ["field___cut_hay", "field___sow_wheat", "yard___lock_gate", SEARCH_TOOL_NAME]
    theirs = SourceToolSearch(FARM, settings, servers=servers).list_tools()
    assert names(theirs.tools) == ["barn___feed_cow", "barn___milk_cow", "field___cut_hay", SEARCH_TOOL_NAME]
    for listing in (ours, theirs):
        assert "3 additional" in listing.tools[-1].description


def test_unconfigured_servers_come_last_in_order_of_appearance() -> None:
    listing = McproxyToolSearch(FARM, config(4), servers=["yard"]).list_tools()
    assert [tool.server for tool in listing.tools[:-1]] == ["yard", "barn", "barn", "field"]


def test_first_strategy_decides_in_documented_and_last_in_source() -> None:
    # A tool without a prefix belongs to the server `unknown`, so the two orders differ.
    tools = [Tool("z___1"), Tool("q___1"), Tool("plain"), Tool("z___0")]

    def order(variant: type[McproxyToolSearch], *strategies: str) -> list[str]:
        search = variant(tools, McproxyConfig(selection_order=strategies), servers=["z", "unknown", "q"])
        return [tool.name for tool in search.order_tools()]

    by_configuration = ["z___0", "z___1", "plain", "q___1"]
    by_server_name = ["q___1", "plain", "z___0", "z___1"]
    by_name = ["plain", "q___1", "z___0", "z___1"]
    assert order(McproxyToolSearch, "server_priority", "alphabetical") == by_configuration
    assert order(McproxyToolSearch, "alphabetical", "server_priority") == by_name
    assert order(SourceToolSearch, "server_priority", "alphabetical") == by_name
    assert order(SourceToolSearch, "alphabetical", "server_priority") == by_server_name


def test_unknown_strategies_are_ignored() -> None:
    unknown = McproxyConfig(selection_order=("usage_frequency", "phase_of_the_moon"))
    assert [tool.name for tool in McproxyToolSearch(FARM, unknown).order_tools()] == sorted(FARM_NAMES)
    assert [tool.name for tool in SourceToolSearch(FARM, unknown).order_tools()] == FARM_NAMES
    random = McproxyConfig(selection_order=("random",))
    assert [tool.name for tool in SourceToolSearch(FARM, random).order_tools()] == FARM_NAMES


def test_random_selection_depends_on_the_seed_alone() -> None:
    settings = McproxyConfig(selection_order=("random",))

    def order(seed: int, tools: list[Tool] = FARM) -> list[str]:
        return [tool.name for tool in McproxyToolSearch(tools, settings, seed=seed).order_tools()]

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(9)}) > 1
    without = [name for name in order(1) if name != "ring_bell"]
    assert order(1, [tool for tool in FARM if tool.name != "ring_bell"]) == without


def test_limit_0_disables_documented_search_and_hides_all_in_source() -> None:
    none = config(0)
    ours = McproxyToolSearch(FARM, none)
    assert names(ours.list_tools().tools) == FARM_NAMES
    assert ours.search({"query": "hay"}) == RpcError(-32603, mcproxy.SEARCH_OFF)
    theirs = SourceToolSearch(FARM, none)
    assert names(theirs.list_tools().tools) == [SEARCH_TOOL_NAME]
    # The program panics here: "Limit must be strictly greater than 0."
    assert len(search_text(theirs, "hay").matches) == 2


def test_list_follows_the_catalog_in_documented_and_is_frozen_in_source() -> None:
    settings, fewer = config(2), FARM[3:]
    for variant, later in ((McproxyToolSearch, FARM_NAMES[3:5]), (SourceToolSearch, FARM_NAMES[:2])):
        first = variant(FARM, settings).list_tools()
        assert names(first.tools) == [*FARM_NAMES[:2], SEARCH_TOOL_NAME]
        second = variant(fewer, settings).list_tools(first.session)
        assert names(second.tools) == [*later, SEARCH_TOOL_NAME]
        hidden = 1 if variant is McproxyToolSearch else 4
        assert f"{hidden} additional" in second.tools[-1].description


def test_removed_tools_are_not_listed() -> None:
    settings = config(2)
    hay = search_text(McproxyToolSearch(FARM, settings), "hay").session
    assert len(hay.exposed) == 2
    without_field = McproxyToolSearch([*FARM[:2], *FARM[4:]], settings).list_tools(hay)
    assert names(without_field.tools) == ["barn___feed_cow", SEARCH_TOOL_NAME]
    without_hay = McproxyToolSearch([FARM[1], *FARM[4:]], settings).list_tools(hay)
    assert names(without_hay.tools) == ["barn___milk_cow", "yard___lock_gate", SEARCH_TOOL_NAME]


@pytest.mark.parametrize("variant", BOTH)
def test_search_replaces_the_list_of_its_own_session(variant: type[McproxyToolSearch]) -> None:
    search = variant(FARM, config(2))
    before = search.list_tools()
    reply = search_text(search, "wheat", before.session)
    assert reply.list_changed
    after = search.list_tools(reply.session)
    assert names(after.tools) == ["field___sow_wheat", SEARCH_TOOL_NAME]
    assert "5 additional" in after.tools[-1].description
    assert search.list_tools(after.session) == after
    assert search.list_tools() == before


def test_search_among_few_tools_hides_others_only_in_source() -> None:
    for variant, visible in ((McproxyToolSearch, FARM_NAMES), (SourceToolSearch, ["ring_bell", SEARCH_TOOL_NAME])):
        search = variant(FARM, config(6))
        reply = search_text(search, "table")
        assert names(search.list_tools(reply.session).tools) == visible


def test_hidden_count_is_never_negative() -> None:
    listing = SourceToolSearch(FARM[:1], config(2)).list_tools(McproxySession(tuple(FARM[:3])))
    assert "0 additional" in listing.tools[-1].description


# -------------------------------------------------------------------------------------- search


@pytest.mark.parametrize("variant", BOTH)
@pytest.mark.parametrize("arguments", [{}, {"query": None}, {"query": 7}, {"text": "hay"}])
def test_call_without_a_query_is_an_rpc_error(variant: type[McproxyToolSearch], arguments: dict[str, Any]) -> None:
    assert variant(FARM).search(arguments) == RpcError(-32602, mcproxy.QUERY_MISSING)


@pytest.mark.parametrize("variant", BOTH)
def test_call_to_a_disabled_middleware_is_an_rpc_error(variant: type[McproxyToolSearch]) -> None:
    reply = variant(FARM, config(enabled=False)).search({"query": "hay"})
    assert reply == RpcError(-32603, mcproxy.SEARCH_OFF)


@pytest.mark.parametrize("variant", BOTH)
@pytest.mark.parametrize("query", ["tractor", "", "  ", "tractor ?"])
def test_no_match_is_reported_and_changes_nothing(variant: type[McproxyToolSearch], query: str) -> None:
    before = McproxySession(tuple(FARM[:1]))
    reply = search_text(variant(FARM), query, before)
    assert reply.text == f"No tools found matching '{query}'. Try a different search term."
    assert reply.to_dict() == {"content": [{"type": "text", "text": reply.text}], "isError": False}
    assert (reply.list_changed, reply.session) == (True, before)


def test_found_text_differs_by_variant() -> None:
    tools = (Tool("yard___lock_gate"), Tool("yard___open_gate", "Let {people} in"))
    assert McproxyToolSearch([]).render_found("gate", tools) == (
        "Found 2 matching tools:\n\n1. yard___lock_gate\n2. yard___open_gate - Let {people} in"
    )
    assert SourceToolSearch([]).render_found("{gate}", tools) == (
        "Found 2 tool(s) matching '{gate}':\n\n1. **yard___lock_gate**\n\n"
        f"2. **yard___open_gate**\n   Let {{people}} in\n\n{mcproxy_source.NOW_AVAILABLE}"
    )


@pytest.mark.parametrize(
    ("query", "ours", "theirs"),
    [
        # A prefix matches, although Tantivy drops the star.
        ("whe*", ["field___sow_wheat"], []),
        ("wheat*", ["field___sow_wheat"], ["field___sow_wheat"]),
        # Negation excludes tools; a query that Tantivy cannot parse is searched as a phrase.
        ("-cow", FARM_NAMES[2:], ["barn___feed_cow", "barn___milk_cow"]),
        ("-cow -hay", ["field___sow_wheat", "yard___lock_gate", "ring_bell"], []),
        ("server:yard", ["yard___lock_gate"], ["yard___lock_gate"]),
        ("server:unknown", ["ring_bell"], ["ring_bell"]),
        ("name:lock AND gate", ["yard___lock_gate"], ["yard___lock_gate"]),
        ('description:"wheat into"', ["field___sow_wheat"], ["field___sow_wheat"]),
        ('"milk from"', ["barn___milk_cow"], ["barn___milk_cow"]),
        ("+hay mow", ["field___cut_hay", "barn___feed_cow"], ["field___cut_hay", "barn___feed_cow"]),
    ],
)
def test_query_syntax_differs_by_variant(query: str, ours: list[str], theirs: list[str]) -> None:
    assert found_names(query, McproxyToolSearch) == ours
    assert found_names(query, SourceToolSearch) == theirs


def test_invalid_query_is_an_error_with_advice_in_documented() -> None:
    before = McproxySession(tuple(FARM[:1]))
    reply = search_text(McproxyToolSearch(FARM), "cow AND", before)
    assert reply.is_error and "finish it" in reply.text
    assert (reply.session, reply.list_changed) == (before, False)
    assert found_names("(cow", SourceToolSearch) == ["barn___feed_cow", "barn___milk_cow"]


def test_threshold_is_a_share_in_documented_and_a_tenth_of_raw_score_in_source() -> None:
    two = [Tool("barn___feed_cow", "Give hay"), Tool("yard___lock_gate", "Bar the way")]
    settings = McproxyConfig(threshold=0.1)
    perfect = search_text(McproxyToolSearch(two, settings), "cow")
    assert perfect.matches[0].score > 0.4
    assert names(perfect.session.exposed) == ["barn___feed_cow"]
    dropped = search_text(SourceToolSearch(two, settings), "cow")
    assert 0.5 < dropped.matches[0].score < 1.0
    assert dropped.session.exposed == ()
    assert found_names("cow", threshold=1.01) == []


@pytest.mark.parametrize("variant", BOTH)
def test_results_are_limited_before_the_threshold(variant: type[McproxyToolSearch]) -> None:
    assert len(search_text(variant(FARM, config(2)), "*").matches) == 2
    assert len(search_text(variant(FARM, config(20_000)), "*").matches) == len(FARM)


@pytest.mark.parametrize("variant", BOTH)
def test_debug_lines_describe_the_search_if_enabled(variant: type[McproxyToolSearch]) -> None:
    ticks = iter([1.0, 1.0024])
    search = variant(FARM, config(threshold=1e9, debug=True), clock=lambda: next(ticks))
    assert search_text(search, "hay").debug == (
        '🔍 Tool search query: "hay"',
        "   Index size: 6 tools",
        "   Matches before threshold: 2",
        "   Matches after threshold: 0",
        "   Search time: 2ms",
    )
    assert search_text(variant(FARM), "hay").debug == ()


@pytest.mark.parametrize("variant", BOTH)
def test_empty_catalog_is_listed_and_searched(variant: type[McproxyToolSearch]) -> None:
    assert variant([]).list_tools().tools == ()
    for query in ("hay", "name:hay", "*"):
        assert search_text(variant([], config()), query).matches == ()


# ----------------------------------------------------------------------------------- properties


words = st.sampled_from(["cow", "hay", "AND", "NOT", "(", ")", '"', "-", "+", "*", "name:", "^2", "?"])
queries = st.lists(words, max_size=5).map(" ".join) | st.text(max_size=8)


@given(st.lists(queries, max_size=4), st.integers(0, 8), st.sampled_from(BOTH))
def test_lists_stay_within_the_limit_and_sessions_are_isolated(
    requested: list[str], limit: int, variant: type[McproxyToolSearch]
) -> None:
    search = variant(FARM, config(limit))
    untouched = search.list_tools()
    session = EMPTY_SESSION
    for query in requested:
        reply = search.search({"query": query}, session)
        if isinstance(reply, McproxyReply):
            session = reply.session
            assert len(reply.matches) <= (limit or len(FARM))
        visible = search.list_tools(session).tools
        assert len(set(names(visible))) == len(visible)
        assert all(tool.id in search.catalog or tool == visible[-1] for tool in visible)
    assert search.list_tools() == untouched


def test_middleware_entry_is_read_with_its_wrapper() -> None:
    entry = {"type": "tool_search", "enabled": False, "config": {"maxToolsLimit": 7}}
    assert McproxyConfig.from_json(entry) == McproxyConfig(enabled=False, max_tools=7)
    assert McproxyConfig.from_json({"type": "tool_search"}) == McproxyConfig()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"maxTools": 7}, "unknown key 'maxTools'; the keys are enabled, maxToolsLimit"),
        (
            {"type": "tool_search", "maxToolsLimit": 7},
            "unknown key 'maxToolsLimit'; the keys are type, enabled, config",
        ),
        ({"type": "logging", "config": {}}, "the middleware is 'logging'; its type must be \"tool_search\""),
        ({"type": "tool_search", "enabled": 1}, "enabled must be true or false"),
    ],
)
def test_unknown_key_of_a_configuration_is_an_error(config: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        McproxyConfig.from_json(config)
