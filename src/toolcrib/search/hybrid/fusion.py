"""Fuse lexical and dense scores, and the scores of a query's segments.

Lexical scores decide if one tool contains the words of the query; dense scores decide if none
does. The weights were chosen on several query sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.ranker import top_slots

Scores32 = NDArray[np.float32]
# Returns the server of the tool in a slot, or an empty text.
ServerLookup = Callable[[int], str]

# A tool matches if its score is above this, with the lexical weight of the query or with the one
# that the best lexical match suggests: a long query has few words in common with the right tool.
_MIN_SCORE: Final = 0.15
_MIN_LEXICAL_WEIGHT: Final = 0.2
# How many candidates of each segment are considered, and how many tools are chosen from them.
_MAX_CANDIDATES: Final = 60
_MAX_CHOSEN: Final = 10
# A difference in score by which a candidate is less likely by the factor e.
_TEMPERATURE: Final = 0.03
# How many tools for one segment may precede the best tool for another one.
_MAX_BEFORE_OTHERS: Final = 2
# A tool with a score below the best by less than this may name the server that the query is about.
_NEAR_BEST: Final = 0.1
# The best tool for a whole query and one that is this much as likely are equally good.
_NEARLY_AS_LIKELY: Final = 0.95
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
        context_share: The share of the whole query in the score of a tool for one segment. It carries what
            the other segments say: "bind it to api.example.com" is about a script.
        whole_share: The weight of the whole query, relative to a segment, in the choice of the best
            tools for all segments.
        whole_first: The best tool for the whole query comes first if it serves a segment this probably.
        server_bonus: Added to the score of a tool for a segment, as far as its server has one of the best tools
            for the whole query and for the other segments.
        service_bonus: Added to the score of a tool for a segment, if it mentions the service that the segment is
            about. A segment that names none is about that of the segment before it.
    """

    lexical_base: float = -0.35
    lexical_coverage: float = 0.8
    query_length: float = 0.24
    dense_confidence: float = 0.35
    segment_share: float = 0.33
    context_share: float = 0.3
    whole_share: float = 0.5
    whole_first: float = 0.1
    server_bonus: float = 0.15
    service_bonus: float = 0.2

    def lexical_weight(self, coverage: float, word_count: int, similarity: float) -> float:
        """Return the weight of the lexical scores, from 0 to 1; the rest is dense.

        `coverage` is the best lexical score and `similarity` the best similarity of any tool.
        """
        lexical = self.lexical_coverage * coverage + self.query_length * math.log1p(word_count)
        weight = self.lexical_base + lexical - self.dense_confidence * similarity * (1 - coverage)
        return min(max(weight, 0.0), 1.0)


DEFAULT_WEIGHTS: Final = FusionWeights()
# Static embeddings know less, so keywords count more.
STATIC_WEIGHTS: Final = FusionWeights(lexical_base=-0.1, query_length=0.2, dense_confidence=0.4, whole_first=0.4)


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


def fuse_segments(
    segments: list[SegmentScores], mentions: list[Scores32], weights: FusionWeights, server_of: ServerLookup
) -> Scores32:
    """Return the score of every slot: for the whole query, and for the segment it serves best.

    The first of the segments is the whole query. `mentions` rates how clearly each slot mentions the services of each
    other segment; it is empty if no service is known. The best tools for all segments come first, so that near
    duplicates for one segment do not push the others off the page.
    """
    whole = segments[0].scores
    if len(segments) == 1 or not len(whole):
        return whole
    parts = [part.scores for part in segments[1:]]
    best: Scores32 = np.maximum.reduce(parts)
    fused = whole + np.float32(weights.segment_share) * (best - whole)
    parts = [part + np.float32(weights.context_share) * (whole - part) for part in parts]
    if mentions:
        bonus = np.float32(weights.service_bonus)
        parts = [part + bonus * mentioned for part, mentioned in zip(parts, mentions, strict=True)]
    chosen = _choose_tools(_find_candidates([whole, *parts], weights, server_of), weights)
    # Every chosen tool is lifted above the next one, and the last one above all others.
    others = fused.copy()
    others[chosen] = 0
    floor = others.max()
    for slot in reversed(chosen):
        floor = fused[slot] = max(fused[slot], floor + _LIFT)
    return fused


