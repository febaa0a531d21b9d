"""Shorten JSON values, so that they fit into a number of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.token_count import estimate_tokens
from toolcrib.gateway.mcp.results.document import encode_json

# The longest arrays and strings of each attempt; the last one is used if none fits.
_ATTEMPTS: Final = ((200, 4_000), (50, 1_000), (20, 400), (10, 160), (5, 80), (3, 50), (1, 30))
_MAX_DEPTHS: Final = (50, 50, 50, 50, 12, 6, 4)


def shorten_json(value: object, max_tokens: int) -> str:
    """Return a value as JSON with long arrays, strings and objects cut; `…` marks what was cut."""
    text = encode_json(value) if _is_small(value, max_tokens * 16) else ""
    if text and estimate_tokens(text) <= max_tokens:
        return text
    for (items, chars), depth in zip(_ATTEMPTS, _MAX_DEPTHS, strict=True):
        text = encode_json(cut_value(value, items, chars, depth, marks=True))
        if estimate_tokens(text) <= max_tokens:
            return text
    return f"{text[: max_tokens * 3]}…"


def cut_value(value: object, max_items: int, max_chars: int, max_depth: int, *, marks: bool) -> Any:
    """Return a value with at most `max_items` items in each array and `max_chars` in each string.

    With `marks`, what is left out is named in place, which changes the types of items and members.
    """
    if isinstance(value, str):
        if len(value) <= max_chars:
            return value
        more = f"… ({len(value) - max_chars:,} more characters)" if marks else "…"
        return value[:max_chars] + more
    if isinstance(value, list):
        if marks and max_depth <= 0 and value:
            return f"… ({len(value):,} items)"
        kept = [cut_value(item, max_items, max_chars, max_depth - 1, marks=marks) for item in value[:max_items]]
        return [*kept, f"… {len(value) - max_items:,} more"] if marks and len(value) > max_items else kept
    if isinstance(value, Mapping):
        if marks and max_depth <= 0 and value:
            return f"… ({len(value):,} members)"
        limit = max(max_items, 12) if marks else len(value)
        members = {
            key: cut_value(item, max_items, max_chars, max_depth - 1, marks=marks)
            for key, item in list(value.items())[:limit]
        }
        return {**members, "…": f"{len(value) - limit:,} more"} if len(value) > limit else members
    return value


def _is_small(value: object, max_chars: int) -> bool:
    remaining = max_chars
    pending = [value]
    while pending and remaining >= 0:
        item = pending.pop()
        if isinstance(item, str):
            remaining -= len(item)
        elif isinstance(item, Mapping):
            remaining -= sum(map(len, item))
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
        remaining -= 2
    return remaining >= 0
