from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import golden_vectors, load_golden
from toolcrib.adapters import anthropic
from toolcrib.core.tool import Tool
from toolcrib.errors import UnknownTool
from toolcrib.profiles import claude
from toolcrib.profiles.claude import BM25, EDITION_2025, EDITION_2026, REGEX, ClaudeToolSearch, Edition

READINGS = {"seed_name_or_description_case_sensitive": EDITION_2025, "current_all_fields_ignore_case": EDITION_2026}


def tool(name: str, description: str = "", **arguments: str) -> Tool:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    return Tool(name, description, {"type": "object", "properties": properties})


HARBOUR = [
    tool("moor_boat", "Tie a boat to the quay", berth="number painted on the Quay"),
    tool("Raise_sail", "Hoist the canvas", halyard="which rope"),
    tool("read_tide", "Tell when the water is high"),
    tool("log_weather", "", wind="force and direction"),
]
HARBOUR_NAMES = [item.name for item in HARBOUR]


def names(content: dict[str, Any]) -> list[str]:
    assert content["type"] == "tool_search_tool_search_result"
    assert all(item["type"] == "tool_reference" for item in content["tool_references"])
    return [item["tool_name"] for item in content["tool_references"]]


def error(content: dict[str, Any]) -> str:
    assert content["type"] == "tool_search_tool_result_error"
    assert content["error_message"]
    code: str = content["error_code"]
    return code


def by_pattern(pattern: object, edition: Edition = EDITION_2026, **more: Any) -> dict[str, Any]:
    return ClaudeToolSearch(HARBOUR, edition).search(REGEX, {"pattern": pattern, **more})


def by_words(query: object, edition: Edition = EDITION_2026, **more: Any) -> dict[str, Any]:
    return ClaudeToolSearch(HARBOUR, edition).search(BM25, {"query": query, **more})


# ------------------------------------------------------------------------------- golden vectors


def recorded_tools() -> list[Tool]:
    return [item for entry in load_golden("anthropic")["catalog"] for item in anthropic.tools_from_wire(entry)]


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "regex_vectors"))
@pytest.mark.parametrize("reading", READINGS)
def test_pattern_matches_the_recording(vector: dict[str, Any], reading: str) -> None:
    tools = recorded_tools()
    search = ClaudeToolSearch(tools, READINGS[reading])
    content = search.search(REGEX, {"pattern": vector["pattern"], "limit": len(tools)})
    expected = vector["expect"]
    if "error" not in expected:
        assert names(content) == expected[reading]
    elif READINGS[reading] is EDITION_2025:
        assert error(content) == expected["error"]
    else:
        assert error(content) in load_golden("anthropic")["blocks"]["error_codes_2026"]


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "regex_hazards"))
@pytest.mark.parametrize("edition", READINGS.values())
def test_catastrophic_pattern_is_answered(vector: dict[str, Any], edition: Edition) -> None:
    search = ClaudeToolSearch([Tool("hazard", vector["text"])], edition)
    content = search.search(REGEX, {"pattern": vector["pattern"]})
    if content["type"] == "tool_search_tool_result_error":
        assert error(content) == ("unavailable" if edition is EDITION_2025 else "execution_time_exceeded")


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "request_vectors"))
def test_refusal_matches_the_recording(vector: dict[str, Any]) -> None:
    names = vector.get("tool_result_references", [])
    edition = EDITION_2025 if "2025" in vector.get("reason", "") else EDITION_2026
    body = {"tools": vector["tools"], "messages": [client_side_result(*names)]}
    refused = claude.find_refusal(body, edition)
    assert (refused is None) == (vector["expect"] == "ok"), refused


def client_side_result(*names: str) -> dict[str, Any]:
    content = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}
    return {"role": "user", "content": [result]}


def history_bodies() -> list[dict[str, Any]]:
    """Return requests that contain a search in their history, in each possible form."""
    use, result = claude.render_blocks("srvtoolu_1", REGEX, {"pattern": "x"}, by_pattern("tide"))
    return [
        {"messages": [{"role": "assistant", "content": [use]}]},
        {"messages": [{"role": "assistant", "content": [result]}]},
        {"messages": [client_side_result("read_tide")]},
    ]


