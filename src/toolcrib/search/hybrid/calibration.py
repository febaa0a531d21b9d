"""Decide whether a tool fits a query: thresholds, and the penalty for a missing service.

A tool fits if its similarity to the query, or to one of its segments, reaches a threshold. The
thresholds were chosen on eleven query sets: about one answerable query in a hundred is below them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.dense.embedder import DEFAULT_SERVICE_PROBABILITY
from toolcrib.search.dense.index import DenseIndex
from toolcrib.search.lexical.ranker import LexicalIndex
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.query.segments import find_long_words

# The threshold grows with the catalog between these sizes.
_SMALL_CATALOG, _LARGE_CATALOG = 100, 10_000
# A query with more unknown words than this is about another subject than the catalog's.
_MAX_UNKNOWN_WORDS: Final = 4


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

    def service_penalty(
        self, query: ParsedQuery, lexical: LexicalIndex, dense: DenseIndex
    ) -> NDArray[np.float64] | None:
        """Return what each slot loses for the services it lacks; None if the query names none.

        If a tool lacks several services, the one most likely to be a service counts.
        """
        total: NDArray[np.float64] | None = None
        for name, probability in find_services(query, lexical, dense):
            holders = lexical.word_mask(name)
            if holders is None:
                continue
            penalty = np.where(holders, 0.0, probability * self.unknown_service_penalty)
            total = penalty if total is None else np.maximum(total, penalty)
        return total


DEFAULT_CALIBRATION: Final = Calibration()
ENCODER_CALIBRATION: Final = Calibration(threshold=0.31, threshold_growth=0.025)
STATIC_CALIBRATION: Final = Calibration(threshold=0.22, threshold_growth=0.025)


def find_services(
    query: ParsedQuery, lexical: LexicalIndex, dense: DenseIndex
) -> list[tuple[str, float]]:
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
    return [
        (name, score)
        for name, score in zip(unknown, scores, strict=True)
        if score > DEFAULT_SERVICE_PROBABILITY
    ]
