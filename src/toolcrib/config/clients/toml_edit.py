"""Add and remove tables of a TOML text, keeping comments, order and layout."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from datetime import date, time

from toolcrib.errors import InvalidConfig

_HEADER = re.compile(r"[ \t]*\[\[?[^\[\]\n]*\]\]?[ \t]*(?:#.*)?$")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_UNESCAPED = re.compile(r"[\x7f\ud800-\udfff]")


def remove_tables(text: str, parent: str, names: Collection[str]) -> str:
    """Return the text without the tables `[parent.name]` and their subtables.

    Only tables with their own header are removed, so the caller must check the result.
    """
    kept: list[str] = []
    removed: list[str] = []
    is_removing = False
    for line in text.splitlines(keepends=True):
        keys = _parse_header(line)
        if keys is not None:
            was_removing = is_removing
            is_removing = keys[:1] == [parent] and len(keys) > 1 and keys[1] in names
            if was_removing and not is_removing:
                # Comments above a header belong to its table.
                kept += _trailing_comments(removed)
            removed = []
        (removed if is_removing else kept).append(line)
    return "".join(kept)


def append_table(text: str, parent: str, name: str, values: Mapping[str, object]) -> str:
    """Return the text with the table `[parent.name]` at its end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    key = name if _BARE_KEY.fullmatch(name) else _format_toml(name)
    rows = [f"{word} = {_format_toml(value)}" for word, value in values.items()]
    before = text.rstrip()
    separator = newline * 2 if before else ""
    return before + separator + newline.join([f"[{parent}.{key}]", *rows]) + newline


def parse_toml(file: str, text: str) -> dict[str, object]:
    """Return the content of a TOML text; raise `InvalidConfig` if it is invalid."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidConfig(f"{file}: not valid TOML: {error}") from error


def _parse_header(line: str) -> list[str] | None:
    """Return the keys of a table header, or None for another line."""
    if not _HEADER.match(line.rstrip("\r\n")):
        return None
    try:
        value: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    keys: list[str] = []
    while isinstance(value, dict | list) and value:
        if isinstance(value, list):
            value = value[0]
            continue
        name = next(iter(value))
        keys.append(name)
        value = value[name]
    return keys


def _trailing_comments(lines: list[str]) -> list[str]:
    """Return the comments and blank lines at the end of a table, from the first blank line on."""
    start = len(lines)
    while start and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#")):
        start -= 1
    # A comment directly after the last value belongs to the removed table.
    while start < len(lines) and lines[start].strip():
        start += 1
    return lines[start:]


def _format_toml(value: object) -> str:
    if isinstance(value, Mapping):
        members = ", ".join(f"{_format_toml(k)} = {_format_toml(v)}" for k, v in value.items())
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_toml, value))}]"
    if isinstance(value, date | time):
        return value.isoformat()
    text = json.dumps(value, ensure_ascii=False)
    return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
