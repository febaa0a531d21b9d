"""A stream of events on its way to the client: passes joined into one message, searches told.

Nothing is sent or received here: events go in as the upstream sent them, and come out as the client
is to get them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic.rewriter import Body, MessagesRewriter, is_gateway_search
from toolcrib.gateway.llm.anthropic.usage import MessagesUsage
from toolcrib.gateway.llm.json_body import parse_upstream_body, serialize_json

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class _OpenBlock:
    """A block that is being streamed: as the client sees it, and at which index."""

    __slots__ = ("block", "has_delta", "index", "json", "texts")

    def __init__(self, block: Body, index: int | None) -> None:
        self.block = block
        self.index = index
        self.json: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.has_delta = False

    def add_delta(self, delta: Mapping[str, Any]) -> None:
        """Remember a piece."""
        kind = delta.get("type")
        if kind == "input_json_delta":
            self.json.append(str(delta.get("partial_json", "")))
        elif kind == "citations_delta":
            self.block.setdefault("citations", [])
            if isinstance(self.block["citations"], list):
                self.block["citations"].append(delta.get("citation"))
        elif kind in _TEXTS:
            field = _TEXTS[str(kind)]
            self.texts.setdefault(field, []).append(str(delta.get(field, "")))

    def complete(self) -> Body:
        """The block with all its pieces."""
        for field, pieces in self.texts.items():
            self.block[field] = f"{self.block.get(field) or ''}{''.join(pieces)}"
        text = "".join(self.json)
        if text.strip():
            try:
                self.block["input"] = parse_upstream_body(text)
            except RequestFailed:
                # Cut off, or not an object: whoever is called will say so.
                self.block["input"] = {}
        return self.block


class MessagesStream:
    """One streamed response, pass after pass."""

    def __init__(self, talk: MessagesRewriter, waiting: Sequence[Body] = ()) -> None:
        self._talk = talk
        # The results of searches that come before anything the model says.
        self._waiting = list(waiting)
        self._next = 0
        self._usage = MessagesUsage()
        self._searched = False
        self._start_usage: object = None
        self._open: dict[int, _OpenBlock] = {}
        self._blocks: list[Body] = []
        self._delta: Body | None = None
        self._last_delta: Body = {}
        self.has_started = False
        self.has_failed = False
        self.has_ended = False

    def handle_event(self, event: Body) -> list[Body]:
        """The events for the client that an event of the upstream makes."""
        match event.get("type"):
            case "message_start":
                return self._message_start(event)
            case "content_block_start":
                return self._block_start(event)
            case "content_block_delta":
                return self._block_delta(event)
            case "content_block_stop":
                return self._block_stop(event)
            case "message_delta":
                self._delta = event
                return []
            case "message_stop":
                self.has_ended = True
                return []
            case "error":
                self.has_failed = True
                return [event]
            case _:
                return [event] if self.has_started else []

    def end_pass(self) -> tuple[list[Body], str | None]:
        """The blocks of the pass that has ended, and why it has; the next pass may begin."""
        if self._delta is None and not self.has_ended:
            raise RequestFailed("the upstream ended its answer in the middle; try again", 502)
        for index in list(self._open):
            self._blocks.append(self._open.pop(index).complete())
        # The next pass has to end by itself: what ended this one is no end of that.
        delta, self._delta = self._delta or {}, None
        self._last_delta = delta
        self._usage.add_round(self._start_usage, delta.get("usage"))
        blocks, self._blocks = self._blocks, []
        self._start_usage, self.has_ended = None, False
        reason = _object(delta.get("delta")).get("stop_reason")
        return blocks, reason if isinstance(reason, str) else None

    def render_results(self, results: Sequence[Body]) -> list[Body]:
        """The events of what searches found: each whole, without pieces."""
        self._searched = True
        if not self._talk.shows_searches:
            return []
        events: list[Body] = []
        for result in results:
            index = self._new_index()
            events.append({"type": "content_block_start", "index": index, "content_block": result})
            events.append({"type": "content_block_stop", "index": index})
        return events

    def render_end(self, stop_reason: str | None) -> list[Body]:
        """The last events, with the sum of what all passes used."""
        event = self._last_delta or {"type": "message_delta", "delta": {}}
        delta = {"stop_reason": None, "stop_sequence": None, **_object(event.get("delta"))}
        if self._talk.shows_searches:
            delta.setdefault("stop_details", None)
        delta["stop_reason"] = stop_reason
        usage = self._usage.render(searched=self._searched and self._talk.shows_searches)
        return [{**event, "delta": delta, "usage": usage}, {"type": "message_stop"}]

    def _message_start(self, event: Body) -> list[Body]:
        self._start_usage = _object(event.get("message")).get("usage")
        if self.has_started:
            return []
        self.has_started = True
        events = [event]
        if self._waiting:
            events += self.render_results(self._waiting)
        return events

    def _block_start(self, event: Body) -> list[Body]:
        sent = _object(event.get("content_block"))
        block = self._talk.convert_block(sent)
        search = is_gateway_search(self._talk, block)
        if search and not self._talk.shows_searches:
            self._open[_index(event)] = _OpenBlock(block, None)
            return []
        opened = _OpenBlock(block, self._new_index())
        self._open[_index(event)] = opened
        started = {"type": "content_block_start", "index": opened.index, "content_block": block}
        if not search or not sent.get("input"):
            return [{**started, "content_block": dict(block)}]
        # All at once; the client gets it in the pieces in which it would come from the API.
        text = serialize_json(sent["input"]).decode()
        opened.has_delta = True
        return [
            {**started, "content_block": {**block, "input": {}}},
            *(_json_delta(opened.index, piece) for piece in ("", text)),
        ]

    def _block_delta(self, event: Body) -> list[Body]:
        opened = self._get_open_block(event)
        delta = _object(event.get("delta"))
        opened.add_delta(delta)
        if opened.index is None:
            return []
        told = [event if event["index"] == opened.index else {**event, "index": opened.index}]
        is_first, opened.has_delta = not opened.has_delta, True
        if is_first and opened.block.get("type") == "server_tool_use" and delta.get("partial_json"):
            return [_json_delta(opened.index, ""), *told]
        return told

    def _block_stop(self, event: Body) -> list[Body]:
        opened = self._get_open_block(event)
        del self._open[_index(event)]
        self._blocks.append(opened.complete())
        return [] if opened.index is None else [{**event, "index": opened.index}]

    def _get_open_block(self, event: Body) -> _OpenBlock:
        opened = self._open.get(_index(event))
        if opened is None:
            raise RequestFailed("the upstream sent a piece of a block that it had not begun", 502)
        return opened

    def _new_index(self) -> int:
        index, self._next = self._next, self._next + 1
        return index


def _json_delta(index: int | None, text: str) -> Body:
    delta = {"type": "input_json_delta", "partial_json": text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise RequestFailed("the upstream sent an event of a block without its index", 502)
    return index


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
