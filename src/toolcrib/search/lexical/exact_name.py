"""Exact names: find a tool by its name, in any case style."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import regex

from toolcrib.core.catalog import Catalog
from toolcrib.core.text import normalize_name
from toolcrib.core.tool import Tool
from toolcrib.search.ranker import Ranking, Slots

MAX_NAMES = 50

_SEPARATOR = regex.compile(r"[\s,;]+(?:and[\s,;]+)?")
_WRAPPING = " \t\r\n\"'`.,;:!?()[]{}"
_LIST_SIGN = re.compile(r"[,;`'\"]")
# An operator of the query language: a sign before a word, a star or a boost after it.
_OPERATOR = regex.compile(r"^[+-]|\*|\^\d")
# An identifier has a sign inside, or a capital after a lowercase letter.
_IDENTIFIER = regex.compile(r"[\p{L}\p{N}][_.:/-]+[\p{L}\p{N}]|\p{Ll}\p{Lu}")


class NameMatch(NamedTuple):
    """The tools that a query names. If `is_exclusive`, the query asks for nothing else."""

    slots: list[int]
    is_exclusive: bool


@dataclass(frozen=True, slots=True, eq=False)
class NameIndex:
    """The names of one catalog's tools, regardless of case style.

    Names are stored as sorted hashes, which take less memory than strings. A match is verified
    against the tool, which also excludes names that have changed since. A memoryview returns single
    hashes faster than an array.
    """

    _catalog: Catalog
    _hashes: memoryview
    _slots: Slots
    _changed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def changed_names(self) -> int:
        """The number of names that were added since the index was fitted."""
        return sum(map(len, self._changed.values()))

    @classmethod
    def fit(cls, catalog: Catalog) -> NameIndex:
        """Return an index of a catalog."""
        hashes = array("q")
        slots = array("i")
        for slot in range(catalog.slot_count):
            for key in _keys(catalog.tool_at(slot)):
                hashes.append(hash(key))
                slots.append(slot)
        order = np.argsort(np.asarray(hashes), kind="stable")
        return cls(catalog, np.asarray(hashes)[order].data, np.asarray(slots)[order])

    def with_catalog(self, catalog: Catalog) -> NameIndex:
        """Return an index of a later catalog, built from this one."""
        changed = catalog.changed_slots(self._catalog)
        if changed is None or len(self._changed) > 1_000:
            return NameIndex.fit(catalog)
        changed_names = dict(self._changed)
        for slot in changed:
            for key in _keys(catalog.tool_at(slot)):
                slots = changed_names.get(hash(key), ())
                changed_names[hash(key)] = slots if slot in slots else (*slots, slot)
        return NameIndex(catalog, self._hashes, self._slots, changed_names)

    def match_names(self, query: str) -> NameMatch | None:
        """Return the tools whose names a query consists of; None if it contains other words."""
        text = query.strip(_WRAPPING)
        slots = self._find_slots(text)
        if slots:
            return NameMatch(slots, _is_identifier(text))
        # A list of names has separators, quotes or identifiers, which a sentence rarely has.
        if not _LIST_SIGN.search(text) and not _is_identifier(text.partition(" ")[0]):
            return None
        names = [name.strip(_WRAPPING) for name in _SEPARATOR.split(text, maxsplit=MAX_NAMES)]
        found: dict[int, None] = {}
        for name in names:
            slots = self._find_slots(name)
            if not slots:
                return None
            found.update(dict.fromkeys(slots))
        return NameMatch(list(found), all(map(_is_identifier, names)))

    def _find_slots(self, name: str) -> list[int]:
        key = normalize_name(name)
        value = hash(key)
        slots = set(self._changed.get(value, ()))
        at = bisect_left(self._hashes, value)
        while at < len(self._hashes) and self._hashes[at] == value:
            slots.add(int(self._slots[at]))
            at += 1
        # Most queries are not names, so the pattern is checked last.
        if not slots or not key or _OPERATOR.search(name):
            return []
        return [slot for slot in sorted(slots) if key in _keys(self._catalog.tool_at(slot))]


def _is_identifier(text: str) -> bool:
    # A fast check for plain words, which are the most common.
    if text.isalnum() and (text.islower() or text.istitle()):
        return False
    return " " not in text and bool(_IDENTIFIER.search(text))


def _keys(tool: Tool | None) -> tuple[str, ...]:
    """Return the normalized names of a tool: its name, and its id if that differs."""
    if tool is None:
        return ()
    name = normalize_name(tool.name)
    return (name,) if tool.id == tool.name else (name, normalize_name(tool.id))


def promote_names(ranking: Ranking, match: NameMatch) -> Ranking:
    """Return a ranking in which the named tools have the highest score."""
    others = ~np.isin(ranking.slots, match.slots)
    slots = np.concatenate((ranking.slots[others], np.array(match.slots, np.int32)))
    scores = np.concatenate((ranking.scores[others], np.ones(len(match.slots), np.float32)))
    order = np.argsort(slots)
    fits = ranking.fits
    if fits is not None:
        # A named tool fits the whole query, whatever its fit for the segments.
        named_slots = np.array(match.slots)
        is_known = np.isin(named_slots, ranking.slots)
        columns = np.full((len(fits), len(named_slots)), -np.inf, fits.dtype)
        columns[:, is_known] = ranking.fits_of(named_slots[is_known])
        columns[0] = np.inf
        fits = np.concatenate((fits[:, others], columns), axis=1)[:, order]
    return ranking._replace(slots=slots[order], scores=scores[order], fits=fits)
