"""Parse and edit JSON with comments and trailing commas, the format of editor settings.

Edits change one member and keep comments, order and layout.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from toolcrib.config.fields import InvalidSetting, format_path
from toolcrib.errors import InvalidConfig, ToolcribError
from toolcrib.files.json_file import JsonFile, JsonPath, reject_constant, skip_whitespace

_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
_COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_STRING_OR_COMMENT = re.compile(rf"{_STRING}|(?P<comment>{_COMMENT})", re.DOTALL)
_STRING_OR_TRAILING_COMMA = re.compile(rf"{_STRING}|(?P<comma>,)(?=\s*[\]}}])")
_NON_NEWLINE = re.compile(r"[^\n]")
_INDENT = re.compile(r"\n([ \t]+)\S")
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class JsoncDocument:
    """A JSON value, the text it was parsed from, and the paths of duplicate keys."""

    source: JsonFile = field(repr=False)
    value: Any = field(repr=False)
    duplicates: tuple[JsonPath, ...] = ()

    def locate_error(self, error: InvalidSetting) -> ToolcribError:
        """Return the error with the file and the line of its setting."""
        # The path of a missing setting ends at its parent.
        known: list[str | int] = []
        value = self.value
        for step in error.path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                break
            known.append(step)
        return self.source.error_at(str(error), self.source.find_offset(0, tuple(known)))


class _ObjectMembers(dict[str, Any]):
    """A JSON object that knows its duplicate keys."""

    duplicates: tuple[str, ...] = ()


def parse_jsonc(file: str, text: str) -> JsoncDocument:
    """Return the value of a text; raise `InvalidConfig` with file and line if it is invalid."""
    try:
        # Most files are plain JSON, and some have many megabytes.
        return _parse_document(JsonFile(file, text, InvalidConfig))
    except (ValueError, RecursionError):
        source = JsonFile(file, blank_extensions(text), InvalidConfig)
    try:
        return _parse_document(source)
    except (ValueError, RecursionError):
        values = list(source.iter_values())  # Raises the error with its line.
        second = values[1][0] if len(values) > 1 else 0
        raise source.error_at("more text follows the value; keep one value", second) from None


def blank_extensions(text: str) -> str:
    """Return plain JSON of the same length: comments and trailing commas become spaces."""
    return _STRING_OR_TRAILING_COMMA.sub(lambda match: " " if match["comma"] else match[0], _blank_comments(text))


def _blank_comments(text: str) -> str:
    return _STRING_OR_COMMENT.sub(lambda match: _NON_NEWLINE.sub(" ", match[0]) if match["comment"] else match[0], text)


def _parse_document(source: JsonFile) -> JsoncDocument:
    value = json.loads(source.text, object_pairs_hook=_collect_members, parse_constant=reject_constant)
    return JsoncDocument(source, value, tuple(_find_duplicates(value)))


def _collect_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = _ObjectMembers(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        members.duplicates = tuple(name for name, count in counts.items() if count > 1)
    return members


def _find_duplicates(value: Any) -> list[JsonPath]:
    duplicates: list[JsonPath] = []
    remaining: list[tuple[JsonPath, Any]] = [((), value)]
    while remaining:
        path, item = remaining.pop()
        if isinstance(item, _ObjectMembers):
            duplicates += [(*path, name) for name in item.duplicates]
            remaining += [((*path, name), member) for name, member in item.items()]
        elif isinstance(item, list):
            remaining += [((*path, number), member) for number, member in enumerate(item)]
    return sorted(duplicates, key=format_path)


def set_member(text: str, path: JsonPath, name: str, value: Any) -> str:
    """Return the text with a member of the object at `path` set; create missing parents."""
    for depth in range(len(path)):
        if path[depth] not in _get_object(text, path[:depth]):
            nested: dict[str, Any] = {name: value}
            for step in reversed(path[depth + 1 :]):
                nested = {str(step): nested}
            return _write_member(text, path[:depth], str(path[depth]), nested)
    _get_object(text, path)
    return _write_member(text, path, name, value)


def remove_members(text: str, path: JsonPath, names: Iterable[str]) -> str:
    """Return the text without these members of the object at `path`."""
    names = list(names)
    if not set(names) & set(_get_object(text, path)):
        return text
    location = _locate_object(text, path)
    # The file may be large, so only the text of the object is edited.
    end = location.closing + 1
    edited = text[location.opening : end]
    for name in names:
        # A key may appear twice.
        while name in _get_object(edited, ()):
            edited = _remove_member(edited, name)
    return text[: location.opening] + edited + text[end:]


@dataclass(frozen=True, slots=True)
class _JsonMember:
    name: str
    start: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class _JsonObject:
    """The offsets of an object's braces and members in a text."""

    opening: int
    closing: int
    members: tuple[_JsonMember, ...]


