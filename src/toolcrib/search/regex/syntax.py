"""What a pattern says, as a tree of values in which every flag is already applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly this character."""

    char: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character that `source`, a one-character pattern, matches under `flags` in `re`."""

    source: str
    flags: int


class Edge(Enum):
    """A place that has no width, at one end of the text or of a line in it."""

    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    LINE_END = auto()
    LAST_LINE_END = auto()


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place between a `word` character and none, or any other place if `negated`."""

    word: Chars
    negated: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """All parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The first of the options that lets the rest match."""

    options: tuple[Node, ...]


class Greed(Enum):
    """How a repeat tries its counts; the value is the sign that says so in a pattern."""

    MANY = ""
    FEW = "?"
    ALL = "+"


@dataclass(frozen=True, slots=True)
class Repeat:
    """The body `least` to `most` times; `most` is None where there is no end."""

    body: Node
    least: int
    most: int | None
    greed: Greed


@dataclass(frozen=True, slots=True)
class Capture:
    """The body, remembered under its number because something refers to it."""

    number: int
    body: Node


@dataclass(frozen=True, slots=True)
class Atomic:
    """The body, never tried a second way."""

    body: Node


@dataclass(frozen=True, slots=True)
class Look:
    """The body found (or, `negated`, not found) from here on, or `behind` up to here."""

    body: Node
    behind: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """The text a capture holds, once more."""

    number: int
    ignore_case: bool


@dataclass(frozen=True, slots=True)
class Conditional:
    """`yes` if the capture holds something, else `no`."""

    number: int
    yes: Node
    no: Node


Node = (
    Literal
    | Chars
    | Edge
    | Boundary
    | Sequence
    | Choice
    | Repeat
    | Capture
    | Atomic
    | Look
    | Reference
    | Conditional
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A valid pattern: its text as given, and what it says."""

    text: str
    tree: Node
    remembers: bool
    """Whether something in the pattern refers to a capture."""


def required(node: Node) -> Iterator[Node]:
    """The bodies of look-arounds that are found in every text in which `node` is found."""
    match node:
        case Sequence(parts):
            for part in parts:
                yield from required(part)
        case Look(body, negated=False):
            yield body
            yield from required(body)
        case Capture(_, body) | Atomic(body):
            yield from required(body)
        case Repeat(body, least) if least:
            yield from required(body)
        case _:
            return
