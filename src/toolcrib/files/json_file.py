"""Read JSON and JSON Lines files, with error messages that name the line and the remedy; write JSON Lines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NoReturn

from toolcrib.errors import ToolcribError
from toolcrib.files.atomic_write import write_file_atomically

MAX_FILE_BYTES = 50 * 1024 * 1024
STANDARD_INPUT = "-"

# Keys and indexes that lead from a JSON value to a value inside it.
JsonPath = tuple[str | int, ...]

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"?'
_BRACKET = re.compile(rf"{_STRING}|([\[{{])|([\]}}])", re.DOTALL)
# NaN and Infinity, which are not JSON, and integers with more digits than Python converts.
_INVALID_NUMBER = re.compile(rf"{_STRING}|(NaN|-?Infinity|[0-9]{{4301,}})", re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
# Brackets nested this deeply are the likely cause of a RecursionError.
SUSPICIOUS_DEPTH = 500


def reject_constant(constant: str) -> NoReturn:
    """Raise for NaN and Infinity, which are not JSON."""
    raise ValueError(constant)


_decoder = json.JSONDecoder(parse_constant=reject_constant)


@dataclass(frozen=True, slots=True)
class JsonFile:
    """The text of a JSON or JSON Lines file, with its name and error type for error messages."""

    file: str
    text: str
    error_type: type[ToolcribError]

    def iter_values(self) -> Iterator[tuple[int, object]]:
        """Yield each JSON value with its offset: the whole document, or one value per line."""
        if not self._is_json_lines():
            yield 0, self._parse_value(self.text, 0)
            return
        start = 0
        for line in self.text.split("\n"):
            if line and not line.isspace():
                yield start, self._parse_value(line, start)
            start += len(line) + 1

    def find_offset(self, start: int, path: JsonPath) -> int:
        """Return the offset of the value at a path inside the value at `start`.

        Only error messages need offsets, so they are computed on demand.
        """
        start = skip_whitespace(self.text, start)
        for step in path:
            start = _find_member(self.text, start, step)
        return start

    def error_at(self, message: str, offset: int) -> ToolcribError:
        """Return an error whose message starts with the file and the line of an offset."""
        return self.error_type(f"{self.file}, line {self.line_number(offset)}: {message}")

    def line_number(self, offset: int) -> int:
        """Return the line number of an offset."""
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
        try:
            return _decoder.decode(text)
        except json.JSONDecodeError as error:
            message = f"column {error.colno}: {_describe_json_error(text, error)}"
            raise self.error_at(message, start + error.pos) from error
        except RecursionError as error:
            message = "the values are nested too deeply; use fewer levels"
            raise self.error_at(message, start + _find_deepest(text)) from error
        except ValueError as error:
            number, offset = _find_invalid_number(text)
            message = f"{number} is not a valid JSON number; use null or another number"
            raise self.error_at(message, start + offset) from error


def read_json_file(path: str | PathLike[str], error_type: type[ToolcribError], expected_content: str) -> JsonFile:
    """Read and decode a file; `-` is standard input. Any problem raises `error_type`.

    `expected_content` completes the message for an empty file.
    """
    if not isinstance(path, str | PathLike):
        raise error_type(f"a file is given by its path, not by {type(path).__name__}")
    if not str(path):
        raise error_type("the path of the file is empty; pass the path of a file, or - for standard input")
    file = "standard input" if path == STANDARD_INPUT else str(path)
    content = _read_bytes(path, file, error_type)
    if len(content) > MAX_FILE_BYTES:
        raise error_type(f"{file}: the file is larger than the limit of {MAX_FILE_BYTES // 1024**2} MiB; split it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise error_type(
            f"{file}, line {line}: byte 0x{content[error.start]:02x} is not valid UTF-8; save the file as UTF-8"
        ) from error
    if not text.strip():
        raise error_type(f"{file}: the file is empty; it should contain {expected_content}")
    return JsonFile(file, text, error_type)


def write_json_lines(path: Path, rows: Iterable[object]) -> None:
    """Write each row as a line of JSON; the file is replaced in one step. Errors of the file system raise OSError."""
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    # Halves of surrogate pairs cannot be encoded; they become JSON escapes.
    write_file_atomically(path, text.encode("utf-8", "backslashreplace"))


def _read_bytes(path: str | PathLike[str], file: str, error_type: type[ToolcribError]) -> bytes:
    """Return the content, at most one byte more than the limit."""
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        with Path(path).open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise error_type(f"{file}: there is no such file; check the path") from error
    except IsADirectoryError as error:
        raise error_type(f"{file}: this is a folder; choose a file in it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise error_type(f"{file}: cannot be read: {reason}") from error


def _describe_json_error(text: str, error: json.JSONDecodeError) -> str:
    """Return what is wrong and how to fix it."""
    before, after = text[: error.pos].rstrip(), text[error.pos :].lstrip()
    if not after or error.msg.startswith("Unterminated string"):
        return "the text ends in the middle of a value; it seems to be truncated"
    if error.msg.startswith("Illegal trailing comma") or (before[-1:] == "," and after[0] in "]}"):
        return "there is a comma before the closing bracket; remove it"
    if error.msg == "Extra data":
        return "there is more text after the value; write one list in [ ], or one value per line without commas"
    return f"invalid JSON: {error.msg[0].lower()}{error.msg[1:].removesuffix(' at')}"


def _find_invalid_number(text: str) -> tuple[str, int]:
    """Return the first invalid number, truncated, and its offset."""
    for match in _INVALID_NUMBER.finditer(text):
        if match[1]:
            return match[1] if len(match[1]) < 20 else f"{match[1][:10]}…", match.start()
    return "a number", 0


def _find_deepest(text: str) -> int:
    """Return the offset of the deepest bracket, or of the first one that is suspiciously deep."""
    depth = deepest = offset = 0
    for match in _BRACKET.finditer(text):
        depth += bool(match[1]) - bool(match[2])
        if depth > deepest:
            deepest, offset = depth, match.start()
        if depth > SUSPICIOUS_DEPTH:
            break
    return offset


def _find_member(text: str, start: int, key: str | int) -> int:
    """Return the offset of a member of the list or object at `start`."""
    found = position = start
    index = 0
    while text[position] not in "]}":
        position = skip_whitespace(text, position + 1)
        member: str | int = index
        if isinstance(key, str):
            member, position = _decoder.raw_decode(text, position)
            position = skip_whitespace(text, skip_whitespace(text, position) + 1)
        if member == key:
            # If a key occurs twice, JSON parsers use the last value.
            found = position
        if found != start and isinstance(key, int):
            break
        position = skip_whitespace(text, _decoder.raw_decode(text, position)[1])
        index += 1
    return found


def skip_whitespace(text: str, position: int) -> int:
    """Return the next position that is not whitespace of JSON."""
    match = _SPACE.match(text, position)
    return match.end() if match else position
