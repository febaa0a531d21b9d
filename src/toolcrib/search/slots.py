"""What a ranker keeps of each tool, by slot, and how it follows the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool

Analysis = TypeVar("Analysis")

EMPTY_CATALOG = Catalog()


def analyze_slots(
    catalog: Catalog,
    analyze: Callable[[Tool], Analysis],
    previous: Mapping[int, Analysis],
    since: Catalog = EMPTY_CATALOG,
) -> dict[int, Analysis]:
    """What `read` says of every tool of a catalog, reading only those changed since `kept` was."""
    changed: Iterable[int] | None = catalog.changed_slots(since)
    if changed is None:
        changed, previous = range(catalog.slot_count), {}
    now = dict(previous)
    for slot in changed:
        tool = catalog.tool_at(slot)
        if tool is None:
            now.pop(slot, None)
        else:
            now[slot] = analyze(tool)
    return now
