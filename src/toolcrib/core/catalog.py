"""The catalog: an ordered, immutable set of tools with cheap successors."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.tool import Tool
from toolcrib.errors import DuplicateTool, UnknownTool

# A tool, a tool in a wire format, a function, a toolset, or any number of these.
ToolSource = Tool | Mapping[str, Any] | Callable[..., Any] | Iterable[object]


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """The difference between two catalogs, in the order of the later one."""

    added: tuple[Tool, ...]
    changed: tuple[Tool, ...]
    removed: tuple[Tool, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class Catalog:
    """An ordered set of tools, by id.

    Tools in a wire format, functions and toolsets are converted to tools.

    Each tool has a numbered *slot*, which identifies it in every index. A successor (`with_tools`,
    `without`) shares the table of its ancestor and adds a small table of changed slots, so that
    changing one tool of a million is cheap. `changed_slots` returns those slots to an index.
    """

    def __init__(self, tools: ToolSource = ()) -> None:
        self._base: list[Tool | None] = []
        self._base_slots: dict[str, int] = {}
        for slot, tool in enumerate(_read_tools(tools)):
            first = self._base_slots.setdefault(tool.id, slot)
            if first != slot:
                raise DuplicateTool(
                    f"tools {first + 1} and {slot + 1} have the same id {tool.id!r}; rename one or give each its server"
                )
            self._base.append(tool)
        self._changes: dict[int, Tool | None] = {}
        self._changed_ids: dict[str, int | None] = {}
        self._length = self._span = len(self._base)
        # Catalogs of one lineage have the same slot numbers.
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
        """Return the tool with this id, if there is one."""
        slot = self.slot(id)
        return None if slot is None else self.tool_at(slot)

    @property
    def slot_count(self) -> int:
        """The number of slots, including empty ones."""
        return self._span

    def slot(self, id: str) -> int | None:
        """Return the slot of the tool with this id."""
        if id in self._changed_ids:
            return self._changed_ids[id]
        return self._base_slots.get(id)

    def tool_at(self, slot: int) -> Tool | None:
        """Return the tool in a slot; None if it has been removed."""
        if slot in self._changes:
            return self._changes[slot]
        return self._base[slot] if slot < len(self._base) else None

    @cached_property
    def occupied_mask(self) -> NDArray[np.bool_]:
        """Which slots contain a tool."""
        if self._length == self._span:
            return np.ones(self._span, np.bool_)
        return np.array([self.tool_at(slot) is not None for slot in range(self._span)], np.bool_)

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        """A digest of the tool in each slot as two numbers, for caches; zeros for an empty slot."""
        tools = map(self.tool_at, range(self._span))
        packed = b"".join([bytes(16) if tool is None else tool.digest for tool in tools])
        return np.frombuffer(packed, "<u8").astype(np.uint64, copy=False).reshape(-1, 2)

    @cached_property
    def version(self) -> str:
        """A digest of the tools in order, equal for equal catalogs on every machine."""
        digests = self.digests[self.occupied_mask].astype("<u8")
        return hashlib.blake2b(digests.tobytes(), digest_size=16).hexdigest()

    def with_tools(self, tools: ToolSource) -> Catalog:
        """Return a catalog with these tools added. A tool with a known id replaces the old one."""
        changes: dict[int, Tool | None] = {}
        changed_ids: dict[str, int | None] = {}
        span = self._span
        for tool in _read_tools(tools):
            slot = self.slot(tool.id)
            if tool.id in changed_ids:
                raise DuplicateTool(f"two of the tools to add have the id {tool.id!r}")
            if slot is None:
                slot, span = span, span + 1
            changes[slot] = tool
            changed_ids[tool.id] = slot
        return self._successor(changes, changed_ids, span)

    def without(self, ids: Iterable[str]) -> Catalog:
        """Return a catalog without these tools."""
        changes: dict[int, Tool | None] = {}
        changed_ids: dict[str, int | None] = {}
        for id in (ids,) if isinstance(ids, str) else ids:
            slot = self.slot(id)
            if slot is None:
                raise UnknownTool(f"no tool {id!r} in this catalog of {self._length}")
            changes[slot] = None
            changed_ids[id] = None
        return self._successor(changes, changed_ids, self._span)

    def changed_slots(self, since: Catalog) -> list[int] | None:
        """Return the slots in which this catalog differs from an earlier one.

        None means that the slot numbers of the two are unrelated, so an index has to be fitted again.
        """
        if self._lineage is not since._lineage:
            return None
        slots: Iterable[int] = range(max(self._span, since._span))
        if self._base is since._base:
            slots = sorted({**since._changes, **self._changes})
        return [slot for slot in slots if self.tool_at(slot) is not since.tool_at(slot)]

    def difference(self, earlier: Catalog) -> CatalogDiff:
        """Return the tools added, changed and removed since an earlier catalog."""
        slots = self.changed_slots(earlier)
        if slots is None:
            now, before = [*self], [*earlier]
        else:
            now = [tool for slot in slots if (tool := self.tool_at(slot))]
            before = [tool for slot in slots if (tool := earlier.tool_at(slot))]
        known = {tool.id: tool for tool in before}
        current_ids = {tool.id for tool in now}
        return CatalogDiff(
            added=tuple(tool for tool in now if tool.id not in known),
            changed=tuple(tool for tool in now if known.get(tool.id, tool) != tool),
            removed=tuple(tool for tool in before if tool.id not in current_ids),
        )

    def _successor(self, changes: dict[int, Tool | None], changed_ids: dict[str, int | None], span: int) -> Catalog:
        successor = Catalog.__new__(Catalog)
        successor._base = self._base
        successor._base_slots = self._base_slots
        successor._changes = {**self._changes, **changes}
        successor._changed_ids = {**self._changed_ids, **changed_ids}
        successor._span = span
        successor._lineage = self._lineage
        successor._length = self._length
        for slot, tool in changes.items():
            successor._length += (tool is not None) - (self.tool_at(slot) is not None)
        if span > 2 * successor._length + 1_000:
            # Most slots are empty, after many changes: assign new slot numbers.
            return Catalog(successor)
        if len(successor._changes) > 256 + 4 * math.isqrt(span):
            successor._rebase()
        return successor

    def _rebase(self) -> None:
        """Merge the changes, which every successor copies, into a new base with the same slots."""
        self._base = [self.tool_at(slot) for slot in range(self._span)]
        self._base_slots = {tool.id: slot for slot, tool in enumerate(self._base) if tool}
        self._changes = {}
        self._changed_ids = {}


def list_entries(source: ToolSource) -> list[object]:
    """Return the entries of a source; a single tool, function, toolset or SDK object is one entry."""
    if isinstance(source, Tool | Mapping | str | bytes) or callable(source) or not isinstance(source, Iterable):
        return [source]
    # Toolsets and the objects of SDKs may be iterable too.
    return [source] if hasattr(source, "has_tool") or hasattr(source, "model_dump") else list(source)


def read_catalog(source: ToolSource) -> Catalog:
    """Return a catalog of the tools of a source, whose schemas are checked."""
    return Catalog(_convert_entries(list_entries(source)))


def _read_tools(source: ToolSource) -> Iterable[Tool]:
    entries = [*source] if isinstance(source, Catalog) else list_entries(source)
    tools = [entry for entry in entries if isinstance(entry, Tool)]
    return tools if len(tools) == len(entries) else _convert_entries(entries)


def _convert_entries(entries: list[object]) -> list[Tool]:
    # Other formats are read by a module above this one, imported only if it is needed.
    tools: list[Tool] = import_module("toolcrib.tool_sources").read_tools(entries)
    return tools
