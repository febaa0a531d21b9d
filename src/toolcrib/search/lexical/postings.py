"""Which tools hold which term, and how strongly: arrays that are cheap to search and to extend.

A `Postings` has a *base*, fitted in one go, and a small *delta* of the tools changed since. Both
are never altered: a successor copies the delta, which is small, and shares the base. When the
delta has grown to where copying it would cost more than it saves, the two become a new base.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.ranker import Scores, Slots

_Ints = NDArray[np.int32]
_Starts = NDArray[np.int64]
_Lengths = NDArray[np.uint16]

# Postings to sort at a time when fitting: more would cost memory, fewer would cost time.
_CHUNK: Final = 2_000_000


class ToolTerms(NamedTuple):
    """One tool's terms: how much each counts, and where each stands, field after field."""

    impacts: Mapping[int, float]
    tokens: list[int]
    lengths: list[int]


class Posting(NamedTuple):
    """The slots that hold a term, and its impact in each."""

    slots: Slots
    impacts: Scores


EMPTY_POSTING: Final = Posting(np.empty(0, np.int32), np.empty(0, np.float32))


class TermStreams(NamedTuple):
    """The terms of several tools in a row; `places` says which tool and field each belongs to."""

    tokens: _Ints
    places: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _BasePostings:
    """Many documents at rest. The postings of term t lie from starts[t] to starts[t + 1].

    `starts` is read one number at a time, which a memoryview does faster than an array.
    """

    starts: memoryview
    slots: Slots
    impacts: Scores
    token_starts: _Starts
    tokens: _Ints
    lengths: _Lengths

    @property
    def span(self) -> int:
        return len(self.lengths)

    def count(self, term: int) -> int:
        return self.starts[term + 1] - self.starts[term] if term + 1 < len(self.starts) else 0

    def terms(self, slot: int) -> set[int]:
        return set(self.tokens[self.token_starts[slot] : self.token_starts[slot + 1]].tolist())

    def posting(self, term: int) -> Posting:
        if term + 1 >= len(self.starts):
            return EMPTY_POSTING
        begin, end = self.starts[term], self.starts[term + 1]
        return Posting(self.slots[begin:end], self.impacts[begin:end])


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The postings of one catalog. `count` is the number of tools, `span` that of their slots."""

    span: int
    count: int
    _base: _BasePostings
    _is_current: NDArray[np.bool_] | None = None
    # How many of the tools that are dead in the base held a term.
    _removed_counts: Mapping[int, int] = field(default_factory=dict)
    _delta: Mapping[int, Posting] = field(default_factory=dict)
    _changed: Mapping[int, ToolTerms] = field(default_factory=dict)

    @classmethod
    def fit(cls, tools: Iterable[ToolTerms | None], fields: int) -> Postings:
        """Fit to the documents of slots 0, 1, 2, …; None is an empty slot."""
        fitting = _PostingsBuilder()
        span = count = 0
        for document in tools:
            fitting.add(span, document, fields)
            span += 1
            count += document is not None
        return cls(span, count, fitting.build(fields))

    def has_term(self, term: int) -> bool:
        """Whether any tool holds a term."""
        return term in self._delta or self._base.count(term) > self._removed_counts.get(term, 0)

    def find_posting(self, term: int) -> Posting:
        """Where a term stands."""
        base = self._base.posting(term)
        if self._is_current is not None and term in self._removed_counts:
            alive = self._is_current[base.slots]
            base = Posting(base.slots[alive], base.impacts[alive])
        delta = self._delta.get(term)
        if delta is None:
            return base
        return Posting(
            np.concatenate((base.slots, delta.slots)),
            np.concatenate((base.impacts, delta.impacts)),
        )

    def streams(self, slots: Slots) -> TermStreams:
        """The terms of these tools in order; a tool's n-th field has place `index * fields + n`."""
        base = self._base
        fields = base.lengths.shape[1]
        changed = self._find_changed(slots)
        at_rest = np.delete(np.arange(len(slots)), list(changed))
        tokens, places = _gather_terms(base, slots[at_rest], at_rest)
        for at, document in changed.items():
            tokens.append(np.array(document.tokens, np.int32))
            places.append(np.repeat(np.arange(fields), document.lengths) + at * fields)
        return TermStreams(np.concatenate(tokens), np.concatenate(places))

    def lengths(self, slots: Slots) -> NDArray[np.int64]:
        """How many terms each field of these tools has: a row a tool."""
        changed = self._find_changed(slots)
        at_rest = np.delete(np.arange(len(slots)), list(changed))
        found = np.zeros((len(slots), self._base.lengths.shape[1]), np.int64)
        found[at_rest] = self._base.lengths[slots[at_rest]]
        for at, document in changed.items():
            found[at] = document.lengths
        return found

    def _find_changed(self, slots: Slots) -> dict[int, ToolTerms]:
        """Those of these tools that are not at rest, by their index."""
        if not self._changed:
            return {}
        return {
            at: self._changed[slot]
            for at, slot in enumerate(slots.tolist())
            if slot in self._changed
        }

    def with_changes(
        self, changes: Mapping[int, ToolTerms | None], *, span: int, count: int
    ) -> Postings:
        """A successor in which these slots hold other documents, or none."""
        base, alive, dead = self._base, self._is_current, self._removed_counts
        buried = [slot for slot in changes if slot < base.span and (alive is None or alive[slot])]
        if buried:
            alive = np.ones(base.span, np.bool_) if alive is None else alive.copy()
            alive[buried] = False
            dead = Counter(dead)
            for slot in buried:
                dead.update(base.terms(slot))
        delta = dict(self._delta)
        documents = dict(self._changed)
        for slot, document in changes.items():
            if slot in documents:
                _remove_from_delta(delta, slot, documents.pop(slot))
            if document is not None:
                _add_to_delta(delta, slot, document)
                documents[slot] = document
        later = Postings(span, count, base, alive, dead, delta, documents)
        gone = 0 if alive is None else base.span - int(np.count_nonzero(alive))
        if len(documents) + gone > 256 + 4 * math.isqrt(span):
            return later._merge()
        return later

    def _merge(self) -> Postings:
        """The same postings with the delta worked into the base."""
        base = self._base
        counts = np.diff(np.asarray(base.starts))
        terms = np.repeat(np.arange(len(counts)), counts)
        slots, impacts = base.slots, base.impacts
        if self._is_current is not None:
            kept = self._is_current[slots]
            terms, slots, impacts = terms[kept], slots[kept], impacts[kept]
        added = [(term, *posting) for term, posting in self._delta.items()]
        terms = np.concatenate([terms, *(np.full(len(s), term) for term, s, _ in added)])
        slots = np.concatenate([slots, *(s for _, s, _ in added)])
        impacts = np.concatenate([impacts, *(i for _, _, i in added)])
        order = np.lexsort((slots, terms))
        lengths = np.zeros((self.span, base.lengths.shape[1]), np.uint16)
        lengths[: base.span] = base.lengths
        if self._is_current is not None:
            lengths[: base.span][~self._is_current] = 0
        for slot, document in self._changed.items():
            lengths[slot] = document.lengths
        everyone = np.arange(self.span, dtype=np.int32)[lengths.any(axis=1)]
        return Postings(
            self.span,
            self.count,
            _BasePostings(
                _starts(np.bincount(terms)).data,
                slots[order],
                impacts[order],
                _starts(lengths.sum(axis=1, dtype=np.int64)),
                self._tokens_in_order(everyone),
                lengths,
            ),
        )

    def _tokens_in_order(self, slots: Slots) -> _Ints:
        tokens, places = self.streams(slots)
        ordered: _Ints = tokens[np.argsort(places, kind="stable")]
        return ordered


