"""Postings: which tools contain which term, and its impact in each.

`Postings` has a *base*, built in one pass, and a small *delta* of the tools changed since. Both are
immutable: a successor shares the base and copies the delta. When copying the delta would cost more
than it saves, both are merged into a new base.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.lexical.analysis import AnalyzedTools
from toolcrib.search.ranker import Scores, Slots

_Ints = NDArray[np.int32]
_Starts = NDArray[np.int64]
_Lengths = NDArray[np.uint16]


class ToolTerms(NamedTuple):
    """The terms of one tool: the impact of each, and all of them in order, field by field."""

    impacts: Mapping[int, float]
    tokens: list[int]
    lengths: list[int]


class Posting(NamedTuple):
    """The slots that contain a term, and its impact in each."""

    slots: Slots
    impacts: Scores


EMPTY_POSTING: Final = Posting(np.empty(0, np.int32), np.empty(0, np.float32))


class TermStreams(NamedTuple):
    """The terms of several tools in order; `places` holds the tool and field of each."""

    tokens: _Ints
    places: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _BasePostings:
    """The postings of many tools. Those of term t are in the range starts[t] to starts[t + 1].

    A memoryview returns single numbers faster than an array.
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
    """The postings of one catalog of `count` tools in `span` slots."""

    span: int
    count: int
    _base: _BasePostings
    _is_current: NDArray[np.bool_] | None = None
    # For each term, how many removed or changed tools of the base contained it.
    _removed_counts: Mapping[int, int] = field(default_factory=dict)
    _delta: Mapping[int, Posting] = field(default_factory=dict)
    _changed: Mapping[int, ToolTerms] = field(default_factory=dict)

    @classmethod
    def fit(cls, batches: Iterable[AnalyzedTools], *, span: int, count: int) -> Postings:
        """Return postings of the `count` tools in `span` slots, in batches of consecutive slots."""
        return cls(span, count, _build_base(list(batches)))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], new_slots: Slots, *, span: int, count: int) -> Postings:
        """Return what `to_arrays` returned, with its tools in ascending new slots; a tool with -1 is left out."""
        kept = new_slots >= 0
        old_lengths: _Lengths = arrays["lengths"]
        lengths = np.zeros((span, old_lengths.shape[1]), np.uint16)
        lengths[new_slots[kept]] = old_lengths[kept]
        slots = new_slots.astype(np.int32)[arrays["slots"]]
        is_kept = slots >= 0
        base = _BasePostings(
            _starts(is_kept)[arrays["starts"]].data,
            slots[is_kept],
            arrays["impacts"][is_kept],
            _starts(lengths.sum(axis=1, dtype=np.int64)),
            arrays["tokens"][np.repeat(kept, old_lengths.sum(axis=1, dtype=np.int64))],
            lengths,
        )
        return cls(span, count, base)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the postings as they were fitted, without later changes."""
        names = ("starts", "slots", "impacts", "tokens", "lengths")
        return {name: np.asarray(getattr(self._base, name)) for name in names}

    def has_term(self, term: int) -> bool:
        """Return whether any tool contains a term."""
        return term in self._delta or self._base.count(term) > self._removed_counts.get(term, 0)

    def find_posting(self, term: int) -> Posting:
        """Return the tools that contain a term."""
        base = self._base.posting(term)
        if self._is_current is not None and term in self._removed_counts:
            current = self._is_current[base.slots]
            base = Posting(base.slots[current], base.impacts[current])
        delta = self._delta.get(term)
        if delta is None:
            return base
        return Posting(np.concatenate((base.slots, delta.slots)), np.concatenate((base.impacts, delta.impacts)))

    def streams(self, slots: Slots) -> TermStreams:
        """Return the terms of some tools; the place of a tool's n-th field is `index * fields + n`."""
        base = self._base
        fields = base.lengths.shape[1]
        changed = self._find_changed(slots)
        in_base = np.delete(np.arange(len(slots)), list(changed))
        tokens, places = _gather_terms(base, slots[in_base], in_base)
        for at, terms_of_tool in changed.items():
            tokens.append(np.array(terms_of_tool.tokens, np.int32))
            places.append(np.repeat(np.arange(fields), terms_of_tool.lengths) + at * fields)
        return TermStreams(np.concatenate(tokens), np.concatenate(places))

    def lengths(self, slots: Slots) -> NDArray[np.int64]:
        """Return the number of terms in each field of some tools, one row per tool."""
        changed = self._find_changed(slots)
        in_base = np.delete(np.arange(len(slots)), list(changed))
        found = np.zeros((len(slots), self._base.lengths.shape[1]), np.int64)
        found[in_base] = self._base.lengths[slots[in_base]]
        for at, terms_of_tool in changed.items():
            found[at] = terms_of_tool.lengths
        return found

    def _find_changed(self, slots: Slots) -> dict[int, ToolTerms]:
        """Return those of some tools that have changed since the base, by index."""
        if not self._changed:
            return {}
        return {at: self._changed[slot] for at, slot in enumerate(slots.tolist()) if slot in self._changed}

    def with_changes(self, changes: Mapping[int, ToolTerms | None], *, span: int, count: int) -> Postings:
        """Return postings in which some slots contain other tools, or none."""
        base, current, removed_counts = self._base, self._is_current, self._removed_counts
        outdated = [slot for slot in changes if slot < base.span and (current is None or current[slot])]
        if outdated:
            current = np.ones(base.span, np.bool_) if current is None else current.copy()
            current[outdated] = False
            removed_counts = Counter(removed_counts)
            for slot in outdated:
                removed_counts.update(base.terms(slot))
        delta = dict(self._delta)
        changed = dict(self._changed)
        for slot, terms_of_tool in changes.items():
            if slot in changed:
                _remove_from_delta(delta, slot, changed.pop(slot))
            if terms_of_tool is not None:
                _add_to_delta(delta, slot, terms_of_tool)
                changed[slot] = terms_of_tool
        successor = Postings(span, count, base, current, removed_counts, delta, changed)
        outdated_count = 0 if current is None else base.span - int(np.count_nonzero(current))
        if len(changed) + outdated_count > 256 + 4 * math.isqrt(span):
            return successor._merge()
        return successor

    def _merge(self) -> Postings:
        """Return the same postings with the delta merged into the base."""
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
        for slot, terms_of_tool in self._changed.items():
            lengths[slot] = terms_of_tool.lengths
        all_slots = np.arange(self.span, dtype=np.int32)[lengths.any(axis=1)]
        return Postings(
            self.span,
            self.count,
            _BasePostings(
                _starts(np.bincount(terms)).data,
                slots[order],
                impacts[order],
                _starts(lengths.sum(axis=1, dtype=np.int64)),
                self._tokens_in_order(all_slots),
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
    """Return the terms of some slots of the base, and their places."""
    begins = base.token_starts[slots]
    sizes = base.token_starts[slots + 1] - begins
    offsets = np.repeat(begins - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)
    tokens = base.tokens[offsets + np.arange(len(offsets))]
    fields = base.lengths.shape[1]
    rows = indexes[:, None] * fields + np.arange(fields)
    places = np.repeat(rows.ravel(), base.lengths[slots].ravel())
    return [tokens], [places]


def _starts(counts: NDArray[np.int64] | NDArray[np.bool_]) -> _Starts:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def _add_to_delta(delta: dict[int, Posting], slot: int, terms_of_tool: ToolTerms) -> None:
    for term, impact in terms_of_tool.impacts.items():
        slots, impacts = delta.get(term, EMPTY_POSTING)
        delta[term] = Posting(np.append(slots, np.int32(slot)), np.append(impacts, np.float32(impact)))


def _remove_from_delta(delta: dict[int, Posting], slot: int, terms_of_tool: ToolTerms) -> None:
    for term in terms_of_tool.impacts:
        slots, impacts = delta.pop(term)
        others = slots != slot
        if others.any():
            delta[term] = Posting(slots[others], impacts[others])


def split_by_tool(analyzed: AnalyzedTools) -> list[ToolTerms]:
    """Return the terms of each tool."""
    impacts: list[dict[int, float]] = [{} for _ in analyzed.lengths]
    postings = zip(analyzed.terms.tolist(), analyzed.tools.tolist(), analyzed.impacts.tolist(), strict=True)
    for term, tool, impact in postings:
        impacts[tool][term] = impact
    ends = np.cumsum(analyzed.lengths.sum(axis=1))
    tokens = np.split(analyzed.tokens, ends)[:-1]
    return [
        ToolTerms(impacts_of_tool, tokens_of_tool.tolist(), lengths)
        for impacts_of_tool, tokens_of_tool, lengths in zip(impacts, tokens, analyzed.lengths.tolist(), strict=True)
    ]


def _build_base(batches: list[AnalyzedTools]) -> _BasePostings:
    """Return the postings of batches of consecutive slots."""
    distinct = [np.unique_counts(batch.terms) for batch in batches]
    counts = np.zeros(max(int(terms.max(initial=-1)) for terms, _ in distinct) + 1, np.int64)
    for terms, counts_of_batch in distinct:
        counts[terms] += counts_of_batch
    starts = _starts(counts)
    slots = np.empty(starts[-1], np.int32)
    impacts = np.empty(starts[-1], np.float32)
    filled = starts[:-1].copy()
    first_slot = 0
    for batch, (terms, counts_of_batch) in zip(batches, distinct, strict=True):
        # Batches are in slot order, so the postings of each term are ascending.
        shifts = filled[terms] - _starts(counts_of_batch)[:-1]
        targets = np.repeat(shifts, counts_of_batch) + np.arange(len(batch.terms))
        slots[targets] = batch.tools + first_slot
        impacts[targets] = batch.impacts
        filled[terms] += counts_of_batch
        first_slot += len(batch.lengths)
    lengths = np.concatenate([batch.lengths for batch in batches]).astype(np.uint16)
    token_starts = _starts(lengths.sum(axis=1, dtype=np.int64))
    tokens = np.concatenate([batch.tokens for batch in batches])
    return _BasePostings(starts.data, slots, impacts, token_starts, tokens, lengths)
