"""What was made of a request's tools, kept for the next request that brings the same ones."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from toolcrib.gateway.llm.json_body import serialize_json

# Of the tools as JSON; what is made of them takes several times as much.
MAX_BYTES: Final = 32 << 20
MAX_ENTRIES: Final = 200_000

Entries = Sequence[Mapping[str, Any]]
CachedValue = TypeVar("CachedValue")


class _CacheEntry(NamedTuple, Generic[CachedValue]):
    entries: Entries
    value: CachedValue
    size_bytes: int


class ToolIndexCache(Generic[CachedValue]):
    """Things by the tools and settings they were made of: so many at most, of so many tools and bytes.

    Safe from any thread.
    """

    def __init__(
        self, most: int, most_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._most = most
        self._most_entries = most_entries
        self._max_bytes = max_bytes
        self._kept: dict[Hashable, _CacheEntry[CachedValue]] = {}
        self._entries = 0
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, entries: Entries, *settings: Hashable) -> CachedValue | None:
        """What was made of these tools under these settings, if it is still there."""
        key = _cache_key(entries, settings)
        with self._lock:
            known = self._kept.pop(key, None)
            if known is None:
                return None
            self._kept[key] = known
        # Comparing is several times quicker than a digest of everything, and as exact.
        return known.value if known.entries == entries else None

    def put(
        self, made: CachedValue, entries: Entries, *settings: Hashable, size_bytes: int
    ) -> None:
        """Keep something, unless it is too large. What was not asked for longest makes room."""
        key = _cache_key(entries, settings)
        with self._lock:
            self._drop(key)
            if size_bytes > self._max_bytes or len(entries) > self._most_entries:
                return
            self._kept[key] = _CacheEntry(entries, made, size_bytes)
            self._entries += len(entries)
            self._bytes += size_bytes
            while (
                len(self._kept) > self._most
                or self._entries > self._most_entries
                or self._bytes > self._max_bytes
            ):
                self._drop(next(iter(self._kept)))

    def _drop(self, key: Hashable) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._entries -= len(gone.entries)
            self._bytes -= gone.size_bytes


def measure_bytes(entries: Entries) -> int:
    """How many bytes some tools are as JSON. Takes its time if they are many."""
    return sum(len(serialize_json(entry)) for entry in entries)


def _cache_key(entries: Entries, settings: tuple[Hashable, ...]) -> Hashable:
    return (*settings, *map(_entry_name, entries))


def _entry_name(entry: Mapping[str, Any]) -> str:
    function = entry.get("function")
    inner = function.get("name") if isinstance(function, Mapping) else None
    return str(entry.get("name", inner))
