"""A streamed chat completion: the rounds joined into one message, without the searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import render_openai_error
from toolcrib.gateway.llm.openai_chat.rewriter import (
    PARAGRAPH_BREAK,
    TEXT_FIELDS,
    ChatRewriter,
    exclude_objects,
    visible_finish_reason,
)
from toolcrib.gateway.llm.search_loop import ChunkStream
from toolcrib.gateway.llm.sse import format_event
from toolcrib.gateway.llm.translation.translator import CallCollector

Chunk = dict[str, Any]

# The fields that stay the same in all chunks of a reply.
_IDENTITY_FIELDS: Final = ("id", "created", "model", "system_fingerprint")
# The fields of a call that come in pieces.
_STREAMED_FIELDS: Final = ("arguments", "input")


class ChatStream(ChunkStream):
    """One streamed reply."""

    def __init__(self, rewriter: ChatRewriter) -> None:
        self._rewriter = rewriter
        self._identity: Chunk = {}
        self._sent_fields: set[str] = set()
        self._sent_texts: set[str] = set()
        self._sent_calls = 0
        self._message: Chunk = {}
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, _CallBuilder] = {}
        self._collector = CallCollector()
        self._last: Chunk = {}
        self._usage: Any = None

    @property
    def has_final_searches(self) -> bool:
        return any(self._rewriter.is_intercepted(call.name) for call in self._calls.values())

    def handle_event(self, chunk: Chunk) -> Iterator[Chunk]:
        if not self._identity and chunk.get("id"):
            self._identity = {field: chunk[field] for field in _IDENTITY_FIELDS if field in chunk}
        if chunk.get("usage") is not None:
            self._usage = chunk["usage"]
        choices = dicts_or_empty(chunk.get("choices"))
        if not choices:
            # The usage is sent at the end. An error and unknown chunks are forwarded.
            self._has_failed = self._has_failed or bool(chunk.get("error"))
            if not chunk.get("usage"):
                yield self._with_identity(chunk)
            return
        self._last = chunk
        if choices[0].get("finish_reason") is not None:
            self._reason = choices[0]["finish_reason"]
        delta = choices[0].get("delta")
        visible = dict(self._visible_fields(delta)) if isinstance(delta, dict) else {}
        if visible:
            yield self._make_chunk(visible)

    def finish_round(self) -> list[Chunk]:
        if self._has_failed:
            self.is_complete = True
            return []
        self._rewriter.add_usage(self._usage)
        calls = {index: call.value for index, call in sorted(self._calls.items())}
        texts = {field: "".join(pieces) for field, pieces in self._texts.items()}
        message = {**self._message, **texts}
        if calls:
            message["tool_calls"] = list(calls.values())
        visible = self._rewriter.handle_message(message, self._reason)
        if visible is None:
            self._message, self._texts, self._calls, self._last = {}, {}, {}, {}
            self._collector = CallCollector()
            self._usage = self._reason = None
            return []
        self.is_complete = True
        return self._last_chunks(visible, calls)

    def encode_error(self, error: RequestFailed, upstream_body: Chunk | None) -> bytes:
        """Return an error chunk: with the error of the upstream, if it has sent one."""
        sent = (upstream_body or {}).get("error")
        return self.encode_event(render_openai_error(error) if sent is None else {"error": sent})

    def encode_end(self) -> bytes:
        return format_event("", b"[DONE]")

    def _last_chunks(self, visible: Chunk, calls: dict[int, Chunk]) -> list[Chunk]:
        """Return the calls that were buffered until now, the finish reason and the usage."""
        visible_calls = dicts_or_empty(visible.get("tool_calls"))
        self._last = _without_logprobs(self._last)
        sent = [call for index, call in calls.items() if self._calls[index].is_sent]
        chunks = [
            self._make_chunk({"tool_calls": [{"index": self._next_call_index(), **call}]})
            for call in exclude_objects(visible_calls, sent)
        ]
        chunks.append(self._make_chunk({}, visible_finish_reason(visible, self._reason)))
        usage = self._rewriter.usage
        if usage is not None:
            chunks.append({**self._with_identity(self._last), "choices": [], "usage": usage})
        return chunks

    def _visible_fields(self, delta: Chunk) -> Iterator[tuple[str, Any]]:
        """Record the fields of a delta and yield those for the client."""
        for field, value in delta.items():
            if field == "tool_calls":
                deltas = enumerate(dicts_or_empty(value))
                calls = [piece for position, call in deltas for piece in self._add_call_delta(call, position)]
                if calls:
                    yield field, calls
            elif field in TEXT_FIELDS and isinstance(value, str) and value:
                yield field, self._add_text(field, value)
            elif field == "role" or value in (None, ""):
                self._message.setdefault(field, value)
                # Only in the first round, because the client gets a single message.
                if field not in self._sent_fields:
                    self._sent_fields.add(field)
                    yield field, value
            else:
                self._message[field] = value
                yield field, value

    def _add_text(self, field: str, text: str) -> str:
        starts_paragraph = field in self._sent_texts and field not in self._texts
        self._texts.setdefault(field, []).append(text)
        self._sent_fields.add(field)
        self._sent_texts.add(field)
        return PARAGRAPH_BREAK + text if starts_paragraph else text

    def _add_call_delta(self, delta: Chunk, position: int) -> Iterator[Chunk]:
        """Add a delta to its call, and yield what the client gets of it.

        A call is buffered until its name shows whether the gateway handles it.
        """
        call = self._calls.setdefault(self._collector.add(delta, position), _CallBuilder())
        call.add_delta(delta)
        if call.is_sent:
            yield {**delta, "index": call.client_index}
        elif call.is_known and not self._rewriter.is_intercepted(call.name) and not self._buffers_calls:
            call.client_index = self._next_call_index()
            yield {"index": call.client_index, **call.value}

    @property
    def _buffers_calls(self) -> bool:
        """Whether a call of a client's tool is buffered, so that later ones have to wait for it."""
        names = (call.name for call in self._calls.values() if call.is_known and not call.is_sent)
        return any(map(self._rewriter.may_be_visible, names))

    def _next_call_index(self) -> int:
        self._sent_calls += 1
        return self._sent_calls - 1

    def _make_chunk(self, delta: Chunk, reason: object = None) -> Chunk:
        choices = dicts_or_empty(self._last.get("choices"))
        choice = choices[0] if choices else {"index": 0}
        usage = {"usage": None} if "usage" in self._last else {}
        changed = {**choice, "delta": delta, "finish_reason": reason}
        return {**self._with_identity(self._last), "choices": [changed], **usage}

    def _with_identity(self, chunk: Chunk) -> Chunk:
        """Return a chunk with the identity of the first round."""
        identity = {field: value for field, value in self._identity.items() if field in chunk}
        return {**chunk, **identity}


