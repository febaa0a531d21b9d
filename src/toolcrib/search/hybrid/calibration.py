"""Decide whether a tool fits a query: thresholds, and the penalty for a missing service.

A tool fits if its similarity to the query, or to one of its segments, reaches a threshold. The
thresholds were chosen on eleven query sets: about one answerable query in a hundred is below them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.dense.embedder import DEFAULT_SERVICE_PROBABILITY
from toolcrib.search.dense.index import DenseIndex
from toolcrib.search.lexical.ranker import LexicalIndex
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.query.segments import find_long_words
from toolcrib.search.ranker import Scores, Slots

# The threshold grows with the catalog between these sizes.
_SMALL_CATALOG, _LARGE_CATALOG = 100, 10_000
# A query with more unknown words than this is about another subject than the catalog's.
_MAX_UNKNOWN_WORDS: Final = 4


class ServicePenalty(NamedTuple):
    """What a slot loses unless the mask says that it mentions the service."""

    mask: NDArray[np.bool_]
    loss: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The similarity from which on a tool fits.

    Attributes:
        threshold: The threshold for up to 100 tools.
        threshold_growth: How much it grows with the logarithm of the number of tools. The larger
            the catalog, the more similar its nearest tool is by chance.
        unknown_service_penalty: What a tool loses if the query names a service that the tool does
            not mention: "send a message to our Telegram group" is similar to sending one in Slack.
    """

    threshold: float = 0.3
    threshold_growth: float = 0.0
    unknown_service_penalty: float = 0.2

    def threshold_for(self, tool_count: int) -> float:
        """Return the threshold for a catalog of this size."""
        size = min(max(tool_count, _SMALL_CATALOG), _LARGE_CATALOG)
        return self.threshold + self.threshold_growth * math.log(size / _SMALL_CATALOG)

    def service_penalties(self, query: ParsedQuery, lexical: LexicalIndex, dense: DenseIndex) -> list[ServicePenalty]:
        """Return a penalty for each service that the query names."""
        return [
            ServicePenalty(mask, probability * self.unknown_service_penalty)
            for name, probability in find_services(query, lexical, dense)
            if (mask := lexical.word_mask(name)) is not None
        ]


DEFAULT_CALIBRATION: Final = Calibration()
ENCODER_CALIBRATION: Final = Calibration(threshold=0.31, threshold_growth=0.025)
STATIC_CALIBRATION: Final = Calibration(threshold=0.22, threshold_growth=0.025)


def penalize(similarity: Scores, penalties: list[ServicePenalty], slots: Slots) -> Scores:
    """Return the similarity of slots, less the largest penalty of each."""
    if not penalties:
        return similarity
    losses = [np.where(mask.take(slots), 0.0, loss) for mask, loss in penalties]
    loss = losses[0] if len(losses) == 1 else np.maximum.reduce(losses)
    return np.maximum(similarity - loss, 0.0)


def find_services(query: ParsedQuery, lexical: LexicalIndex, dense: DenseIndex) -> list[tuple[str, float]]:
    """Return the names in a query, each with the probability that it is the name of a service.

    A name is a capitalized word. Without one, a word that no tool contains counts as a name,
    provided that it is more likely to be a service than the default.
    """
    if query.names:
        scores = dense.score_service_names(query.text, query.names)
        return list(zip(query.names, scores, strict=True))
    if not dense.can_score_service_names or query.english != query.text:
        return []
    words = find_long_words(query.text)
    unknown = [word for word in words if lexical.is_unknown_word(word)][:_MAX_UNKNOWN_WORDS]
    scores = dense.score_service_names(query.text, unknown) if unknown else ()
    return [(name, score) for name, score in zip(unknown, scores, strict=True) if score > DEFAULT_SERVICE_PROBABILITY]
