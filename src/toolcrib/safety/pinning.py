"""Trust on first use: pin each tool's first definition and compare later ones with it.

A fingerprint here covers the definition as the server sent it, independent of the order of keys,
which may differ from start to start. (`Tool.fingerprint` covers what a model sees, where the order
matters.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any, Final, Literal

from toolcrib.errors import InvalidTool
from toolcrib.safety.hidden_text import escape_invisible

PinState = Literal["approved", "changed"]
PinStatus = Literal["new", "same", "changed", "gone"]

MAX_LINES: Final = 200
MAX_LINE_CHARS: Final = 300
MAX_DEPTH: Final = 40
# Number of unchanged characters that are shown before a change within a line.
_CONTEXT_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class Pin:
    """The trusted definition of a tool, and the candidate that waits for approval, if any.

    A tool that was quarantined on first sight has an empty `fingerprint` and `definition`.
    """

    tool: str
    fingerprint: str
    definition: Mapping[str, Any]
    state: PinState = "approved"
    first_seen: float = 0.0
    candidate: Mapping[str, Any] | None = None
    candidate_fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class PinVerdict:
    """How a tool compares with its pin. A tool that is gone has an empty definition."""

    tool: str
    status: PinStatus
    pin: Pin | None
    definition: Mapping[str, Any]
    fingerprint: str


def compute_fingerprint(definition: Mapping[str, Any]) -> str:
    """Return a digest of a definition that does not depend on the order of its keys."""
    try:
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        name = escape_invisible(str(definition.get("name")), 80)
        raise InvalidTool(
            f"tool {name!r}: its definition is not valid JSON and cannot be pinned ({error}); "
            "report this to the maker of the tool"
        ) from error
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def compare_with_pins(pins: Mapping[str, Pin], definitions: Iterable[Mapping[str, Any]]) -> dict[str, PinVerdict]:
    """Return a verdict for each listed or pinned tool, by name; tools that are gone come last.

    If a server lists several definitions under one name, the first changed one decides.
    """
    verdicts: dict[str, PinVerdict] = {}
    for definition in definitions:
        name = definition.get("name")
        if not isinstance(name, str):
            continue
        previous = verdicts.get(name)
        if previous and previous.status != "same":
            continue
        verdicts[name] = _compare_with_pin(name, pins.get(name), definition)
    for name, pin in pins.items():
        if name not in verdicts:
            verdicts[name] = PinVerdict(name, "gone", pin, {}, "")
    return verdicts


def _compare_with_pin(name: str, pin: Pin | None, definition: Mapping[str, Any]) -> PinVerdict:
    fingerprint = compute_fingerprint(definition)
    if pin is None:
        return PinVerdict(name, "new", None, definition, fingerprint)
    status: PinStatus = "same" if fingerprint == pin.fingerprint else "changed"
    return PinVerdict(name, status, pin, definition, fingerprint)


def update_pins(
    verdicts: Iterable[PinVerdict],
    at: float,
    *,
    changed: Literal["block", "warn", "off"] = "block",
    quarantined: Collection[str] = (),
) -> list[Pin]:
    """Return the pins that have to be written after a comparison.

    The trusted definition of a changed tool is kept, and the new one is stored as a candidate until
    it is approved; with `warn`, the caller uses it meanwhile. `off` pins nothing. New tools named in
    `quarantined`, such as those with a scan finding, wait for approval as well.
    """
    if changed == "off":
        return []
    pins = (_update_pin(verdict, at, verdict.tool in quarantined) for verdict in verdicts)
    return [pin for pin in pins if pin is not None]


def _update_pin(verdict: PinVerdict, at: float, is_quarantined: bool) -> Pin | None:
    pin, tool = verdict.pin, verdict.tool
    if verdict.status == "gone":
        # The pin stays, so that the tool is checked again if it comes back.
        return None
    if pin is None:
        if is_quarantined:
            return Pin(tool, "", {}, "changed", at, verdict.definition, verdict.fingerprint)
        return Pin(tool, verdict.fingerprint, verdict.definition, first_seen=at)
    if verdict.status == "same":
        if pin.state == "approved":
            return None
        return replace(pin, state="approved", candidate=None, candidate_fingerprint="")
    if pin.state == "changed" and pin.candidate_fingerprint == verdict.fingerprint:
        return None
    return replace(pin, state="changed", candidate=verdict.definition, candidate_fingerprint=verdict.fingerprint)


def render_definition_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the changed fields with their old and new values; empty if nothing changed.

    The text is safe for a terminal. It ends with the number of lines that did not fit.
    """
    lines: list[str] = []
    omitted = 0
    for line in _diff_values("", old, new, 0):
        if len(lines) < MAX_LINES:
            lines.append(line)
        else:
            omitted += 1
    return "\n".join([*lines, f"… ({omitted:,} lines more)"] if omitted else lines)