def bodies(described: str) -> list[dict[str, Any]]:
    """Return the requests that a recorded sentence describes; "same" means a search tool."""
    if "messages" in described:
        return history_bodies()
    if "defer_loading" in described:
        return [{"tools": [{"name": "x", "defer_loading": True}]}]
    if any(sign in described for sign in ("tool_search_tool", "same", "current")):
        return [{"tools": [{"type": name, "name": "x"}]} for name in claude.VARIANTS]
    return [{"tools": [{"name": "x"}]}]


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "beta_header_vectors"))
def test_beta_header_matches_the_recording(vector: dict[str, Any]) -> None:
    edition = EDITION_2026 if "current" in vector["body"] else EDITION_2025
    expected = vector.get("header", vector.get("adds"))
    for body in bodies(vector["body"]):
        headers = claude.beta_headers(body, vector["beta_provider"] or "", edition)
        assert headers == ((expected,) if expected else ())


def test_limits_codes_and_blocks_match_the_recording() -> None:
    limits, blocks = load_golden("anthropic")["limits"], load_golden("anthropic")["blocks"]
    assert claude.VARIANTS[REGEX].max_chars == limits["regex_pattern_chars"]
    assert claude.VARIANTS[BM25].max_chars == limits["bm25_query_chars"]
    assert limits["max_deferred_tools"] == claude.MAX_DEFERRED
    assert limits["default_results"] == claude.DEFAULT_LIMIT
    assert limits["limit_range"] == [1, claude.MAX_LIMIT]
    assert claude.VARIANTS[REGEX].keys[0] == blocks["input_keys"]["regex"]
    assert claude.VARIANTS[BM25].keys[0] == blocks["input_keys"]["bm25"]
    assert {*EDITION_2025.codes.values(), EDITION_2025.code} <= {*blocks["error_codes_2025"]}
    assert {*EDITION_2026.codes.values(), EDITION_2026.code} <= {*blocks["error_codes_2026"]}
    search = ClaudeToolSearch(recorded_tools()[:1])
    use = blocks["server_tool_use"]
    for title, input in (("result", use["input"]), ("no_match", {"pattern": "^$"})):
        content = search.search(use["name"], input)
        ours = claude.render_blocks(use["id"], use["name"], input, content)
        assert ours == [{**use, "input": input}, blocks[title]]
    assert search.search(REGEX, {"pattern": "("}).keys() == blocks["error"]["content"].keys()


# ------------------------------------------------------------------------------------ our cases


@pytest.mark.parametrize(
    ("pattern", "seed", "current"),
    [
        ("sail", ["Raise_sail"], ["Raise_sail"]),
        ("raise", [], ["Raise_sail"]),
        ("(?i)raise", ["Raise_sail"], ["Raise_sail"]),
        ("rope|painted", [], ["moor_boat", "Raise_sail"]),
        ("^wind$", [], ["log_weather"]),
        ("", HARBOUR_NAMES, HARBOUR_NAMES),
        ("^$", [], []),
    ],
)
def test_pattern_works_in_both_editions(pattern: str, seed: list[str], current: list[str]) -> None:
    assert names(by_pattern(pattern, EDITION_2025)) == seed
    assert names(by_pattern(pattern, EDITION_2026)) == current


@pytest.mark.parametrize("name", [REGEX, f"{REGEX}_20251119"])
def test_search_tool_is_found_by_name_and_type(name: str) -> None:
    assert names(ClaudeToolSearch(HARBOUR).search(name, {"pattern": "tide"})) == ["read_tide"]


def test_older_pattern_key_is_accepted() -> None:
    assert names(ClaudeToolSearch(HARBOUR).search(REGEX, {"query": "tide$"})) == ["read_tide"]


def test_another_name_is_not_a_search_tool() -> None:
    with pytest.raises(UnknownTool, match="tool_search_tool_bm25_20251119"):
        ClaudeToolSearch(HARBOUR).search("tool_search", {"query": "x"})


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("when is the water high?", "read_tide"),
        ("tie up the boat", "moor_boat"),
        ("direction of the wind", "log_weather"),
        ("ropes", "Raise_sail"),
        ('NOT boat OR ("water" AND', "moor_boat"),
        ("tide: -boat +high ^3 *", "read_tide"),
    ],
)
def test_bm25_ignores_punctuation(query: str, first: str) -> None:
    assert names(by_words(query))[0] == first


def test_2025_edition_does_not_search_parameters() -> None:
    assert names(by_words("direction of the wind", EDITION_2025)) == []
    assert names(by_words("boat", EDITION_2025)) == ["moor_boat"]


def test_nothing_found_is_a_result_without_references() -> None:
    empty = {"type": "tool_search_tool_search_result", "tool_references": []}
    assert by_pattern("xylophone") == by_words("xylophone") == by_words(" ?!") == empty
    assert ClaudeToolSearch([]).search(BM25, {"query": "boat"}) == empty


