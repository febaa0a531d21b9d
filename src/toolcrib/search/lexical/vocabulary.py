"""Every term there is, with a number; and the terms that begin like, look like or hold a text."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Shorter words are one slip away from too many others.
MIN_CORRECTED_CHARS: Final = 4
_MIN_TWO_EDITS_CHARS: Final = 8
# Stands in no term.
_SEPARATOR: Final = "\n"


class Vocabulary:
    """Numbers for terms. It only grows, so all catalogs of one descent can share it."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._next = itertools.count()
        self._terms: list[str] = []
        self._sorted = _SortedTerms.build(())

    def __len__(self) -> int:
        return len(self._numbers)

    def get(self, term: str) -> int | None:
        """The number of a term, if it has one."""
        return self._numbers.get(term)

    def get_or_add(self, term: str) -> int:
        """The number of a term, a new one if need be."""
        known = self._numbers.get(term)
        if known is None:
            # `setdefault` and `next` are atomic: no two threads give one number to two terms.
            known = self._numbers.setdefault(term, next(self._next))
            self._terms.append(term)
        return known

    def find_by_prefix(self, prefix: str) -> Iterator[str]:
        """The terms that begin with a text."""
        at_rest, fresh = self._sorted_and_new()
        yield from at_rest.find_by_prefix(prefix)
        yield from (term for term in fresh if term.startswith(prefix))

    def find_containing(self, part: str) -> Iterator[str]:
        """The terms that hold a text somewhere."""
        at_rest, fresh = self._sorted_and_new()
        yield from at_rest.find_containing(part)
        yield from (term for term in fresh if part in term)

    def find_corrections(self, word: str, counts: Callable[[str], bool]) -> list[str]:
        """The nearest of the terms that count, a slip or two away.

        A slip is a letter missing, added, wrong or swapped.
        """
        if len(word) < MIN_CORRECTED_CHARS:
            return []
        at_rest, fresh = self._sorted_and_new()
        for slips in (1, 2) if len(word) >= _MIN_TWO_EDITS_CHARS else (1,):
            alike = itertools.chain(at_rest.find_similar(word, slips), fresh)
            found = [
                term
                for term in alike
                if _edit_distance(word, term, slips) <= slips and counts(term)
            ]
            if found:
                return found
        return []

    def _sorted_and_new(self) -> tuple[_SortedTerms, list[str]]:
        """The sorted terms, and those that came since, which are sorted in when they are many."""
        known = len(self._sorted.terms)
        if len(self._terms) - known > 100 + known // 10:
            self._sorted = _SortedTerms.build(self._terms)
        at_rest = self._sorted
        return at_rest, self._terms[len(at_rest.terms) :]


@dataclass(frozen=True, slots=True, eq=False)
class _SortedTerms:
    terms: list[str]
    lengths: NDArray[np.int32]
    letters: NDArray[np.uint64]
    # All terms in one text, which is searched much faster than one after the other.
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

    def find_similar(self, word: str, slips: int) -> Iterator[str]:
        """The terms of about the same length and letters.

        A letter for another changes two in the set of letters, one missing or added only one; and
        of those it takes as many slips as the lengths are apart.
        """
        apart = np.abs(self.lengths - len(word))
        odd = np.bitwise_count(self.letters ^ np.uint64(_letter_bits(word)))
        for at in np.flatnonzero((apart <= slips) & (odd + apart <= 2 * slips)).tolist():
            yield self.terms[at]


def _letter_bits(term: str) -> int:
    """The set of a term's letters as bits."""
    bits = 0
    for letter in term:
        bits |= 1 << (ord(letter) % 64)
    return bits


def _edit_distance(one: str, other: str, most: int) -> int:
    """The number of slips between two words (optimal string alignment); over `most` may be less exact."""
    if abs(len(one) - len(other)) > most:
        return most + 1
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
        if min(row) > most:
            return most + 1
        before, last = last, row
    return last[-1]


def _strip_common_ends(one: str, other: str) -> tuple[str, str]:
    """Two words without what they begin and end with alike: no slip is needed there."""
    begin, shorter = 0, min(len(one), len(other))
    while begin < shorter and one[begin] == other[begin]:
        begin += 1
    end = 0
    while end < shorter - begin and one[-1 - end] == other[-1 - end]:
        end += 1
    return one[begin : len(one) - end], other[begin : len(other) - end]
