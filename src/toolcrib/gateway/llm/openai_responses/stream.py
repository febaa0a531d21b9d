"""A streamed response: what is the client's goes through at once, what is ours is kept back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.api_errors import render_openai_error
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.openai_responses.rewriter import ResponsesRewriter
from toolcrib.gateway.llm.sse import format_event as as_event

Event = dict[str, Any]

_OPENINGS: Final = ("response.created", "response.queued", "response.in_progress")
_ENDINGS: Final = ("response.completed", "response.incomplete", "response.failed")
_ITEM: Final = "response.output_item"
_WRITING: Final = "response.function_call_arguments"


class ResponsesStream:
    """The events of all rounds of a talk, as one answer.

    After each event, `wants_search` says whether `search` is to be called before the next.
    """

    def __init__(self, talk: ResponsesRewriter) -> None:
        self._talk = talk
        self._sequence = 0
        self._items = 0
        self._id = ""
        self._places: dict[int, int] = {}
        self._kept_back: set[int] = set()
        self._searching: tuple[int, Event] | None = None
        self._ending: Event | None = None
        self._failed = False

    @property
    def needs_search(self) -> bool:
        """Whether an item waits for `search`."""
        return self._searching is not None

    @property
    def is_ended(self) -> bool:
        """Whether the round is over, or something went wrong."""
        return self._ending is not None or self._failed

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow in this round."""
        return self.is_ended

    def handle_event(self, event: Event) -> Iterator[Event]:
        """What to send of an event of the upstream's."""
        kind = str_or_empty(event.get("type"))
        if kind in _OPENINGS:
            yield from self._handle_opening(event)
        elif kind in _ENDINGS:
            self._ending = event
        elif kind == f"{_ITEM}.added":
            yield from self._handle_added(event)
        elif kind == f"{_ITEM}.done":
            yield from self._handle_done(event)
        elif "output_index" in event:
            yield from self._handle_item_event(event)
        else:
            self._failed = self._failed or kind == "error" or bool(event.get("error"))
            yield self._number_event(event)

    def run_search(self) -> list[Event]:
        """What comes of the item that waits. This takes its time."""
        assert self._searching is not None, "only an item that waits is searched for"
        (place, item), self._searching = self._searching, None
        self._kept_back.discard(place)
        begun = self._places.pop(place, None)
        events: list[Event] = []
        for shown in self._talk.handle_item(item).visible:
            if begun is None:
                events += self._render_item(shown)
            else:
                events.append(self._item_event("done", begun, shown))
                begun = None
        return events

    def finish_round(self) -> list[Event] | None:
        """At the end of a round, what ends the answer; None if the upstream is to be asked again."""
        if self._failed:
            return []
        assert self._ending is not None, "a round ends with its last event"
        ending, self._ending = self._ending, None
        response = ending.get("response")
        response = response if isinstance(response, dict) else {}
        if not self._talk.finish_round(response):
            self._places = {}
            return None
        whole = self._talk.render_response(response)
        if self._id:
            # A stream has one id to its end, or clients give it up. What the upstream has stored of
            # the whole answer is the last round, so that is where this id has to lead.
            self._talk.record_alias(self._id, response)
            whole["id"] = self._id
        return [self._number_event({**ending, "response": whole})]

    def encode_event(self, event: Event) -> bytes:
        """An event as it is sent."""
        return as_event(str_or_empty(event.get("type")), serialize_json(event))

    def encode_error(self, fault: RequestFailed, said: object) -> bytes:
        """How the stream ends if it broke off: told both as the API has it and as its SDK reads it."""
        inner = said if isinstance(said, dict) else render_openai_error(fault)["error"]
        told = {name: inner.get(name) for name in ("code", "message", "param")}
        return self.encode_event(self._number_event({"type": "error", **told, "error": inner}))

    def encode_end(self) -> bytes:
        """Nothing follows the last event."""
        return b""

    def _handle_opening(self, event: Event) -> Iterator[Event]:
        response = event.get("response")
        if self._talk.rounds or not isinstance(response, dict):
            return
        self._id = str_or_empty(response.get("id"))
        yield self._number_event({**event, "response": self._talk.render_head(response)})

    def _handle_added(self, event: Event) -> Iterator[Event]:
        place, item = _output_index(event), event.get("item")
        if not isinstance(item, dict):
            yield self._number_event(event)
            return
        kind = self._talk.classify_item(item)
        if kind == "plain":
            begun = self._talk.render_item(item)
        else:
            self._kept_back.add(place)
            told = self._talk.begin_search_item(item) if kind == "search" else None
            if told is None:
                return
            begun = told
        self._places[place] = self._next_index()
        yield self._number_event({**event, "output_index": self._places[place], "item": begun})

    def _handle_done(self, event: Event) -> Iterator[Event]:
        place, item = _output_index(event), event.get("item")
        if not isinstance(item, dict):
            yield self._number_event(event)
            return
        if place in self._kept_back or self._talk.classify_item(item) != "plain":
            self._searching = (place, item)
            return
        (shown,) = self._talk.handle_item(item).visible
        number = self._places.pop(place, None)
        if number is None:
            number = self._next_index()
        yield self._number_event({**event, "output_index": number, "item": shown})

    def _handle_item_event(self, event: Event) -> Iterator[Event]:
        place = _output_index(event)
        if place in self._kept_back:
            return
        if place in self._places:
            event = {**event, "output_index": self._places[place]}
        if event.get("type") == f"{_WRITING}.done" and "name" in event:
            named = self._talk.render_item({"type": "function_call", "name": event["name"]})
            event = {**event, "name": named["name"]}
        yield self._number_event(event)

    def _render_item(self, item: Event) -> Iterator[Event]:
        """All events of an item that was kept back, or that is ours."""
        place = self._next_index()
        begun = {**item, "status": "in_progress"}
        if item.get("type") != "function_call":
            yield self._item_event("added", place, begun)
        else:
            yield self._item_event("added", place, {**begun, "arguments": ""})
            where = {"item_id": item.get("id"), "output_index": place}
            written = item.get("arguments")
            yield self._number_event({"type": f"{_WRITING}.delta", **where, "delta": written})
            done = {"name": item.get("name"), "arguments": written}
            yield self._number_event({"type": f"{_WRITING}.done", **where, **done})
        yield self._item_event("done", place, item)

    def _item_event(self, what: str, place: int, item: Event) -> Event:
        return self._number_event({"type": f"{_ITEM}.{what}", "output_index": place, "item": item})

    def _next_index(self) -> int:
        self._items += 1
        return self._items - 1

    def _number_event(self, event: Event) -> Event:
        number, self._sequence = self._sequence, self._sequence + 1
        return {**event, "sequence_number": number}


def _output_index(event: Event) -> int:
    """Where the upstream has an item; what says it in no number is all at one place."""
    place = event.get("output_index")
    return place if isinstance(place, int) else -1
