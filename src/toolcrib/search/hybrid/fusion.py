"""Words and meaning together: the ranker a search uses unless told otherwise.

Where a query's words stand in one tool, words decide; where they stand nowhere, meaning does. The
numbers that say how much are in `Fusion`, and were chosen on many sets of queries, not on one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.encoder.glossary import translate_to_english
from toolcrib.search.dense.embedder import DEFAULT_SERVICE_PROBABILITY, Embedder, Vectors
from toolcrib.search.dense.index import MAX_ENCODED_PER_QUERY, DenseIndex, DenseRanker
from toolcrib.search.dense.vector_table import VectorComparison, top_k
from toolcrib.search.lexical.ranker import LexicalIndex, LexicalRanker, SlotScores
from toolcrib.search.query.preamble import strip_preamble
from toolcrib.search.query.segments import find_long_words, find_names, split_segments
from toolcrib.search.ranker import MatchReason, Note, Ranking, Slots

_Scores = NDArray[np.float32]
# The names that a need mentions, and how likely each is that of a service.
_Services = list[tuple[str, float]]

# A tool has nothing to do with a query if its score is no more than this, and would be no more if
# words counted only as far as the best tool holds them: in a long query the words of the right tool
# are few among many.
_NOTHING: Final = 0.15
_WORDS_AT_LEAST: Final = 0.2
# Between so many tools and so many, the floor grows with the catalog.
_FEW, _MANY = 100, 10_000
# More words that no tool knows are none of services, but a text about something else.
_MOST_STRANGE: Final = 4
# Further down the tools for a need than this nobody looks.
_DEEP: Final = 30


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """How words and meaning are weighed, and several needs of one query."""

    # The part of words: this much, and more the more of the query's words the best tool holds, and
    # the longer the query is (by the logarithm of its words); less the surer the meaning is, as far
    # as words are not held.
    lexical_base: float = -0.1
    lexical_coverage: float = 0.8
    query_length: float = 0.2
    dense_confidence: float = 0.4
    # The part of the need that a tool serves best; the rest is that of the query as a whole.
    segment_share: float = 0.33
    # Every next tool for the same need counts that much less: what is left is for the other needs.
    repeat_discount: float = 0.8
    # From this likeness of meaning on a tool fits, and how much more it takes by the logarithm of the
    # tools there are: among many, one is always rather like the query. And what a service that a
    # tool does not know takes from its likeness.
    threshold: float = 0.3
    threshold_growth: float = 0.0
    unknown_service_penalty: float = 0.2

    def lexical_weight(self, held: float, count: int, sure: float) -> float:
        """The part of words, from 0 to 1, for a query of so many of them."""
        for_words = self.lexical_coverage * held + self.query_length * math.log1p(count)
        part = self.lexical_base + for_words - self.dense_confidence * sure * (1 - held)
        return min(max(part, 0.0), 1.0)

    def threshold_for(self, tools: int) -> float:
        """The likeness from which on one of so many tools fits."""
        return self.threshold + self.threshold_growth * math.log(
            min(max(tools, _FEW), _MANY) / _FEW
        )


DEFAULT_FUSION: Final = FusionWeights()
# With the encoder and with the sketcher that come with us: of the questions of eleven sets that have
# an answer, about one in a hundred is below the floor.
ENCODER_FUSION: Final = FusionWeights(threshold=0.31, threshold_growth=0.025)
STATIC_FUSION: Final = FusionWeights(threshold=0.22, threshold_growth=0.025)


@dataclass(frozen=True, slots=True)
class HybridRanker:
    """Words and meaning."""

    prefers_exact_names: ClassVar[bool] = True

    lexical: LexicalRanker
    dense: DenseRanker
    fusion: FusionWeights = DEFAULT_FUSION

    def fit(self, catalog: Catalog) -> HybridIndex:
        """Fit to a catalog."""
        words, meaning = self.lexical.fit(catalog), self.dense.fit(catalog)
        return HybridIndex.of(catalog, words, meaning, self.fusion)


def build_hybrid_ranker(encoder: Embedder) -> HybridRanker:
    """The ranker of the default mode, with our encoder, or with what remembers for it."""
    return HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(encoder), ENCODER_FUSION)


def build_fast_ranker(sketcher: Embedder) -> HybridRanker:
    """The ranker of mode `fast`, with our sketcher."""
    return HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(sketcher), STATIC_FUSION)


class SegmentScores:
    """What words and meaning say of every slot, for one need, and what the words count."""

    __slots__ = ("_apart", "_count", "_held", "meaning", "scores", "text", "trust", "words")

    def __init__(self, text: str, words: _Scores, meaning: _Scores, fusion: FusionWeights) -> None:
        self.text = text
        self.words = words
        self.meaning = meaning
        self._apart: _Scores = words - meaning
        self._held = min(_most(words), 1.0)
        self._count = len(translate_to_english(text).split())
        self.weigh(fusion)

    def weigh(self, fusion: FusionWeights) -> None:
        """Say what the words count, as sure as the meaning is now, and add both up."""
        self.trust = fusion.lexical_weight(self._held, self._count, _most(self.meaning))
        self.scores = self._mixed(self.trust)

    def weighed(self, least: float) -> _Scores:
        """Words and meaning, where words count as much as the best tool holds them, or the least."""
        return self._mixed(least + (1 - least) * self._held)

    def sharpen(self, slots: Slots, likeness: _Scores) -> None:
        """Replace a rough likeness of some slots by a better one."""
        meaning = np.maximum(likeness, 0)
        self.meaning[slots] = meaning
        self._apart[slots] = self.words[slots] - meaning
        self.scores[slots] = self.trust * self.words[slots] + (1 - self.trust) * meaning

    def score(self, slot: int) -> float:
        """What one slot gets, by words and by meaning."""
        return self._by_words(slot) + (1 - self.trust) * float(self.meaning[slot])

    def share_of_words(self, slot: int) -> float:
        """How much of what one slot gets is by words: all, where it has words that do not count."""
        score = self.score(slot)
        return self._by_words(slot) / score if score else 1.0

    def _by_words(self, slot: int) -> float:
        return self.trust * float(self.words[slot])

    def _mixed(self, part: float) -> _Scores:
        both: _Scores = part * self._apart
        both += self.meaning
        return both


@dataclass(frozen=True, slots=True, eq=False)
class HybridIndex:
    """Both rankers fitted to one catalog."""

    _catalog: Catalog
    _words: LexicalIndex
    _meaning: DenseIndex
    _fusion: FusionWeights
    _floor: float

    @classmethod
    def of(
        cls, catalog: Catalog, words: LexicalIndex, meaning: DenseIndex, fusion: FusionWeights
    ) -> HybridIndex:
        """An index of these two."""
        return cls(catalog, words, meaning, fusion, fusion.threshold_for(len(catalog)))

    def rank(self, query: str) -> Ranking:
        """Every tool that has to do with the query. Operators bind: they are asked of the words."""
        query = strip_preamble(query)
        if not self._words.is_unrestricted(query):
            return self._words.rank(query)
        return self._ranking(*self._scored(query))

    def reasons(self, query: str, slot: int) -> tuple[MatchReason, ...]:
        """The words that hit, and what the meaning adds."""
        query = strip_preamble(query)
        if not self._words.is_unrestricted(query):
            return self._words.reasons(query, slot)
        parts, comparison, _ = self._scored(query)
        self._sharpen(parts, comparison, np.array([slot]))
        scores = self._together(parts)
        if not _concerned(scores, parts)[slot]:
            return ()
        # A tool that serves one need of several may have nothing to do with the query as a whole.
        part = parts[0] if parts[0].score(slot) else max(parts, key=lambda part: part.score(slot))
        share = part.share_of_words(slot)
        said = tuple(
            MatchReason(reason.term, reason.field, round(share * reason.share, 4))
            for reason in (self._words.reasons(self._worded(part.text), slot) if share else ())
        )
        meant = MatchReason(part.text.strip(), "meaning", round(1 - share, 4))
        return tuple(sorted((*said, meant), key=lambda reason: -reason.share))

    def warm_up(self, max_tools: int) -> int:
        """Read up to so many of the tools that are only sketched, and say how many are left."""
        return self._meaning.warm_up(max_tools)

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        """How alike the tools in these slots are, each to each."""
        return self._meaning.pairwise_similarity(slots)

    def with_catalog(self, catalog: Catalog) -> HybridIndex:
        """Both brought to a later catalog."""
        words, meaning = self._words.with_catalog(catalog), self._meaning.with_catalog(catalog)
        return HybridIndex.of(catalog, words, meaning, self._fusion)

    def _scored(self, query: str) -> tuple[list[SegmentScores], VectorComparison, tuple[Note, ...]]:
        wanted = split_segments(translate_to_english(query))
        texts = [query, *wanted] if len(wanted) > 1 else [query]
        rankings = [self._words.score_slots(text) for text in (self._worded(query), *texts[1:])]
        vectors = self._meaning.embed_queries(texts)
        parts, comparison = self._parts(texts, rankings, vectors)
        if self._meaning.provisional_count and self._meaning.encode_candidates(
            _top(self._together(parts), 4 * MAX_ENCODED_PER_QUERY).tolist()
        ):
            parts, comparison = self._parts(texts, rankings, vectors)
        return parts, comparison, rankings[0].notes

    def _worded(self, query: str) -> str:
        """The words to look for: tools may speak the language of the query, or English."""
        said = translate_to_english(query)
        if said == query:
            return query
        return max(query, said, key=lambda text: _most(self._words.score_slots(text).scores))

    def _parts(
        self, texts: list[str], rankings: list[SlotScores], vectors: Vectors
    ) -> tuple[list[SegmentScores], VectorComparison]:
        """What is said of each text: roughly of every tool, exactly of those that come near it."""
        comparison = self._meaning.compare(vectors)
        parts = [self._part(*one) for one in zip(texts, rankings, comparison.rows, strict=True)]
        count = self._meaning.rescore_count
        if count:
            near = [top_k(part.scores, count) for part in parts]
            slots = near[0]
            if len(parts) > 1:
                near.append(top_k(self._together(parts), count))
                slots = np.unique(np.concatenate(near))
            self._sharpen(parts, comparison, slots)
            for part in parts:
                part.weigh(self._fusion)
        return parts, comparison

    def _sharpen(
        self, parts: list[SegmentScores], comparison: VectorComparison, slots: Slots
    ) -> None:
        comparison.rescore(slots)
        for part, row in zip(parts, comparison.rows, strict=True):
            part.sharpen(slots, row[slots])

    def _ranking(
        self,
        parts: list[SegmentScores],
        comparison: VectorComparison,
        notes: tuple[Note, ...],
        among: Slots | None = None,
    ) -> Ranking:
        """The ranking of all slots, or of some, which are then compared exactly."""
        if among is not None:
            self._sharpen(parts, comparison, among)
        scores = self._together(parts)
        concerned = _concerned(scores, parts)
        found = concerned.nonzero()[0] if among is None else among[concerned[among]]
        asking = [(part, self._services(part.text)) for part in parts]
        unfit = partial(self._unfit, asking[1:]) if len(asking) > 1 else None
        closer = (
            partial(self._ranking, parts, comparison, notes) if comparison.is_approximate else None
        )
        shown = np.minimum(scores.take(found), 1)
        fits = partial(self._fits, asking)
        return Ranking(found, shown, notes, self._floor, fits, closer, unfit)

    def _services(self, text: str) -> _Services:
        """The names that a text mentions, and how likely each is that of a service.

        Where no capitals tell of any, a word that no tool knows may be one, if that is surer than
        it would be of any name.
        """
        said = find_names(text)
        if said:
            return list(zip(said, self._meaning.score_service_names(text, said), strict=True))
        if not self._meaning.can_score_service_names or translate_to_english(text) != text:
            return []
        strange = [word for word in find_long_words(text) if self._words.is_unknown_word(word)][
            :_MOST_STRANGE
        ]
        told = self._meaning.score_service_names(text, strange) if strange else ()
        return [
            one for one in zip(strange, told, strict=True) if one[1] > DEFAULT_SERVICE_PROBABILITY
        ]

    def _unfit(
        self, needs: list[tuple[SegmentScores, _Services]], slots: list[int]
    ) -> tuple[str, ...]:
        """The needs that no tool in some slots fits. All is none: a query that fits was ill cut."""
        unfit = [
            need[0].text
            for need in needs
            if max(self._fits([need], slots), default=0.0) < self._floor
        ]
        return tuple(unfit) if len(unfit) < len(needs) else ()

    def _fits(self, needs: list[tuple[SegmentScores, _Services]], slots: list[int]) -> list[float]:
        """How well tools fit the need that each fits best: by meaning, less if one lacks a service.

        "Send a message to our Telegram group" is much like sending one to Slack, and yet is not.
        A name that is none of a service's ("in Berlin", "to Bob") a tool need not know.
        """
        best: list[float] = []
        for part, services in needs:
            likeness = fits = part.meaning.take(slots).tolist()
            for name, likely in services:
                taken = likely * self._fusion.unknown_service_penalty
                lacking = self._words.find_lacking(name, slots)
                # Of several services that a tool lacks, the likeliest counts.
                fits = [
                    min(fit, max(alike - taken * lacks, 0.0))
                    for fit, alike, lacks in zip(fits, likeness, lacking, strict=True)
                ]
            best = list(map(max, best, fits)) if best else fits
        return best

    def _part(self, text: str, words: SlotScores, likeness: _Scores) -> SegmentScores:
        # Beside an array of zeros it takes half the time that it takes beside one zero.
        likeness = np.maximum(likeness, np.zeros_like(likeness))
        return SegmentScores(text, words.scores, likeness, self._fusion)

    def _together(self, parts: list[SegmentScores]) -> _Scores:
        """A tool's score: what it is for the whole query, and for the need that it serves best."""
        whole = parts[0].scores
        if len(parts) == 1:
            return whole
        thinned = [_thinned(part.scores, self._fusion.repeat_discount) for part in parts[1:]]
        best: _Scores = np.maximum.reduce(thinned)
        return whole + np.float32(self._fusion.segment_share) * (best - whole)


def _most(scores: _Scores) -> float:
    # Where it stands is told sooner than what it is.
    return max(float(scores[scores.argmax()]), 0.0) if len(scores) else 0.0


def _concerned(scores: _Scores, parts: list[SegmentScores]) -> NDArray[np.bool_]:
    """Which slots have to do with the query."""
    weighed = parts[0].weighed(_WORDS_AT_LEAST)
    return np.maximum(scores, weighed, out=weighed) > _NOTHING


def _top(scores: _Scores, count: int) -> NDArray[np.intp]:
    """The slots of the best scores, the best first; equal ones in catalog order."""
    if len(scores) > count:
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        slots = (scores >= least).nonzero()[0]
    else:
        slots = np.arange(len(scores))
    best: NDArray[np.intp] = slots[np.argsort(-scores[slots], kind="stable")][:count]
    return best


def _thinned(scores: _Scores, factor: float) -> _Scores:
    """Scores that fall by a factor from each tool to the next best."""
    top = _top(scores, _DEEP)
    thinned: _Scores = scores * np.float32(factor**_DEEP)
    thinned[top] = scores[top] * factor ** np.arange(len(top), dtype=np.float32)
    return thinned
