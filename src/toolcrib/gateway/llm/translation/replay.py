"""Convert a whole reply to the events of a stream, for upstreams that ignore the request for a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.json_body import parse_upstream_body, serialize_json
from toolcrib.gateway.llm.sse import format_event
from toolcrib.gateway.llm.translation.translator import check_error
from toolcrib.gateway.llm.upstream.http_messages import UpstreamResponse

Body = dict[str, Any]


def _replay_message(reply: Body) -> Iterator[Body]:
    """Yield the events of the Messages API."""
    yield {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}}
    for index, block in enumerate(dicts_or_empty(reply.get("content"))):
        start, deltas = _split_block(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": reply.get("stop_reason"), "stop_sequence": reply.get("stop_sequence")}
    yield {"type": "message_delta", "delta": delta, "usage": reply.get("usage") or {"output_tokens": 0}}
    yield {"type": "message_stop"}


def _split_block(block: Body) -> tuple[Body, list[Body]]:
    """Return a block without its content, and the deltas with it."""
    match block.get("type"):
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": str_or_empty(block.get("text"))}]
        case "thinking":
            thinking = {"type": "thinking_delta", "thinking": str_or_empty(block.get("thinking"))}
            signature = {"type": "signature_delta", "signature": str_or_empty(block.get("signature"))}
            return {**block, "thinking": "", "signature": ""}, [thinking, signature]
        case "tool_use" | "server_tool_use":
            partial = serialize_json(block.get("input", {})).decode()
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": partial}]
    return block, []


def _replay_completion(reply: Body) -> Iterator[Body]:
    """Yield the chunks of Chat Completions."""
    head = {**reply, "object": "chat.completion.chunk"}
    usage = head.pop("usage", None)
    for choice in dicts_or_empty(reply.get("choices")):
        message = dict_or_empty(choice.get("message"))
        calls = [{"index": number, **call} for number, call in enumerate(dicts_or_empty(message.get("tool_calls")))]
        delta = {**message, "tool_calls": calls} if calls else dict(message)
        rest = {name: value for name, value in choice.items() if name != "message"}
        yield {**head, "choices": [{**rest, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{**rest, "delta": {}}]}
    if usage is not None:
        yield {**head, "choices": [], "usage": usage}


def _replay_response(reply: Body) -> Iterator[Body]:
    """Yield the events of the Responses API."""
    events = list(_list_response_events(reply))
    yield from ({**event, "sequence_number": number} for number, event in enumerate(events))


def _list_response_events(reply: Body) -> Iterator[Body]:
    started = {**reply, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": started}
    for index, item in enumerate(dicts_or_empty(reply.get("output"))):
        place = {"output_index": index, "item_id": str_or_empty(item.get("id"))}
        is_message = item.get("type") == "message"
        begun = {**item, "content": []} if is_message else item
        if item.get("type") == "function_call":
            begun = {**item, "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": {**begun, "status": "in_progress"}}
        for number, part in enumerate(dicts_or_empty(item.get("content")) if is_message else ()):
            where = {**place, "content_index": number}
            text = str_or_empty(part.get("text"))
            yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""} if text else part}
            if text:
                yield {"type": "response.output_text.delta", **where, "delta": text}
                yield {"type": "response.output_text.done", **where, "text": text}
            yield {"type": "response.content_part.done", **where, "part": part}
        if item.get("type") == "function_call":
            arguments = str_or_empty(item.get("arguments"))
            yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
            yield {"type": "response.function_call_arguments.done", **place, "arguments": arguments}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    status = str_or_empty(reply.get("status")) or "completed"
    yield {"type": f"response.{status}", "response": reply}


class _Replay(NamedTuple):
    """How the replies of an API become events."""

    build_events: Callable[[Body], Iterator[Body]]
    # The field that every reply has.
    field: str
    has_names: bool = False
    end: bytes = b""

    def encode(self, reply: Body) -> bytes:
        """Return the events of a reply as bytes."""
        names_and_events = ((event["type"] if self.has_names else "", event) for event in self.build_events(reply))
        return b"".join(format_event(name, serialize_json(event)) for name, event in names_and_events) + self.end


_REPLAYS: Final[Mapping[str, _Replay]] = {
    "/v1/messages": _Replay(_replay_message, "content", has_names=True),
    "/v1/chat/completions": _Replay(_replay_completion, "choices", end=b"data: [DONE]\n\n"),
    "/v1/responses": _Replay(_replay_response, "output", has_names=True),
    # The whole reply of Gemini is the only chunk.
    ":streamGenerateContent": _Replay(lambda reply: iter((reply,)), "candidates"),
}


class ReplayedResponse(UpstreamResponse):
    """A whole reply that reads like a stream of events."""

    def __init__(self, response: UpstreamResponse, events: bytes) -> None:
        super().__init__(response.request, response.status, response.headers_for_type("text/event-stream"))
        self._events = events

    async def discard_rest(self) -> None:
        """Do nothing, because the body was read."""

    async def close(self) -> None:
        """Do nothing, because the body was read."""

    async def read_raw_chunk(self) -> bytes:
        events, self._events = self._events, b""
        return self._count_raw(events)


async def replay_unless_stream(response: UpstreamResponse, path: str) -> UpstreamResponse:
    """Return the response to a request for a stream as a stream."""
    is_json = response.get_header("content-type").startswith("application/json")
    replay = next((replay for end, replay in _REPLAYS.items() if path.endswith(end)), None)
    if not (response.is_success and is_json and replay):
        return response
    reply = parse_upstream_body(await response.read())
    if not isinstance(reply.get(replay.field), list):
        check_error(reply)
        raise RequestFailed("the upstream did not answer with a stream of events", 502)
    return ReplayedResponse(response, replay.encode(reply))