@pytest.mark.parametrize(("limit", "expected"), [(None, 5), (1, 1), (7, 7), (10_000, 8)])
def test_default_limit_is_five(limit: int | None, expected: int) -> None:
    search = ClaudeToolSearch([tool(f"boat_{number}") for number in range(8)])
    first = [f"boat_{number}" for number in range(expected)]
    assert names(search.search(REGEX, {"pattern": "boat", "limit": limit})) == first
    assert names(search.search(BM25, {"query": "boat", "limit": limit})) == first


@pytest.mark.parametrize("limit", [0, -1, 10_001, "3", 2.0, True])
def test_limit_out_of_range_is_an_error(limit: object) -> None:
    assert error(by_words("boat", limit=limit)) == "invalid_tool_input"
    assert error(by_pattern("boat", EDITION_2025, limit=limit)) == "invalid_pattern"


def test_bad_pattern_has_the_error_code_of_its_edition() -> None:
    assert error(by_pattern("(")) == "invalid_tool_input"
    assert error(by_pattern("(", EDITION_2025)) == "invalid_pattern"
    message = by_pattern("boat(")["error_message"]
    assert message.startswith("Invalid regular expression pattern: missing )")
    assert message.endswith(r"at position 4; escape it as \( or search with plain words")
    assert "simpler" in by_pattern("a{99999999999}")["error_message"]
    assert by_pattern("a{99999999999}")["error_code"] == "invalid_tool_input"


def test_lexical_search_can_be_replaced() -> None:
    queries: list[tuple[str, int]] = []

    def by_words(query: str, limit: int) -> list[Tool]:
        queries.append((query, limit))
        return [HARBOUR[2], HARBOUR[0]]

    search = ClaudeToolSearch(HARBOUR, lexical_search=by_words)
    assert names(search.search(BM25, {"query": "any", "limit": 1})) == ["read_tide"]
    assert names(search.search(REGEX, {"pattern": "boat"})) == ["moor_boat"]
    assert queries == [("any", 1)]


@pytest.mark.parametrize(("name", "most"), [(REGEX, 200), (BM25, 500)])
def test_query_length_limit_is_inclusive(name: str, most: int) -> None:
    key = claude.VARIANTS[name].keys[0]
    assert names(ClaudeToolSearch(HARBOUR).search(name, {key: "x" * most})) == []
    for edition, code in ((EDITION_2025, "pattern_too_long"), (EDITION_2026, "invalid_tool_input")):
        assert error(ClaudeToolSearch(HARBOUR, edition).search(name, {key: "x" * (most + 1)})) == code


@pytest.mark.parametrize("query", [None, 7, ["boat"]])
def test_query_that_is_not_a_string_is_an_error(query: object) -> None:
    assert error(by_pattern(query)) == error(by_words(query)) == "invalid_tool_input"
    content = ClaudeToolSearch(HARBOUR).search(REGEX, {})
    assert "'pattern'" in content["error_message"]


def test_pattern_over_its_time_budget_is_an_error() -> None:
    for edition, code in ((EDITION_2025, "unavailable"), (EDITION_2026, "execution_time_exceeded")):
        search = ClaudeToolSearch(HARBOUR, edition, clock=map(float, count()).__next__)
        assert error(search.search(REGEX, {"pattern": r"(\w)\1"})) == code


SEARCH_TOOL = {"type": f"{BM25}_20251119", "name": BM25}


