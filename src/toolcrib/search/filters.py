"""Filters: by server, category, tags, and read-only tools."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidQuery

# The name and value of a property that tools can be filtered by.
_Facet = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Where:
    """A filter. Empty fields are ignored; a tool must have every one of the tags."""

    server: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    read_only: bool = False

    def __post_init__(self) -> None:
        is_one = isinstance(self.tags, str) or not isinstance(self.tags, Iterable)
        object.__setattr__(self, "tags", (self.tags,) if is_one else tuple(self.tags))
        if not all(isinstance(text, str) for text in (self.server, self.category, *self.tags)):
            raise InvalidQuery("a filter's server, category and tags must be text")

    def conditions(self) -> Iterator[_Facet]:
        """Yield the conditions as pairs of facet and value."""
        if self.server:
            yield "server", self.server.casefold()
        if self.category:
            yield "category", self.category.casefold()
        for tag in self.tags:
            yield "tag", tag.casefold()
        if self.read_only:
            yield "read_only", ""

    @property
    def no_match_note(self) -> str:
        """The note for a filter that no tool meets, which is probably misspelt."""
        conditions = ", ".join(f"{facet} {value}".strip() for facet, value in self.conditions())
        return f"no tool at all has {conditions}"

    def unmet_conditions(self, tool: Tool) -> tuple[_Facet, ...]:
        """Return the conditions that a tool does not meet."""
        facets = set(_facets(tool))
        return tuple(condition for condition in self.conditions() if condition not in facets)


NO_FILTER: Final = Where()

# Up to this many changed tools are checked one by one; beyond, the index is fitted again.
_MAX_CHANGED: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class FacetIndex:
    """Which slots of one catalog have which facets.

    Slots that changed since the index was fitted are checked one by one.
    """

    _catalog: Catalog
    _fitted_catalog: Catalog
    _slots: dict[_Facet, NDArray[np.int32]]
    _changed: tuple[int, ...] = ()

    @classmethod
    def fit(cls, catalog: Catalog) -> FacetIndex:
        """Return an index of a catalog."""
        slots: defaultdict[_Facet, array[int]] = defaultdict(lambda: array("i"))
        for slot in range(catalog.slot_count):
            for facet in _facets(catalog.tool_at(slot)):
                slots[facet].append(slot)
        return cls(catalog, catalog, {facet: np.asarray(some) for facet, some in slots.items()})

    def with_catalog(self, catalog: Catalog) -> FacetIndex:
        """Return an index of a later catalog."""
        changed = catalog.changed_slots(self._fitted_catalog)
        if changed is None or len(changed) > _MAX_CHANGED or catalog.slot_count < self._fitted_catalog.slot_count:
            return FacetIndex.fit(catalog)
        return FacetIndex(catalog, self._fitted_catalog, self._slots, tuple(changed))

    def mask(self, where: Where) -> NDArray[np.bool_]:
        """Return which slots meet every condition."""
        mask = self._catalog.occupied_mask.copy()
        no_slots = np.empty(0, np.int32)
        for condition in where.conditions():
            is_met = np.zeros(len(mask), np.bool_)
            is_met[self._slots.get(condition, no_slots)] = True
            mask &= is_met
        for slot in self._changed:
            tool = self._catalog.tool_at(slot)
            mask[slot] = tool is not None and not where.unmet_conditions(tool)
        return mask


def _facets(tool: Tool | None) -> Iterator[_Facet]:
    if tool is None:
        return
    if tool.server:
        yield "server", tool.server.casefold()
    if tool.category:
        yield "category", tool.category.casefold()
    for tag in dict.fromkeys(tool.tags):
        yield "tag", tag.casefold()
    if tool.read_only:
        yield "read_only", ""
