"""Fuse lexical and dense scores, and the scores of a query's segments.

Lexical scores decide if one tool contains the words of the query; dense scores decide if none
does. The weights were chosen on several query sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.ranker import top_slots

Scores32 = NDArray[np.float32]

# A tool matches if its score is above this, with the lexical weight of the query or with the one
# that the best lexical match suggests: a long query has few words in common with the right tool.
_MIN_SCORE: Final = 0.15
_MIN_LEXICAL_WEIGHT: Final = 0.2
# Only the top candidates of a segment are discounted one by one.
_MAX_DISCOUNTED: Final = 30
# From this many segments on, the best tool of each comes before the second of any.
_MANY_SEGMENTS: Final = 4
# How far a tool is lifted above another one.
_LIFT: Final = np.float32(1e-4)


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """The weights of lexical and dense scores, and of the segments of a query.

    Attributes:
        lexical_base: The lexical weight before the next three terms.
        lexical_coverage: Added in proportion to the query words that the best tool contains.
        query_length: Added in proportion to the logarithm of the number of words in the query.
        dense_confidence: Subtracted in proportion to the best similarity, as far as query words
            are not covered.
        segment_share: The share of the segment that a tool serves best; the rest of the score is
            that of the whole query.
        repeat_discount: The factor for each further tool that serves the same segment. It leaves
            room for tools that serve the other segments.
        context_share: The share of the whole query in the choice of the best tools for a segment. The
            whole query may name the service that a segment only implies.
    """

    lexical_base: float = -0.1
    lexical_coverage: float = 0.8
    query_length: float = 0.2
    dense_confidence: float = 0.4
    segment_share: float = 0.33
    repeat_discount: float = 0.8
    context_share: float = 0.4

    def lexical_weight(self, coverage: float, word_count: int, similarity: float) -> float:
        """Return the weight of the lexical scores, from 0 to 1; the rest is dense.

        `coverage` is the best lexical score and `similarity` the best similarity of any tool.
        """
        lexical = self.lexical_coverage * coverage + self.query_length * math.log1p(word_count)
        weight = self.lexical_base + lexical - self.dense_confidence * similarity * (1 - coverage)
        return min(max(weight, 0.0), 1.0)


DEFAULT_WEIGHTS: Final = FusionWeights()


class SegmentScores:
    """The lexical scores, the similarities and the fused scores of every slot for one segment."""

    __slots__ = ("_coverage", "_difference", "_weight", "_word_count", "lexical", "query", "scores", "similarity")

    def __init__(self, query: ParsedQuery, lexical: Scores32, similarity: Scores32, weights: FusionWeights) -> None:
        self.query = query
        self.lexical = lexical
        # np.maximum is twice as fast with an array of zeros as with a scalar.
        self.similarity = np.maximum(similarity, np.zeros_like(similarity))
        self._difference: Scores32 = lexical - self.similarity
        self._coverage = min(max_score(lexical), 1.0)
        self._word_count = len(query.english.split())
        self.fuse(weights)

    def fuse(self, weights: FusionWeights) -> None:
        """Compute the fused scores from the current similarities."""
        best = max_score(self.similarity)
        self._weight = weights.lexical_weight(self._coverage, self._word_count, best)
        self.scores = self._mix(self._weight)

    def match_scores(self) -> Scores32:
        """Return the scores with a lexical weight that follows from the best lexical score alone."""
        return self._mix(_MIN_LEXICAL_WEIGHT + (1 - _MIN_LEXICAL_WEIGHT) * self._coverage)

    def score(self, slot: int) -> float:
        """Return the fused score of one slot."""
        return self._lexical_part(slot) + (1 - self._weight) * float(self.similarity[slot])

    def lexical_share(self, slot: int) -> float:
        """Return the lexical share of one slot's score; 1 if the score is 0."""
        score = self.score(slot)
        return self._lexical_part(slot) / score if score else 1.0

    def _lexical_part(self, slot: int) -> float:
        return self._weight * float(self.lexical[slot])

    def _mix(self, weight: float) -> Scores32:
        mixed: Scores32 = weight * self._difference
        mixed += self.similarity
        return mixed


def fuse_segments(segments: list[SegmentScores], weights: FusionWeights) -> Scores32:
    """Return the score of every slot: for the whole query, and for the segment it serves best.

    The first of the segments is the whole query.
    """
    whole = segments[0].scores
    if len(segments) == 1:
        return whole
    discounted = [_discount_repeats(part.scores, weights.repeat_discount) for part in segments[1:]]
    best: Scores32 = np.maximum.reduce(discounted)
    fused = whole + np.float32(weights.segment_share) * (best - whole)
    context = np.float32(weights.context_share)
    return _lift_leaders(fused, [part.scores + context * (whole - part.scores) for part in segments[1:]])


def find_matches(scores: Scores32, whole: SegmentScores) -> NDArray[np.bool_]:
    """Return which slots match the query, given their fused scores."""
    match_scores = whole.match_scores()
    return np.maximum(scores, match_scores, out=match_scores) > _MIN_SCORE


def max_score(scores: Scores32) -> float:
    """Return the highest score, at least 0."""
    # `argmax` is faster than `max` for float32 arrays of this size.
    return max(float(scores[scores.argmax()]), 0.0) if len(scores) else 0.0


def _lift_leaders(scores: Scores32, segments: list[Scores32]) -> Scores32:
    """Return scores by which the best tool of every segment comes before the third of any.

    With four segments or more, it also comes before the second of any, because a page has five hits.
    """
    if not len(scores):
        return scores
    places = np.stack([top_slots(part, _MAX_DISCOUNTED) for part in segments])
    leaders = list(dict.fromkeys(places[:, 0].tolist()))
    protected = places[:, :1] if len(segments) >= _MANY_SEGMENTS else places[:, :2]
    followers = np.setdiff1d(places, protected)
    if not len(followers):
        return scores
    floor = scores[followers].max()
    behind = sorted((slot for slot in leaders if scores[slot] <= floor), key=lambda slot: (-scores[slot], slot))
    for number, slot in enumerate(behind):
        scores[slot] = floor + _LIFT * (len(behind) - number)
    return scores


def _discount_repeats(scores: Scores32, factor: float) -> Scores32:
    """Return scores that fall by a factor from each tool to the next best."""
    top = top_slots(scores, _MAX_DISCOUNTED)
    discounted: Scores32 = scores * np.float32(factor**_MAX_DISCOUNTED)
    discounted[top] = scores[top] * factor ** np.arange(len(top), dtype=np.float32)
    return discounted
