"""What a ranker keeps of each tool, by slot, and how it follows the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool

Kept = TypeVar("Kept")

NOTHING_READ = Catalog()


def read_slots(
    catalog: Catalog,
    read: Callable[[Tool], Kept],
    kept: Mapping[int, Kept],
    since: Catalog = NOTHING_READ,
) -> dict[int, Kept]:
    """What `read` says of every tool of a catalog, reading only those changed since `kept` was."""
    changed: Iterable[int] | None = catalog.changed_slots(since)
    if changed is None:
        changed, kept = range(catalog.span), {}
    now = dict(kept)
    for slot in changed:
        tool = catalog.at(slot)
        if tool is None:
            now.pop(slot, None)
        else:
            now[slot] = read(tool)
    return now
