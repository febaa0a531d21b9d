"""The vocabulary: a number for each term, and lookup by prefix, substring and edit distance."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Shorter words are within one edit of too many others.
MIN_CORRECTED_CHARS: Final = 4
_MIN_TWO_EDITS_CHARS: Final = 8
# Occurs in no term.
_SEPARATOR: Final = "\n"


class Vocabulary:
    """Numbers for terms. It only grows, so all successors of a catalog can share it."""

    def __init__(self, terms: Iterable[str] = ()) -> None:
        self._terms: list[str] = list(terms)
        self._numbers = {term: number for number, term in enumerate(self._terms)}
        self._next = itertools.count(len(self._terms))
        self._sorted = _SortedTerms.build(())

    def __len__(self) -> int:
        return len(self._numbers)

    @classmethod
    def decode(cls, encoded: NDArray[np.uint8]) -> Vocabulary:
        """Return the vocabulary that `encode` returned."""
        text = encoded.tobytes().decode("utf-8", "surrogatepass")
        return cls(text.split(_SEPARATOR) if text else ())

    def encode(self) -> NDArray[np.uint8]:
        """Return the terms in the order of their numbers, as bytes."""
        return np.frombuffer(_SEPARATOR.join(self._numbers).encode("utf-8", "surrogatepass"), np.uint8)

    def get(self, term: str) -> int | None:
        """Return the number of a term, if it has one."""
        return self._numbers.get(term)

    def get_or_add(self, term: str) -> int:
        """Return the number of a term; assign one if it has none."""
        known = self._numbers.get(term)
        if known is None:
            # `setdefault` and `next` are atomic, so two threads never assign the same number.
            known = self._numbers.setdefault(term, next(self._next))
            self._terms.append(term)
        return known

    def find_by_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the terms that start with a text."""
        sorted_terms, new_terms = self._sorted_and_new()
        yield from sorted_terms.find_by_prefix(prefix)
        yield from (term for term in new_terms if term.startswith(prefix))

    def find_containing(self, part: str) -> Iterator[str]:
        """Yield the terms that contain a text."""
        sorted_terms, new_terms = self._sorted_and_new()
        yield from sorted_terms.find_containing(part)
        yield from (term for term in new_terms if part in term)

    def find_corrections(self, word: str, accepts: Callable[[str], bool], max_edits: int = 2) -> list[str]:
        """Return the accepted terms with the smallest edit distance, which is at most `max_edits`: one or two.

        An edit is a missing, an additional, a wrong or a swapped letter.
        """
        if len(word) < MIN_CORRECTED_CHARS:
            return []
        sorted_terms, new_terms = self._sorted_and_new()
        for edits in (1, 2) if max_edits > 1 and len(word) >= _MIN_TWO_EDITS_CHARS else (1,):
            similar = itertools.chain(sorted_terms.find_similar(word, edits), new_terms)
            found = [term for term in similar if _edit_distance(word, term, edits) <= edits and accepts(term)]
            if found:
                return found
        return []

    def _sorted_and_new(self) -> tuple[_SortedTerms, list[str]]:
        """Return the sorted terms, and the terms added since; sort again if those are many."""
        known = len(self._sorted.terms)
        if len(self._terms) - known > 100 + known // 10:
            self._sorted = _SortedTerms.build(self._terms)
        sorted_terms = self._sorted
        return sorted_terms, self._terms[len(sorted_terms.terms) :]


@dataclass(frozen=True, slots=True, eq=False)
class _SortedTerms:
    terms: list[str]
    lengths: NDArray[np.int32]
    letters: NDArray[np.uint64]
    # All terms in one text, which is faster to search than one term after the other.
    joined: str

    @classmethod
    def build(cls, terms: Iterable[str]) -> _SortedTerms:
        ordered = sorted(terms)
        return cls(
            ordered,
            np.array([len(term) for term in ordered], np.int32),
            np.array([_letter_bits(term) for term in ordered], np.uint64),
            _SEPARATOR.join(ordered),
        )

    def find_by_prefix(self, prefix: str) -> Iterator[str]:
        for at in range(bisect_left(self.terms, prefix), len(self.terms)):
            if not self.terms[at].startswith(prefix):
                return
            yield self.terms[at]

    def find_containing(self, part: str) -> Iterator[str]:
        at = self.joined.find(part)
        while at >= 0:
            begin = self.joined.rfind(_SEPARATOR, 0, at) + 1
            end = self.joined.find(_SEPARATOR, at)
            end = len(self.joined) if end < 0 else end
            yield self.joined[begin:end]
            at = self.joined.find(part, end)

    def find_similar(self, word: str, edits: int) -> Iterator[str]:
        """Yield the terms whose length and letters allow the edit distance.

        A replaced letter changes two letters of the set, a missing or additional one changes one;
        at least as many edits as the lengths differ are of the second type.
        """
        length_difference = np.abs(self.lengths - len(word))
        letter_difference = np.bitwise_count(self.letters ^ np.uint64(_letter_bits(word)))
        for at in np.flatnonzero(
            (length_difference <= edits) & (letter_difference + length_difference <= 2 * edits)
        ).tolist():
            yield self.terms[at]


def _letter_bits(term: str) -> int:
    """Return the set of a term's letters as bits."""
    bits = 0
    for letter in term:
        bits |= 1 << (ord(letter) % 64)
    return bits


def _edit_distance(one: str, other: str, limit: int) -> int:
    """Return the edit distance of two words (optimal string alignment), or any number over `limit`."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    one, other = _strip_common_ends(one, other)
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = last[j - 1] if a == b else 1 + min(last[j], row[j - 1], last[j - 1])
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        before, last = last, row
    return last[-1]


def _strip_common_ends(one: str, other: str) -> tuple[str, str]:
    """Return two words without their common prefix and suffix."""
    begin, shorter = 0, min(len(one), len(other))
    while begin < shorter and one[begin] == other[begin]:
        begin += 1
    end = 0
    while end < shorter - begin and one[-1 - end] == other[-1 - end]:
        end += 1
    return one[begin : len(one) - end], other[begin : len(other) - end]