class _CallBuilder:
    """A call that comes in deltas. `client_index` is its index for the client, once it is sent."""

    def __init__(self) -> None:
        self.client_index = -1
        self._fields: Chunk = {}
        self._inner: dict[str, Chunk] = {}
        self._streamed: dict[tuple[str, str], list[str]] = {}

    @property
    def is_sent(self) -> bool:
        return self.client_index >= 0

    @property
    def name(self) -> str:
        return str_or_empty(self._inner.get("function", {}).get("name"))

    @property
    def is_known(self) -> bool:
        """Whether it is clear who handles the call; the gateway only handles functions."""
        return bool(self.name) or self._fields.get("type") not in (None, "function")

    @property
    def value(self) -> Chunk:
        """The call so far."""
        value = {**self._fields, **{type: dict(inner) for type, inner in self._inner.items()}}
        for (type, field), pieces in self._streamed.items():
            value[type][field] = "".join(pieces)
        return value

    def add_delta(self, delta: Chunk) -> None:
        """Add a delta: streamed fields are joined, the last value of any other field is used."""
        for field, value in delta.items():
            if isinstance(value, dict):
                self._add_inner(field, value)
            elif field != "index" and value is not None:
                self._fields[field] = value

    def _add_inner(self, type: str, delta: Chunk) -> None:
        inner = self._inner.setdefault(type, {})
        for field, value in delta.items():
            if field in _STREAMED_FIELDS:
                self._streamed.setdefault((type, field), []).append(str_or_empty(value))
            elif value:
                inner[field] = value


def _without_logprobs(chunk: Chunk) -> Chunk:
    choices = [
        {**choice, "logprobs": None} if "logprobs" in choice else choice
        for choice in dicts_or_empty(chunk.get("choices"))
    ]
    return {**chunk, "choices": choices}
