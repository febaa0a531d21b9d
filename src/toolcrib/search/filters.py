"""Filters: the tools of a server, a category, with tags, that only read."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidQuery


@dataclass(frozen=True, slots=True)
class Where:
    """Which tools a search is about. Empty fields ask nothing; of tags a tool needs every one."""

    server: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    read_only: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.tags, str):
            object.__setattr__(self, "tags", (self.tags,))
        if not all(isinstance(text, str) for text in (self.server, self.category, *self.tags)):
            raise InvalidQuery("a filter's server, category and tags must be text")

    def conditions(self) -> Iterator[tuple[str, str]]:
        """What is asked, as pairs of facet and value."""
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
        """What to say where no tool fits: it is probably misspelt."""
        asked = ", ".join(f"{facet} {value}".strip() for facet, value in self.conditions())
        return f"no tool at all has {asked}"

    def unmet_conditions(self, tool: Tool) -> tuple[tuple[str, str], ...]:
        """The conditions a tool does not meet."""
        facets = set(_facets(tool))
        return tuple(condition for condition in self.conditions() if condition not in facets)


NO_FILTER: Final = Where()

# Changed tools are few compared with those at rest; beyond this they are worth a new fit.
_MOST_CHANGED: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class FacetIndex:
    """Which slots of one catalog have which facets: most as they were, the changed ones apart."""

    _catalog: Catalog
    _fitted_to: Catalog
    _slots: dict[tuple[str, str], NDArray[np.int32]]
    _changed: tuple[int, ...] = ()

    @classmethod
    def fit(cls, catalog: Catalog) -> FacetIndex:
        """Fit to a catalog."""
        slots: defaultdict[tuple[str, str], array[int]] = defaultdict(lambda: array("i"))
        for slot in range(catalog.slot_count):
            for facet in _facets(catalog.tool_at(slot)):
                slots[facet].append(slot)
        return cls(catalog, catalog, {facet: np.asarray(some) for facet, some in slots.items()})

    def with_catalog(self, catalog: Catalog) -> FacetIndex:
        """This index brought to a later catalog."""
        changed = catalog.changed_slots(self._fitted_to)
        if (
            changed is None
            or len(changed) > _MOST_CHANGED
            or catalog.slot_count < self._fitted_to.slot_count
        ):
            return FacetIndex.fit(catalog)
        return FacetIndex(catalog, self._fitted_to, self._slots, tuple(changed))

    def mask(self, where: Where) -> NDArray[np.bool_]:
        """Which slots meet every condition."""
        mask = self._catalog.occupied_mask.copy()
        nowhere = np.empty(0, np.int32)
        for condition in where.conditions():
            met = np.zeros(len(mask), np.bool_)
            met[self._slots.get(condition, nowhere)] = True
            mask &= met
        for slot in self._changed:
            tool = self._catalog.tool_at(slot)
            mask[slot] = tool is not None and not where.unmet_conditions(tool)
        return mask


def _facets(tool: Tool | None) -> Iterator[tuple[str, str]]:
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
