"""Tool search as in the API, tested with the official client."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.gateway.llm.anthropic.requests import (
    BM25,
    HARBOUR,
    REGEX,
    block_types,
    bm25_search,
    conversation_with,
    deferred_tool,
    referenced_names,
    regex_search,
    tool,
    tool_result_message,
    user_message,
)
from tests.support.scripted_model.turn import ToolCall, Turn

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def without_date(entry: dict[str, str]) -> dict[str, str]:
    return {**entry, "type": entry["name"]}


@both
@pytest.mark.parametrize(
    ("search", "call"),
    [
        (REGEX, regex_search("tide|boat")),
        (BM25, bm25_search("when is the water high?", limit=1)),
        (without_date(REGEX), regex_search("TIDE")),
        (without_date(BM25), bm25_search("read the tide", limit=1)),
    ],
    ids=["regex", "bm25", "regex-undated", "bm25-undated"],
)
def test_model_without_tool_search_finds_and_calls_tool(stream: bool, search: dict[str, str], call: ToolCall) -> None:
    script = [Turn("Let me look.", call), Turn("There.", ToolCall("read_tide", {"text": "now"}))]
    with conversation_with(script, stream=stream) as conversation:
        reply = conversation.send([search, *HARBOUR], "When is high tide?")
    assert block_types(reply) == ["text", "server_tool_use", "tool_search_tool_result", "text", "tool_use"]
    _, use, answer, _, used = reply["content"]
    assert use["id"].startswith("srvtoolu_") and use["name"] == search["name"]
    assert use["input"] == dict(call.arguments)
    assert answer["tool_use_id"] == use["id"] and "read_tide" in referenced_names(answer)
    assert (used["name"], used["input"]) == ("read_tide", {"text": "now"})
    assert used["caller"] == {"type": "direct"} and used["id"].startswith("toolu_")
    assert reply["stop_reason"] == "tool_use"
    first, second = conversation.upstream_requests
    assert first.tool_names == (search["name"],)
    assert set(second.tool_names) == {search["name"], *referenced_names(answer)}
    assert "defer_loading" not in json.dumps(second.body)
    assert all("type" not in entry for entry in second.body["tools"])


@both
def test_found_tools_are_appended_in_order(stream: bool) -> None:
    tools = [tool("anchor"), deferred_tool("flag"), REGEX, deferred_tool("lamp"), tool("bell")]
    script = [Turn(regex_search("lamp")), Turn(regex_search("flag")), Turn("Done.")]
    with conversation_with(script, stream=stream) as conversation:
        conversation.send(tools, "Signal them.")
    shown = ["anchor", REGEX["name"], "bell"]
    assert [list(item.tool_names) for item in conversation.upstream_requests] == [
        shown,
        [*shown, "lamp"],
        [*shown, "lamp", "flag"],
    ]


@both
def test_search_without_match_succeeds_with_no_references(stream: bool) -> None:
    with conversation_with([Turn(regex_search("xylophone")), Turn("No.")], stream=stream) as conversation:
        reply = conversation.send([REGEX, *HARBOUR], "Play.")
    assert referenced_names(reply["content"][1]) == []
    assert reply["stop_reason"] == "end_turn"


@both
@pytest.mark.parametrize(
    "call",
    [
        regex_search("boat("),
        regex_search("x" * 201),
        bm25_search("x" * 501),
        regex_search("boat", limit=0),
        regex_search("boat", limit=10_001),
        ToolCall(REGEX["name"], {"query": "boat"}),
        ToolCall(BM25["name"], {}),
    ],
    ids=["bad", "201", "501", "none", "many", "old key", "empty"],
)
def test_invalid_search_returns_error_block(stream: bool, call: ToolCall) -> None:
    with conversation_with([Turn(call), Turn("I see."), Turn("Good.")], stream=stream) as conversation:
        reply = conversation.send([REGEX, BM25, *HARBOUR], "Find it.")
        later = conversation.send([REGEX, BM25, *HARBOUR], "Never mind.")
    content = reply["content"][1]["content"]
    assert content["type"] == "tool_search_tool_result_error"
    assert content["error_code"] == "invalid_tool_input"
    assert reply["content"][2]["text"] == "I see." and later["content"][0]["text"] == "Good."
    sent = conversation.upstream_requests[1].body["messages"][-1]["content"][0]
    assert sent["is_error"] is True and sent["content"] == content["error_message"]


@both
@pytest.mark.parametrize(("name", "most"), [("regex", 200), ("bm25", 500)])
def test_query_of_maximum_length_is_accepted(stream: bool, name: str, most: int) -> None:
    call = regex_search("x" * most) if name == "regex" else bm25_search("x" * most)
    with conversation_with([Turn(call), Turn("No.")], stream=stream) as conversation:
        reply = conversation.send([REGEX, BM25, *HARBOUR], "Find it.")
    assert referenced_names(reply["content"][1]) == []


REFUSED: list[Any] = [
    pytest.param(
        HARBOUR, [], "At least one tool must have defer_loading=false. All tools cannot be deferred.", id="all deferred"
    ),
    pytest.param(
        [REGEX, deferred_tool("flag", cache_control={"type": "ephemeral"})],
        [],
        "Tool 'flag' cannot have both defer_loading=true and cache_control set. "
        "Tools with defer_loading cannot use prompt caching.",
        id="deferred and cached",
    ),
    pytest.param(
        [REGEX, *HARBOUR],
        [
            user_message("Hi"),
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": REGEX["name"], "input": {"pattern": "x"}},
                    {
                        "type": "tool_search_tool_result",
                        "tool_use_id": "srvtoolu_1",
                        "content": {
                            "type": "tool_search_tool_search_result",
                            "tool_references": [{"type": "tool_reference", "tool_name": "lost"}],
                        },
                    },
                ],
            },
        ],
        "Tool reference 'lost' not found in available tools",
        id="unknown reference",
    ),
    pytest.param(
        [REGEX, *HARBOUR],
        [
            user_message("Hi"),
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_search_tool_result",
                        "tool_use_id": "srvtoolu_9",
                        "content": {"type": "tool_search_tool_search_result", "tool_references": []},
                    }
                ],
            },
        ],
        "messages.1.content.0: unexpected `tool_use_id` found in `tool_search_tool_result` blocks: "
        "srvtoolu_9. Each `tool_search_tool_result` block must have a corresponding "
        "`server_tool_use` block before it.",
        id="orphan",
    ),
    pytest.param(
        [REGEX, *HARBOUR],
        [
            user_message("Hi"),
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": REGEX["name"], "input": {"pattern": "x"}}
                ],
            },
            user_message("And?"),
        ],
        "`tool_search_tool_regex` tool use with id `srvtoolu_1` was found without a corresponding "
        "`tool_search_tool_result` block",
        id="dangling",
    ),
    pytest.param(
        [REGEX, *HARBOUR],
        [user_message("Hi"), tool_result_message("srvtoolu_1")],
        "messages.1.content.0: `tool_result` is for client tools; `srvtoolu_1` is the id of a "
        "server tool, whose result the API makes itself",
        id="answered by the client",
    ),
    pytest.param(
        [REGEX, deferred_tool("flag"), deferred_tool("flag")],
        [],
        "tools: Tool names must be unique.",
        id="twice the same name",
    ),
    pytest.param(
        [{**REGEX, "name": "find"}, deferred_tool("flag")],
        [],
        "tools.0.tool_search_tool_regex_20251119.name: Input should be 'tool_search_tool_regex'",
        id="another name",
    ),
]


@both
@pytest.mark.parametrize(("tools", "history", "message"), REFUSED)
def test_invalid_requests_are_refused_with_messages_of_api(
    stream: bool, tools: list[dict[str, Any]], history: list[Any], message: str
) -> None:
    with conversation_with([], stream=stream) as conversation:
        conversation.history = list(history)
        with pytest.raises(anthropic.BadRequestError) as raised:
            conversation.send(tools, *([] if history else ["Hi"]))
    assert raised.value.body == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message},
        "request_id": raised.value.request_id,
    }
    assert conversation.upstream_requests == []


def test_too_many_tools_are_refused_with_error_code() -> None:
    with conversation_with([], settings={"max_tools": 3}) as conversation:
        with pytest.raises(anthropic.BadRequestError, match="limit is 3") as raised:
            conversation.send([REGEX, *HARBOUR], "Hi")
        assert raised.value.error_code == "available_tools_limit_exceeded"
        large = [tool(f"chart_{number}", "x" * 500_000) for number in range(9)]
        with pytest.raises(anthropic.BadRequestError, match="4,194,304") as raised:
            conversation.send([REGEX, *large, deferred_tool("flag")], "Hi")
        assert raised.value.error_code == "available_tools_limit_exceeded"


@both
def test_parallel_searches_are_all_answered(stream: bool) -> None:
    script = [Turn(regex_search("tide"), bm25_search("tie the boat", limit=1)), Turn("Done.")]
    with conversation_with(script, stream=stream) as conversation:
        reply = conversation.send([REGEX, BM25, *HARBOUR], "Go.")
    assert block_types(reply) == [
        "server_tool_use",
        "server_tool_use",
        "tool_search_tool_result",
        "tool_search_tool_result",
        "text",
    ]
    uses, answers = reply["content"][:2], reply["content"][2:4]
    assert [item["id"] for item in uses] == [item["tool_use_id"] for item in answers]
    assert [referenced_names(item) for item in answers] == [["read_tide"], ["moor_boat"]]


@both
def test_search_next_to_client_call_runs_in_next_request(stream: bool) -> None:
    script = [
        Turn("First this.", ToolCall("look", {}), regex_search("sail", limit=3)),
        Turn("Now.", ToolCall("raise_sail", {})),
        Turn("Up."),
    ]
    tools = [REGEX, tool("look"), *HARBOUR]
    with conversation_with(script, stream=stream) as conversation:
        first = conversation.send(tools, "Set sail.")
        second = conversation.send(tools, tool_result_message(first["content"][1]["id"], "calm"))
        third = conversation.send(tools, tool_result_message(second["content"][2]["id"]))
    assert block_types(first) == ["text", "tool_use", "server_tool_use"]
    assert first["stop_reason"] == "tool_use" and not first["usage"].get("server_tool_use")
    assert block_types(second) == ["tool_search_tool_result", "text", "tool_use"]
    assert second["content"][0]["tool_use_id"] == first["content"][2]["id"]
    assert referenced_names(second["content"][0]) == ["raise_sail"]
    assert second["usage"]["server_tool_use"] == {"web_search_requests": 0, "web_fetch_requests": 0}
    assert block_types(third) == ["text"]
    sent = [item.body["messages"] for item in conversation.upstream_requests]
    assert sent[1][2]["role"] == "user" and len(sent[1][2]["content"]) == 2
    assert sent[2][: len(sent[1])] == sent[1]


@both
def test_turn_pauses_after_maximum_rounds(stream: bool) -> None:
    script = [*(Turn(regex_search(f"no{number}")) for number in range(12)), Turn("Enough.")]
    with conversation_with(script, stream=stream) as conversation:
        first = conversation.send([REGEX, *HARBOUR], "Search on.")
        before = len(conversation.upstream_requests)
        second = conversation.send([REGEX, *HARBOUR])
    assert first["stop_reason"] == "pause_turn" and before == 10
    assert block_types(first) == ["server_tool_use", "tool_search_tool_result"] * 10
    assert second["stop_reason"] == "end_turn" and second["content"][-1]["text"] == "Enough."
    last, next_ = (
        conversation.upstream_requests[9].body["messages"],
        conversation.upstream_requests[10].body["messages"],
    )
    assert next_[: len(last)] == last


@both
def test_found_tool_stays_while_history_has_search(stream: bool) -> None:
    script = [
        Turn(regex_search("tide")),
        Turn(ToolCall("read_tide", {})),
        Turn(ToolCall("read_tide", {})),
        Turn("Which?"),
    ]
    with conversation_with(script, stream=stream) as conversation:
        first = conversation.send([REGEX, *HARBOUR], "High tide?")
        conversation.send([REGEX, *HARBOUR], tool_result_message(first["content"][-1]["id"], "noon"))
        conversation.history = []
        conversation.send([REGEX, *HARBOUR], "And tomorrow?")
    assert conversation.upstream_requests[2].tool_names == (REGEX["name"], "read_tide")
    assert conversation.upstream_requests[3].tool_names == (REGEX["name"],)
    sent = [item.body["messages"] for item in conversation.upstream_requests]
    assert sent[1][: len(sent[0])] == sent[0] and sent[2][: len(sent[1])] == sent[1]


@both
def test_client_can_search_itself_with_tool_references(stream: bool) -> None:
    reference = [{"type": "tool_reference", "tool_name": "read_tide"}]
    call = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "tide"}}
    script = [Turn(ToolCall("read_tide", {"text": "now"}))]
    with conversation_with(script, stream=stream) as conversation:
        reply = conversation.send(
            [tool("ToolSearch"), *HARBOUR],
            "High tide?",
            {"role": "assistant", "content": [call]},
            tool_result_message("toolu_1", reference),
        )
    assert block_types(reply) == ["tool_use"] and "server_tool_use" not in reply["usage"]
    (request,) = conversation.upstream_requests
    assert request.tool_names == ("ToolSearch", "read_tide")
    assert "read_tide" in request.results[0] and "water is high" in request.results[0]
    assert "tool_reference" not in json.dumps(request.body)


def test_token_count_excludes_deferred_tools() -> None:
    with conversation_with([]) as conversation:

        def count(tools: Any) -> int:
            return conversation.client.messages.count_tokens(
                model="plain", messages=[{"role": "user", "content": "Hi"}], tools=tools
            ).input_tokens

        large = "Much to say about it. " * 100
        assert count([REGEX, deferred_tool("flag", large)]) == count([REGEX, deferred_tool("lamp", large * 9)])
        assert count([REGEX, tool("flag", large)]) > count([REGEX, deferred_tool("flag", large)])


@both
def test_usage_is_sum_of_all_rounds(stream: bool) -> None:
    script = [Turn(regex_search("tide")), Turn(regex_search("sail")), Turn("Done.")]
    with conversation_with(script, stream=stream) as conversation:
        reply = conversation.send([REGEX, *HARBOUR], "Go.")
    passes = [max(1, len(json.dumps(item.body, ensure_ascii=False)) // 4) for item in conversation.upstream_requests]
    assert reply["usage"]["input_tokens"] == sum(passes)
    assert reply["usage"]["server_tool_use"] == {"web_search_requests": 0, "web_fetch_requests": 0}


@both
def test_unknown_betas_and_fields_are_forwarded(stream: bool) -> None:
    with conversation_with([Turn(regex_search("tide")), Turn("Done.")], stream=stream) as conversation:
        conversation.send(
            [REGEX, *HARBOUR],
            "Go.",
            beta=True,
            betas=["advanced-tool-use-2025-11-20", "never-heard-of-2030-01-01"],
            extra_body={"vendor_option": {"depth": 3}, "metadata": {"user_id": "u1"}},
        )
    for request in conversation.upstream_requests:
        assert request.body["vendor_option"] == {"depth": 3}
        assert request.body["metadata"] == {"user_id": "u1"}
        assert "never-heard-of-2030-01-01" in request.headers["anthropic-beta"]
