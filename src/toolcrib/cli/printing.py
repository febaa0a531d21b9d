"""How commands print: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import click

FILE_COLUMNS = 100
_MIN_DESCRIPTION_COLUMNS = 30

# Descriptions come from strangers. Whatever could move the cursor, set colours or the window's
# title, reorder the line or hide in it is taken out before it reaches a terminal.
_ESCAPE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HIDDEN = re.compile(
    "[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def sanitize(text: str) -> str:
    """A text as one line that a terminal shows and does not obey."""
    text = _CONTROL.sub(" ", _ESCAPE.sub("", text))
    return " ".join(_HIDDEN.sub("", text).split())


def format_count(count: int, singular: str, plural: str = "") -> str:
    """How many of something, such as `1 tool` or `2,000 tools`."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def truncate(text: str, columns: int) -> str:
    """A text cut to so many columns, with a sign that it was cut."""
    if _display_width(text) <= columns:
        return text
    end, room = 0, columns - 1
    while _display_width(text[end]) <= room:
        room -= _display_width(text[end])
        end += 1
    return f"{text[:end].rstrip()}…"


def pad(text: str, columns: int) -> str:
    """A text, and as many spaces as it takes to fill so many columns."""
    return text + " " * (columns - _display_width(text))


def terminal_width() -> int:
    """How many columns there are; a file has a fixed number."""
    return shutil.get_terminal_size((FILE_COLUMNS, 24)).columns


@dataclass(frozen=True, slots=True)
class ToolTable:
    """Rows of a lead, an id and a description: side by side, or in two lines where that is tight.

    Ids are never cut, so that they can be copied.
    """

    id_columns: int
    lead_columns: int

    @classmethod
    def for_ids(cls, ids: Iterable[str], lead_columns: int) -> ToolTable:
        """A table wide enough for these ids."""
        return cls(max((_display_width(sanitize(id)) for id in ids), default=0), lead_columns)

    def format_row(self, lead: str, id: str, description: str) -> str:
        """One row."""
        name, text = sanitize(id), sanitize(description)
        start = lead.ljust(self.lead_columns)
        shown = click.style(start, fg="green") + click.style(name, fg="cyan", bold=True)
        room = terminal_width() - self.lead_columns - self.id_columns - 2
        if room >= _MIN_DESCRIPTION_COLUMNS:
            gap = " " * (self.id_columns - _display_width(name) + 2)
            return f"{shown}{gap}{truncate(text, room)}".rstrip()
        below = truncate(text, terminal_width() - len(self._indent))
        return f"{shown}\n{self._indent}{below}".rstrip()

    def format_detail(self, text: str) -> str:
        """More about the row above, indented below it."""
        return wrap(text, self._indent)

    @property
    def _indent(self) -> str:
        return " " * max(self.lead_columns, 2)


def wrap(text: str, indent: str = "") -> str:
    """A text in as many lines as it takes; ids stay whole, so that they can be copied."""
    return textwrap.fill(
        text,
        max(terminal_width(), 20),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_note(text: str) -> None:
    """Say something that is not the answer: on standard error."""
    click.secho(wrap(sanitize(text)), err=True, dim=True)


def print_json(document: object) -> None:
    """One JSON document in UTF-8."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    # Half a character, which UTF-8 has no bytes for, becomes the escape JSON has for it.
    click.echo(text.encode("utf-8", "backslashreplace"))


def _display_width(text: str) -> int:
    """How many columns a terminal gives a text: two for a Chinese character, none for an accent."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(one) in "WF" else not unicodedata.combining(one)
        for one in text
    )
