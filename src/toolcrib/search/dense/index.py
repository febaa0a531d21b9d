"""Ranking by meaning: how near a query and a tool lie in the space of an encoder.

Reading a tool takes an encoder milliseconds, and a catalog may bring thousands. So a tool is
sketched at first, where the embedder can do that, and read when a query finds it promising.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.search.dense.embedder import (
    Embedder,
    ProjectableEmbedder,
    ProvisionalEmbedder,
    Vectors,
    call_embedder,
    score_service_names,
)
from toolcrib.search.dense.projection import QueryProjection
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.dense.vector_checks import check_width, validate_provisional, validate_vectors
from toolcrib.search.dense.vector_table import (
    MIN_ROTATED_SLOTS,
    VectorComparison,
    VectorTable,
    normalize_vectors,
    top_k,
)
from toolcrib.search.ranker import MatchReason, Ranking, Slots

# Two texts that have nothing in common are about this alike.
MIN_SIMILARITY: Final = 0.1
# Tools that one query may have read, of those that are only sketched: bounds what it costs.
MAX_ENCODED_PER_QUERY: Final = 8


@dataclass(frozen=True, slots=True)
class DenseRanker:
    """Meaning, as an embedder reads it."""

    prefers_exact_names: ClassVar[bool] = True

    embedder: Embedder

    def fit(self, catalog: Catalog) -> DenseIndex:
        """Fit to a catalog."""
        return DenseIndex(self.embedder, Catalog(), None, frozenset(), None).with_catalog(catalog)


class DenseIndex:
    """The vectors of one catalog's tools.

    Reading a tool changes its vector for the better, whoever asked for it. The table is replaced,
    never changed, so that searches in other threads go on with the one they have.
    """

    def __init__(
        self,
        embedder: Embedder,
        catalog: Catalog,
        table: VectorTable | None,
        sketched: frozenset[int],
        narrowing: QueryProjection | None,
    ) -> None:
        self._embedder = embedder
        self._catalog = catalog
        self._table = table
        self._sketched = sketched
        self._narrowing = narrowing
        self._lock = Lock()

    @property
    def provisional_count(self) -> int:
        """How many tools have not been read yet."""
        return len(self._sketched)

    def rank(self, query: str) -> Ranking:
        """Every tool that has something in common with the query."""
        vectors = self.embed_queries([query])
        comparison = self._compared_closely(vectors)
        if self._sketched and self.encode_candidates(
            np.argsort(-comparison.rows[0], kind="stable").tolist()
        ):
            comparison = self._compared_closely(vectors)
        return self._ranking(comparison)

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        """What queries mean."""
        if self._narrowing is not None:
            return self._narrowing.embed_queries(queries)
        vectors = validate_vectors(
            call_embedder(self._embedder.embed_queries, queries), len(queries)
        )
        if self._table is not None:
            check_width("queries", vectors, self._table.width)
        return normalize_vectors(vectors)

    @property
    def can_score_service_names(self) -> bool:
        """Whether the embedder can tell names of services from others."""
        return hasattr(self._embedder, "services")

    def score_service_names(self, query: str, names: Sequence[str]) -> Sequence[float]:
        """How likely each of the names that a query mentions is that of a service, from 0 to 1."""
        return score_service_names(self._embedder, query, names)

    def compare(self, vectors: Vectors) -> VectorComparison:
        """How alike every slot is to each vector."""
        table = self._table or VectorTable.empty(vectors.shape[1]).with_vectors(
            {}, self._catalog.slot_count
        )
        return table.compare(vectors)

    @property
    def rescore_count(self) -> int:
        """How many of the tools that come nearest in a comparison are to be compared exactly."""
        return self._table.rescore_count if self._table else 0

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        """How alike the tools in these slots are, each to each."""
        if self._table is None:
            return np.eye(len(slots), dtype=np.float32)
        vectors = self._table.rows(slots)
        return vectors @ vectors.T

    def encode_candidates(
        self, candidates: Iterable[int], max_tools: int = MAX_ENCODED_PER_QUERY
    ) -> int:
        """Read the first few of these tools that are only sketched, and say how many they were."""
        slots = [slot for slot in candidates if slot in self._sketched][:max_tools]
        tools = [tool for slot in slots if (tool := self._catalog.tool_at(slot)) is not None]
        if tools and self._table is not None:
            read = self._tools(list(map(build_tool_text, tools)))
            check_width("tools", read, _width(self._table, self._narrowing))
            with self._lock:
                # Others may have read other tools in the meantime: theirs are kept.
                vectors = dict(zip(slots, _kept(read, self._narrowing), strict=True))
                self._table = self._table.with_vectors(vectors, self._table.span)
                self._sketched -= frozenset(slots)
        return len(tools)

    def warm_up(self, max_tools: int) -> int:
        """Read up to so many of the tools that are only sketched, and say how many are left."""
        self.encode_candidates(sorted(self._sketched), max_tools)
        return self.provisional_count

    def reasons(self, query: str, slot: int) -> tuple[MatchReason, ...]:
        """One reason: what it means. None where that has nothing in common with the query."""
        if self._catalog.tool_at(slot) is None:
            return ()
        ranking = self._ranking(self._compared_closely(self.embed_queries([query])))
        slots = ranking.slots[ranking.slots == slot]
        if ranking.closer:
            slots = ranking.closer(slots).slots
        return (MatchReason(query, "meaning", 1.0),) if len(slots) else ()

    def with_catalog(self, catalog: Catalog) -> DenseIndex:
        """This index brought to a later catalog, looking only at what has changed."""
        slots = catalog.changed_slots(self._catalog)
        with self._lock:
            # Both of one moment: else what is read in between would be marked as read and is not.
            table, sketched = self._table, self._sketched
        narrowing = self._narrowing
        rough = self._rough(len(catalog))
        if slots is None or (rough is not None and narrowing is None):
            slots, table, sketched = list(range(catalog.slot_count)), None, frozenset()
            narrowing = None
        tools = {slot: tool for slot in slots if (tool := catalog.tool_at(slot)) is not None}
        vectors: dict[int, Vectors | None] = dict.fromkeys(slots)
        sketched -= frozenset(slots)
        if tools:
            texts = [build_tool_text(tool) for tool in tools.values()]
            given, is_read = self._given(texts)
            if table is not None:
                check_width("tools", given, _width(table, narrowing))
            if rough is not None and narrowing is None:
                narrowing = QueryProjection.fit(given, rough)
            given = _kept(given, narrowing)
            vectors.update(zip(tools, given, strict=True))
            sketched |= {
                slot for slot, done in zip(tools, is_read.tolist(), strict=True) if not done
            }
            table = table or VectorTable.empty(given.shape[1])
        table = table and table.with_vectors(vectors, catalog.slot_count)
        return DenseIndex(self._embedder, catalog, table, sketched, narrowing)

    def _rough(self, tools: int) -> ProjectableEmbedder | None:
        """The embedder, if it is a rough one, and there are so many tools that fewer numbers pay."""
        rough = self._embedder if isinstance(self._embedder, ProjectableEmbedder) else None
        return rough if tools >= MIN_ROTATED_SLOTS else None

    def _compared_closely(self, vectors: Vectors) -> VectorComparison:
        comparison = self.compare(vectors)
        comparison.rescore(top_k(comparison.rows[0], self.rescore_count))
        return comparison

    def _ranking(self, comparison: VectorComparison, among: Slots | None = None) -> Ranking:
        """The ranking of all slots, or of some, which are then compared exactly."""
        if among is not None:
            comparison.rescore(among)
        likeness = comparison.rows[0] if among is None else comparison.rows[0, among]
        found = (likeness > MIN_SIMILARITY).nonzero()[0]
        closer = partial(self._ranking, comparison) if comparison.is_approximate else None
        slots = found if among is None else among[found]
        return Ranking(slots, np.minimum(likeness[found], 1), closer=closer)

    def _given(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        if isinstance(self._embedder, ProvisionalEmbedder):
            return validate_provisional(
                call_embedder(self._embedder.embed_provisional, texts), len(texts)
            )
        return self._tools(texts), np.ones(len(texts), np.bool_)

    def _tools(self, texts: Sequence[str]) -> Vectors:
        return validate_vectors(call_embedder(self._embedder.embed_tools, texts), len(texts))


def _width(table: VectorTable, narrowing: QueryProjection | None) -> int:
    """How many numbers the embedder gave a tool, of which fewer may be kept."""
    return table.width if narrowing is None else len(narrowing.axes)


def _kept(vectors: Vectors, narrowing: QueryProjection | None) -> Vectors:
    return vectors if narrowing is None else vectors @ narrowing.axes
