"""Hybrid ranking: lexical and dense scores fused. The default ranker.

A query is scored in three steps: score it and its segments lexically, compare their vectors with every
tool, and fuse both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.search.dense.embedder import Embedder, Vectors
from toolcrib.search.dense.index import MAX_ENCODED_PER_QUERY, DenseIndex, DenseRanker
from toolcrib.search.hybrid.calibration import (
    DEFAULT_CALIBRATION,
    ENCODER_CALIBRATION,
    LIKELY_SERVICE,
    STATIC_CALIBRATION,
    Calibration,
    NamedService,
    find_known_services,
    find_services,
    split_service_words,
)
from toolcrib.search.hybrid.fusion import (
    DEFAULT_WEIGHTS,
    STATIC_WEIGHTS,
    FusionWeights,
    SegmentScores,
    find_matches,
    fuse_segments,
    max_score,
)
from toolcrib.search.lexical.ranker import LexicalIndex, LexicalRanker, SlotScores
from toolcrib.search.lexical.spelling import MISSPELLABLE, correct_spelling
from toolcrib.search.query.parser import ParsedQuery, Syntax, parse_query
from toolcrib.search.ranker import ArrayStore, MatchReason, Note, Ranking, Scores, Slots, top_slots


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
        return HybridIndex(self, catalog, self.lexical.fit(catalog), self.dense.fit(catalog))


def build_hybrid_ranker(
    encoder: Embedder, *, words: ArrayStore | None = None, vectors: ArrayStore | None = None
) -> HybridRanker:
    """Return the ranker of mode `hybrid`, given the shipped encoder or a cache around it.

    `words` and `vectors` keep the two indexes of a large catalog between runs.
    """
    lexical = LexicalRanker(syntax="lenient", store=words)
    return HybridRanker(lexical, DenseRanker(encoder, vectors), calibration=ENCODER_CALIBRATION)


def build_fast_ranker(encoder: Embedder, *, words: ArrayStore | None = None) -> HybridRanker:
    """Return the ranker of mode `fast`, given the shipped static encoder."""
    lexical = LexicalRanker(syntax="lenient", store=words)
    return HybridRanker(lexical, DenseRanker(encoder), STATIC_WEIGHTS, STATIC_CALIBRATION)


@dataclass(frozen=True, slots=True, eq=False)
class HybridIndex:
    """A lexical and a dense index of one catalog."""

    ranker: HybridRanker
    _catalog: Catalog
    _lexical: LexicalIndex
    _dense: DenseIndex

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool that matches. A query with binding operators is ranked lexically."""
        query = query.request
        if not self._lexical.is_unrestricted(query):
            return self._lexical.rank(query)
        segments, notes, fully_encoded = self._score(query)
        scores = self._fuse(segments)
        slots = find_matches(scores, segments[0]).nonzero()[0]
        return Ranking(
            slots,
            np.minimum(scores.take(slots), 1),
            notes,
            threshold=0.0,
            fits=self._score_fits(segments, slots),
            segments=tuple(segment.query.text for segment in segments[1:]),
            fully_encoded=fully_encoded,
        )

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return the lexical reasons for a match and the share of the dense score."""
        query = query.request
        if not self._lexical.is_unrestricted(query):
            return self._lexical.reasons(query, slot)
        segments, _, _ = self._score(query)
        if not find_matches(self._fuse(segments), segments[0])[slot]:
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
        lexical, dense = (self._lexical.with_catalog(catalog), self._dense.with_catalog(catalog))
        return HybridIndex(self.ranker, catalog, lexical, dense)

    def _score(self, query: ParsedQuery) -> tuple[list[SegmentScores], tuple[Note, ...], bool]:
        """Score every slot for the query and each of its segments.

        Also return notes, and whether all tools were compared exactly.
        """
        query, corrections = self._correct_spelling(query)
        core = query.core
        queries = [core, *(core.segments or core.passages)]
        if core is not query:
            queries.append(query)
        words = self._score_words(core)[1]
        lexical = [words.scores, *(self._lexical.score_slots(part).scores for part in queries[1:])]
        vectors = self._dense.embed_queries([part.text for part in queries])
        rows, is_exact = self._dense.compare(vectors)
        weights = self.ranker.weights
        segments = _score_parts(queries, lexical, rows, weights)
        if not is_exact:
            candidates = top_slots(self._fuse(segments), MAX_ENCODED_PER_QUERY).tolist()
            for slot, similarities in self._dense.compare_encoded(vectors, candidates).items():
                rows[:, slot] = similarities
            segments = _score_parts(queries, lexical, rows, weights)
        return segments, corrections + words.notes, is_exact

    def _correct_spelling(self, query: ParsedQuery) -> tuple[ParsedQuery, tuple[Note, ...]]:
        """Return a longer query without misspelled words, and notes about the corrections."""
        is_english = query.translated is query
        corrections = correct_spelling(query.text, self._lexical.is_unknown_word) if is_english else {}
        if not corrections:
            return query, ()
        corrected = MISSPELLABLE.sub(lambda found: corrections.get(found.group(), found.group()), query.text)
        changes = ", ".join(f"{word} → {other}" for word, other in corrections.items())
        return parse_query(corrected, query.syntax), (Note(f"read as another word: {changes}"),)

    def _fuse(self, segments: list[SegmentScores]) -> NDArray[np.float32]:
        mentions = self._rate_mentions(segments) if len(segments) > 1 else []
        return fuse_segments(segments, mentions, self.ranker.weights, self._server_of)

    def _rate_mentions(self, segments: list[SegmentScores]) -> list[NDArray[np.float32]]:
        """Return how clearly each slot mentions the services of each segment.

        A segment that names no service is about those of the segment before it, or about the first that are named.
        """
        whole, *parts = segments
        services = find_known_services(whole.query, self._lexical, self._dense)
        if not services:
            return []
        named = [set(split_service_words(part.query)) for part in parts]
        own = [[service for service in services if service.name in words] for words in named]
        current = next(filter(None, own), services)
        rated = []
        for found in own:
            current = found or current
            rated.append(np.maximum.reduce([service.mentions * np.float32(service.probability) for service in current]))
        return rated

    def _server_of(self, slot: int) -> str:
        tool = self._catalog.tool_at(slot)
        return tool.server if tool else ""

    def _score_fits(self, segments: list[SegmentScores], slots: Slots) -> Scores:
        """Return how well each slot fits each segment, one row a segment.

        A segment that names no service is about the service of the segment before it.
        """
        calibration, lexical = self.ranker.calibration, self._lexical
        rows = []
        inherited: list[NamedService] = []
        for number, segment in enumerate(segments):
            services = find_services(segment.query, lexical, self._dense)
            if number:
                inherited = [found for found in services if found.probability > LIKELY_SERVICE] or inherited
            similarity = segment.similarity.take(slots)
            rows.append(calibration.score_fits(similarity, services or inherited, slots, segment.query, lexical))
        return np.stack(rows)

    def _score_words(self, query: ParsedQuery) -> tuple[ParsedQuery, SlotScores]:
        """Score the query or its English translation, whichever matches a tool better."""
        scores = self._lexical.score_slots(query)
        if query.translated is query:
            return query, scores
        translated = self._lexical.score_slots(query.translated)
        if max_score(translated.scores) > max_score(scores.scores):
            return query.translated, translated
        return query, scores


def _score_parts(
    queries: list[ParsedQuery], lexical: list[NDArray[np.float32]], rows: Vectors, weights: FusionWeights
) -> list[SegmentScores]:
    """Return the scores of the whole query and its segments; a query in passages has one of all.

    The best passage for a tool counts, because the others may have nothing to do with tools.
    """
    if queries[-1].core is queries[0] and len(queries) > 1:
        # The sentences that were left out may explain the others.
        *queries, _ = queries
        *lexical, words = lexical
        lexical[0] = np.maximum(lexical[0], words)
        rows = np.concatenate((np.maximum(rows[:1], rows[-1:]), rows[1:-1]))
    if not queries[0].passages:
        parts = zip(queries, lexical, rows, strict=True)
        return [SegmentScores(query, words, row, weights) for query, words, row in parts]
    clearest = int(np.argmax([max_score(row) for row in rows]))
    best_words: NDArray[np.float32] = np.maximum.reduce(lexical)
    best_rows: Vectors = np.maximum.reduce(rows)
    return [SegmentScores(queries[clearest], best_words, best_rows, weights)]
