"""Hybrid ranking: lexical and dense scores fused. The default ranker.

A query is scored in four steps: score it and its segments lexically, compare their vectors with
every tool, fuse both, and compare the best candidates exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.search.dense.embedder import Embedder, Vectors
from toolcrib.search.dense.index import MAX_ENCODED_PER_QUERY, DenseIndex, DenseRanker
from toolcrib.search.dense.vector_table import VectorComparison, top_k
from toolcrib.search.hybrid.calibration import (
    DEFAULT_CALIBRATION,
    ENCODER_CALIBRATION,
    STATIC_CALIBRATION,
    Calibration,
    ServicePenalty,
    penalize,
)
from toolcrib.search.hybrid.fusion import (
    DEFAULT_WEIGHTS,
    FusionWeights,
    SegmentScores,
    find_matches,
    fuse_segments,
    max_score,
    top_slots,
)
from toolcrib.search.lexical.ranker import LexicalIndex, LexicalRanker, SlotScores
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Note, Ranking, Scores, Slots


@dataclass(frozen=True, slots=True)
class HybridRanker:
    """Ranks by a weighted sum of lexical and dense scores."""

    lexical: LexicalRanker
    dense: DenseRanker
    weights: FusionWeights = DEFAULT_WEIGHTS
    calibration: Calibration = DEFAULT_CALIBRATION

    @property
    def syntax(self) -> Syntax:
        """How the lexical ranker reads operators."""
        return self.lexical.syntax

    def fit(self, catalog: Catalog) -> HybridIndex:
        """Return an index of a catalog."""
        return HybridIndex(self, catalog, self.lexical.fit(catalog), self.dense.fit(catalog))


def build_hybrid_ranker(encoder: Embedder) -> HybridRanker:
    """Return the ranker of mode `hybrid`, given the shipped encoder or a cache around it."""
    lexical = LexicalRanker(syntax="lenient")
    return HybridRanker(lexical, DenseRanker(encoder), calibration=ENCODER_CALIBRATION)


def build_fast_ranker(encoder: Embedder) -> HybridRanker:
    """Return the ranker of mode `fast`, given the shipped static encoder."""
    lexical = LexicalRanker(syntax="lenient")
    return HybridRanker(lexical, DenseRanker(encoder), calibration=STATIC_CALIBRATION)


@dataclass(frozen=True, slots=True, eq=False)
class HybridIndex:
    """A lexical and a dense index of one catalog."""

    _ranker: HybridRanker
    _catalog: Catalog
    _lexical: LexicalIndex
    _dense: DenseIndex

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool that matches. A query with binding operators is ranked lexically."""
        query = query.request
        if not self._lexical.is_unrestricted(query):
            return self._lexical.rank(query)
        segments, comparison, notes = self._score(query)
        calibration = self._ranker.calibration
        penalties = [calibration.service_penalties(segment.query, self._lexical, self._dense) for segment in segments]
        threshold = calibration.threshold_for(len(self._catalog))
        weights = self._ranker.weights
        return HybridScores(segments, comparison, notes, weights, threshold, penalties).rank()

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return the lexical reasons for a match and the share of the dense score."""
        query = query.request
        if not self._lexical.is_unrestricted(query):
            return self._lexical.reasons(query, slot)
        segments, comparison, _ = self._score(query)
        _refine(segments, comparison, np.array([slot]))
        if not find_matches(fuse_segments(segments, self._ranker.weights), segments[0])[slot]:
            return ()
        # A tool that serves one of several segments may have no score for the whole query.
        whole, *_ = segments
        segment = whole if whole.score(slot) else max(segments, key=lambda part: part.score(slot))
        share = segment.lexical_share(slot)
        lexical = self._lexical.reasons(self._score_words(segment.query)[0], slot) if share else ()
        reasons = [MatchReason(reason.term, reason.field, round(share * reason.share, 4)) for reason in lexical]
        reasons.append(MatchReason(segment.query.text.strip(), "meaning", round(1 - share, 4)))
        return tuple(sorted(reasons, key=lambda reason: -reason.share))

    def warm_up(self, max_tools: int) -> int:
        """Encode up to `max_tools` tools that have provisional vectors; return how many are left."""
        return self._dense.warm_up(max_tools)

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        """Return the similarity of each of these tools to each other."""
        return self._dense.pairwise_similarity(slots)

    def with_catalog(self, catalog: Catalog) -> HybridIndex:
        """Return an index of a later catalog."""
        lexical, dense = self._lexical.with_catalog(catalog), self._dense.with_catalog(catalog)
        return HybridIndex(self._ranker, catalog, lexical, dense)

    def _score(self, query: ParsedQuery) -> tuple[list[SegmentScores], VectorComparison, tuple[Note, ...]]:
        """Score every slot for the query and each of its segments."""
        queries = [query, *query.segments]
        words = self._score_words(query)[1]
        lexical = [words, *map(self._lexical.score_slots, query.segments)]
        vectors = self._dense.embed_queries([part.text for part in queries])
        segments, comparison = self._fuse(queries, lexical, vectors)
        if self._dense.provisional_count:
            scores = fuse_segments(segments, self._ranker.weights)
            candidates = top_slots(scores, 4 * MAX_ENCODED_PER_QUERY).tolist()
            if self._dense.encode_candidates(candidates):
                segments, comparison = self._fuse(queries, lexical, vectors)
        return segments, comparison, words.notes

    def _score_words(self, query: ParsedQuery) -> tuple[ParsedQuery, SlotScores]:
        """Score the query or its English translation, whichever matches a tool better."""
        scores = self._lexical.score_slots(query)
        if query.translated is query:
            return query, scores
        translated = self._lexical.score_slots(query.translated)
        if max_score(translated.scores) > max_score(scores.scores):
            return query.translated, translated
        return query, scores

    def _fuse(
        self, queries: list[ParsedQuery], lexical: list[SlotScores], vectors: Vectors
    ) -> tuple[list[SegmentScores], VectorComparison]:
        """Compare every tool approximately and the best candidates exactly."""
        weights = self._ranker.weights
        comparison = self._dense.compare(vectors)
        segments = [
            SegmentScores(query, words.scores, row, weights)
            for query, words, row in zip(queries, lexical, comparison.rows, strict=True)
        ]
        count = self._dense.rescore_count
        if count:
            slots = top_k(segments[0].scores, count)
            if len(segments) > 1:
                others = [top_k(segment.scores, count) for segment in segments[1:]]
                fused = top_k(fuse_segments(segments, weights), count)
                slots = np.unique(np.concatenate([slots, *others, fused]))
            _refine(segments, comparison, slots)
            for segment in segments:
                segment.fuse(weights)
        return segments, comparison


@dataclass(frozen=True, slots=True, eq=False)
class HybridScores:
    """The scores of every slot for one query; the first segment is the whole query."""

    segments: list[SegmentScores]
    comparison: VectorComparison
    notes: tuple[Note, ...]
    weights: FusionWeights
    threshold: float
    penalties: list[list[ServicePenalty]]

    def rank(self) -> Ranking:
        """Return every slot that matches."""
        scores = fuse_segments(self.segments, self.weights)
        return self._ranking(scores, find_matches(scores, self.segments[0]).nonzero()[0])

    def rescore(self, slots: Slots) -> Ranking:
        """Return which of these slots match, compared exactly."""
        _refine(self.segments, self.comparison, slots)
        scores = fuse_segments(self.segments, self.weights)
        return self._ranking(scores, slots[find_matches(scores, self.segments[0])[slots]])

    def _ranking(self, scores: NDArray[np.float32], slots: Slots) -> Ranking:
        return Ranking(
            slots,
            np.minimum(scores.take(slots), 1),
            self.notes,
            self.threshold,
            self._similarities(slots),
            tuple(segment.query.text for segment in self.segments[1:]),
            self if self.comparison.is_approximate else None,
        )

    def _similarities(self, slots: Slots) -> Scores:
        """Return how well each slot fits each segment, one row a segment."""
        rows = [
            penalize(segment.similarity.take(slots), penalties, slots)
            for segment, penalties in zip(self.segments, self.penalties, strict=True)
        ]
        return np.stack(rows) if len(rows) > 1 else rows[0][None]


def _refine(segments: list[SegmentScores], comparison: VectorComparison, slots: Slots) -> None:
    """Compare the tools in these slots exactly, and update their scores."""
    comparison.rescore(slots)
    for segment, row in zip(segments, comparison.rows, strict=True):
        segment.rescore(slots, row[slots])