def _gather_terms(
    base: _BasePostings, slots: Slots, indexes: NDArray[np.int64]
) -> tuple[list[_Ints], list[NDArray[np.int64]]]:
    """The terms of some slots at rest, and their places."""
    begins = base.token_starts[slots]
    sizes = base.token_starts[slots + 1] - begins
    offsets = np.repeat(begins - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)
    tokens = base.tokens[offsets + np.arange(len(offsets))]
    fields = base.lengths.shape[1]
    rows = indexes[:, None] * fields + np.arange(fields)
    places = np.repeat(rows.ravel(), base.lengths[slots].ravel())
    return [tokens], [places]


def _starts(counts: NDArray[np.int64]) -> _Starts:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def _add_to_delta(delta: dict[int, Posting], slot: int, document: ToolTerms) -> None:
    for term, impact in document.impacts.items():
        slots, impacts = delta.get(term, EMPTY_POSTING)
        delta[term] = Posting(
            np.append(slots, np.int32(slot)), np.append(impacts, np.float32(impact))
        )


def _remove_from_delta(delta: dict[int, Posting], slot: int, document: ToolTerms) -> None:
    for term in document.impacts:
        slots, impacts = delta.pop(term)
        others = slots != slot
        if others.any():
            delta[term] = Posting(slots[others], impacts[others])


