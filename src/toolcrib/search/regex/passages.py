"""The texts of a catalog, searched with patterns within a time budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.regex.blob import Blob
from toolcrib.search.regex.deadline import Deadline
from toolcrib.search.regex.script import Script
from toolcrib.search.regex.syntax import Pattern

_ASCII = Script.of(map(chr, range(1, 128)))


class Passages:
    """Texts made ready once to be searched with any pattern; they never change."""

    def __init__(self, texts: Sequence[str]) -> None:
        # Texts repeat a lot, parameter names above all: each is searched once, for all its places.
        plain, other = list[str](), list[str]()
        for text in dict.fromkeys(texts):
            (plain if text.isascii() and "\0" not in text else other).append(text)
        place = {text: at for at, text in enumerate(plain + other)}
        self._places = np.fromiter((place[text] for text in texts), np.int32, len(texts))
        others_script = Script.of(chain.from_iterable(other))
        self._blobs = Blob(plain, _ASCII), Blob(other, others_script)

    def matching(self, pattern: Pattern, deadline: Deadline) -> NDArray[np.int32]:
        """The ascending indexes of the texts in which the pattern is found, or SearchTimeout."""
        plain, other = self._blobs
        found = np.zeros(len(plain) + len(other), np.bool_)
        found[plain.matching(pattern, deadline)] = True
        found[len(plain) + other.matching(pattern, deadline)] = True
        indexes = np.flatnonzero(found[self._places]).astype(np.int32)
        deadline.remaining_seconds()
        return indexes
