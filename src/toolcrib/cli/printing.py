"""Output of the commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from toolcrib.search.ranker import MatchReason

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

FILE_COLUMNS = 100
_MIN_DESCRIPTION_COLUMNS = 30

# Descriptions come from third parties. These patterns match everything that could move the cursor,
# change colours or the window title, reorder the line, or be invisible.
_ESCAPE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_LINE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HIDDEN = re.compile("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]")


def sanitize(text: str) -> str:
    """Return a text on one line, without characters that control a terminal."""
    text = _CONTROL.sub(" ", _ESCAPE.sub("", text))
    return " ".join(_HIDDEN.sub("", text).split())


def sanitize_lines(text: str) -> str:
    """Return a text with its lines and spaces, without characters that control a terminal."""
    return _HIDDEN.sub("", _CONTROL_IN_LINE.sub("", _ESCAPE.sub("", text)))


def format_count(count: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as `1 tool` or `2,000 tools`."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def truncate(text: str, columns: int) -> str:
    """Cut a text to a number of columns, with an ellipsis."""
    if _display_width(text) <= columns:
        return text
    end, room = 0, columns - 1
    while _display_width(text[end]) <= room:
        room -= _display_width(text[end])
        end += 1
    return f"{text[:end].rstrip()}…"


def pad(text: str, columns: int) -> str:
    """Append spaces up to a number of columns."""
    return text + " " * (columns - _display_width(text))


def terminal_width() -> int:
    """Return the columns of the terminal, or a fixed number if the output is not a terminal."""
    return shutil.get_terminal_size((FILE_COLUMNS, 24)).columns


def line_width() -> int | None:
    """Return the columns of a line; None if lines are not limited.

    Output to a file or a pipe has whole lines, unless the variable COLUMNS is set.
    """
    is_limited = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return terminal_width() if is_limited else None


@dataclass(frozen=True, slots=True)
class ToolTable:
    """Rows of a lead, an id and a description, in two lines if the terminal is narrow.

    Ids are never truncated, so that they can be copied. In a file or a pipe, descriptions aren't either.
    """

    id_columns: int
    lead_columns: int

    @classmethod
    def for_ids(cls, ids: Iterable[str], lead_columns: int) -> ToolTable:
        """Return a table that is wide enough for these ids."""
        return cls(max((_display_width(sanitize(id)) for id in ids), default=0), lead_columns)

    def format_row(self, lead: str, id: str, description: str) -> str:
        """Return one row of the table."""
        name, text = sanitize(id), sanitize(description)
        start = lead.ljust(self.lead_columns)
        head = click.style(start, fg="green") + click.style(name, fg="cyan", bold=True)
        gap = " " * (self.id_columns - _display_width(name) + 2)
        width = line_width()
        if width is None:
            return f"{head}{gap}{text}".rstrip()
        room = width - self.lead_columns - self.id_columns - 2
        if room >= _MIN_DESCRIPTION_COLUMNS:
            return f"{head}{gap}{truncate(text, room)}".rstrip()
        below = truncate(text, width - len(self._indent))
        return f"{head}\n{self._indent}{below}".rstrip()

    def format_detail(self, text: str) -> str:
        """Return a text that is indented below a row."""
        return wrap(text, self._indent)

    @property
    def _indent(self) -> str:
        return " " * max(self.lead_columns, 2)


def wrap(text: str, indent: str = "") -> str:
    """Wrap a text to the width of a line without breaking ids."""
    width = line_width()
    if width is None:
        return f"{indent}{text}"
    return textwrap.fill(
        text,
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


def format_reasons(reasons: Sequence[MatchReason]) -> str:
    """Return match reasons by term, such as `refund (name 40%, title 12%), money (description 9%)`."""
    fields: dict[str, list[str]] = {}
    for reason in reasons:
        field = f"{reason.field.replace('_', ' ')} {reason.share:.0%}"
        fields.setdefault(sanitize(reason.term), []).append(field)
    return ", ".join(f"{term} ({', '.join(matches)})" for term, matches in fields.items())


def print_note(text: str) -> None:
    """Print a message to standard error."""
    click.secho(wrap(sanitize(text)), err=True, dim=True)


def print_json(document: object) -> None:
    """Print one JSON document in UTF-8."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    # Unpaired surrogates cannot be encoded; write them as JSON escapes.
    click.echo(text.encode("utf-8", "backslashreplace"))


def _display_width(text: str) -> int:
    """Return the columns of a text: two per wide character, none per combining mark."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text)