def _get_object(text: str, path: JsonPath) -> dict[str, Any]:
    value = parse_jsonc("text", text).value
    for step in path:
        value = value[step]
    if not isinstance(value, dict):
        raise InvalidConfig(f"{format_path(path)}: must be an object; correct it")
    return value


def _locate_object(text: str, path: JsonPath) -> _JsonObject:
    source = parse_jsonc("text", text).source
    plain, opening = source.text, source.find_offset(0, path)
    members: list[_JsonMember] = []
    position = skip_whitespace(plain, opening + 1)
    while plain[position] != "}":
        start = position
        name, position = _decoder.raw_decode(plain, start)
        value = skip_whitespace(plain, skip_whitespace(plain, position) + 1)
        _, end = _decoder.raw_decode(plain, value)
        members.append(_JsonMember(name, start, value, end))
        position = skip_whitespace(plain, end)
        if plain[position] == ",":
            position = skip_whitespace(plain, position + 1)
    return _JsonObject(opening, position, tuple(members))


def _write_member(text: str, path: JsonPath, name: str, value: Any) -> str:
    found = _locate_object(text, path)
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = _detect_indent(text)

    def format_value(line_indent: str) -> str:
        formatted = json.dumps(value, ensure_ascii=False, indent=indent)
        return formatted.replace("\n", newline + line_indent)

    for member in reversed(found.members):
        if member.name == name:
            new = format_value(_line_indent(text, member.start))
            return text[: member.value] + new + text[member.end :]
    label = json.dumps(name, ensure_ascii=False)
    if not found.members:
        outer = _line_indent(text, found.opening)
        new = f"{newline}{outer}{indent}{label}: {format_value(outer + indent)}"
        kept = text[found.opening + 1 : found.closing].rstrip()
        return f"{text[: found.opening + 1]}{kept}{new}{newline}{outer}{text[found.closing :]}"
    last = found.members[-1]
    if "\n" not in text[found.opening : last.start]:
        new = f", {label}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[: last.end]}{new}{text[last.end :]}"
    inner = _line_indent(text, last.start)
    between = text[last.end : found.closing]
    comma = "" if "," in _blank_comments(between) else ","
    new = f"{newline}{inner}{label}: {format_value(inner)}"
    kept = between.rstrip()
    return f"{text[: last.end]}{comma}{kept}{new}{between[len(kept) :]}{text[found.closing :]}"


def _remove_member(text: str, name: str) -> str:
    found = _locate_object(text, ())
    index = next(n for n in reversed(range(len(found.members))) if found.members[n].name == name)
    member, plain = found.members[index], _blank_comments(text)
    is_last = index == len(found.members) - 1
    start, end = member.start, member.end
    comma = plain.find(",", end, found.closing if is_last else found.members[index + 1].start)
    end = comma + 1 if comma >= 0 else end
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    if not text[line_start:start].strip() and line_end >= 0 and not plain[end:line_end].strip():
        # Remove whole lines, with a comment after the member.
        start, end = line_start, line_end + 1
    elif not is_last:
        end = found.members[index + 1].start
    shorter = text[:start] + text[end:]
    if is_last and index and comma < 0:
        before = plain.find(",", found.members[index - 1].end, member.start)
        shorter = shorter[:before] + shorter[before + 1 :]
    return shorter


def _detect_indent(text: str) -> str:
    """Return the indentation of one level of the text."""
    match = _INDENT.search(text)
    if not match:
        return "  "
    return "\t" if match[1][0] == "\t" else match[1]


def _line_indent(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]
