"""A streamed reply of the Messages API: the rounds joined into one message, with the searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic.rewriter import Body, MessagesRewriter
from toolcrib.gateway.llm.endpoint import render_messages_error
from toolcrib.gateway.llm.json_body import parse_upstream_body, serialize_json
from toolcrib.gateway.llm.search_loop import ReplyStream
from toolcrib.gateway.llm.sse import format_event

_PING: Final = format_event("ping", b'{"type":"ping"}')
_TEXT_FIELDS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


@dataclass(slots=True)
class _OpenBlock:
    """A block that is being streamed. `index` is its index for the client, None if it is hidden."""

    block: Body
    index: int | None
    json: list[str] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    has_delta: bool = False

    def add_delta(self, delta: Mapping[str, Any]) -> None:
        type = delta.get("type")
        if type == "input_json_delta":
            self.json.append(str(delta.get("partial_json", "")))
        elif type == "citations_delta":
            self.block.setdefault("citations", [])
            if isinstance(self.block["citations"], list):
                self.block["citations"].append(delta.get("citation"))
        elif type in _TEXT_FIELDS:
            name = _TEXT_FIELDS[str(type)]
            self.texts.setdefault(name, []).append(str(delta.get(name, "")))

    def complete(self) -> Body:
        """Return the block with all its deltas."""
        for name, pieces in self.texts.items():
            self.block[name] = f"{self.block.get(name) or ''}{''.join(pieces)}"
        text = "".join(self.json)
        if text.strip():
            try:
                self.block["input"] = parse_upstream_body(text)
            except RequestFailed:
                # The input is cut off or not an object; the tool will report what is missing.
                self.block["input"] = {}
        return self.block


class MessagesStream(ReplyStream):
    """One streamed reply."""

    def __init__(self, rewriter: MessagesRewriter) -> None:
        self._rewriter = rewriter
        # Results of searches that were pending when the request came.
        self._initial_results = list(rewriter.content)
        self._next_index = 0
        self._start_usage: object = None
        self._open: dict[int, _OpenBlock] = {}
        self._blocks: list[Body] = []
        # A call that was buffered until now, when it is complete.
        self._pending_call: Body | None = None
        self._delta: Body | None = None
        self._has_started = False
        self._has_stopped = False

    @property
    def is_ended(self) -> bool:
        return self._delta is not None or self.is_final

    @property
    def is_final(self) -> bool:
        return self._has_stopped or self._has_failed

    @property
    def has_final_searches(self) -> bool:
        open_blocks = [opened.block for opened in self._open.values()]
        blocks = [*self._blocks, *open_blocks]
        return any(self._rewriter.is_buffered(block) or self._rewriter.is_gateway_search(block) for block in blocks)

    @property
    def needs_search(self) -> bool:
        return self._pending_call is not None

    def run_search(self) -> list[Body]:
        assert self._pending_call is not None, "a call is pending"
        call, self._pending_call = self._pending_call, None
        return self._render_call(call)

    def handle_event(self, event: Body) -> list[Body]:
        match event.get("type"):
            case "message_start":
                return self._start_message(event)
            case "content_block_start":
                return self._start_block(event)
            case "content_block_delta":
                return self._add_delta(event)
            case "content_block_stop":
                return self._stop_block(event)
            case "message_delta":
                self._delta = event
                return []
            case "message_stop":
                self._has_stopped = True
                return []
            case "error":
                self._has_failed = True
                return [event]
            case _:
                return [event] if self._has_started else []

    def finish_round(self) -> list[Body]:
        if self._has_failed:
            self.is_complete = True
            return []
        delta = self._delta or {"type": "message_delta", "delta": {}}
        # Some upstreams do not end their last block.
        unended = [opened.block for opened in self._open.values() if opened.index is None]
        blocks = [*self._blocks, *(opened.complete() for opened in self._open.values())]
        self._rewriter.add_usage(self._start_usage, delta.get("usage"))
        self._open, self._blocks, self._delta = {}, [], None
        self._start_usage, self._has_stopped = None, False
        reason = dict_or_empty(delta.get("delta")).get("stop_reason")
        results, stop = self._rewriter.handle_round(blocks, reason if isinstance(reason, str) else None)
        events = [event for call in unended for event in self._render_call(call)]
        events += self._render_results(results)
        if stop is not None:
            self.is_complete = True
            events += self._render_end(delta, stop or None)
        return events

    def encode_error(self, error: RequestFailed, upstream_body: Body | None) -> bytes:
        """Return an error event: that of the upstream, if it has the form of the API."""
        body = upstream_body or {}
        if body.get("type") != "error" or not isinstance(body.get("error"), dict):
            body = render_messages_error(error)
        return format_event("error", serialize_json(body))

    def _start_message(self, event: Body) -> list[Body]:
        self._start_usage = dict_or_empty(event.get("message")).get("usage")
        if self._has_started:
            return []
        self._has_started = True
        self.ping = _PING
        return [event, *self._render_results(self._initial_results)]

    def _start_block(self, event: Body) -> list[Body]:
        upstream_block = dict_or_empty(event.get("content_block"))
        block = self._rewriter.convert_block(upstream_block)
        if self._rewriter.is_buffered(block):
            self._open[_block_index(event)] = _OpenBlock(block, None)
            return []
        is_search = self._rewriter.is_gateway_search(block)
        opened = _OpenBlock(block, self._new_index())
        self._open[_block_index(event)] = opened
        start = {"type": "content_block_start", "index": opened.index, "content_block": dict(block)}
        if not is_search or not upstream_block.get("input"):
            return [start]
        # The upstream sends the whole input in one event; the API would send it in deltas.
        text = serialize_json(upstream_block["input"]).decode()
        opened.has_delta = True
        return [
            {**start, "content_block": {**block, "input": {}}},
            *(_json_delta(opened.index, piece) for piece in ("", text)),
        ]

    def _add_delta(self, event: Body) -> list[Body]:
        opened = self._get_open_block(event)
        delta = dict_or_empty(event.get("delta"))
        opened.add_delta(delta)
        if opened.index is None:
            return []
        events = [{**event, "index": opened.index}]
        is_first, opened.has_delta = not opened.has_delta, True
        if is_first and opened.block.get("type") == "server_tool_use" and delta.get("partial_json"):
            # The API starts the input of a search with an empty delta.
            return [_json_delta(opened.index, ""), *events]
        return events

    def _stop_block(self, event: Body) -> list[Body]:
        opened = self._get_open_block(event)
        del self._open[_block_index(event)]
        self._blocks.append(opened.complete())
        if opened.index is None:
            self._pending_call = opened.block
            return []
        return [{**event, "index": opened.index}]

    def _get_open_block(self, event: Body) -> _OpenBlock:
        opened = self._open.get(_block_index(event))
        if opened is None:
            raise RequestFailed("the upstream sent an event of a block that is not open", 502)
        return opened

    def _render_call(self, call: Body) -> list[Body]:
        """Return the events of a call that was buffered, unless it is hidden."""
        visible = self._rewriter.resolve_block(call)
        if visible is None:
            return []
        index = self._new_index()
        return [
            {"type": "content_block_start", "index": index, "content_block": {**visible, "input": {}}},
            *(_json_delta(index, text) for text in ("", serialize_json(visible["input"]).decode())),
            {"type": "content_block_stop", "index": index},
        ]

    def _render_results(self, results: list[Body]) -> list[Body]:
        """Return the events of search results, each of which is sent whole."""
        if not self._rewriter.shows_searches:
            return []
        events: list[Body] = []
        for result in results:
            index = self._new_index()
            events.append({"type": "content_block_start", "index": index, "content_block": result})
            events.append({"type": "content_block_stop", "index": index})
        return events

    def _render_end(self, event: Body, stop_reason: str | None) -> list[Body]:
        delta = {"stop_reason": None, "stop_sequence": None, **dict_or_empty(event.get("delta"))}
        if self._rewriter.shows_searches:
            delta.setdefault("stop_details", None)
        delta["stop_reason"] = stop_reason
        end = {**event, "delta": delta, "usage": self._rewriter.usage}
        return [end, {"type": "message_stop"}]

    def _new_index(self) -> int:
        index, self._next_index = self._next_index, self._next_index + 1
        return index


def _json_delta(index: int | None, text: str) -> Body:
    delta = {"type": "input_json_delta", "partial_json": text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _block_index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise RequestFailed("the upstream sent an event of a block without its index", 502)
    return index