class _SortedChunk(NamedTuple):
    """Postings sorted by term: each of the terms has as many as its count."""

    terms: _Ints
    counts: NDArray[np.int64]
    slots: Slots
    impacts: Scores


class _PostingsBuilder:
    """Collects documents in flat arrays and sorts them by term, a chunk at a time."""

    def __init__(self) -> None:
        self._terms = array("i")
        self._slots = array("i")
        self._impacts = array("f")
        self._tokens = array("i")
        self._lengths = array("H")
        self._chunks: list[_SortedChunk] = []

    def add(self, slot: int, document: ToolTerms | None, fields: int) -> None:
        if document is None:
            self._lengths.extend([0] * fields)
            return
        impacts = document.impacts
        self._terms.extend(impacts)
        self._impacts.extend(impacts.values())
        self._slots.extend(itertools.repeat(slot, len(impacts)))
        self._tokens.extend(document.tokens)
        self._lengths.extend(document.lengths)
        if len(self._terms) >= _CHUNK:
            self._sort()

    def build(self, fields: int) -> _BasePostings:
        self._sort()
        counts = np.zeros(max(int(c.terms.max(initial=-1)) for c in self._chunks) + 1, np.int64)
        for chunk in self._chunks:
            counts[chunk.terms] += chunk.counts
        starts = _starts(counts)
        slots = np.empty(starts[-1], np.int32)
        impacts = np.empty(starts[-1], np.float32)
        filled = starts[:-1].copy()
        while self._chunks:
            # Chunks come in the order of slots, so each term's postings end up ascending.
            chunk = self._chunks.pop(0)
            shifts = filled[chunk.terms] - _starts(chunk.counts)[:-1]
            targets = np.repeat(shifts, chunk.counts) + np.arange(len(chunk.slots))
            slots[targets] = chunk.slots
            impacts[targets] = chunk.impacts
            filled[chunk.terms] += chunk.counts
        lengths = np.asarray(self._lengths).reshape(-1, fields)
        token_starts = _starts(lengths.sum(axis=1, dtype=np.int64))
        tokens = np.asarray(self._tokens)
        return _BasePostings(starts.data, slots, impacts, token_starts, tokens, lengths)

    def _sort(self) -> None:
        terms = np.asarray(self._terms)
        order = np.argsort(terms, kind="stable")
        distinct, counts = np.unique(terms, return_counts=True)
        slots, impacts = np.asarray(self._slots), np.asarray(self._impacts)
        self._chunks.append(_SortedChunk(distinct, counts, slots[order], impacts[order]))
        self._terms, self._slots, self._impacts = array("i"), array("i"), array("f")