def make_deferred_tool(name: str = "boat", **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}, "defer_loading": True, **more}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tools": [], "messages": []},
        {"tools": None, "messages": None},
        {"tools": [SEARCH_TOOL, make_deferred_tool()]},
        {"tools": [{**SEARCH_TOOL, "defer_loading": False}, make_deferred_tool()]},
        {"tools": [make_deferred_tool(), {"name": "quay"}]},
        {"tools": [{"name": "quay", "input_examples": [{}], "cache_control": {}}]},
        {"tools": [SEARCH_TOOL, make_deferred_tool()], "messages": [client_side_result("boat")]},
        {"tools": [SEARCH_TOOL, make_deferred_tool(input_examples=[{}])]},
        {"tools": [{"name": "x", "input_examples": [{}]}], **history_bodies()[0]},
        {
            "tools": [SEARCH_TOOL, {"type": "mcp_toolset", "mcp_server_name": "port"}],
            "messages": [client_side_result("port_boat")],
        },
        {"messages": [{"role": "user", "content": "boat"}, "boat"]},
        {"messages": [{"content": [{"type": "tool_result", "content": "boat"}, "boat"]}]},
        {"messages": [{"content": [{"type": "tool_search_tool_result", "content": None}]}]},
    ],
)
def test_valid_request_is_not_refused(body: dict[str, Any]) -> None:
    assert claude.find_refusal(body) is None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            {"tools": [make_deferred_tool("a"), make_deferred_tool("b")]},
            "At least one tool must have defer_loading=false. All tools cannot be deferred.",
        ),
        ({"tools": [{**SEARCH_TOOL, "defer_loading": True}, {"name": "b"}]}, "search tool"),
        (
            {"tools": [SEARCH_TOOL, make_deferred_tool(cache_control={})]},
            "Tool 'boat' cannot have both defer_loading=true and cache_control set. "
            "Tools with defer_loading cannot use prompt caching.",
        ),
        ({"tools": [SEARCH_TOOL, *(make_deferred_tool(str(n)) for n in range(10_001))]}, "10,001"),
        (
            {"tools": [SEARCH_TOOL], "messages": [client_side_result("boat")]},
            "Tool reference 'boat' not found in available tools",
        ),
        ({"tools": [SEARCH_TOOL], **history_bodies()[1]}, "'read_tide'"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(body: dict[str, Any], why: str) -> None:
    refused = claude.find_refusal(body)
    assert refused and why in refused.message
    assert refused.code == ("available_tools_limit_exceeded" if "10,001" in why else "")


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [SEARCH_TOOL, make_deferred_tool(input_examples=[{}])]},
        {"tools": [{"name": "x", "input_examples": [{}]}], **history_bodies()[0]},
    ],
)
def test_2025_edition_refuses_input_examples(body: dict[str, Any]) -> None:
    refused = claude.find_refusal(body, EDITION_2025)
    assert refused and "input_examples" in refused.message
    assert claude.find_refusal({"tools": [SEARCH_TOOL, make_deferred_tool()]}, EDITION_2025) is None


def test_references_of_the_history_are_unique_and_ordered() -> None:
    _, found = claude.render_blocks("srvtoolu_1", REGEX, {}, by_pattern("boat|tide"))
    messages = [client_side_result("quay"), {"content": [found]}, client_side_result("moor_boat")]
    assert claude.referenced_tool_names({"messages": messages}) == ["quay", "moor_boat", "read_tide"]


@pytest.mark.parametrize("body", [*history_bodies(), {"tools": [SEARCH_TOOL]}, {"tools": [make_deferred_tool()]}])
def test_only_the_2025_edition_needs_a_beta_header(body: dict[str, Any]) -> None:
    assert claude.beta_headers(body, edition=EDITION_2025) == ("advanced-tool-use-2025-11-20",)
    assert claude.beta_headers(body, "vertex", EDITION_2025) == ("tool-search-tool-2025-10-19",)
    assert claude.beta_headers(body, "bedrock", EDITION_2025) == ("tool-search-tool-2025-10-19",)
    assert claude.beta_headers(body) == ()


def test_request_without_tool_search_needs_no_header() -> None:
    own = {"type": "server_tool_use", "name": "web_search"}
    body = {"tools": [{"name": "x"}], "messages": [{"content": [own, {"type": "text"}]}]}
    assert claude.beta_headers(body, edition=EDITION_2025) == ()


pieces = st.sampled_from(["boat", "a", "[a-o]", ".", "+", "|", "^", "$", "(", ")", "*", "\\w", "?"])


@given(st.lists(pieces, max_size=6).map("".join))
def test_pattern_agrees_with_python_re_or_is_an_error(pattern: str) -> None:
    content = by_pattern(pattern, EDITION_2025)
    try:
        compiled = re.compile(pattern)
    except re.error:
        assert error(content) == "invalid_pattern"
        return
    texts = {item.name: [text for text in (item.name, item.description) if text] for item in HARBOUR}
    assert names(content) == [name for name in texts if any(map(compiled.search, texts[name]))]


@given(st.text(max_size=40))
def test_no_bm25_query_is_an_error(query: str) -> None:
    assert set(names(by_words(query))) <= set(HARBOUR_NAMES)


def test_malformed_requests_do_not_raise() -> None:
    assert claude.find_refusal({"tools": [{"name": []}, {"name": "a", "defer_loading": True}]}) is None
