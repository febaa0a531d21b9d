"""Changing one member of a JSON text and nothing else: comments, order and layout stay. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toolcrib.config.jsonc import blank_comments, parse_jsonc
from toolcrib.config.problems import JsonPath
from toolcrib.errors import InvalidConfig

_INDENT = re.compile(r"\n([ \t]+)\S")
_SPACE = re.compile(r"\s*")
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _JsonMember:
    name: str
    start: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class _JsonObject:
    """Where an object opens and closes in a text, and where its members are."""

    opening: int
    closing: int
    members: tuple[_JsonMember, ...]


def set_member(text: str, steps: JsonPath, name: str, value: Any) -> str:
    """The text with a member of the object at `steps` set; objects on the way are made."""
    for depth in range(len(steps)):
        inner = _get_object(text, steps[:depth])
        if steps[depth] not in inner:
            nested: dict[str, Any] = {name: value}
            for step in reversed(steps[depth + 1 :]):
                nested = {str(step): nested}
            return _write_member(text, steps[:depth], str(steps[depth]), nested)
    _get_object(text, steps)
    return _write_member(text, steps, name, value)


def remove_members(text: str, steps: JsonPath, names: Iterable[str]) -> str:
    """The text without these members of the object at `steps`."""
    wanted = list(names)
    if not set(wanted) & set(_get_object(text, steps)):
        return text
    found = _locate_object(text, steps)
    # The rest may be large: the object is edited by itself.
    end = found.closing + 1
    inner = text[found.opening : end]
    for name in wanted:
        # A name may be there twice.
        while name in _get_object(inner, ()):
            inner = _remove_member(inner, name)
    return text[: found.opening] + inner + text[end:]


def _get_object(text: str, steps: JsonPath) -> dict[str, Any]:
    value = parse_jsonc("text", text, InvalidConfig).value
    for step in steps:
        value = value[step]
    if not isinstance(value, dict):
        raise InvalidConfig("there is a value that is no object where one is needed; correct it")
    return value


def _locate_object(text: str, steps: JsonPath) -> _JsonObject:
    source = parse_jsonc("text", text, InvalidConfig).source
    bare, opening = source.text, source.find_offset(0, steps)
    members: list[_JsonMember] = []
    position = _skip_space(bare, opening + 1)
    while bare[position] != "}":
        start = position
        name, position = _decoder.raw_decode(bare, start)
        value = _skip_space(bare, _skip_space(bare, position) + 1)
        _, end = _decoder.raw_decode(bare, value)
        members.append(_JsonMember(name, start, value, end))
        position = _skip_space(bare, end)
        if bare[position] == ",":
            position = _skip_space(bare, position + 1)
    return _JsonObject(opening, position, tuple(members))


def _write_member(text: str, steps: JsonPath, name: str, value: Any) -> str:
    found = _locate_object(text, steps)
    line = "\r\n" if "\r\n" in text else "\n"
    unit = _detect_indent(text)
    for member in reversed(found.members):
        if member.name == name:
            shown = _format_value(value, unit, _indent_at(text, member.start), line)
            return text[: member.value] + shown + text[member.end :]
    outer = _indent_at(text, found.opening)
    label = json.dumps(name, ensure_ascii=False)
    if not found.members:
        inner = outer + unit
        shown = f"{line}{inner}{label}: {_format_value(value, unit, inner, line)}"
        rest = text[found.opening + 1 : found.closing].rstrip()
        return f"{text[: found.opening + 1]}{rest}{shown}{line}{outer}{text[found.closing :]}"
    last = found.members[-1]
    if "\n" not in text[found.opening : last.start]:
        return f"{text[: last.end]}, {label}: {json.dumps(value, ensure_ascii=False)}{text[last.end :]}"
    inner = _indent_at(text, last.start)
    between = text[last.end : found.closing]
    comma = "" if "," in blank_comments(between) else ","
    shown = f"{line}{inner}{label}: {_format_value(value, unit, inner, line)}"
    kept = between.rstrip()
    return f"{text[: last.end]}{comma}{kept}{shown}{between[len(kept) :]}{text[found.closing :]}"


def _remove_member(text: str, name: str) -> str:
    """The text of an object without one of its members."""
    found = _locate_object(text, ())
    at = next(n for n in reversed(range(len(found.members))) if found.members[n].name == name)
    member, bare = found.members[at], blank_comments(text)
    is_last = at == len(found.members) - 1
    start, end = member.start, member.end
    comma = bare.find(",", end, found.closing if is_last else found.members[at + 1].start)
    end = comma + 1 if comma >= 0 else end
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    if not text[line_start:start].strip() and line_end >= 0 and not bare[end:line_end].strip():
        # It has its lines for itself: they go, with a comment that stands behind it.
        start, end = line_start, line_end + 1
    elif not is_last:
        end = found.members[at + 1].start
    shorter = text[:start] + text[end:]
    if is_last and at and comma < 0:
        before = bare.find(",", found.members[at - 1].end, member.start)
        shorter = shorter[:before] + shorter[before + 1 :]
    return shorter


def _detect_indent(text: str) -> str:
    """What one level of the text is indented by."""
    found = _INDENT.search(text)
    if not found:
        return "  "
    return "\t" if found[1][0] == "\t" else found[1]


def _indent_at(text: str, position: int) -> str:
    """What the line is indented by in which a position is."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


def _format_value(value: Any, unit: str, indent: str, line: str) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=unit)
    return text.replace("\n", line + indent)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
