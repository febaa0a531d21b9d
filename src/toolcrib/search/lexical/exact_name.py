"""Exact names: a tool asked for by name is found, in whatever style the name is written."""

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
_LISTED = re.compile(r"[,;`'\"]")
# An operator of the query language: a sign before a word, a star or boost behind it.
_NO_NAME = regex.compile(r"^[+-]|\*|\^\d")
# Written as nobody writes a word: a sign inside, or a capital after a small letter.
_IDENTIFIER = regex.compile(r"[\p{L}\p{N}][_.:/-]+[\p{L}\p{N}]|\p{Ll}\p{Lu}")


class NameMatch(NamedTuple):
    """The tools a query names. `only` says that it asks for nothing else."""

    slots: list[int]
    is_exclusive: bool


@dataclass(frozen=True, slots=True, eq=False)
class NameIndex:
    """The names of one catalog's tools, without their case and style.

    The names are held as sorted hashes: two numbers a tool instead of a string. What a hash finds
    is checked against the tool itself, which also weeds out names that have since changed. The
    hashes are read one at a time, which a memoryview does faster than an array.
    """

    _catalog: Catalog
    _hashes: memoryview
    _slots: Slots
    _fresh: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def fit(cls, catalog: Catalog) -> NameIndex:
        """Fit to a catalog."""
        hashes = array("q")
        slots = array("i")
        for slot in range(catalog.slot_count):
            for key in _keys(catalog.tool_at(slot)):
                hashes.append(hash(key))
                slots.append(slot)
        order = np.argsort(np.asarray(hashes), kind="stable")
        return cls(catalog, np.asarray(hashes)[order].data, np.asarray(slots)[order])

    def with_catalog(self, catalog: Catalog) -> NameIndex:
        """This index brought to a later catalog."""
        changed = catalog.changed_slots(self._catalog)
        if changed is None or len(self._fresh) > 1_000:
            return NameIndex.fit(catalog)
        fresh = dict(self._fresh)
        for slot in changed:
            for key in _keys(catalog.tool_at(slot)):
                slots = fresh.get(hash(key), ())
                fresh[hash(key)] = slots if slot in slots else (*slots, slot)
        return NameIndex(catalog, self._hashes, self._slots, fresh)

    def match_names(self, query: str) -> NameMatch | None:
        """The tools whose names a query consists of, if it does."""
        written = query.strip(_WRAPPING)
        slots = self._find_slots(written)
        if slots:
            return NameMatch(slots, _is_identifier(written))
        # What several names have that a sentence seldom has.
        if not _LISTED.search(written) and not _is_identifier(written.partition(" ")[0]):
            return None
        names = [name.strip(_WRAPPING) for name in _SEPARATOR.split(written, maxsplit=MAX_NAMES)]
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
        slots = set(self._fresh.get(value, ()))
        at = bisect_left(self._hashes, value)
        while at < len(self._hashes) and self._hashes[at] == value:
            slots.add(int(self._slots[at]))
            at += 1
        # Hardly any query is a name, so this is asked last.
        if not slots or not key or _NO_NAME.search(name):
            return []
        return [slot for slot in sorted(slots) if key in _keys(self._catalog.tool_at(slot))]


def _is_identifier(written: str) -> bool:
    # Most are plain words, and these tell so sooner than a search does.
    if written.isalnum() and (written.islower() or written.istitle()):
        return False
    return " " not in written and bool(_IDENTIFIER.search(written))


def _keys(tool: Tool | None) -> tuple[str, ...]:
    """What a tool answers to: its name, and its name with that of its server."""
    if tool is None:
        return ()
    name = normalize_name(tool.name)
    return (name,) if tool.id == tool.name else (name, normalize_name(tool.id))


def promote_names(ranking: Ranking, named: NameMatch) -> Ranking:
    """The named tools with a full score, whether or not their words were found."""
    others = ~np.isin(ranking.slots, named.slots)
    slots = np.concatenate((ranking.slots[others], np.array(named.slots, np.int32)))
    scores = np.concatenate((ranking.scores[others], np.ones(len(named.slots), np.float32)))
    order = np.argsort(slots)
    similarities = ranking.similarities
    if similarities is not None:
        # A named tool fits the query as a whole, whatever its similarity to the segments.
        named_slots = np.array(named.slots)
        is_known = np.isin(named_slots, ranking.slots)
        columns = np.zeros((len(similarities), len(named_slots)), similarities.dtype)
        columns[:, is_known] = ranking.similarities_of(named_slots[is_known])
        columns[0] = np.inf
        similarities = np.concatenate((similarities[:, others], columns), axis=1)[:, order]
    return ranking._replace(
        slots=slots[order], scores=scores[order], similarities=similarities, approximate=None
    )
