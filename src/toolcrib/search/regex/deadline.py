"""The moment a search has to end, on a clock that is given."""

from __future__ import annotations

from collections.abc import Callable

from toolcrib.errors import SearchTimeout


class Deadline:
    """A time budget that began to run when this was made."""

    def __init__(self, budget_seconds: float, clock: Callable[[], float]) -> None:
        self._budget_seconds = budget_seconds
        self._clock = clock
        self._end = clock() + budget_seconds

    def remaining_seconds(self) -> float:
        """What is left of the budget, or SearchTimeout when nothing is."""
        remaining = self._end - self._clock()
        if remaining <= 0:
            raise self.missed()
        return remaining

    def missed(self) -> SearchTimeout:
        """The error that says the budget and the cure."""
        return SearchTimeout(
            f"the pattern was not done within {self._budget_seconds * 1000:g} ms; make it simpler "
            "(no repeats inside repeats, fewer look-arounds and back-references) "
            "or search with plain words"
        )
