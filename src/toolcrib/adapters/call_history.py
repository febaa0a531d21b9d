"""Match calls with their results in a message history."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.core.calls import PastCall, ToolCall


class CallHistory:
    """The turns of a message history, built from its first message to its last.

    A result belongs to the latest call with its id, because some clients reuse ids in later turns.
    Calls without an id are matched by name, in the order in which they were made.
    """

    def __init__(self) -> None:
        self.turns: list[list[PastCall]] = []
        self._open_calls: dict[str, list[tuple[int, int]]] = {}

    def add_turn(self, calls: Iterable[ToolCall], loaded_names: Iterable[str] = ()) -> None:
        """Add a turn: the model's calls, and the names of tools its provider loaded before them."""
        turn = [PastCall(call) for call in calls]
        if names := tuple(loaded_names):
            turn.insert(0, PastCall(ToolCall("", "", None), names=names, is_hosted_search=True))
        open_calls: dict[str, list[tuple[int, int]]] = {}
        for position, past_call in enumerate(turn):
            if past_call.is_hosted_search:
                continue
            key = past_call.call.id or past_call.call.name
            open_calls.setdefault(key, []).append((len(self.turns), position))
        self.turns.append(turn)
        self._open_calls |= open_calls

    def add_result(self, key: str, text: str, names: Iterable[str] = (), *, is_error: bool = False) -> None:
        """Add the result of the call with this id, or this name; without such a call, ignore it."""
        positions = self._open_calls.get(key)
        if positions:
            turn, position = positions.pop(0)
            call = self.turns[turn][position].call
            self.turns[turn][position] = PastCall(call, text, tuple(names), is_error)
