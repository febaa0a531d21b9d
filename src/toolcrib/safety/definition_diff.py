"""What has changed between two definitions, field by field, for a person to judge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from toolcrib.safety.display import visible

MAX_LINES: Final = 200
MAX_LINE_CHARS: Final = 300
MAX_DEPTH: Final = 40
# As much of what stayed is shown around a change.
_AROUND: Final = 40


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """A line with the field, then what it said and what it says; safe for a terminal.

    Nothing if the two are equal. Where there is more than can be read, it says how much is left.
    """
    lines: list[str] = []
    left = 0
    for line in _changes("", old, new, 0):
        if len(lines) < MAX_LINES:
            lines.append(line)
        else:
            left += 1
    return "\n".join([*lines, f"… ({left:,} lines more)"] if left else lines)


def _changes(where: str, old: object, new: object, depth: int) -> Iterator[str]:
    if _same(old, new):
        return
    if depth < MAX_DEPTH and isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys(chain(old, new)):
            place = f"{where}.{_step(name)}" if where else _step(name)
            if name not in new:
                yield from _told(place, "-", old[name])
            elif name not in old:
                yield from _told(place, "+", new[name])
            else:
                yield from _changes(place, old[name], new[name], depth + 1)
    elif isinstance(old, str) and isinstance(new, str):
        yield from _texts(where, old, new)
    elif depth < MAX_DEPTH and isinstance(old, list) and isinstance(new, list):
        yield from _lists(where, old, new, depth)
    else:
        yield visible(where)
        yield f"  - {_value(old)}"
        yield f"  + {_value(new)}"


def _told(where: str, sign: str, value: object) -> Iterator[str]:
    yield visible(where)
    lines = value.splitlines() or [""] if isinstance(value, str) else [_json(value)]
    yield from (f"  {sign} {visible(line, MAX_LINE_CHARS)}" for line in lines)


def _lists(where: str, old: list[Any], new: list[Any], depth: int) -> Iterator[str]:
    """Lists of one length item by item; others by what went and what came."""
    if len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _changes(f"{where}[{number}]", before, after, depth + 1)
        return
    before, after = [_json(one) for one in old], [_json(one) for one in new]
    stayed = set(before) & set(after)
    yield visible(where)
    yield f"  ({len(old):,} items before, {len(new):,} now)"
    yield from (f"  - {visible(one, MAX_LINE_CHARS)}" for one in before if one not in stayed)
    yield from (f"  + {visible(one, MAX_LINE_CHARS)}" for one in after if one not in stayed)


def _texts(where: str, old: str, new: str) -> Iterator[str]:
    """The lines that differ, without those at both ends that are the same."""
    before, after = old.split("\n"), new.split("\n")
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    gone, came = before[start : len(before) - end], after[start : len(after) - end]
    yield visible(where) + (f", line {start + 1}" if start else "")
    if len(gone) == len(came) == 1:
        shared = _common(gone[0], came[0])
        skipped = max(shared - _AROUND, 0) if shared > 2 * _AROUND else 0
        lead = "…" if skipped else ""
        yield f"  - {lead}{visible(gone[0][skipped:], MAX_LINE_CHARS)}"
        yield f"  + {lead}{visible(came[0][skipped:], MAX_LINE_CHARS)}"
        return
    yield from (f"  - {visible(line, MAX_LINE_CHARS)}" for line in gone)
    yield from (f"  + {visible(line, MAX_LINE_CHARS)}" for line in came)


def _common(one: list[str] | str, other: list[str] | str) -> int:
    """How many items, from the start, are the same."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _step(name: object) -> str:
    text = str(name)
    return text if text.isidentifier() else json.dumps(text, ensure_ascii=False)


def _same(old: object, new: object) -> bool:
    # 1, 1.0 and true are equal in Python, not in JSON.
    return old is new or _json(old) == _json(new)


def _value(value: object) -> str:
    return visible(_json(value), MAX_LINE_CHARS)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return "(cannot be shown)"
