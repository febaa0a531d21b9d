"""A streamed chat completion: what is the client's goes through at once, what is ours is kept back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.api_errors import render_openai_error
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.openai_chat.rewriter import (
    PARAGRAPH_BREAK,
    TEXT_FIELDS,
    ChatRewriter,
    visible_finish_reason,
)
from toolcrib.gateway.llm.sse import format_event as as_event

Chunk = dict[str, Any]

_IDENTITY_FIELDS: Final = ("id", "created", "model", "system_fingerprint")
_STREAMED_FIELDS: Final = ("arguments", "input")


class ChatStream:
    """The chunks of all rounds of a talk, as one answer."""

    def __init__(self, talk: ChatRewriter) -> None:
        self._talk = talk
        self._first: Chunk = {}
        self._said: set[str] = set()
        self._spoke: set[str] = set()
        self._calls_sent = 0
        self._message: Chunk = {}
        self._words: dict[str, list[str]] = {}
        self._calls: dict[int, _CallBuilder] = {}
        self._last: Chunk = {}
        self._usage: Any = None
        self._reason: Any = None
        self._failed = False

    @property
    def needs_search(self) -> bool:
        """Never in the middle: calls are complete only when the message is."""
        return False

    @property
    def is_ended(self) -> bool:
        """Whether the upstream has said why it ended, or what went wrong."""
        return self._reason is not None or self._failed

    @property
    def is_final(self) -> bool:
        """Not known: the cost may follow the end."""
        return self._failed

    def run_search(self) -> list[Chunk]:
        """Nothing: `end` searches."""
        return []

    def encode_event(self, event: Chunk) -> bytes:
        """A chunk as it is sent."""
        return as_event("", serialize_json(event))

    def encode_error(self, fault: RequestFailed, said: object) -> bytes:
        """How the stream ends if it broke off."""
        return self.encode_event(render_openai_error(fault) if said is None else {"error": said})

    def encode_end(self) -> bytes:
        """What follows the last chunk."""
        return as_event("", b"[DONE]")

    def handle_event(self, chunk: Chunk) -> Iterator[Chunk]:
        """What to send of a chunk of the upstream's."""
        if not self._first:
            self._first = {field: chunk[field] for field in _IDENTITY_FIELDS if field in chunk}
        if chunk.get("usage") is not None:
            self._usage = chunk["usage"]
        choices = dicts_or_empty(chunk.get("choices"))
        if not choices:
            # The cost is told at the end. An error, or what nobody knows yet, goes through.
            self._failed = self._failed or bool(chunk.get("error"))
            if not chunk.get("usage"):
                yield self._with_first_identity(chunk)
            return
        self._last = chunk
        if choices[0].get("finish_reason") is not None:
            self._reason = choices[0]["finish_reason"]
        delta = choices[0].get("delta")
        sent = dict(self._visible_fields(delta)) if isinstance(delta, dict) else {}
        if sent:
            yield self._make_chunk(sent)

    def finish_round(self) -> list[Chunk] | None:
        """At the end of a round, what ends the answer; None if the upstream is to be asked again.

        This searches, which takes its time.
        """
        if self._failed:
            return []
        self._talk.add_usage(self._usage)
        calls = {place: call.value for place, call in sorted(self._calls.items())}
        words = {field: "".join(pieces) for field, pieces in self._words.items()}
        message = {**self._message, **words}
        if calls:
            message["tool_calls"] = list(calls.values())
        shown = self._talk.handle_message(message, self._reason)
        if shown is None:
            self._reset_round()
            return None
        visible = dicts_or_empty(shown.get("tool_calls"))
        self._last = _without_logprobs(self._last)
        last = [
            self._make_chunk({"tool_calls": [{"index": self._next_call_index(), **call}]})
            for place, call in calls.items()
            if not self._calls[place].is_sent and _contains_object(call, visible)
        ]
        last.append(self._make_chunk({}, visible_finish_reason(shown, self._reason)))
        if self._talk.usage is not None:
            last.append(
                {**self._with_first_identity(self._last), "choices": [], "usage": self._talk.usage}
            )
        return last

    def _reset_round(self) -> None:
        """Begin another round."""
        self._message, self._words, self._calls, self._last = {}, {}, {}, {}
        self._usage = self._reason = None

    def _visible_fields(self, delta: Chunk) -> Iterator[tuple[str, Any]]:
        """What a delta holds for the client; all of it is noted."""
        for field, value in delta.items():
            if field == "tool_calls":
                calls = [
                    sent for one in dicts_or_empty(value) for sent in self._add_call_delta(one)
                ]
                if calls:
                    yield field, calls
            elif field in TEXT_FIELDS and isinstance(value, str) and value:
                yield field, self._add_text(field, value)
            elif field == "role" or value in (None, ""):
                self._message.setdefault(field, value)
                # Once is enough: for the client there is one message.
                if field not in self._said:
                    self._said.add(field)
                    yield field, value
            else:
                self._message[field] = value
                yield field, value

    def _add_text(self, field: str, words: str) -> str:
        goes_on = field in self._spoke and field not in self._words
        self._words.setdefault(field, []).append(words)
        self._said.add(field)
        self._spoke.add(field)
        return PARAGRAPH_BREAK + words if goes_on else words

    def _add_call_delta(self, piece: Chunk) -> Iterator[Chunk]:
        """What to send of a piece of a call, once its name says whose it is."""
        index = piece.get("index")
        call = self._calls.setdefault(index if isinstance(index, int) else 0, _CallBuilder())
        call.add(piece)
        if call.is_sent:
            yield {**piece, "index": call.client_index}
        elif call.is_known and not self._talk.is_intercepted(call.name):
            call.client_index = self._next_call_index()
            yield {"index": call.client_index, **call.value}

    def _next_call_index(self) -> int:
        """The next place in the client's list of calls."""
        self._calls_sent += 1
        return self._calls_sent - 1

    def _make_chunk(self, delta: Chunk, reason: object = None) -> Chunk:
        choices = dicts_or_empty(self._last.get("choices"))
        kept = choices[0] if choices else {"index": 0}
        usage = {"usage": None} if "usage" in self._last else {}
        changed = {**kept, "delta": delta, "finish_reason": reason}
        return {**self._with_first_identity(self._last), "choices": [changed], **usage}

    def _with_first_identity(self, chunk: Chunk) -> Chunk:
        """A chunk under the name of the answer, which is that of its first round."""
        return {**chunk, **{field: self._first[field] for field in self._first if field in chunk}}