def find_matches(scores: Scores32, whole: SegmentScores) -> NDArray[np.bool_]:
    """Return which slots match the query, given their fused scores."""
    match_scores = whole.match_scores()
    return np.maximum(scores, match_scores, out=match_scores) > _MIN_SCORE


def max_score(scores: Scores32) -> float:
    """Return the highest score, at least 0."""
    # `argmax` is faster than `max` for float32 arrays of this size.
    return max(float(scores[scores.argmax()]), 0.0) if len(scores) else 0.0


def _find_candidates(parts: list[Scores32], weights: FusionWeights, server_of: ServerLookup) -> list[dict[int, float]]:
    """Return the best slots for the query and each segment, with the probability that each is the right one.

    A tool gets a bonus if tools of the same server are among the best for the query and the other segments: the steps
    of a task often need one service, which only one of them names.
    """
    tops = [top_slots(part, _MAX_CANDIDATES).tolist() for part in parts]
    scores = [dict(zip(top, part[top].tolist(), strict=True)) for part, top in zip(parts, tops, strict=True)]
    servers = {slot: server_of(slot) for top in tops for slot in top}
    near = [_rate_servers(part, servers) for part in scores]
    candidates = []
    for number, part in enumerate(scores):
        others = [rated for other, rated in enumerate(near) if other != number] if number else []
        adjusted = {
            slot: score + weights.server_bonus * _combine_ratings([rated.get(servers[slot], 0.0) for rated in others])
            for slot, score in part.items()
        }
        best = max(adjusted.values())
        odds = {slot: math.exp((score - best) / _TEMPERATURE) for slot, score in adjusted.items()}
        total = sum(odds.values())
        candidates.append({slot: value / total for slot, value in odds.items()})
    return candidates


def _combine_ratings(ratings: list[float]) -> float:
    """Return the mean of the best rating and the average one; 0 if there are none."""
    return (max(ratings) + sum(ratings) / len(ratings)) / 2 if ratings else 0.0


def _rate_servers(scores: dict[int, float], servers: dict[int, str]) -> dict[str, float]:
    """Return the servers of the tools with nearly the best score, each rated from 0 to 1."""
    best = max(scores.values())
    rated: dict[str, float] = {}
    for slot, score in scores.items():
        rating = 1 - (best - score) / _NEAR_BEST
        if servers[slot] and rating > rated.get(servers[slot], 0.0):
            rated[servers[slot]] = rating
    return rated


def _choose_tools(candidates: list[dict[int, float]], weights: FusionWeights) -> list[int]:
    """Return the slots that most probably serve all segments, in the order in which they are chosen.

    The best tool for the whole query comes first, or one that is nearly as likely: one tool may serve all
    of it. Each further slot is the one that adds most to the expected number of segments
    served (xQuAD). The best tool for every segment comes before the third one for any segment.
    """
    open_shares = [weights.whole_share, *([1.0] * (len(candidates) - 1))]
    segments = range(1, len(candidates))
    slots = sorted(set().union(*candidates))
    served_best = {slot: max(segments, key=lambda segment: candidates[segment].get(slot, 0.0)) for slot in slots}
    counts = dict.fromkeys(segments, 0)
    missing = [max(part, key=part.__getitem__) for part in candidates[1:]]
    least = max(candidates[0].values()) * _NEARLY_AS_LIKELY
    allowed = [slot for slot, likely in candidates[0].items() if likely > least]
    allowed = [slot for slot in allowed if candidates[served_best[slot]].get(slot, 0.0) >= weights.whole_first] or slots
    chosen: list[int] = []
    while allowed and len(chosen) < _MAX_CHOSEN:
        gains = [
            sum(share * part.get(slot, 0.0) for share, part in zip(open_shares, candidates, strict=True))
            for slot in allowed
        ]
        slot = allowed[gains.index(max(gains))]
        slots.remove(slot)
        chosen.append(slot)
        counts[served_best[slot]] += 1
        # The best slot of every segment that has not been chosen yet.
        missing = [best for best in missing if best != slot]
        open_shares = [share * (1 - part.get(slot, 0.0)) for share, part in zip(open_shares, candidates, strict=True)]
        allowed = [
            slot for slot in slots if not missing or counts[served_best[slot]] < _MAX_BEFORE_OTHERS or slot in missing
        ]
    return chosen
