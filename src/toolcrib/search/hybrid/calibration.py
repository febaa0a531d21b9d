"""Decide whether a tool fits a query: thresholds, missing services and unknown words.

A tool fits if its similarity to the query, or to one of its segments, less some penalties, reaches a
threshold. The numbers were chosen with `benchmarks/confidence.py`: requests for tools in catalogs of
several sizes, with and without the servers of these tools.
"""

from __future__ import annotations

import math
import re
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
_SMALL_CATALOG, _LARGE_CATALOG = 100, 2_000
# A query with more unknown words than this is about another subject than the catalog's.
_MAX_UNKNOWN_WORDS: Final = 4
# Unknown words count in full in a query of this many words, and not at all in one of that many. A
# longer one describes its subject in many words, of which the right tool contains few.
_SHORT_WORDS, _LONG_WORDS = 3, 6
# A query without two letters or digits in a row, such as an emoji, says nothing about a tool.
_TEXT = re.compile(r"[^\W_]{2}|[\u2e80-\uffdc]")
# Services that tools call by another name.
_SERVICE_ALIASES: Final = {
    "amazon": ("aws",),
    "facebook": ("meta",),
    "instagram": ("meta",),
    "gcp": ("google",),
    "microsoft": ("ms", "azure"),
    "outlook": ("ms", "microsoft"),
    "teams": ("ms", "microsoft"),
}


class ServicePenalty(NamedTuple):
    """What a slot loses if it does not mention a service at all."""

    mentions: NDArray[np.float32]
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
        unknown_words_penalty: What every tool loses if no tool contains any word of a short query:
            "paint the fence" is similar to editing a picture. It is smaller for less than 100 tools.
    """

    threshold: float = 0.3
    threshold_growth: float = 0.0
    unknown_service_penalty: float = 0.2
    unknown_words_penalty: float = 0.0

    def threshold_for(self, tool_count: int) -> float:
        """Return the threshold for a catalog of this size."""
        size = min(max(tool_count, _SMALL_CATALOG), _LARGE_CATALOG)
        return self.threshold + self.threshold_growth * math.log(size / _SMALL_CATALOG)

    def service_penalties(self, query: ParsedQuery, lexical: LexicalIndex, dense: DenseIndex) -> list[ServicePenalty]:
        """Return a penalty for each service that the query names."""
        return [
            ServicePenalty(mentions, probability * self.unknown_service_penalty)
            for name, probability in find_services(query, lexical, dense)
            if (mentions := _rate_mentions(name, lexical)) is not None
        ]

    def word_penalty(self, query: ParsedQuery, lexical: LexicalIndex) -> float:
        """Return what every tool loses for the words of a query. Names do not count as words."""
        if not _TEXT.search(query.text):
            return 1.0
        words = [word for word in query.english.split() if not word[0].isdigit() and word not in query.names]
        shortness = min(max((_LONG_WORDS - len(words)) / (_LONG_WORDS - _SHORT_WORDS), 0.0), 1.0)
        if not words or not shortness or not self.unknown_words_penalty:
            return 0.0
        # The fewer tools there are, the less it means that none of them contains a word.
        scale = min(len(lexical.catalog) / _SMALL_CATALOG, 1.0)
        return self.unknown_words_penalty * scale * shortness * lexical.unknown_share(" ".join(words))


DEFAULT_CALIBRATION: Final = Calibration()
ENCODER_CALIBRATION: Final = Calibration(threshold=0.345, threshold_growth=0.03, unknown_words_penalty=0.3)
STATIC_CALIBRATION: Final = Calibration(threshold=0.25, threshold_growth=0.05, unknown_words_penalty=0.3)


def penalize(similarity: Scores, penalties: list[ServicePenalty], slots: Slots, word_penalty: float) -> Scores:
    """Return the similarity of slots, less the word penalty and the largest service penalty of each."""
    if word_penalty:
        similarity = np.maximum(similarity - np.float32(word_penalty), 0)
    if not penalties:
        return similarity
    losses = [(1 - mentions.take(slots)) * loss for mentions, loss in penalties]
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


def _rate_mentions(name: str, lexical: LexicalIndex) -> NDArray[np.float32] | None:
    """Return how clearly each slot mentions a service, by this name or another one."""
    names = (name, *_SERVICE_ALIASES.get(name.lower(), ()))
    rated = [mentions for each in names if (mentions := lexical.rate_mentions(each)) is not None]
    return np.maximum.reduce(rated) if rated else None
