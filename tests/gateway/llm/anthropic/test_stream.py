"""The events of a streamed search, as recorded from the API."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.gateway.llm.anthropic.requests import BM25, HARBOUR, Conversation, bm25_search, conversation_with, tool
from tests.support.scripted_model.turn import Raw, ToolCall, Turn

SCRIPT = [
    Turn("Let me look.", ToolCall(BM25["name"], {"query": "tie the boat", "limit": 1}, "toolu_01A")),
    Turn("Found.", ToolCall("moor_boat", {"text": "now"}, "toolu_01B")),
]


def stream_events(conversation: Conversation, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of a streamed response."""
    body = {
        "model": "plain-model",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Moor."}],
        "tools": [BM25, *HARBOUR],
        "stream": True,
        **more,
    }
    answer = httpx2.post(f"{conversation.server.url}/v1/messages", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    pairs = []
    for part in answer.text.strip().split("\n\n"):
        name, data = part.split("\n")
        pairs.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return pairs


def outline_events(events: list[dict[str, Any]]) -> list[tuple[str, object, str, tuple[str, ...]]]:
    """Return type, index and content of the events; equal consecutive deltas count as one."""
    outline: list[tuple[str, object, str, tuple[str, ...]]] = []
    for event in events:
        inner = event.get("content_block") or event.get("delta") or {}
        line = (event["type"], event.get("index"), str(inner.get("type", "")), tuple(inner))
        if event["type"] != "ping" and (not outline or outline[-1] != line):
            outline.append(line)
    return outline


def test_search_events_come_in_recorded_order() -> None:
    with conversation_with(SCRIPT) as conversation:
        events = stream_events(conversation)
    assert all(name == data["type"] for name, data in events)
    json_delta = ("content_block_delta", "input_json_delta", ("type", "partial_json"))
    text_delta = ("content_block_delta", "text_delta", ("type", "text"))

    def delta(shape: tuple[str, str, tuple[str, ...]], index: int) -> tuple[Any, ...]:
        return (shape[0], index, shape[1], shape[2])

    text = ("text", ("type", "text"))
    assert outline_events([data for _, data in events]) == [
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


def test_search_input_and_end_have_form_of_api() -> None:
    with conversation_with(SCRIPT) as conversation:
        data = [event for _, event in stream_events(conversation)]
    pieces = [
        item["delta"]["partial_json"] for item in data if item["type"] == "content_block_delta" and item["index"] == 1
    ]
    assert pieces[0] == "" and len(pieces) > 2
    assert json.loads("".join(pieces)) == {"query": "tie the boat", "limit": 1}
    started = next(item for item in data if item["type"] == "content_block_start" and item["index"] == 1)
    assert started["content_block"]["input"] == {}
    end = data[-2]
    assert end["delta"] == {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None}
    first = data[0]["message"]["usage"]["input_tokens"]
    assert end["usage"]["input_tokens"] > first > 0
    assert end["usage"]["server_tool_use"] == {"web_search_requests": 0, "web_fetch_requests": 0}
    assert any(item["type"] == "ping" for item in data)


def test_streamed_message_equals_whole_message() -> None:
    replies = []
    for stream in (True, False):
        with conversation_with(SCRIPT, stream=stream) as conversation:
            replies.append(conversation.send([BM25, *HARBOUR], "Moor."))
    streamed, whole = replies
    for field in ("role", "content", "stop_reason", "stop_sequence"):
        assert streamed[field] == whole[field]
    assert streamed["usage"].keys() == whole["usage"].keys()


def test_complete_search_input_is_split_into_deltas() -> None:
    call = {"type": "tool_use", "id": "call_0", "name": BM25["name"], "input": {"query": "tie the boat", "limit": 1}}
    with conversation_with([Turn(Raw(call)), Turn(Raw(call)), Turn("Done.")]) as conversation:
        events = [data for _, data in stream_events(conversation)]
    starts = [item["content_block"] for item in events if item["type"] == "content_block_start"]
    uses = [item for item in starts if item["type"] == "server_tool_use"]
    assert [item["input"] for item in uses] == [{}, {}]
    # The ids differ even if the upstream uses one id for all calls.
    assert len({item["id"] for item in uses}) == 2
    assert all(item["id"].startswith("srvtoolu_01") and len(item["id"]) == 33 for item in uses)
    pieces = [
        item["delta"]["partial_json"] for item in events if item["type"] == "content_block_delta" and item["index"] == 0
    ]
    assert pieces[0] == "" and json.loads("".join(pieces)) == call["input"]


def test_thinking_blocks_are_returned_unchanged() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
    script = [Turn(Raw(thought), bm25_search("boat")), Turn("Done.")]
    for stream in (True, False):
        with conversation_with(script, stream=stream) as conversation:
            conversation.send([BM25, tool("bell"), *HARBOUR], "Moor.")
        message = conversation.upstream_requests[1].body["messages"][1]
        assert message["content"][0] == thought
        assert [block["type"] for block in message["content"]] == ["thinking", "tool_use"]
