"""The order of events of a streamed search, as it was recorded of the API."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.gateway.llm.anthropic.requests import (
    BM25,
    HARBOUR,
    Conversation,
    bm25_search,
    conversation_with,
    tool,
)
from tests.support.scripted_model.turn import Raw, ToolCall, Turn

SCRIPT = [
    Turn(
        "Let me look.", ToolCall(BM25["name"], {"query": "tie the boat", "limit": 1}, "toolu_01A")
    ),
    Turn("Found.", ToolCall("moor_boat", {"text": "now"}, "toolu_01B")),
]


def stream_events(asked: Conversation, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a streamed response, as they came."""
    body = {
        "model": "plain-model",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Moor."}],
        "tools": [BM25, *HARBOUR],
        "stream": True,
        **more,
    }
    answer = httpx2.post(f"{asked.server.url}/v1/messages", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    pairs = []
    for part in answer.text.strip().split("\n\n"):
        name, data = part.split("\n")
        pairs.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return pairs


def test_a_search_is_streamed_in_the_recorded_order() -> None:
    with conversation_with(SCRIPT) as asked:
        told = stream_events(asked)
    assert all(name == data["type"] for name, data in told)
    outline = [
        (data["type"], data.get("index"), (data.get("content_block") or data.get("delta") or {}))
        for _, data in told
        if data["type"] != "ping"
    ]
    # Pieces of the same kind after one another count as one.
    short: list[tuple[str, object, str, tuple[str, ...]]] = []
    for kind, index, inner in outline:
        line = (kind, index, str(inner.get("type", "")), tuple(inner))
        if not short or short[-1] != line:
            short.append(line)
    json_delta = ("content_block_delta", "input_json_delta", ("type", "partial_json"))
    text_delta = ("content_block_delta", "text_delta", ("type", "text"))

    def delta(shape: tuple[str, str, tuple[str, ...]], index: int) -> tuple[Any, ...]:
        return (shape[0], index, shape[1], shape[2])

    text = ("text", ("type", "text"))
    assert short == [
        ("message_start", None, "", ()),
        ("content_block_start", 0, *text),
        delta(text_delta, 0),
        ("content_block_stop", 0, "", ()),
        ("content_block_start", 1, "server_tool_use", ("type", "id", "name", "input", "caller")),
        delta(json_delta, 1),
        ("content_block_stop", 1, "", ()),
        ("content_block_start", 2, "tool_search_tool_result", ("type", "tool_use_id", "content")),
        ("content_block_stop", 2, "", ()),
        ("content_block_start", 3, *text),
        delta(text_delta, 3),
        ("content_block_stop", 3, "", ()),
        ("content_block_start", 4, "tool_use", ("caller", "type", "id", "name", "input")),
        delta(json_delta, 4),
        ("content_block_stop", 4, "", ()),
        ("message_delta", None, "", ("stop_reason", "stop_sequence", "stop_details")),
        ("message_stop", None, "", ()),
    ]
    data = [one for _, one in told]
    pieces = [
        one["delta"]["partial_json"]
        for one in data
        if one["type"] == "content_block_delta" and one["index"] == 1
    ]
    assert pieces[0] == "" and len(pieces) > 2
    assert json.loads("".join(pieces)) == {"query": "tie the boat", "limit": 1}
    started = next(
        one for one in data if one["type"] == "content_block_start" and one["index"] == 1
    )
    assert started["content_block"]["input"] == {}
    end = data[-2]
    assert end["delta"] == {
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "stop_details": None,
    }
    first = data[0]["message"]["usage"]["input_tokens"]
    assert end["usage"]["input_tokens"] > first > 0
    assert end["usage"]["server_tool_use"] == {"web_search_requests": 0, "web_fetch_requests": 0}
    assert any(one["type"] == "ping" for one in data)


def test_the_client_makes_the_same_message_of_the_stream_as_comes_whole() -> None:
    replies = []
    for stream in (True, False):
        with conversation_with(SCRIPT, stream=stream) as asked:
            replies.append(asked.send([BM25, *HARBOUR], "Moor."))
    streamed, whole = replies
    for field in ("role", "content", "stop_reason", "stop_sequence"):
        assert streamed[field] == whole[field]
    assert streamed["usage"].keys() == whole["usage"].keys()


def test_a_call_that_an_upstream_sends_at_once_comes_in_pieces() -> None:
    call = {
        "type": "tool_use",
        "id": "call_0",
        "name": BM25["name"],
        "input": {"query": "tie the boat", "limit": 1},
    }
    with conversation_with([Turn(Raw(call)), Turn(Raw(call)), Turn("Done.")]) as asked:
        told = [data for _, data in stream_events(asked)]
    starts = [one["content_block"] for one in told if one["type"] == "content_block_start"]
    uses = [one for one in starts if one["type"] == "server_tool_use"]
    assert [one["input"] for one in uses] == [{}, {}]
    # An upstream that gives all its calls one id does not confuse the client.
    assert len({one["id"] for one in uses}) == 2
    assert all(one["id"].startswith("srvtoolu_01") and len(one["id"]) == 33 for one in uses)
    pieces = [
        one["delta"]["partial_json"]
        for one in told
        if one["type"] == "content_block_delta" and one["index"] == 0
    ]
    assert pieces[0] == "" and json.loads("".join(pieces)) == call["input"]


def test_thinking_goes_back_to_the_upstream_as_it_came() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
    script = [Turn(Raw(thought), bm25_search("boat")), Turn("Done.")]
    for stream in (True, False):
        with conversation_with(script, stream=stream) as asked:
            asked.send([BM25, tool("bell"), *HARBOUR], "Moor.")
        said = asked.upstream_requests[1].body["messages"][1]
        assert said["content"][0] == thought
        assert [block["type"] for block in said["content"]] == ["thinking", "tool_use"]