def _diff_values(path: str, old: object, new: object, depth: int) -> Iterator[str]:
    # 1, 1.0 and True are equal in Python but different in JSON.
    if old is new or _to_json(old) == _to_json(new):
        return
    if depth < MAX_DEPTH and isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys(chain(old, new)):
            key_path = f"{path}.{_format_key(name)}" if path else _format_key(name)
            if name not in new:
                yield escape_invisible(key_path)
                yield from _mark_lines("-", _split_value(old[name]))
            elif name not in old:
                yield escape_invisible(key_path)
                yield from _mark_lines("+", _split_value(new[name]))
            else:
                yield from _diff_values(key_path, old[name], new[name], depth + 1)
    elif isinstance(old, str) and isinstance(new, str):
        yield from _diff_texts(path, old, new)
    elif depth < MAX_DEPTH and isinstance(old, list) and isinstance(new, list):
        yield from _diff_lists(path, old, new, depth)
    else:
        yield escape_invisible(path)
        yield from _mark_lines("-", [_to_json(old)])
        yield from _mark_lines("+", [_to_json(new)])


def _diff_lists(path: str, old: list[Any], new: list[Any], depth: int) -> Iterator[str]:
    """Compare lists of equal length item by item; of others, show removed and added items."""
    if len(old) == len(new):
        for number, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from _diff_values(f"{path}[{number}]", old_item, new_item, depth + 1)
        return
    old_items, new_items = list(map(_to_json, old)), list(map(_to_json, new))
    unchanged = set(old_items) & set(new_items)
    yield escape_invisible(path)
    yield f"  ({len(old):,} items before, {len(new):,} now)"
    yield from _mark_lines("-", (item for item in old_items if item not in unchanged))
    yield from _mark_lines("+", (item for item in new_items if item not in unchanged))


def _diff_texts(path: str, old: str, new: str) -> Iterator[str]:
    """Show the lines that differ, without the common lines at both ends."""
    old_lines, new_lines = old.split("\n"), new.split("\n")
    start = _count_common_prefix(old_lines, new_lines)
    end = _count_common_prefix(old_lines[start:][::-1], new_lines[start:][::-1])
    removed = old_lines[start : len(old_lines) - end]
    added = new_lines[start : len(new_lines) - end]
    yield escape_invisible(path) + (f", line {start + 1}" if start else "")
    if len(removed) == len(added) == 1:
        common = _count_common_prefix(removed[0], added[0])
        if common > 2 * _CONTEXT_CHARS:
            skipped = common - _CONTEXT_CHARS
            yield f"  - …{escape_invisible(removed[0][skipped:], MAX_LINE_CHARS)}"
            yield f"  + …{escape_invisible(added[0][skipped:], MAX_LINE_CHARS)}"
            return
    yield from _mark_lines("-", removed)
    yield from _mark_lines("+", added)


def _count_common_prefix(old: Sequence[str], new: Sequence[str]) -> int:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
    return sum(1 for _ in pairs)


def _mark_lines(sign: str, lines: Iterable[str]) -> Iterator[str]:
    return (f"  {sign} {escape_invisible(line, MAX_LINE_CHARS)}" for line in lines)


def _split_value(value: object) -> list[str]:
    return value.splitlines() or [""] if isinstance(value, str) else [_to_json(value)]


def _format_key(name: object) -> str:
    text = str(name)
    return text if text.isidentifier() else json.dumps(text, ensure_ascii=False)


def _to_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return "(cannot be shown)"
