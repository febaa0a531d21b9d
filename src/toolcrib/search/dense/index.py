"""Dense ranking: the cosine similarity of the vectors of a query and a tool.

Encoding a tool takes milliseconds, and a catalog may have thousands. So a tool gets a provisional
vector first, if the embedder supports that, and is encoded when it is a candidate of a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    check_width,
    score_service_names,
    validate_provisional,
    validate_vectors,
)
from toolcrib.search.dense.projection import QueryProjection
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.dense.vector_table import (
    MIN_ROTATED_SLOTS,
    VectorComparison,
    VectorTable,
    normalize_vectors,
    top_k,
)
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, Slots

# Unrelated texts have about this similarity.
MIN_SIMILARITY: Final = 0.1
# How many tools with a provisional vector a query may have encoded. Bounds the time of a query.
MAX_ENCODED_PER_QUERY: Final = 8


@dataclass(frozen=True, slots=True)
class DenseRanker:
    """Ranks by the similarity of vectors."""

    syntax: ClassVar[Syntax] = "words"

    embedder: Embedder

    def fit(self, catalog: Catalog) -> DenseIndex:
        """Return an index of a catalog."""
        return DenseIndex(self.embedder, Catalog(), None, frozenset(), None).with_catalog(catalog)


class DenseIndex:
    """The vectors of the tools of one catalog.

    Encoding a tool replaces its provisional vector. The table is replaced, never modified, so that
    searches in other threads can finish with the one they have.
    """

    def __init__(
        self,
        embedder: Embedder,
        catalog: Catalog,
        table: VectorTable | None,
        provisional: frozenset[int],
        projection: QueryProjection | None,
    ) -> None:
        self._embedder = embedder
        self._catalog = catalog
        self._table = table
        self._provisional = provisional
        self._projection = projection
        self._lock = Lock()

    @property
    def provisional_count(self) -> int:
        """How many tools have a provisional vector."""
        return len(self._provisional)

    @property
    def can_score_service_names(self) -> bool:
        """Whether the embedder can tell names of services from others."""
        return hasattr(self._embedder, "score_service_names")

    @property
    def rescore_count(self) -> int:
        """How many of the best candidates should be compared exactly."""
        return self._table.rescore_count if self._table else 0

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool that is similar to the query."""
        vectors = self.embed_queries([query.text])
        scores = self._score(vectors)
        if self._provisional and self.encode_candidates(np.argsort(-scores.comparison.rows[0], kind="stable").tolist()):
            scores = self._score(vectors)
        return scores.rank()

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return the similarity of meaning as the one reason; none if the tool is not similar."""
        if self._catalog.tool_at(slot) is None:
            return ()
        ranking = self._score(self.embed_queries([query.text])).rank()
        slots = ranking.slots[ranking.slots == slot]
        if ranking.approximate:
            slots = ranking.approximate.rescore(slots).slots
        return (MatchReason(query.text, "meaning", 1.0),) if len(slots) else ()

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        """Return the vectors of queries, with unit length."""
        if self._projection is not None:
            return self._projection.embed_queries(queries)
        vectors = call_embedder(self._embedder.embed_queries, queries)
        vectors = validate_vectors(vectors, len(queries))
        if self._table is not None:
            check_width("queries", vectors, self._table.width)
        return normalize_vectors(vectors)

    def score_service_names(self, query: str, names: Sequence[str]) -> Sequence[float]:
        """Return the probability that each of the names in a query is that of a service."""
        return score_service_names(self._embedder, query, names)

    def compare(self, vectors: Vectors) -> VectorComparison:
        """Compare vectors with every tool."""
        table = self._table
        if table is None:
            table = VectorTable.empty(vectors.shape[1]).with_vectors({}, self._catalog.slot_count)
        return table.compare(vectors)

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        """Return the similarity of each of these tools to each other."""
        if self._table is None:
            return np.eye(len(slots), dtype=np.float32)
        vectors = self._table.rows(slots)
        return vectors @ vectors.T

    def encode_candidates(self, candidates: Iterable[int], max_tools: int = MAX_ENCODED_PER_QUERY) -> int:
        """Encode the first candidates that have a provisional vector; return how many they were."""
        slots = [slot for slot in candidates if slot in self._provisional][:max_tools]
        tools = [tool for slot in slots if (tool := self._catalog.tool_at(slot)) is not None]
        if tools and self._table is not None:
            vectors = self._embed_tools(list(map(build_tool_text, tools)))
            check_width("tools", vectors, _embedder_width(self._table, self._projection))
            with self._lock:
                # Other threads may have encoded other tools in the meantime.
                rows = _project(vectors, self._projection)
                changes = dict(zip(slots, rows, strict=True))
                self._table = self._table.with_vectors(changes, self._table.span)
                self._provisional -= frozenset(slots)
        return len(tools)

    def warm_up(self, max_tools: int) -> int:
        """Encode up to `max_tools` tools that have provisional vectors; return how many are left."""
        self.encode_candidates(sorted(self._provisional), max_tools)
        return self.provisional_count

    def with_catalog(self, catalog: Catalog) -> DenseIndex:
        """Return an index of a later catalog. Only changed tools are embedded."""
        slots = catalog.changed_slots(self._catalog)
        with self._lock:
            # Read together: a tool encoded in between would be marked as encoded without its vector.
            table, provisional = self._table, self._provisional
        projection = self._projection
        projectable = self._projectable_embedder(len(catalog))
        if slots is None or (projectable is not None and projection is None):
            slots, table, provisional = list(range(catalog.slot_count)), None, frozenset()
            projection = None
        tools = {slot: tool for slot in slots if (tool := catalog.tool_at(slot)) is not None}
        vectors: dict[int, Vectors | None] = dict.fromkeys(slots)
        provisional -= frozenset(slots)
        if tools:
            rows, is_final = self._embed_new([build_tool_text(tool) for tool in tools.values()])
            if table is not None:
                check_width("tools", rows, _embedder_width(table, projection))
            if projectable is not None and projection is None:
                projection = QueryProjection.fit(rows, projectable)
            rows = _project(rows, projection)
            vectors.update(zip(tools, rows, strict=True))
            provisional |= {slot for slot, final in zip(tools, is_final.tolist(), strict=True) if not final}
            table = table or VectorTable.empty(rows.shape[1])
        table = table and table.with_vectors(vectors, catalog.slot_count)
        return type(self)(self._embedder, catalog, table, provisional, projection)

    def _projectable_embedder(self, tool_count: int) -> ProjectableEmbedder | None:
        """Return the embedder if its vectors should be projected in a catalog of this size."""
        if tool_count < MIN_ROTATED_SLOTS or not isinstance(self._embedder, ProjectableEmbedder):
            return None
        return self._embedder

    def _score(self, vectors: Vectors) -> DenseScores:
        """Compare a query with every tool approximately, and with the best candidates exactly."""
        comparison = self.compare(vectors)
        comparison.rescore(top_k(comparison.rows[0], self.rescore_count))
        return DenseScores(comparison)

    def _embed_new(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        """Return vectors of tools, and which of them are final."""
        if isinstance(self._embedder, ProvisionalEmbedder):
            result = call_embedder(self._embedder.embed_provisional, texts)
            return validate_provisional(result, len(texts))
        return self._embed_tools(texts), np.ones(len(texts), np.bool_)

    def _embed_tools(self, texts: Sequence[str]) -> Vectors:
        return validate_vectors(call_embedder(self._embedder.embed_tools, texts), len(texts))


@dataclass(frozen=True, slots=True, eq=False)
class DenseScores:
    """The similarities of every slot to one query."""

    comparison: VectorComparison

    def rank(self) -> Ranking:
        """Return every slot that is similar enough to match."""
        similarity = self.comparison.rows[0]
        slots = (similarity > MIN_SIMILARITY).nonzero()[0]
        return self._ranking(slots)

    def rescore(self, slots: Slots) -> Ranking:
        """Return which of these slots match, compared exactly."""
        self.comparison.rescore(slots)
        return self._ranking(slots[self.comparison.rows[0, slots] > MIN_SIMILARITY])

    def _ranking(self, slots: Slots) -> Ranking:
        scores = np.minimum(self.comparison.rows[0, slots], 1)
        approximate = self if self.comparison.is_approximate else None
        return Ranking(slots, scores, approximate=approximate)


def _embedder_width(table: VectorTable, projection: QueryProjection | None) -> int:
    """Return the width of the embedder's vectors; those in the table may be projected."""
    return table.width if projection is None else len(projection.axes)


def _project(vectors: Vectors, projection: QueryProjection | None) -> Vectors:
    return vectors if projection is None else vectors @ projection.axes
