from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.llm.openai_chat.test_chat_rewriter import (
    build_rewriter,
    reply,
    search_call,
    tool_call,
    transparent_index,
)
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.openai_chat.rewriter import ChatRewriter
from toolcrib.gateway.llm.openai_chat.stream import ChatStream

Json = dict[str, Any]
SHELF = transparent_index()


def chunk(reason: str | None = None, id: str = "c1", **delta: Any) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {"id": id, "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def call_chunks(call: Json, index: int, size: int = 5) -> Iterable[Json]:
    function = call["function"]
    head = {**call, "function": {**function, "arguments": ""}}
    yield chunk(tool_calls=[{"index": index, **head}])
    text = function["arguments"]
    for start in range(0, len(text), size):
        piece = {"arguments": text[start : start + size]}
        yield chunk(tool_calls=[{"index": index, "function": piece}])


def handle_chunks(stream: ChatStream, chunks: Iterable[Json]) -> list[Json]:
    return [sent for item in chunks for sent in stream.handle_event(item)]


def deltas(chunks: Iterable[Json]) -> list[Json]:
    return [item["choices"][0]["delta"] for item in chunks if item["choices"]]


def join_chunks(chunks: Iterable[Json]) -> tuple[str, list[Json], Any]:
    """Return content, calls and finish reason, joined as a client does it."""
    content, reason = "", None
    calls: dict[int, Json] = {}
    for item in chunks:
        for choice in item["choices"]:
            content += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
            for piece in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(piece["index"], {"function": {"arguments": ""}})
                function = piece.get("function", {})
                call["function"]["arguments"] += function.get("arguments", "")
                call["function"]["name"] = function.get("name") or call["function"].get("name")
                call["id"] = piece.get("id") or call.get("id")
    return content, [calls[index] for index in sorted(calls)], reason


def test_text_is_forwarded_immediately_and_search_is_hidden() -> None:
    stream = ChatStream(build_rewriter(index=SHELF))
    assert deltas(handle_chunks(stream, [chunk(role="assistant", content="")])) == [
        {"role": "assistant", "content": ""}
    ]
    assert deltas(handle_chunks(stream, [chunk(content="I look.")])) == [{"content": "I look."}]
    assert handle_chunks(stream, call_chunks(search_call(), 0)) == []
    assert handle_chunks(stream, [chunk("tool_calls")]) == []
    assert stream.is_ended
    assert stream.finish_round() == [] and not stream.is_complete
    second = [chunk(id="c2", role="assistant", content=""), chunk(id="c2", content="Found.")]
    sent = handle_chunks(stream, [*second, *call_chunks(tool_call("get_exchange_rate", currency="USD"), 0)])
    assert deltas(sent)[0] == {"content": "\n\nFound."}
    assert {item["id"] for item in sent} == {"c1"}
    sent += handle_chunks(stream, [chunk("tool_calls")])
    last = stream.finish_round()
    assert stream.is_complete
    assert join_chunks([*sent, *last]) == (
        "\n\nFound.",
        [{"id": "call_1", "function": {"arguments": '{"currency": "USD"}', "name": "get_exchange_rate"}}],
        "tool_calls",
    )


def test_first_chunk_without_an_identity_does_not_erase_that_of_the_reply() -> None:
    # Azure begins with the results of its filter.
    empty = {"id": "", "model": "", "object": "", "choices": [], "prompt_filter_results": []}
    sent = handle_chunks(ChatStream(build_rewriter(index=SHELF)), [empty, chunk(content="Hi")])
    assert sent == [empty, chunk(content="Hi")]


def test_call_indexes_skip_hidden_search() -> None:
    stream = ChatStream(build_rewriter(index=SHELF))
    sent = handle_chunks(
        stream, [*call_chunks(search_call(), 0), *call_chunks(tool_call("mine", a=1), 1), chunk("tool_calls")]
    )
    assert sent[0]["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
    last = stream.finish_round()
    assert stream.is_complete
    _, calls, reason = join_chunks([*sent, *last])
    assert [item["function"]["name"] for item in calls] == ["mine"]
    assert reason == "tool_calls"


def test_checked_call_is_sent_whole_at_end() -> None:
    stream = ChatStream(build_rewriter(index=SHELF))
    assert handle_chunks(stream, [*call_chunks(tool_call("book_flight", destination="Rome"), 0), chunk("stop")]) == []
    last = stream.finish_round()
    assert stream.is_complete
    assert join_chunks(last)[1][0]["function"]["arguments"] == '{"destination": "Rome"}'
    assert join_chunks(last)[2] == "tool_calls"


def test_usage_of_all_rounds_is_sent_once() -> None:
    stream = ChatStream(build_rewriter(index=SHELF))
    cost: Json = {"id": "c1", "choices": [], "usage": {"total_tokens": 5}}
    empty = {**chunk("tool_calls"), "usage": None}
    assert handle_chunks(stream, [*call_chunks(search_call(), 0), empty, cost]) == []
    assert stream.finish_round() == [] and not stream.is_complete
    sent = handle_chunks(stream, [{**chunk(content="Hi"), "usage": None}, chunk("stop"), cost])
    last = stream.finish_round()
    assert stream.is_complete
    assert sent[0]["usage"] is None
    assert [item.get("usage") for item in last] == [None, {"total_tokens": 10}]
    assert last[-1]["choices"] == []


def test_error_chunk_is_forwarded_and_ends_stream() -> None:
    stream = ChatStream(build_rewriter(index=SHELF))
    error: Json = {"error": {"message": "overloaded"}}
    assert handle_chunks(stream, [error]) == [error]
    assert stream.is_ended and stream.is_final
    assert stream.finish_round() == []


def test_error_chunk_prefers_error_of_upstream() -> None:
    stream = ChatStream(build_rewriter(index=SHELF))
    assert not stream.is_ended
    assert b'"message":"gone"' in stream.encode_error(RequestFailed("gone", 502), None)
    assert stream.encode_error(RequestFailed("gone", 502), {"error": {"message": "busy"}}) == (
        b'data: {"error":{"message":"busy"}}\n\n'
    )
    assert stream.encode_end() == b"data: [DONE]\n\n"


def test_custom_and_nameless_calls_are_complete() -> None:
    stream = ChatStream(build_rewriter(index=SHELF))
    custom = {"index": 0, "id": "x", "type": "custom", "custom": {"name": "c", "input": "ab"}}
    more = {"index": 0, "custom": {"input": "cd"}}
    nameless = {"index": 1, "id": "y", "type": "function", "function": {"arguments": "{}"}}
    sent = handle_chunks(stream, [chunk(tool_calls=[custom]), chunk(tool_calls=[more, nameless])])
    assert [item["tool_calls"] for item in deltas(sent)] == [[custom], [more]]
    handle_chunks(stream, [chunk("tool_calls")])
    last = stream.finish_round()
    assert stream.is_complete
    late = deltas(last)[0]["tool_calls"]
    assert late == [{"index": 1, "id": "y", "type": "function", "function": {"arguments": "{}"}}]


CALLS = st.lists(st.sampled_from(["search_tools", "send_email", "mine", "book_flight"]), max_size=4)


@settings(max_examples=30)
@given(CALLS, st.text(max_size=12), st.integers(1, 9))
def test_streamed_message_equals_whole_message(names: list[str], content: str, size: int) -> None:
    field = {"send_email": "recipient", "book_flight": "destination"}
    calls = [
        search_call(id=f"call_{at}")
        if name == "search_tools"
        else tool_call(name, f"call_{at}", **{field.get(name, "a"): "x"})
        for at, name in enumerate(names)
    ]
    at_once = _build_rewriter().handle_reply(reply(*calls, content=content or None))
    stream = ChatStream(_build_rewriter())
    given = [chunk(role="assistant", content="")]
    given += [chunk(content=content[at : at + size]) for at in range(0, len(content), size)]
    given += [item for at, call in enumerate(calls) for item in call_chunks(call, at, size)]
    sent = handle_chunks(stream, [*given, chunk("tool_calls" if calls else "stop")])
    last = stream.finish_round()
    if at_once is None:
        assert last == [] and not stream.is_complete
        return
    assert stream.is_complete
    words, call, reason = join_chunks([*sent, *last])
    (choice,) = at_once["choices"]
    assert words == (choice["message"].get("content") or "")
    assert reason == choice["finish_reason"]
    wanted = choice["message"].get("tool_calls") or []
    assert sorted(item["id"] for item in call) == sorted(item["id"] for item in wanted)
    for item in wanted:
        (same,) = [other for other in call if other["id"] == item["id"]]
        assert same["function"] == item["function"]


def _build_rewriter() -> ChatRewriter:
    return build_rewriter(index=SHELF)
