"""What has changed between two definitions, field by field, for a person to judge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from toolcrib.safety.display import escape_invisible

MAX_LINES: Final = 200
MAX_LINE_CHARS: Final = 300
MAX_DEPTH: Final = 40
# As much of what stayed is shown around a change.
_CONTEXT_CHARS: Final = 40


def render_definition_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """A line with the field, then what it said and what it says; safe for a terminal.

    Nothing if the two are equal. Where there is more than can be read, it says how much is left.
    """
    lines: list[str] = []
    left = 0
    for line in _diff_values("", old, new, 0):
        if len(lines) < MAX_LINES:
            lines.append(line)
        else:
            left += 1
    return "\n".join([*lines, f"… ({left:,} lines more)"] if left else lines)


def _diff_values(where: str, old: object, new: object, depth: int) -> Iterator[str]:
    if _is_same_json(old, new):
        return
    if depth < MAX_DEPTH and isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys(chain(old, new)):
            place = f"{where}.{_format_key(name)}" if where else _format_key(name)
            if name not in new:
                yield from _render_field(place, "-", old[name])
            elif name not in old:
                yield from _render_field(place, "+", new[name])
            else:
                yield from _diff_values(place, old[name], new[name], depth + 1)
    elif isinstance(old, str) and isinstance(new, str):
        yield from _diff_texts(where, old, new)
    elif depth < MAX_DEPTH and isinstance(old, list) and isinstance(new, list):
        yield from _diff_lists(where, old, new, depth)
    else:
        yield escape_invisible(where)
        yield f"  - {_render_value(old)}"
        yield f"  + {_render_value(new)}"


def _render_field(where: str, sign: str, value: object) -> Iterator[str]:
    yield escape_invisible(where)
    lines = value.splitlines() or [""] if isinstance(value, str) else [_to_json(value)]
    yield from (f"  {sign} {escape_invisible(line, MAX_LINE_CHARS)}" for line in lines)


def _diff_lists(where: str, old: list[Any], new: list[Any], depth: int) -> Iterator[str]:
    """Lists of one length item by item; others by what went and what came."""
    if len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _diff_values(f"{where}[{number}]", before, after, depth + 1)
        return
    before, after = [_to_json(one) for one in old], [_to_json(one) for one in new]
    stayed = set(before) & set(after)
    yield escape_invisible(where)
    yield f"  ({len(old):,} items before, {len(new):,} now)"
    yield from (
        f"  - {escape_invisible(one, MAX_LINE_CHARS)}" for one in before if one not in stayed
    )
    yield from (
        f"  + {escape_invisible(one, MAX_LINE_CHARS)}" for one in after if one not in stayed
    )


def _diff_texts(where: str, old: str, new: str) -> Iterator[str]:
    """The lines that differ, without those at both ends that are the same."""
    before, after = old.split("\n"), new.split("\n")
    start = _count_common_prefix(before, after)
    end = _count_common_prefix(before[start:][::-1], after[start:][::-1])
    gone, came = before[start : len(before) - end], after[start : len(after) - end]
    yield escape_invisible(where) + (f", line {start + 1}" if start else "")
    if len(gone) == len(came) == 1:
        shared = _count_common_prefix(gone[0], came[0])
        skipped = max(shared - _CONTEXT_CHARS, 0) if shared > 2 * _CONTEXT_CHARS else 0
        lead = "…" if skipped else ""
        yield f"  - {lead}{escape_invisible(gone[0][skipped:], MAX_LINE_CHARS)}"
        yield f"  + {lead}{escape_invisible(came[0][skipped:], MAX_LINE_CHARS)}"
        return
    yield from (f"  - {escape_invisible(line, MAX_LINE_CHARS)}" for line in gone)
    yield from (f"  + {escape_invisible(line, MAX_LINE_CHARS)}" for line in came)


def _count_common_prefix(one: list[str] | str, other: list[str] | str) -> int:
    """How many items, from the start, are the same."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _format_key(name: object) -> str:
    text = str(name)
    return text if text.isidentifier() else json.dumps(text, ensure_ascii=False)


def _is_same_json(old: object, new: object) -> bool:
    # 1, 1.0 and true are equal in Python, not in JSON.
    return old is new or _to_json(old) == _to_json(new)


def _render_value(value: object) -> str:
    return escape_invisible(_to_json(value), MAX_LINE_CHARS)


def _to_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return "(cannot be shown)"
