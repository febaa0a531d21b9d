"""Requests as they are rewritten for an upstream without tool search."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.llm.anthropic.requests import BM25, HARBOUR, REGEX, tool, tool_result_message, user_message
from toolcrib.config.settings import LlmGatewayConfig, LlmSearchRanking
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic.endpoint import check_request, drop_stale_references
from toolcrib.gateway.llm.anthropic.history import make_server_id, render_plain_messages
from toolcrib.gateway.llm.anthropic.server_search import ServerSearchRewriter
from toolcrib.gateway.llm.anthropic.tools import build_search_index, has_deferred_tools, index_entries, parse_tools
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.tools.tool_index import ToolIndex


def build_rewriter(body: dict[str, Any], ranking: LlmSearchRanking = "exact", rounds: int = 10) -> ServerSearchRewriter:
    parsed = parse_tools(body)
    check_request(body, parsed, 10_000)
    index = build_search_index(parsed, ranking)
    return ServerSearchRewriter(body, parsed, index, ranking, rounds)


def search_blocks(id: str, *names: str, **more: Any) -> list[dict[str, Any]]:
    """Return the two blocks of a search."""
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    content = {"type": "tool_search_tool_search_result", "tool_references": references}
    return [
        {"type": "server_tool_use", "id": id, "name": REGEX["name"], "input": {"pattern": "x"}},
        {"type": "tool_search_tool_result", "tool_use_id": id, "content": content, **more},
    ]


def assistant_message(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def outline(messages: list[Any]) -> list[tuple[str, list[str]]]:
    return [
        (item["role"], [block["type"] for block in item["content"]])
        for item in messages
        if isinstance(item["content"], list)
    ]


def render_plain(*messages: Any) -> list[Any]:
    plain: list[Any] = render_plain_messages(list(messages), lambda name: "")
    return plain


def test_search_becomes_tool_use_and_tool_result() -> None:
    text = {"type": "text", "text": "Hm."}
    plain = render_plain(user_message("Go"), assistant_message(text, *search_blocks("srvtoolu_1", "a"), text))
    assert outline(plain) == [("assistant", ["text", "tool_use"]), ("user", ["tool_result"]), ("assistant", ["text"])]
    assert plain[1]["content"][1]["id"] == plain[2]["content"][0]["tool_use_id"] == "toolu_1"


def test_user_message_after_paused_turn_follows_search_result() -> None:
    plain = render_plain(
        user_message("Go"),
        assistant_message(*search_blocks("srvtoolu_1")),
        {"role": "user", "content": [{"type": "text"}]},
    )
    assert outline(plain) == [("assistant", ["tool_use"]), ("user", ["tool_result", "text"])]


def test_delayed_search_result_joins_client_results() -> None:
    use, answer = search_blocks("srvtoolu_1", "a")
    client = {"type": "tool_use", "id": "toolu_2", "name": "b", "caller": {"type": "direct"}}
    plain = render_plain(
        user_message("Go"),
        assistant_message(client, use),
        tool_result_message("toolu_2"),
        assistant_message(answer, client),
    )
    assert outline(plain) == [
        ("assistant", ["tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result"]),
        ("assistant", ["tool_use"]),
    ]
    assert "caller" not in json.dumps(plain)


def test_errors_and_cache_breakpoints_are_kept() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    use, answer = search_blocks("srvtoolu_1", "a", cache_control=mark)
    failed = {"type": "tool_search_tool_result_error", "error_code": "unavailable"}
    wrong = {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_2", "content": failed}
    reference = {"type": "tool_reference", "tool_name": "a", "cache_control": mark}
    plain = render_plain(
        assistant_message({**use, "cache_control": mark}, answer, wrong), tool_result_message("toolu_9", [reference])
    )
    assert plain[0]["content"][0]["cache_control"] == mark
    first, second, third = plain[1]["content"]
    assert first["cache_control"] == mark and "is_error" not in first
    assert (second["content"], second["is_error"]) == ("unavailable", True)
    assert third["content"][0]["cache_control"] == mark and third["content"][0]["type"] == "text"


def test_each_round_starts_with_same_bytes_as_previous_round() -> None:
    mark = {"type": "ephemeral"}
    body: dict[str, Any] = {
        "model": "m",
        "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
        "messages": [user_message("Go")],
        "tools": [{**REGEX, "cache_control": mark}, tool("bell"), *HARBOUR],
    }
    rewriter = build_rewriter(body)
    sent = [rewriter.next_request()]
    for number, pattern in enumerate(("tide", "boat")):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": REGEX["name"]}
        block = rewriter.convert_block({**call, "input": {"pattern": pattern}})
        rewriter.add_results([block], rewriter.run_searches([block]))
        sent.append(rewriter.next_request())
    answers = [item["content"][0] for item in sent[2]["messages"] if item["role"] == "user"][1:]
    # The client uses two of four breakpoints, so both results get one.
    assert [item["cache_control"] for item in answers] == [mark, mark]
    for first, second in pairwise(sent):
        for part in ("tools", "messages"):
            assert _without_breakpoints(second[part])[: len(first[part])] == _without_breakpoints(first[part])
    content = json.loads(json.dumps(rewriter.content))
    following = build_rewriter(
        {**body, "messages": [*body["messages"], assistant_message(*content), user_message("On")]}
    )
    *before, last = _without_breakpoints(following.next_request()["messages"])
    *earlier, results = _without_breakpoints(sent[2]["messages"])
    assert before == earlier
    assert last["content"] == [*results["content"], {"type": "text", "text": "On"}]
    assert following.next_request()["tools"] == sent[2]["tools"]


def _without_breakpoints(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_breakpoints(item) for item in value]
    if isinstance(value, dict):
        return {k: _without_breakpoints(v) for k, v in value.items() if k != "cache_control"}
    return value


def test_no_breakpoints_are_added_unless_client_uses_them() -> None:
    rewriter = build_rewriter({"messages": [user_message("Go")], "tools": [REGEX, *HARBOUR]})
    block = rewriter.convert_block({"type": "tool_use", "id": "toolu_1", "name": REGEX["name"], "input": {}})
    rewriter.add_results([block], rewriter.run_searches([block]))
    assert "cache_control" not in json.dumps(rewriter.next_request())


def test_forced_search_is_forced_only_once() -> None:
    choice = {"type": "tool", "name": REGEX["name"], "disable_parallel_tool_use": True}
    body = {"messages": [user_message("Go")], "tools": [REGEX, *HARBOUR], "tool_choice": choice}
    rewriter = build_rewriter(body)
    assert rewriter.next_request()["tool_choice"] == choice
    block = rewriter.convert_block({"type": "tool_use", "id": "toolu_1", "name": REGEX["name"], "input": {}})
    rewriter.add_results([block], rewriter.run_searches([block]))
    later = rewriter.next_request()["tool_choice"]
    assert later == {"type": "auto", "disable_parallel_tool_use": True}


def test_forced_tool_is_sent() -> None:
    choice = {"type": "tool", "name": "read_tide"}
    body = {"messages": [user_message("Go")], "tools": [REGEX, *HARBOUR], "tool_choice": choice}
    assert [item["name"] for item in build_rewriter(body).sent_entries] == [REGEX["name"], "read_tide"]


def test_searches_over_limit_per_round_get_error() -> None:
    rewriter = build_rewriter({"messages": [user_message("Go")], "tools": [REGEX, *HARBOUR]})
    calls = [
        rewriter.convert_block({"type": "tool_use", "id": "same", "name": REGEX["name"], "input": {}})
        for _ in range(10)
    ]
    assert len({call["id"] for call in calls}) == 10
    codes = [item["content"].get("error_code") for item in rewriter.run_searches(calls)]
    assert codes == ["invalid_tool_input"] * 8 + ["too_many_requests"] * 2


@pytest.mark.parametrize(
    ("ranking", "call", "first"),
    [
        ("default", (REGEX, {"pattern": "canvas"}), ["raise_sail"]),
        ("exact", (BM25, {"query": "high water"}), ["read_tide"]),
        ("hybrid", (REGEX, {"pattern": "^canvas$"}), ["raise_sail"]),
        ("hybrid", (REGEX, {"pattern": "sail|boat", "limit": 1}), ["moor_boat"]),
        ("hybrid", (REGEX, {"pattern": "("}), None),
        ("default", (BM25, {"query": "hoist the canvas", "limit": 1}), ["raise_sail"]),
    ],
)
def test_search_setting_selects_ranking(
    ranking: LlmSearchRanking, call: tuple[dict[str, str], dict[str, Any]], first: list[str] | None
) -> None:
    rewriter = build_rewriter({"messages": [user_message("Go")], "tools": [REGEX, BM25, *HARBOUR]}, ranking)
    entry, input = call
    block = {"id": "srvtoolu_1", "name": entry["name"], "input": input}
    content = rewriter.run_searches([block])[0]["content"]
    names = [item["tool_name"] for item in content.get("tool_references", [])]
    assert names[:1] == (first or [])
    assert ("error_code" in content) == (first is None)


LISTED = {
    "type": "mcp_toolset",
    "mcp_server_name": "cal",
    "default_config": {"enabled": True, "defer_loading": True},
    "configs": {"now": {"defer_loading": False}, "wipe": {"enabled": False}},
    "tools": [
        {"name": "now", "description": "The time", "input_schema": {}},
        {"name": "book", "description": "Book a meeting room", "input_schema": {}},
        {"name": "wipe", "description": "Delete a meeting room", "input_schema": {}},
    ],
}


def test_deferred_mcp_tools_are_disabled_until_found() -> None:
    body = {"messages": [user_message("Go")], "tools": [REGEX, LISTED]}
    assert has_deferred_tools(LISTED) and not has_deferred_tools({**LISTED, "default_config": {}})
    rewriter = build_rewriter(body)
    _, toolset = rewriter.next_request()["tools"]
    assert toolset["configs"] == {"now": {}, "wipe": {"enabled": False}, "book": {"enabled": False}}
    assert toolset["default_config"] == {"enabled": True}
    block = {"id": "srvtoolu_1", "name": REGEX["name"], "input": {"pattern": "room"}}
    (answer,) = rewriter.run_searches([block])
    assert [item["tool_name"] for item in answer["content"]["tool_references"]] == ["cal_book"]
    rewriter.add_results([{"type": "server_tool_use", **block}], [answer])
    _, toolset = rewriter.next_request()["tools"]
    assert toolset["configs"] == {"now": {}, "wipe": {"enabled": False}}
    assert LISTED["configs"] == {"now": {"defer_loading": False}, "wipe": {"enabled": False}}


def test_unlisted_mcp_tools_stay_enabled() -> None:
    unlisted = {key: value for key, value in LISTED.items() if key != "tools"}
    rewriter = build_rewriter({"messages": [user_message("Go")], "tools": [REGEX, unlisted]})
    _, toolset = rewriter.next_request()["tools"]
    assert toolset["configs"] == {"now": {}, "wipe": {"enabled": False}}
    assert "defer_loading" not in json.dumps(toolset)


def test_defer_loading_in_custom_object_is_supported() -> None:
    custom = {**tool("flag"), "custom": {"defer_loading": True}}
    shown = {**tool("lamp"), "custom": {"defer_loading": False, "x": 1}}
    rewriter = build_rewriter({"messages": [user_message("Go")], "tools": [REGEX, custom, shown]})
    assert [item["name"] for item in rewriter.sent_entries] == [REGEX["name"], "lamp"]
    assert rewriter.sent_entries[1]["custom"] == {"x": 1}


def test_stale_references_are_dropped() -> None:
    body = {
        "tools": [REGEX, *HARBOUR],
        "messages": [
            user_message("Go"),
            assistant_message(*search_blocks("srvtoolu_1", "read_tide", "lost")),
            tool_result_message("toolu_1", [{"type": "tool_reference", "tool_name": "lost"}]),
        ],
    }
    parsed = parse_tools(body)
    with pytest.raises(RequestFailed, match="'lost'"):
        check_request(body, parsed, 9)
    pruned = drop_stale_references(body, parsed)
    check_request(pruned, parsed, 9)
    assert "lost" not in json.dumps(pruned) and "read_tide" in json.dumps(pruned)
    assert drop_stale_references(pruned, parsed) == pruned


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (
            [tool_result_message("toolu_1", [{"type": "tool_reference", "tool_name": "read_tide"}, {"type": "text"}])],
            "mixed",
        ),
        (
            [
                assistant_message(
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": REGEX["name"], "input": {"query": "x"}},
                    search_blocks("srvtoolu_1")[1],
                )
            ],
            "takes `pattern`",
        ),
        (
            [assistant_message({**search_blocks("srvtoolu_1")[0], "name": BM25["name"]})],
            "but no `tool_search_tool_bm25`",
        ),
    ],
)
def test_invalid_history_is_refused(messages: list[Any], message: str) -> None:
    body = {"tools": [REGEX, *HARBOUR], "messages": [user_message("Go"), *messages]}
    with pytest.raises(RequestFailed, match=message):
        check_request(body, parse_tools(body), 9)


def test_usage_of_rounds_is_added() -> None:
    rewriter = build_rewriter({"messages": [user_message("Go")], "tools": [REGEX, *HARBOUR]})
    rewriter.add_usage({"input_tokens": 5, "output_tokens": 1}, {"output_tokens": 7, "cache": {"a": 1}})
    rewriter.add_usage({"input_tokens": 3, "tier": "x", "list": [1]}, {"cache": {"a": 2, "b": None}})
    rewriter.add_usage(None, {"tier": "y", "list": [2], "input_tokens": None})
    assert rewriter.usage == {
        "input_tokens": 8,
        "output_tokens": 7,
        "cache": {"a": 3, "b": None},
        "tier": "y",
        "list": [1, 2],
    }
    block = rewriter.convert_block({"type": "tool_use", "id": "toolu_1", "name": REGEX["name"]})
    rewriter.add_results([block], rewriter.run_searches([block]))
    assert "server_tool_use" in rewriter.usage


def test_tool_indexes_are_cached_up_to_limit() -> None:
    async def run() -> None:
        gateway = LlmGateway(LlmGatewayConfig(engine_cache=2))
        await gateway.open()

        async def get(tools: list[dict[str, Any]]) -> ToolIndex:
            build = partial(build_search_index, parse_tools({"tools": tools}), "exact")
            return await gateway.get_tool_index(tools, build)

        first = await get(HARBOUR)
        assert await get(deepcopy(HARBOUR)) is first
        changed = [{**HARBOUR[0], "description": "?"}, *HARBOUR[1:]]
        assert await get(changed) is not first
        other = await get(HARBOUR[:2])
        await get(HARBOUR[:3])
        assert await get(HARBOUR[:2]) is other
        assert await get(HARBOUR) is not first
        await gateway.close()

    asyncio.run(run())


def test_invalid_entries_are_not_indexed() -> None:
    entries: list[dict[str, Any]] = [{"name": 7}, {"name": "a\nb"}, {"name": "bell", "input_schema": 3}, {}]
    assert [item.tool.name for item in index_entries(entries, ())] == ["bell"]


def test_server_ids_have_format_of_api() -> None:
    assert make_server_id("toolu_01Ab") == "srvtoolu_01Ab"
    other = make_server_id("call_7")
    assert other.startswith("srvtoolu_01") and len(other) == 33 and other == make_server_id("call_7")
    assert make_server_id("call_7", {other}) not in ("", other)


keys = st.sampled_from(
    [
        "type",
        "name",
        "id",
        "content",
        "role",
        "input",
        "tool_use_id",
        "tool_references",
        "tool_name",
        "custom",
        "defer_loading",
        "configs",
        "default_config",
        "tools",
        "mcp_server_name",
        "cache_control",
        "caller",
        "input_schema",
        "description",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
words = st.sampled_from(
    [
        "assistant",
        "user",
        "tool_use",
        "tool_result",
        "tool_reference",
        "server_tool_use",
        "tool_search_tool_result",
        "tool_search_tool_search_result",
        "tool_search_tool_regex",
        "tool_search_tool_bm25_20251119",
        "mcp_toolset",
        "srvtoolu_1",
        True,
    ]
)
objects = st.dictionaries(keys, values | words, max_size=6)
odd = st.recursive(
    objects | values | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(odd, max_size=5) | odd, st.lists(odd, max_size=5) | odd)
def test_arbitrary_requests_are_rewritten_or_refused(messages: Any, tools: Any) -> None:
    body = {"messages": messages, "tools": tools}
    before = deepcopy(body)
    try:
        rewriter = build_rewriter(body)
    except RequestFailed as refused:
        assert refused.status == 400
        return
    calls = rewriter.list_pending_searches()
    rewriter.add_results((), rewriter.run_searches(calls))
    json.dumps(rewriter.next_request())
    assert body == before
