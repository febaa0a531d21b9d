"""What was made of a request's tools, kept for the next request that brings the same ones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

MAX_ENTRIES: Final = 200_000

Entries = Sequence[Mapping[str, Any]]
Made = TypeVar("Made")


class Kept(Generic[Made]):
    """Things by the tools and settings they were made of: at most so many, of so many tools."""

    def __init__(self, most: int, most_entries: int = MAX_ENTRIES) -> None:
        self._most = most
        self._most_entries = most_entries
        self._kept: dict[Hashable, tuple[Entries, Made]] = {}
        self._entries = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, entries: Entries, *settings: Hashable) -> Made | None:
        """What was made of these tools under these settings, if it is still there."""
        key = _key(entries, settings)
        known = self._kept.pop(key, None)
        if known is None:
            return None
        self._kept[key] = known
        # Comparing is several times quicker than a digest of everything, and as exact.
        return known[1] if known[0] == entries else None

    def put(self, made: Made, entries: Entries, *settings: Hashable) -> None:
        """Keep something. What was not asked for longest makes room."""
        key = _key(entries, settings)
        self._entries += len(entries) - len(self._kept.pop(key, ((), None))[0])
        self._kept[key] = (entries, made)
        while len(self._kept) > self._most or (
            self._entries > self._most_entries and len(self._kept) > 1
        ):
            self._entries -= len(self._kept.pop(next(iter(self._kept)))[0])


def _key(entries: Entries, settings: tuple[Hashable, ...]) -> Hashable:
    return (*settings, *map(_name, entries))


def _name(entry: Mapping[str, Any]) -> str:
    function = entry.get("function")
    inner = function.get("name") if isinstance(function, Mapping) else None
    return str(entry.get("name", inner))
