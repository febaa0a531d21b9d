"""The upstream of `benchmarks.model_gateway`, which responds without delay in each API."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

EVENTS = 100
GAP_SECONDS = 0.005
MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
# The time at which an event was sent, on a clock that all processes share.
STAMP = re.compile(rb'"(?:text|content|delta)": ?"([0-9.]+) ')


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _data(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def _head(status: str, kind: str, length: int | None) -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n".encode()


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _stamp() -> str:
    return f"{time.perf_counter():.7f} "


@dataclass(frozen=True)
class Api:
    """The responses in one API: start, parts and end of a stream, and a complete response."""

    begin: bytes
    piece: Callable[[], bytes]
    end: bytes
    whole: Any


def _messages() -> Api:
    """Return the responses of Anthropic's Messages API."""
    message: dict[str, Any] = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "any",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    text = {"type": "text", "text": ""}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}

    def piece() -> bytes:
        delta = {"type": "text_delta", "text": _stamp()}
        return _event("content_block_delta", index=0, delta=delta)

    return Api(
        _event("message_start", message=message) + _event("content_block_start", index=0, content_block=text),
        piece,
        _event("content_block_stop", index=0)
        + _event("message_delta", delta=ending, usage={"output_tokens": 9})
        + _event("message_stop"),
        {**message, "content": [{**text, "text": "Hi."}], **ending},
    )


def _chat() -> Api:
    """Return the responses of OpenAI's Chat Completions API."""

    def text(reason: str | None = None, **delta: str) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        chunk = {"id": "c1", "object": "chat.completion.chunk", "model": "any"}
        return _data({**chunk, "choices": [choice]})

    message = {"role": "assistant", "content": "Hi."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return Api(
        text(role="assistant", content=""),
        lambda: text(content=_stamp()),
        text("stop") + b"data: [DONE]\n\n",
        {"id": "c1", "object": "chat.completion", "model": "any", "choices": [choice]},
    )


def _responses() -> Api:
    """Return the responses of OpenAI's Responses API."""
    text = {"type": "output_text", "text": "Hi.", "annotations": []}
    item = {"id": "m1", "type": "message", "role": "assistant", "status": "completed"}
    head = {"id": "r1", "object": "response", "model": "any"}
    begun = {**item, "content": [], "status": "in_progress"}
    ended = {**item, "content": [text]}
    whole = {**head, "status": "completed", "output": [ended]}
    place = {"item_id": "m1", "output_index": 0, "content_index": 0}
    return Api(
        _event("response.created", response={**head, "status": "in_progress", "output": []})
        + _event("response.output_item.added", output_index=0, item=begun),
        lambda: _event("response.output_text.delta", **place, delta=_stamp()),
        _event("response.output_item.done", output_index=0, item=ended) + _event("response.completed", response=whole),
        whole,
    )


APIS: Final = {MESSAGES: _messages(), CHAT: _chat(), RESPONSES: _responses()}


def _plan(body: dict[str, Any]) -> tuple[int, float]:
    """Return the requested number of events and the seconds between them."""
    text = body["messages"][0]["content"] if "messages" in body else body["input"]
    asked = text.split() if isinstance(text, str) and text[:1].isdigit() else ()
    return (int(asked[0]), float(asked[1])) if asked else (EVENTS, GAP_SECONDS)


async def _serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            api = APIS[head.split()[1].decode().partition("?")[0]]
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            body = json.loads(await reader.readexactly(int(length or 0)) or b"{}")
            if not body.get("stream"):
                whole = json.dumps(api.whole).encode()
                writer.write(_head("200 OK", "application/json", len(whole)) + whole)
                await writer.drain()
                continue
            count, gap = _plan(body)
            writer.write(_head("200 OK", "text/event-stream", None) + _chunk(api.begin))
            for _ in range(count):
                await asyncio.sleep(gap)
                writer.write(_chunk(api.piece()))
                await writer.drain()
            writer.write(_chunk(api.end) + b"0\r\n\r\n")
            await writer.drain()
    writer.close()


async def serve(port: int) -> None:
    """Run the upstream."""
    server = await asyncio.start_server(_serve_one, "127.0.0.1", port, limit=1 << 24, backlog=2_048)
    await server.serve_forever()
