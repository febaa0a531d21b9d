"""Changing tables of a TOML text and nothing else: comments, order and layout stay. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from datetime import date, time

from toolcrib.errors import InvalidConfig

_HEADER = re.compile(r"[ \t]*\[\[?[^\[\]\n]*\]\]?[ \t]*(?:#.*)?$")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x7f\ud800-\udfff]")


def remove_tables(text: str, parent: str, names: Collection[str]) -> str:
    """The text without the tables `[parent.name]` and those below them.

    Only tables under their own header are found; whoever asks compares what is left with what
    should be left.
    """
    kept: list[str] = []
    taken: list[str] = []
    taking = False
    for line in text.splitlines(keepends=True):
        steps = _parse_header(line)
        if steps is not None:
            was, taking = taking, steps[:1] == [parent] and len(steps) > 1 and steps[1] in names
            # What is written above a header belongs to it.
            kept += _trailing_comments(taken) if was and not taking else []
            taken = []
        (taken if taking else kept).append(line)
    return "".join(kept)


def append_table(text: str, parent: str, name: str, values: Mapping[str, object]) -> str:
    """The text with one more table at its end."""
    line = "\r\n" if "\r\n" in text else "\n"
    key = name if _BARE_KEY.fullmatch(name) else _format_toml(name)
    rows = [
        f"[{parent}.{key}]",
        *(f"{word} = {_format_toml(value)}" for word, value in values.items()),
    ]
    before = text.rstrip()
    return (f"{before}{line}{line}" if before else "") + line.join(rows) + line


def parse_toml(file: str, text: str) -> dict[str, object]:
    """What a TOML text holds; what is wrong raises `InvalidConfig`."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as fault:
        raise InvalidConfig(f"{file}: not valid TOML: {fault}") from fault


def _parse_header(line: str) -> list[str] | None:
    """The names in a header, or None for any other line."""
    if not _HEADER.match(line.rstrip("\r\n")):
        return None
    try:
        value: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    steps: list[str] = []
    while isinstance(value, dict | list) and value:
        if isinstance(value, list):
            value = value[0]
            continue
        name = next(iter(value))
        steps.append(name)
        value = value[name]
    return steps


def _trailing_comments(lines: list[str]) -> list[str]:
    """The comments and blank lines that end a table."""
    start = len(lines)
    while start and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#")):
        start -= 1
    tail = lines[start:]
    # A comment that follows right after the last value is about the table that goes.
    while tail and tail[0].strip():
        tail = tail[1:]
    return tail


def _format_toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{_format_toml(key)} = {_format_toml(one)}" for key, one in value.items()
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_format_toml(one) for one in value)}]"
    if isinstance(value, date | time):
        return value.isoformat()
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda one: f"\\u{ord(one[0]):04x}", text)
