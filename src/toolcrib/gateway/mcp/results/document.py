"""The document in a tool result: JSON, a table or text; shortened JSON."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from toolcrib.adapters.plain_json import repair_surrogates
from toolcrib.core.token_count import estimate_tokens
from toolcrib.hub.directory import exceeds_size

# The tokens of a larger text are estimated from samples.
MAX_COUNTED_CHARS: Final = 2_400
SAMPLE_CHARS: Final = 300
MAX_LITERAL_CHARS: Final = 2_000_000
MAX_TABLE_COLUMNS: Final = 100
MIN_TABLE_ROWS: Final = 5
_DELIMITERS: Final = ("\t", "|", ",", ";")
_CHECKED_LINES: Final = 20
# `json.dumps` with options builds a new encoder for each call, which takes longer than most cells.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
# A line before JSON, such as "Found 50 rows:".
_HEADING: Final = re.compile(r"\s*[^\s{\[][^\n]{0,300}\n\s*(?=[{\[])")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The longest arrays and strings of each attempt; the last one is used if none fits.
_ATTEMPTS: Final = ((200, 4_000), (50, 1_000), (20, 400), (10, 160), (5, 80), (3, 50), (1, 30))
_MAX_DEPTHS: Final = (50, 50, 50, 50, 12, 6, 4)


@dataclass(frozen=True)
class TextTable:
    """The rows of a text that is a table; `first_line` is the line number of the first row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    first_line: int
    delimiter: str


@dataclass(frozen=True)
class ResultDocument:
    """The text of a tool result, parsed as far as its format is known."""

    text: str

    @cached_property
    def _parsed(self) -> tuple[bool, Any]:
        if self.text.lstrip()[:1] not in ("{", "["):
            heading = _HEADING.match(self.text)
            is_json, value = ResultDocument(self.text[heading.end() :])._parsed if heading else (False, None)
            return is_json, {"text": heading[0].strip(), "value": value} if heading and is_json else None
        text = repair_surrogates(self.text)
        # One document, or one in each line (JSON Lines).
        lines = filter(str.strip, text.split("\n"))
        for candidate in (text, f"[{','.join(lines)}]"):
            with suppress(ValueError, RecursionError):
                return True, json.loads(candidate)
        return _parse_literal(self.text)

    @property
    def is_json(self) -> bool:
        """Whether the text is a JSON object or array."""
        return self._parsed[0]

    @property
    def value(self) -> Any:
        """The JSON value, or None if the text is not JSON."""
        return self._parsed[1]

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.splitlines()

    @cached_property
    def table(self) -> TextTable | None:
        """The rows of the text, if it is a table such as CSV or Markdown's."""
        return None if self.is_json else _parse_table(self.lines)


def _parse_literal(text: str) -> tuple[bool, Any]:
    """Return the value of a Python literal: some servers print their rows in this way."""
    if len(text) > MAX_LITERAL_CHARS or not text.lstrip().startswith(("{'", "[{'", "[('", "['")):
        return False, None
    try:
        value = ast.literal_eval(text.strip())
        # Dates and other objects are not literals, and tuples become arrays.
        return True, json.loads(repair_surrogates(json.dumps(value, default=str)))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False, None


def collect_text(result: Mapping[str, Any]) -> str:
    """Return the text of a tool result: its text parts, its structured content, or both as JSON."""
    texts = [text for part in get_content(result) if (text := get_part_text(part)) is not None]
    joined = _join_texts(texts)
    structured = result.get("structuredContent")
    if structured is None:
        return joined
    if not joined.strip():
        return encode_json(structured)
    document = ResultDocument(joined)
    shown = document.value if document.is_json else joined
    # Some servers wrap a value that is not an object in an object with one member.
    is_wrapped = isinstance(structured, Mapping) and len(structured) == 1
    wrapped = next(iter(structured.values())) if is_wrapped else structured
    if structured == shown or wrapped in (shown, joined):
        return joined
    return encode_json({"text": shown, "structuredContent": structured})


