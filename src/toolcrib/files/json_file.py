"""Reading JSON and JSON Lines from a file, with errors that name the line and the cure."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NoReturn

from toolcrib.errors import ToolcribError

MAX_FILE_BYTES = 50 * 1024 * 1024
STANDARD_INPUT = "-"

# Names of members and numbers of items, which lead from a value to one inside it.
JsonPath = tuple[str | int, ...]

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"?'
_BRACKET = re.compile(rf"{_STRING}|([\[{{])|([\]}}])", re.DOTALL)
# Python reads the first two although JSON has no such numbers, and refuses the third.
_INVALID_NUMBER = re.compile(rf"{_STRING}|(NaN|-?Infinity|[0-9]{{4301,}})", re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
_MAX_DEPTH = 500


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


_decoder = json.JSONDecoder(parse_constant=_reject_constant)


@dataclass(frozen=True, slots=True)
class JsonFile:
    """The text of a file, its name for errors, and the error that is raised for what is wrong."""

    file: str
    text: str
    error_type: type[ToolcribError]

    def iter_values(self) -> Iterator[tuple[int, object]]:
        """The JSON values with where they start: the document, or one for each line."""
        if not self._is_json_lines():
            yield 0, self._parse_value(self.text, 0)
            return
        start = 0
        for line in self.text.split("\n"):
            if line and not line.isspace():
                yield start, self._parse_value(line, start)
            start += len(line) + 1

    def find_offset(self, start: int, path: JsonPath) -> int:
        """Where the value begins to which these steps lead, from the value at `start`.

        Lines are only asked for when something is wrong, so the happy way is plain `json.loads`.
        """
        start = _skip_whitespace(self.text, start)
        for step in path:
            start = _find_member(self.text, start, step)
        return start

    def error_at(self, message: str, offset: int) -> ToolcribError:
        """The error for what stands at an offset."""
        return self.error_type(f"{self.file}, line {self.line_number(offset)}: {message}")

    def line_number(self, offset: int) -> int:
        """The number of the line an offset is on."""
        return self.text.count("\n", 0, offset) + 1

    def _is_json_lines(self) -> bool:
        first, _, rest = self.text.lstrip().partition("\n")
        if not rest.strip():
            return False
        try:
            _decoder.decode(first)
        except (ValueError, RecursionError):
            return False
        return True

    def _parse_value(self, text: str, start: int) -> object:
        """The value of a piece of the text, which starts at `start`."""
        try:
            return _decoder.decode(text)
        except json.JSONDecodeError as fault:
            column = fault.colno
            raise self.error_at(
                f"column {column}: {_describe_json_error(text, fault)}", start + fault.pos
            ) from fault
        except RecursionError as fault:
            message = "the values are nested too deep to be read; make them flatter"
            raise self.error_at(message, start + _find_deepest(text)) from fault
        except ValueError as fault:
            number, offset = _find_invalid_number(text)
            message = f"{number} is no number JSON can hold; write null or another number"
            raise self.error_at(message, start + offset) from fault


def read_json_file(
    path: str | PathLike[str], error_type: type[ToolcribError], expected_content: str
) -> JsonFile:
    """A file's text, decoded; `-` is standard input.

    Whatever is wrong raises `error`; `holds` tells what the file should hold.
    """
    file = "standard input" if path == STANDARD_INPUT else str(path)
    content = _read_bytes(path, file, error_type)
    if len(content) > MAX_FILE_BYTES:
        raise error_type(
            f"{file}: larger than {MAX_FILE_BYTES // 1024**2} MiB, which is the limit; split it"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise error_type(
            f"{file}, line {line}: byte 0x{content[fault.start]:02x} is not UTF-8 text; "
            "save the file as UTF-8"
        ) from fault
    if not text.strip():
        raise error_type(f"{file}: empty; it should hold {expected_content}")
    return JsonFile(file, text, error_type)


def _read_bytes(path: str | PathLike[str], file: str, error: type[ToolcribError]) -> bytes:
    """A file's bytes, at most one more than are allowed."""
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        with Path(path).open("rb") as opened:
            return opened.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as fault:
        raise error(f"{file}: there is no such file; check the path") from fault
    except IsADirectoryError as fault:
        raise error(f"{file}: a folder; name a file in it") from fault
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise error(f"{file}: cannot be read: {reason}") from fault


def _describe_json_error(text: str, fault: json.JSONDecodeError) -> str:
    """What is wrong with the JSON, and what to do about it."""
    before, after = text[: fault.pos].rstrip(), text[fault.pos :].lstrip()
    if not after or fault.msg.startswith("Unterminated string"):
        return "the text ends in the middle of a value; it seems to have been cut off"
    if fault.msg.startswith("Illegal trailing comma") or (before[-1:] == "," and after[0] in "]}"):
        return "a comma stands before the closing bracket; remove it"
    if fault.msg == "Extra data":
        return "more follows after the value; write one list in [ ], or one tool a line, no commas"
    return f"not valid JSON: {fault.msg[0].lower()}{fault.msg[1:]}"


def _find_invalid_number(text: str) -> tuple[str, int]:
    """The first number that is none, shortened, and where it stands."""
    for match in _INVALID_NUMBER.finditer(text):
        if match[1]:
            return match[1] if len(match[1]) < 20 else f"{match[1][:10]}…", match.start()
    return "a number", 0


def _find_deepest(text: str) -> int:
    """Where the brackets are nested deepest, or deep enough to be to blame."""
    depth = deepest = offset = 0
    for match in _BRACKET.finditer(text):
        depth += bool(match[1]) - bool(match[2])
        if depth > deepest:
            deepest, offset = depth, match.start()
        if depth > _MAX_DEPTH:
            break
    return offset


def _find_member(text: str, start: int, step: str | int) -> int:
    """Where the member of the list or object at `start` begins that has this number or name."""
    found = position = start
    number = 0
    while text[position] not in "]}":
        position = _skip_whitespace(text, position + 1)
        name: str | int = number
        if isinstance(step, str):
            name, position = _decoder.raw_decode(text, position)
            position = _skip_whitespace(text, _skip_whitespace(text, position) + 1)
        if name == step:
            # Of two members with one name, JSON readers take the last.
            found = position
        if found != start and isinstance(step, int):
            break
        position = _skip_whitespace(text, _decoder.raw_decode(text, position)[1])
        number += 1
    return found


def _skip_whitespace(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