class _CallBuilder:
    """A call as its pieces come. `place` is where the client has it, once it is sent."""

    def __init__(self) -> None:
        self.client_index = -1
        self._fields: Chunk = {}
        self._inner: dict[str, Chunk] = {}
        self._written: dict[tuple[str, str], list[str]] = {}

    @property
    def is_sent(self) -> bool:
        return self.client_index >= 0

    @property
    def name(self) -> str:
        return str_or_empty(self._inner.get("function", {}).get("name"))

    @property
    def is_known(self) -> bool:
        """Whether it is clear whose call this is: only functions can be ours."""
        return bool(self.name) or self._fields.get("type") not in (None, "function")

    @property
    def value(self) -> Chunk:
        """The call so far."""
        whole = {**self._fields, **{kind: dict(inner) for kind, inner in self._inner.items()}}
        for (kind, field), pieces in self._written.items():
            whole[kind][field] = "".join(pieces)
        return whole

    def add(self, piece: Chunk) -> None:
        """Put a piece to it: what is written grows, everything else is said once."""
        for field, value in piece.items():
            if isinstance(value, dict):
                self._add_inner(field, value)
            elif field != "index" and value is not None:
                self._fields[field] = value

    def _add_inner(self, kind: str, piece: Chunk) -> None:
        inner = self._inner.setdefault(kind, {})
        for field, value in piece.items():
            if field in _STREAMED_FIELDS:
                self._written.setdefault((kind, field), []).append(str_or_empty(value))
            elif value:
                inner[field] = value


def _without_logprobs(chunk: Chunk) -> Chunk:
    choices = [
        {**choice, "logprobs": None} if "logprobs" in choice else choice
        for choice in dicts_or_empty(chunk.get("choices"))
    ]
    return {**chunk, "choices": choices}


def _contains_object(one: object, others: Sequence[object]) -> bool:
    return any(one is other for other in others)
