"""A cache of what was built from lists of tools."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from toolcrib.gateway.llm.tools.tool_index import Entries

# Limits of the cache; the bytes are those of the tools as JSON, an index is several times larger.
MAX_CACHED_TOOLS: Final = 200_000
MAX_CACHED_BYTES: Final = 32 << 20

Value = TypeVar("Value")


class _CachedValue(NamedTuple, Generic[Value]):
    entries: Entries
    value: Value
    size_bytes: int


class ToolIndexCache(Generic[Value]):
    """A thread-safe LRU cache of what was built from lists of tools.

    It is limited by the number of values, and by the tools and bytes of all lists together.
    """

    def __init__(self, max_values: int, max_tools: int = MAX_CACHED_TOOLS, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_values = max_values
        self._max_tools = max_tools
        self._max_bytes = max_bytes
        self._cached: dict[Hashable, _CachedValue[Value]] = {}
        self._tools = 0
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, entries: Entries, *settings: Hashable) -> Value | None:
        """Return what was built from these tools with these settings, or None."""
        key = _cache_key(entries, settings)
        with self._lock:
            cached = self._cached.pop(key, None)
            if cached is None:
                return None
            self._cached[key] = cached
        # The key has only the names. Comparing the definitions is several times faster than hashing them.
        return cached.value if cached.entries == entries else None

    def put(self, value: Value, entries: Entries, *settings: Hashable, size_bytes: int) -> None:
        """Store a value, unless it is too large, and evict the least recently used ones."""
        key = _cache_key(entries, settings)
        with self._lock:
            self._remove(key)
            if size_bytes > self._max_bytes or len(entries) > self._max_tools:
                return
            self._cached[key] = _CachedValue(entries, value, size_bytes)
            self._tools += len(entries)
            self._bytes += size_bytes
            while (
                len(self._cached) > self._max_values or self._tools > self._max_tools or self._bytes > self._max_bytes
            ):
                self._remove(next(iter(self._cached)))

    def _remove(self, key: Hashable) -> None:
        cached = self._cached.pop(key, None)
        if cached is not None:
            self._tools -= len(cached.entries)
            self._bytes -= cached.size_bytes


def _cache_key(entries: Entries, settings: tuple[Hashable, ...]) -> Hashable:
    return (*settings, *map(_entry_name, entries))


def _entry_name(entry: object) -> str:
    if not isinstance(entry, dict):
        return ""
    name = entry.get("name")
    if name is None and isinstance(function := entry.get("function"), dict):
        name = function.get("name")
    return str(name)
