"""Calls and results in a message history, brought together again."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.core.calls import PastCall, ToolCall


class CallHistory:
    """The turns of a history as it is read, from its beginning.

    A result belongs to the latest call with its id, as not everybody's ids differ from turn to turn.
    Calls without an id are known by their name, and answered in the order in which they were made.
    """

    def __init__(self) -> None:
        self.turns: list[list[PastCall]] = []
        self._open_calls: dict[str, list[tuple[int, int]]] = {}

    def add_turn(self, calls: Iterable[ToolCall], loaded: Iterable[str] = ()) -> None:
        """The model made these calls, after its provider had loaded tools of these names for it."""
        turn = [PastCall(call) for call in calls]
        if names := tuple(loaded):
            turn.insert(0, PastCall(ToolCall("", "", None), names=names, is_hosted_search=True))
        waiting: dict[str, list[tuple[int, int]]] = {}
        for place, exchange in enumerate(turn):
            if exchange.is_hosted_search:
                continue
            key = exchange.call.id or exchange.call.name
            waiting.setdefault(key, []).append((len(self.turns), place))
        self.turns.append(turn)
        self._open_calls |= waiting

    def add_result(
        self, key: str, text: str, names: Iterable[str] = (), *, is_error: bool = False
    ) -> None:
        """This came back for the call with this id. Without such a call it is passed over."""
        places = self._open_calls.get(key)
        if places:
            turn, place = places.pop(0)
            call = self.turns[turn][place].call
            self.turns[turn][place] = PastCall(call, text, tuple(names), is_error)