def get_content(result: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a tool result."""
    content = result.get("content")
    return content if isinstance(content, list) else []


def get_part_text(part: object) -> str | None:
    """Return the text of a text part or an embedded text resource; None for any other part."""
    if not isinstance(part, Mapping):
        return None
    if part.get("type") == "text":
        text = part.get("text")
    elif part.get("type") == "resource" and isinstance(part.get("resource"), Mapping):
        text = part["resource"].get("text")
    else:
        return None
    return text if isinstance(text, str) else None


def encode_json(value: object) -> str:
    """Return a JSON value as compact text."""
    return _ENCODER.encode(value)


def join_path(path: str, key: str) -> str:
    """Return the JSONPath of a member."""
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}"
    quoted = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"{path}['{quoted}']"


def estimate_text_tokens(text: str) -> int:
    """Return the estimated tokens of a text; a large text is estimated from samples."""
    if len(text) <= MAX_COUNTED_CHARS:
        return estimate_tokens(text)
    count = MAX_COUNTED_CHARS // SAMPLE_CHARS
    step = len(text) // count
    sampled = sum(estimate_tokens(text[start : start + SAMPLE_CHARS]) for start in range(0, step * count, step))
    return round(sampled * len(text) / (count * SAMPLE_CHARS))


def _join_texts(texts: Sequence[str]) -> str:
    """Return several texts as one; JSON objects become the items of an array."""
    if len(texts) > 1 and all(text.lstrip()[:1] == "{" for text in texts):
        parsed = [ResultDocument(text) for text in texts]
        if all(document.is_json for document in parsed):
            return f"[{','.join(texts)}]"
    return "\n".join(texts)


def _parse_table(lines: Sequence[str]) -> TextTable | None:
    start = next((number for number, line in enumerate(lines) if line.strip()), 0)
    head = [line for line in lines[start : start + _CHECKED_LINES] if line.strip()]
    if not head or len(lines) - start <= MIN_TABLE_ROWS:
        return None
    for delimiter in _DELIMITERS:
        counts = Counter(len(_split_row(line, delimiter)) for line in head)
        width, frequency = counts.most_common(1)[0]
        if 2 <= width <= MAX_TABLE_COLUMNS and frequency == len(head):
            table = _read_rows(lines, start, delimiter, width)
            if table is not None:
                return table
    return None


def _read_rows(lines: Sequence[str], start: int, delimiter: str, width: int) -> TextTable | None:
    columns = _split_row(lines[start], delimiter)
    # Sentences with a comma are not a header.
    max_words = 5 if width > 2 else 2
    is_header = all(0 < len(column) <= 60 and len(column.split()) <= max_words for column in columns)
    if not is_header or len(set(columns)) < width:
        return None
    rows: list[tuple[str, ...]] = []
    irregular = 0
    first = start + 1
    if first < len(lines) and not lines[first].strip("|-: +\t"):
        # The line under the header of a Markdown table.
        first += 1
    for line in lines[first:]:
        if not line.strip():
            continue
        cells = tuple(_split_row(line, delimiter))
        irregular += len(cells) != width
        rows.append(cells)
    is_regular = len(rows) >= MIN_TABLE_ROWS and irregular <= len(rows) // 50
    return TextTable(tuple(columns), tuple(rows), first + 1, delimiter) if is_regular else None


def _split_row(line: str, delimiter: str) -> list[str]:
    if delimiter in line and '"' in line and delimiter in ",;":
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
        except (csv.Error, StopIteration):
            return []
    if delimiter == "|":
        line = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in line.split(delimiter)]


def shorten_json(value: object, max_tokens: int) -> str:
    """Return a value as JSON with long arrays, strings and objects cut; `…` marks what was cut."""
    text = "" if exceeds_size(value, max_tokens * 16) else encode_json(value)
    if text and estimate_tokens(text) <= max_tokens:
        return text
    for (items, chars), depth in zip(_ATTEMPTS, _MAX_DEPTHS, strict=True):
        text = encode_json(cut_value(value, items, chars, depth, marks=True))
        if estimate_tokens(text) <= max_tokens:
            return text
    return f"{text[: max_tokens * 3]}…"


def cut_value(value: object, max_items: int, max_chars: int, max_depth: int, *, marks: bool) -> Any:
    """Return a value with at most `max_items` items in each array and `max_chars` in each string.

    With `marks`, what is left out is named in place, which changes the types of items and members.
    """
    if isinstance(value, str):
        if len(value) <= max_chars:
            return value
        more = f"… ({len(value) - max_chars:,} more characters)" if marks else "…"
        return value[:max_chars] + more
    if isinstance(value, list):
        if marks and max_depth <= 0 and value:
            return f"… ({len(value):,} items)"
        kept = [cut_value(item, max_items, max_chars, max_depth - 1, marks=marks) for item in value[:max_items]]
        return [*kept, f"… {len(value) - max_items:,} more"] if marks and len(value) > max_items else kept
    if isinstance(value, Mapping):
        if marks and max_depth <= 0 and value:
            return f"… ({len(value):,} members)"
        limit = max(max_items, 12) if marks else len(value)
        members = {
            key: cut_value(item, max_items, max_chars, max_depth - 1, marks=marks)
            for key, item in list(value.items())[:limit]
        }
        return {**members, "…": f"{len(value) - limit:,} more"} if len(value) > limit else members
    return value
