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
    MatchReason,
    Note,
    Ranker,
    Ranking,
    pairwise_similarity,
    warm_up_index,
)

# How long a failed embedder is left alone: a search should not wait for it every time.
RETRY_SECONDS: Final = 30.0

_NOTE: Final = Note("the embedder is down; the one to fall back on has answered")

_T = TypeVar("_T")


class FallbackRanker:
    """The first ranker while its embedder answers, else the second, which should need no network."""

    prefers_exact_names: ClassVar[bool] = True

    def __init__(
        self,
        first: Ranker,
        second: Ranker,
        *,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.primary = first
        self.fallback = second
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._down: tuple[float, EmbeddingFailed] | None = None

    @property
    def primary_error(self) -> EmbeddingFailed | None:
        """Why the second answers; None while the first does."""
        return self._down and self._down[1]

    def fit(self, catalog: Catalog) -> Index:
        """Fit both: the second must be ready when it is needed."""
        return _FallbackIndex(self, catalog, self.fallback.fit(catalog)).fit_primary()

    def try_primary(self, act: Callable[[], _T]) -> _T | None:
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
        self, ranker: FallbackRanker, catalog: Catalog, second: Index, earlier: Index | None = None
    ) -> None:
        self._ranker = ranker
        self._catalog = catalog
        self._second = second
        self._earlier = earlier
        self._first: Index | None = None

    def fit_primary(self) -> _FallbackIndex:
        self._ranker.try_primary(self._fitted_primary)
        return self

    def rank(self, query: str) -> Ranking:
        found = self._ranker.try_primary(lambda: self._fitted_primary().rank(query))
        if found is not None:
            return found
        ranking = self._second.rank(query)
        return ranking._replace(notes=(*ranking.notes, _NOTE))

    def reasons(self, query: str, slot: int) -> tuple[MatchReason, ...]:
        found = self._ranker.try_primary(lambda: self._fitted_primary().reasons(query, slot))
        return self._second.reasons(query, slot) if found is None else found

    def warm_up(self, max_tools: int) -> int:
        if self._active is not self._second:
            left = self._ranker.try_primary(
                lambda: warm_up_index(self._fitted_primary(), max_tools)
            )
            if left is not None:
                return left
        return warm_up_index(self._second, max_tools)

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        return pairwise_similarity(self._active, slots)

    def with_catalog(self, catalog: Catalog) -> Index:
        earlier = self._first or self._earlier
        second = self._second.with_catalog(catalog)
        return _FallbackIndex(self._ranker, catalog, second, earlier).fit_primary()

    @property
    def _active(self) -> Index:
        """The index that answered last."""
        return self._second if self._first is None or self._ranker.primary_error else self._first

    def _fitted_primary(self) -> Index:
        """The first's index of this very catalog: one of an earlier has other tools in its slots."""
        current, earlier = self._first, self._earlier
        if current is None:
            fit = earlier.with_catalog if earlier else self._ranker.primary.fit
            current = self._first = fit(self._catalog)
            self._earlier = None
        return current
