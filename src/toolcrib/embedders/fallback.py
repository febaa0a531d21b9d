"""Two ways to rank, the second for when the embedder of the first is down.

Vectors of two embedders have nothing to do with each other, even where they are equally wide. So
it is not embedders that stand in for each other but whole rankers: each has a table of its own,
with vectors of its own for every tool, and a query meets only the table of the one that read it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.ranker import (
    Index,
    Note,
    Ranker,
    Ranking,
    Reason,
    likeness,
    settled,
)

# How long a failed embedder is left alone: a search should not wait for it every time.
RETRY_SECONDS: Final = 30.0

_NOTE: Final = Note("the embedder is down; the one to fall back on has answered")

_T = TypeVar("_T")


class WithFallback:
    """The first ranker while its embedder answers, else the second, which should need no network."""

    names_win: ClassVar[bool] = True

    def __init__(
        self,
        first: Ranker,
        second: Ranker,
        *,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.first = first
        self.second = second
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._down: tuple[float, EmbeddingFailed] | None = None

    @property
    def fault(self) -> EmbeddingFailed | None:
        """Why the second answers; None while the first does."""
        return self._down and self._down[1]

    def fit(self, catalog: Catalog) -> Index:
        """Fit both: the second must be ready when it is needed."""
        return _FallbackIndex(self, catalog, self.second.fit(catalog)).prepared()

    def attempt(self, act: Callable[[], _T]) -> _T | None:
        """What an act of the first gives; None if it fails, or failed a short while ago."""
        down = self._down
        if down is not None and self._clock() < down[0]:
            return None
        try:
            found = act()
        except EmbeddingFailed as fault:
            self._down = (self._clock() + self._retry_seconds, fault)
            return None
        self._down = None
        return found


class _FallbackIndex:
    """Both rankers' indexes of one catalog. The first's may be behind, and then catches up."""

    def __init__(
        self, ranker: WithFallback, catalog: Catalog, second: Index, earlier: Index | None = None
    ) -> None:
        self._ranker = ranker
        self._catalog = catalog
        self._second = second
        self._earlier = earlier
        self._first: Index | None = None

    def prepared(self) -> _FallbackIndex:
        self._ranker.attempt(self._current)
        return self

    def rank(self, query: str) -> Ranking:
        found = self._ranker.attempt(lambda: self._current().rank(query))
        if found is not None:
            return found
        ranking = self._second.rank(query)
        return ranking._replace(notes=(*ranking.notes, _NOTE))

    def reasons(self, query: str, slot: int) -> tuple[Reason, ...]:
        found = self._ranker.attempt(lambda: self._current().reasons(query, slot))
        return self._second.reasons(query, slot) if found is None else found

    def settle(self, most: int) -> int:
        if self._answering is not self._second:
            left = self._ranker.attempt(lambda: settled(self._current(), most))
            if left is not None:
                return left
        return settled(self._second, most)

    def alike(self, slots: list[int]) -> NDArray[np.float32]:
        return likeness(self._answering, slots)

    def updated(self, catalog: Catalog) -> Index:
        earlier = self._first or self._earlier
        second = self._second.updated(catalog)
        return _FallbackIndex(self._ranker, catalog, second, earlier).prepared()

    @property
    def _answering(self) -> Index:
        """The index that answered last."""
        return self._second if self._first is None or self._ranker.fault else self._first

    def _current(self) -> Index:
        """The first's index of this very catalog: one of an earlier has other tools in its slots."""
        current, earlier = self._first, self._earlier
        if current is None:
            fit = earlier.updated if earlier else self._ranker.first.fit
            current = self._first = fit(self._catalog)
            self._earlier = None
        return current
