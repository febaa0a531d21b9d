"""Decide whether a tool fits a query: a logistic model of a few signals.

The signals are the similarity of tool and query, a service that the query names and the tool does not
mention, words that no tool contains, the length of the query and the size of the catalog. The weights
were fitted to requests for tools in catalogs of several sizes, with and without the servers of these tools.
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

# A query with more unknown words than this is about another subject than the catalog's.
_MAX_UNKNOWN_WORDS: Final = 4
# Unknown words count in full in a query of this many words, and not at all in one of that many. A
# longer one describes its subject in many words, of which the right tool contains few.
_SHORT_WORDS, _LONG_WORDS = 3, 6
# In a catalog with fewer tools than this, a word that no tool contains counts less.
_SMALL_CATALOG: Final = 100
# The model was fitted to catalogs between these sizes, and is not extrapolated.
_MIN_SIZE, _MAX_SIZE = 20, 10_000
# Further words do not make a query clearer.
_MAX_LENGTH_WORDS: Final = 20
# A query without two letters or digits in a row, such as an emoji, does not describe a tool.
_TEXT = re.compile(r"[^\W_]{2}|[\u2e80-\uffdc]")
# Names of services are rarely shorter.
_SERVICE_WORD = re.compile(r"[^\W_][\w.]+[^\W_]")
# A name with a higher probability is that of a service.
LIKELY_SERVICE: Final = 0.5
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


class NamedService(NamedTuple):
    """A name in a query, how likely it is that of a service, and how clearly each slot mentions it."""

    name: str
    probability: float
    mentions: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The weights of the signals. A tool fits if their sum reaches the threshold.

    They are in units of similarity: `compute_confidence` is the logistic function of the margin.

    Attributes:
        threshold: The sum from which on a tool fits.
        similarity: The weight of the similarity of query and tool.
        missing_service: Subtracted if the query names a service that the tool does not mention: "send
            a message to our Telegram group" is similar to sending one in Slack.
        unknown_words: Subtracted if no tool contains any word of a short query: "paint the fence" is
            similar to editing a picture.
        query_length: Added in proportion to the logarithm of the number of words. A longer request is
            less similar to the tool that serves it.
        catalog_size: Subtracted in proportion to the logarithm of the number of tools. The larger the
            catalog, the more similar its nearest tool is by chance.
    """

    threshold: float = 0.3
    similarity: float = 1.0
    missing_service: float = 0.2
    unknown_words: float = 0.0
    query_length: float = 0.0
    catalog_size: float = 0.0

    def score_fits(
        self, similarity: Scores, services: list[NamedService], slots: Slots, query: ParsedQuery, lexical: LexicalIndex
    ) -> Scores:
        """Return how far each slot is above the threshold, given the similarities of these slots."""
        if not _TEXT.search(query.text):
            return np.full(len(slots), -1, np.float32)
        words = query.english.split()
        length = math.log1p(min(len(words), _MAX_LENGTH_WORDS))
        size = math.log(min(max(len(lexical.catalog), _MIN_SIZE), _MAX_SIZE))
        offset = self.query_length * length - self.catalog_size * size - self.threshold
        if self.unknown_words:
            offset -= self.unknown_words * _measure_unknown_words(query, words, lexical)
        fits: Scores = np.float32(self.similarity) * similarity + np.float32(offset)
        if not services or not self.missing_service:
            return fits
        missing = [(1 - service.mentions.take(slots)) * service.probability for service in services]
        fits -= np.float32(self.missing_service) * np.maximum.reduce(missing)
        return fits


DEFAULT_CALIBRATION: Final = Calibration()
# Fitted to requests for tools that the encoders were not trained on. `python -m benchmarks.calibrate --write` replaces
# them for another encoder.
ENCODER_CALIBRATION: Final = Calibration(
    threshold=0.22,
    similarity=0.7706,
    missing_service=0.1541,
    unknown_words=0.2312,
    query_length=0.0328,
    catalog_size=0.0219,
)
STATIC_CALIBRATION: Final = Calibration(
    threshold=0.11,
    similarity=0.5261,
    missing_service=0.1052,
    unknown_words=0.1578,
    query_length=0.0341,
    catalog_size=0.0155,
)


def find_services(query: ParsedQuery, lexical: LexicalIndex, dense: DenseIndex) -> list[NamedService]:
    """Return the names in a query that may be those of services.

    A name is a capitalized word. Without one, a word that no tool contains counts as a name,
    provided that it is more likely to be a service than the default.
    """
    return [
        NamedService(name, probability, mentions)
        for name, probability in _score_names(query, lexical, dense)
        if (mentions := _rate_mentions(name, lexical)) is not None
    ]


def find_known_services(query: ParsedQuery, lexical: LexicalIndex, dense: DenseIndex) -> list[NamedService]:
    """Return the likely services among all words of a query, capitalized or not, that a tool mentions."""
    if not dense.can_score_service_names:
        return []
    words = split_service_words(query)
    scores = zip(words, dense.score_service_names(query.text, words), strict=True)
    likely = [(word, score) for word, score in scores if score > LIKELY_SERVICE]
    rated = [(word, score, _rate_mentions(word, lexical)) for word, score in likely]
    return [NamedService(word, score, mentions) for word, score, mentions in rated if mentions is not None]


def split_service_words(query: ParsedQuery) -> list[str]:
    """Return the different words of a query that are long enough to name a service."""
    return list(dict.fromkeys(_SERVICE_WORD.findall(query.text)))


def _score_names(query: ParsedQuery, lexical: LexicalIndex, dense: DenseIndex) -> list[tuple[str, float]]:
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


def _measure_unknown_words(query: ParsedQuery, words: list[str], lexical: LexicalIndex) -> float:
    """Return the share of the words of a short query that no tool contains. Names do not count."""
    words = [word for word in words if not word[0].isdigit() and word not in query.names]
    shortness = min(max((_LONG_WORDS - len(words)) / (_LONG_WORDS - _SHORT_WORDS), 0.0), 1.0)
    if not words or not shortness:
        return 0.0
    return min(len(lexical.catalog) / _SMALL_CATALOG, 1.0) * shortness * lexical.unknown_share(" ".join(words))
