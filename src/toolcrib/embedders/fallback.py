"""A ranker with a fallback for when its embedder is unavailable.

Vectors of different embedders can't be compared, even if they have the same width. So the fallback
is a complete ranker with its own vectors for every tool.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import Index, MatchReason, Note, Ranker, Ranking, pairwise_similarity, warm_up_index

# After a failure, searches use the fallback for this long instead of waiting for another timeout.
RETRY_SECONDS: Final = 30.0

_NOTE: Final = Note("the embedder is unavailable, so the fallback ranker was used")

_T = TypeVar("_T")


class FallbackRanker:
    """Uses `primary` while its embedder works, otherwise `fallback`, which needs no network."""

    def __init__(
        self,
        primary: Ranker,
        fallback: Ranker,
        *,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.primary = primary
        self.fallback = fallback
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._failure: tuple[float, EmbeddingFailed] | None = None

    @property
    def syntax(self) -> Syntax:
        """How the primary ranker reads operators."""
        return self.primary.syntax

    @property
    def primary_error(self) -> EmbeddingFailed | None:
        """The last error of the primary ranker; None if it works."""
        return self._failure and self._failure[1]

    def fit(self, catalog: Catalog) -> Index:
        """Fit both rankers, so that the fallback is ready when it is needed."""
        return _FallbackIndex(self, catalog, self.fallback.fit(catalog)).fit_primary()

    def try_primary(self, action: Callable[[], _T]) -> _T | None:
        """Return the result of the action, or None if it fails or failed recently."""
        if self._failure is not None and self._clock() < self._failure[0]:
            return None
        try:
            result = action()
        except EmbeddingFailed as error:
            self._failure = (self._clock() + self._retry_seconds, error)
            return None
        self._failure = None
        return result


class _FallbackIndex:
    """The indexes of both rankers. If the primary index is missing, it is fitted later."""

    def __init__(
        self, ranker: FallbackRanker, catalog: Catalog, fallback: Index, outdated_primary: Index | None = None
    ) -> None:
        self._ranker = ranker
        self._catalog = catalog
        self._fallback = fallback
        # The primary index of an earlier catalog; its slots hold other tools.
        self._outdated_primary = outdated_primary
        self._primary: Index | None = None

    def fit_primary(self) -> _FallbackIndex:
        self._ranker.try_primary(self._fitted_primary)
        return self

    def rank(self, query: ParsedQuery) -> Ranking:
        result = self._ranker.try_primary(lambda: self._fitted_primary().rank(query))
        if result is not None:
            return result
        ranking = self._fallback.rank(query)
        return ranking._replace(notes=(*ranking.notes, _NOTE))

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        result = self._ranker.try_primary(lambda: self._fitted_primary().reasons(query, slot))
        return self._fallback.reasons(query, slot) if result is None else result

    def warm_up(self, max_tools: int) -> int:
        if self._active is not self._fallback:
            remaining = self._ranker.try_primary(lambda: warm_up_index(self._fitted_primary(), max_tools))
            if remaining is not None:
                return remaining
        return warm_up_index(self._fallback, max_tools)

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        return pairwise_similarity(self._active, slots)

    def with_catalog(self, catalog: Catalog) -> Index:
        fallback = self._fallback.with_catalog(catalog)
        outdated = self._primary or self._outdated_primary
        return _FallbackIndex(self._ranker, catalog, fallback, outdated).fit_primary()

    @property
    def _active(self) -> Index:
        """The index that was used last."""
        if self._primary is None or self._ranker.primary_error:
            return self._fallback
        return self._primary

    def _fitted_primary(self) -> Index:
        primary, outdated = self._primary, self._outdated_primary
        if primary is None:
            fit = outdated.with_catalog if outdated else self._ranker.primary.fit
            primary = self._primary = fit(self._catalog)
            self._outdated_primary = None
        return primary
