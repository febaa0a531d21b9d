"""A streamed response: the rounds joined into one, with the searches that the client may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty, str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import render_openai_error, render_responses_event
from toolcrib.gateway.llm.openai_responses.rewriter import ResponsesRewriter
from toolcrib.gateway.llm.search_loop import ReplyStream

Event = dict[str, Any]

_START_TYPES: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_END_TYPES: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ITEM_ADDED: Final = "response.output_item.added"
_ITEM_DONE: Final = "response.output_item.done"
_ARGUMENTS_DELTA: Final = "response.function_call_arguments.delta"
_ARGUMENTS_DONE: Final = "response.function_call_arguments.done"


class ResponsesStream(ReplyStream):
    """One streamed reply. Each search runs as soon as its item is complete."""

    # A comment, which every parser of events ignores.
    ping = b": searching\n\n"

    def __init__(self, rewriter: ResponsesRewriter) -> None:
        self._rewriter = rewriter
        self._sequence = 0
        self._item_count = 0
        self._id = ""
        # The output indexes of started items: that of the upstream to that of the client.
        self._indexes: dict[int, int] = {}
        self._buffered: set[int] = set()
        self._pending_item: tuple[int, Event] | None = None
        self._end: Event | None = None

    @property
    def needs_search(self) -> bool:
        return self._pending_item is not None

    @property
    def is_ended(self) -> bool:
        return self._end is not None or self._has_failed

    @property
    def is_final(self) -> bool:
        return self.is_ended

    def handle_event(self, event: Event) -> list[Event]:
        type = str_or_empty(event.get("type"))
        if type in _START_TYPES:
            return self._start_response(event)
        if type in _END_TYPES:
            self._end = event
            return []
        if type == _ITEM_ADDED:
            return self._start_item(event)
        if type == _ITEM_DONE:
            return self._finish_item(event)
        if "output_index" in event:
            return self._forward_item_event(event)
        self._has_failed = self._has_failed or type == "error" or bool(event.get("error"))
        return [self._number_event(event)]

    def run_search(self) -> list[Event]:
        assert self._pending_item is not None, "an item is pending"
        (upstream_index, item), self._pending_item = self._pending_item, None
        self._buffered.discard(upstream_index)
        index = self._indexes.pop(upstream_index, None)
        events: list[Event] = []
        for visible in self._rewriter.handle_item(item).visible:
            if index is None:
                events += self._render_item(visible)
            else:
                events.append(self._item_event(_ITEM_DONE, index, visible))
                index = None
        return events

    def finish_round(self) -> list[Event]:
        if self._has_failed:
            self.is_complete = True
            return []
        assert self._end is not None, "the upstream has ended the round"
        end, self._end = self._end, None
        response = dict_or_empty(end.get("response"))
        if not self._rewriter.finish_round(response):
            self._indexes = {}
            return []
        self.is_complete = True
        rendered = self._rewriter.render_response(response)
        if self._id:
            # Clients refuse a stream whose id changes, so it has the id of the first round. The
            # upstream has stored the last round, so the id has to lead there.
            self._rewriter.record_alias(self._id, response)
            rendered["id"] = self._id
        return [self._number_event({**end, "response": rendered})]

    def encode_error(self, error: RequestFailed, upstream_body: Event | None) -> bytes:
        sent = (upstream_body or {}).get("error")
        inner = sent if isinstance(sent, dict) else render_openai_error(error)["error"]
        return self.encode_event(self._number_event(render_responses_event(inner)))

    def _start_response(self, event: Event) -> list[Event]:
        response = event.get("response")
        if self._rewriter.rounds or not isinstance(response, dict):
            return []
        self._id = str_or_empty(response.get("id"))
        return [self._number_event({**event, "response": self._rewriter.render_head(response)})]

    def _start_item(self, event: Event) -> list[Event]:
        upstream_index, item = _output_index(event), event.get("item")
        if not isinstance(item, dict):
            return [self._number_event(event)]
        role = self._rewriter.classify_item(item)
        if role == "plain":
            visible: Event | None = self._rewriter.render_item(item)
        else:
            self._buffered.add(upstream_index)
            visible = self._rewriter.begin_search_item(item) if role == "search" else None
        if visible is None:
            return []
        index = self._indexes[upstream_index] = self._next_index()
        return [self._number_event({**event, "output_index": index, "item": visible})]

    def _finish_item(self, event: Event) -> list[Event]:
        upstream_index, item = _output_index(event), event.get("item")
        if not isinstance(item, dict):
            return [self._number_event(event)]
        if upstream_index in self._buffered or self._rewriter.classify_item(item) != "plain":
            self._pending_item = (upstream_index, item)
            return []
        (visible,) = self._rewriter.handle_item(item).visible
        index = self._indexes.pop(upstream_index, None)
        if index is None:
            index = self._next_index()
        return [self._number_event({**event, "output_index": index, "item": visible})]

    def _forward_item_event(self, event: Event) -> list[Event]:
        upstream_index = _output_index(event)
        if upstream_index in self._buffered:
            return []
        if upstream_index in self._indexes:
            event = {**event, "output_index": self._indexes[upstream_index]}
        if event.get("type") == _ARGUMENTS_DONE and "name" in event:
            call = self._rewriter.render_item({"type": "function_call", "name": event["name"]})
            event = {**event, "name": call["name"]}
        return [self._number_event(event)]

    def _render_item(self, item: Event) -> Iterator[Event]:
        """Yield all events of an item that was buffered."""
        index = self._next_index()
        start = {**item, "status": "in_progress"}
        if item.get("type") != "function_call":
            yield self._item_event(_ITEM_ADDED, index, start)
        else:
            yield self._item_event(_ITEM_ADDED, index, {**start, "arguments": ""})
            location = {"item_id": item.get("id"), "output_index": index}
            arguments = item.get("arguments")
            yield self._number_event({"type": _ARGUMENTS_DELTA, **location, "delta": arguments})
            fields = {"name": item.get("name"), "arguments": arguments}
            yield self._number_event({"type": _ARGUMENTS_DONE, **location, **fields})
        yield self._item_event(_ITEM_DONE, index, item)

    def _item_event(self, type: str, index: int, item: Event) -> Event:
        return self._number_event({"type": type, "output_index": index, "item": item})

    def _next_index(self) -> int:
        self._item_count += 1
        return self._item_count - 1

    def _number_event(self, event: Event) -> Event:
        number, self._sequence = self._sequence, self._sequence + 1
        return {**event, "sequence_number": number}


def _output_index(event: Event) -> int:
    """Return the index of an item at the upstream; -1 for all items without a number."""
    index = event.get("output_index")
    return index if isinstance(index, int) else -1
