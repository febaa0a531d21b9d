"""JSON with comments and trailing commas, as editors write their settings."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from toolcrib.config.problems import InvalidSetting, JsonPath, format_path
from toolcrib.errors import ToolcribError
from toolcrib.files.json_file import JsonFile

_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
_COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_STRING_OR_COMMENT = re.compile(rf"{_STRING}|(?P<comment>{_COMMENT})", re.DOTALL)
_STRING_OR_TRAILING_COMMA = re.compile(rf"{_STRING}|(?P<comma>,)(?=\s*[\]}}])")
_NON_NEWLINE = re.compile(r"[^\n]")


@dataclass(frozen=True, slots=True)
class JsoncDocument:
    """One JSON value, the text it was read from, and members that stood twice in an object."""

    source: JsonFile = field(repr=False)
    value: Any = field(repr=False)
    duplicates: tuple[JsonPath, ...] = ()

    def error_at(self, fault: InvalidSetting) -> ToolcribError:
        """The error for a fault, with file and line."""
        offset = self._find_offset(fault.path)
        return self.source.error_at(str(fault), offset)

    def _find_offset(self, steps: JsonPath) -> int:
        """Where the value is; where a value is missing, the one it is missing from."""
        known: list[str | int] = []
        value = self.value
        for step in steps:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                break
            known.append(step)
        return self.source.find_offset(0, tuple(known))


class _ObjectMembers(dict[str, Any]):
    """An object of which some members stood twice."""

    duplicates: tuple[str, ...] = ()


def blank_extensions(text: str) -> str:
    """The text as plain JSON of the same length: comments and trailing commas are spaces.

    Places in the one are places in the other, so that faults and edits can be found by it.
    """
    return _STRING_OR_TRAILING_COMMA.sub(
        lambda part: " " if part["comma"] else part[0], blank_comments(text)
    )


def blank_comments(text: str) -> str:
    """The text with spaces for comments."""
    return _STRING_OR_COMMENT.sub(
        lambda part: _NON_NEWLINE.sub(" ", part[0]) if part["comment"] else part[0], text
    )


def parse_jsonc(file: str, text: str, error_type: type[ToolcribError]) -> JsoncDocument:
    """The one value of a text; whatever is wrong raises `error`, with file and line."""
    try:
        # Most are plain JSON, and some are many megabytes of it.
        return _parse_document(JsonFile(file, text, error_type))
    except (ValueError, RecursionError):
        source = JsonFile(file, blank_extensions(text), error_type)
    try:
        return _parse_document(source)
    except (ValueError, RecursionError):
        found = list(source.iter_values())  # Says what is wrong, and where.
        second = found[1][0] if len(found) > 1 else 0
        raise source.error_at("more follows after the value; keep one", second) from None


def _parse_document(source: JsonFile) -> JsoncDocument:
    value = json.loads(
        source.text, object_pairs_hook=_collect_members, parse_constant=_reject_constant
    )
    return JsoncDocument(source, value, tuple(_find_duplicates(value)))


def _collect_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = _ObjectMembers(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        members.duplicates = tuple(name for name, count in counts.items() if count > 1)
    return members


def _reject_constant(constant: str) -> None:
    raise ValueError(constant)


def _find_duplicates(value: Any) -> list[JsonPath]:
    """The places of members that stood twice."""
    found: list[JsonPath] = []
    rest: list[tuple[JsonPath, Any]] = [((), value)]
    while rest:
        steps, one = rest.pop()
        if isinstance(one, _ObjectMembers):
            found += [(*steps, name) for name in one.duplicates]
            rest += [((*steps, name), member) for name, member in one.items()]
        elif isinstance(one, list):
            rest += [((*steps, number), item) for number, item in enumerate(one)]
    return sorted(found, key=format_path)
