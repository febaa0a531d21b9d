"""JSON with comments and trailing commas, as editors write their settings."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from toolcrib.config.problems import Fault, Steps, told
from toolcrib.errors import ToolcribError
from toolcrib.files.json_file import JsonFile

_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
_COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_PART = re.compile(rf"{_STRING}|(?P<comment>{_COMMENT})", re.DOTALL)
_TRAILING = re.compile(rf"{_STRING}|(?P<comma>,)(?=\s*[\]}}])")
_INK = re.compile(r"[^\n]")


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON value, the text it was read from, and members that stood twice in an object."""

    source: JsonFile = field(repr=False)
    value: Any = field(repr=False)
    twice: tuple[Steps, ...] = ()

    def fault(self, fault: Fault) -> ToolcribError:
        """The error for a fault, with file and line."""
        offset = self._offset(fault.steps)
        return self.source.fault(str(fault), offset)

    def _offset(self, steps: Steps) -> int:
        """Where the value is; where a value is missing, the one it is missing from."""
        known: list[str | int] = []
        value = self.value
        for step in steps:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                break
            known.append(step)
        return self.source.offset(0, tuple(known))


class _Members(dict[str, Any]):
    """An object of which some members stood twice."""

    twice: tuple[str, ...] = ()


def blanked(text: str) -> str:
    """The text as plain JSON of the same length: comments and trailing commas are spaces.

    Places in the one are places in the other, so that faults and edits can be found by it.
    """
    return _TRAILING.sub(lambda part: " " if part["comma"] else part[0], uncommented(text))


def uncommented(text: str) -> str:
    """The text with spaces for comments."""
    return _PART.sub(lambda part: _INK.sub(" ", part[0]) if part["comment"] else part[0], text)


def parsed(file: str, text: str, error: type[ToolcribError]) -> Document:
    """The one value of a text; whatever is wrong raises `error`, with file and line."""
    try:
        # Most are plain JSON, and some are many megabytes of it.
        return _document(JsonFile(file, text, error))
    except (ValueError, RecursionError):
        source = JsonFile(file, blanked(text), error)
    try:
        return _document(source)
    except (ValueError, RecursionError):
        found = list(source.values())  # Says what is wrong, and where.
        second = found[1][0] if len(found) > 1 else 0
        raise source.fault("more follows after the value; keep one", second) from None


def _document(source: JsonFile) -> Document:
    value = json.loads(source.text, object_pairs_hook=_members, parse_constant=_refused)
    return Document(source, value, tuple(_twice(value)))


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = _Members(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        members.twice = tuple(name for name, count in counts.items() if count > 1)
    return members


def _refused(constant: str) -> None:
    raise ValueError(constant)


def _twice(value: Any) -> list[Steps]:
    """The places of members that stood twice."""
    found: list[Steps] = []
    rest: list[tuple[Steps, Any]] = [((), value)]
    while rest:
        steps, one = rest.pop()
        if isinstance(one, _Members):
            found += [(*steps, name) for name in one.twice]
            rest += [((*steps, name), member) for name, member in one.items()]
        elif isinstance(one, list):
            rest += [((*steps, number), item) for number, item in enumerate(one)]
    return sorted(found, key=told)
