"""The tools there are: ordered, unchanging, and cheap to change into the next version."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.tool import Tool
from toolcrib.errors import DuplicateTool, InvalidTool, UnknownTool


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """What lies between two catalogs, in the order of the later one."""

    added: tuple[Tool, ...]
    changed: tuple[Tool, ...]
    removed: tuple[Tool, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class Catalog:
    """An ordered set of tools, by id.

    Each tool stands in a numbered *slot*; slots are what an index knows tools by. A successor
    (`with_tools`, `without`) shares its ancestor's table and keeps a small table of changed slots
    on top of it, so that changing one tool of a million touches one slot, and an index can ask
    which slots those are (`changed_slots`).
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._base: list[Tool | None] = []
        self._base_slots: dict[str, int] = {}
        for slot, tool in enumerate(tools):
            if not isinstance(tool, Tool):
                raise InvalidTool(
                    f"entry {slot + 1} of a catalog is not a Tool but {type(tool).__name__}; "
                    "toolcrib.adapters.format_detection.tools_from_any reads other formats"
                )
            first = self._base_slots.setdefault(tool.id, slot)
            if first != slot:
                raise DuplicateTool(
                    f"tools {first + 1} and {slot + 1} have the same id {tool.id!r}; "
                    "rename one or give each its server"
                )
            self._base.append(tool)
        self._changes: dict[int, Tool | None] = {}
        self._changed_ids: dict[str, int | None] = {}
        self._length = self._span = len(self._base)
        # Catalogs of one descent number their slots alike.
        self._lineage = object()

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Tool]:
        for slot in range(self._span):
            tool = self.tool_at(slot)
            if tool is not None:
                yield tool

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.slot(id) is not None

    def __getitem__(self, id: str) -> Tool:
        tool = self.get(id)
        if tool is None:
            raise UnknownTool(f"no tool {id!r} in this catalog of {self._length}")
        return tool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and len(self) == len(other) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash(self.version)

    def __repr__(self) -> str:
        return f"Catalog({self._length} tools)"

    def get(self, id: str) -> Tool | None:
        """The tool with this id, if there is one."""
        slot = self.slot(id)
        return None if slot is None else self.tool_at(slot)

    @property
    def slot_count(self) -> int:
        """How many slots there are, empty ones included."""
        return self._span

    def slot(self, id: str) -> int | None:
        """Where the tool with this id stands."""
        if id in self._changed_ids:
            return self._changed_ids[id]
        return self._base_slots.get(id)

    def tool_at(self, slot: int) -> Tool | None:
        """The tool in a slot; None where a tool has been removed."""
        if slot in self._changes:
            return self._changes[slot]
        return self._base[slot] if slot < len(self._base) else None

    @cached_property
    def occupied_mask(self) -> NDArray[np.bool_]:
        """Which slots hold a tool."""
        if self._length == self._span:
            return np.ones(self._span, np.bool_)
        return np.array([self.tool_at(slot) is not None for slot in range(self._span)], np.bool_)

    @cached_property
    def version(self) -> str:
        """A digest of the tools in their order: equal for equal catalogs, on every machine."""
        digest = hashlib.blake2b(digest_size=16)
        for tool in self:
            digest.update(tool.fingerprint.encode())
        return digest.hexdigest()

    def with_tools(self, tools: Iterable[Tool]) -> Catalog:
        """A successor in which these tools stand: known ids in their old place, new ones last."""
        changes: dict[int, Tool | None] = {}
        moved: dict[str, int | None] = {}
        span = self._span
        for tool in tools:
            slot = self.slot(tool.id)
            if tool.id in moved:
                raise DuplicateTool(f"two of the tools to add have the id {tool.id!r}")
            if slot is None:
                slot, span = span, span + 1
            changes[slot] = tool
            moved[tool.id] = slot
        return self._successor(changes, moved, span)

    def without(self, ids: Iterable[str]) -> Catalog:
        """A successor that lacks these tools."""
        changes: dict[int, Tool | None] = {}
        moved: dict[str, int | None] = {}
        for id in (ids,) if isinstance(ids, str) else ids:
            slot = self.slot(id)
            if slot is None:
                raise UnknownTool(f"no tool {id!r} in this catalog of {self._length}")
            changes[slot] = None
            moved[id] = None
        return self._successor(changes, moved, self._span)

    def changed_slots(self, since: Catalog) -> list[int] | None:
        """The slots in which this catalog differs from an earlier one of the same descent.

        None means that the two number their slots differently: an index has to be fitted anew.
        """
        if self._lineage is not since._lineage:
            return None
        slots: Iterable[int] = range(max(self._span, since._span))
        if self._base is since._base:
            slots = sorted({**since._changes, **self._changes})
        return [slot for slot in slots if self.tool_at(slot) is not since.tool_at(slot)]

    def difference(self, earlier: Catalog) -> CatalogDiff:
        """What was added, changed and removed since an earlier catalog."""
        slots = self.changed_slots(earlier)
        if slots is None:
            now, before = [*self], [*earlier]
        else:
            now = [tool for slot in slots if (tool := self.tool_at(slot))]
            before = [tool for slot in slots if (tool := earlier.tool_at(slot))]
        known = {tool.id: tool for tool in before}
        kept = {tool.id for tool in now}
        return CatalogDiff(
            added=tuple(tool for tool in now if tool.id not in known),
            changed=tuple(tool for tool in now if known.get(tool.id, tool) != tool),
            removed=tuple(tool for tool in before if tool.id not in kept),
        )

    def _successor(
        self, changes: dict[int, Tool | None], moved: dict[str, int | None], span: int
    ) -> Catalog:
        later = Catalog.__new__(Catalog)
        later._base = self._base
        later._base_slots = self._base_slots
        later._changes = {**self._changes, **changes}
        later._changed_ids = {**self._changed_ids, **moved}
        later._span = span
        later._lineage = self._lineage
        later._length = self._length
        for slot, tool in changes.items():
            later._length += (tool is not None) - (self.tool_at(slot) is not None)
        if span > 2 * later._length + 1_000:
            # Mostly holes, as after many servers have come and gone: number the slots anew.
            return Catalog(later)
        if len(later._changes) > 256 + 4 * math.isqrt(span):
            later._rebase()
        return later

    def _rebase(self) -> None:
        """Make a new base of the changes, which are copied with every successor, under the same slots."""
        self._base = [self.tool_at(slot) for slot in range(self._span)]
        self._base_slots = {tool.id: slot for slot, tool in enumerate(self._base) if tool}
        self._changes = {}
        self._changed_ids = {}
