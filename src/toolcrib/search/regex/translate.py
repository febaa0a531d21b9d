"""Patterns read as CPython reads them: the one place that touches its private parser."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from threading import Lock
from typing import Any

from toolcrib.errors import InvalidPattern
from toolcrib.search.regex.syntax import (
    Atomic,
    Boundary,
    Capture,
    Chars,
    Choice,
    Conditional,
    Edge,
    Greed,
    Literal,
    Look,
    Node,
    Pattern,
    Reference,
    Repeat,
    Sequence,
)

MOST_CHARACTERS = 1_000
MOST_LEVELS = 60
# `re` compiles a range character by character: 1,000 characters of wide ranges take it seconds.
MOST_IN_RANGES = 1 << 17

_parser = import_module("re._parser")
# `catch_warnings` swaps a global: two threads inside at once would leave the wrong one behind.
_silence = Lock()

_KINDS = re.ASCII | re.LOCALE | re.UNICODE
_OF_CHARACTERS = re.ASCII | re.IGNORECASE | re.DOTALL
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_FAULTS_OF_SIGNS_MEANT_AS_TEXT = (
    "missing )",
    "unbalanced parenthesis",
    "unterminated character set",
    "nothing to repeat",
    "multiple repeat",
    "bad escape",
)
_GREEDS = {
    "MAX_REPEAT": Greed.MANY,
    "MIN_REPEAT": Greed.FEW,
    "POSSESSIVE_REPEAT": Greed.ALL,
}


def read(pattern: str, *, ignore_case: bool = False) -> Pattern:
    """The pattern as `re` understands it, or InvalidPattern: what is wrong, where, the cure."""
    if len(pattern) > MOST_CHARACTERS:
        raise InvalidPattern(
            f"the pattern has {len(pattern):,} characters, {MOST_CHARACTERS:,} are allowed; "
            "shorten it or search with plain words",
            MOST_CHARACTERS,
        )
    try:
        parsed = _parsed(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise InvalidPattern(_complaint(pattern, error), error.pos) from error
    except (OverflowError, RecursionError, MemoryError, ValueError) as error:
        raise InvalidPattern(
            f"not a valid pattern: {error}; make it simpler or search with plain words"
        ) from error
    remembered = frozenset(_remembered(parsed))
    tree = _Reader(remembered).sequence(parsed, parsed.state.flags)
    return Pattern(pattern, tree, remembers=bool(remembered))


def _parsed(pattern: str, flags: int) -> Any:
    with _silence, warnings.catch_warnings(action="ignore"):
        parsed = _parser.parse(pattern, flags)
        _hold_limits(parsed)
        # The parser leaves some faults to the compiler, such as look-behind of no fixed width.
        re.compile(pattern, flags)
    return parsed


def _complaint(pattern: str, error: re.error) -> str:
    if error.pos is None:
        return f"not a valid pattern: {error.msg}; make it simpler or search with plain words"
    is_meant = error.msg.startswith(_FAULTS_OF_SIGNS_MEANT_AS_TEXT)
    cure = f"escape it as \\{pattern[error.pos]}" if is_meant else "correct it"
    return (
        f"not a valid pattern at character {error.pos + 1}: {error.msg}; "
        f"{cure} or search with plain words"
    )


def _inner(value: Any) -> Iterator[Any]:
    """The subpatterns directly inside an operand, however it holds them."""
    if isinstance(value, _parser.SubPattern):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _inner(each)


def _operations(parsed: Any, level: int = 0) -> Iterator[tuple[str, Any, int]]:
    """Every operation's name and operand, with its level of nesting."""
    for operation, operand in parsed:
        yield operation.name, operand, level
        for inner in _inner(operand):
            yield from _operations(inner, level + 1)


def _hold_limits(parsed: Any) -> None:
    in_ranges = 0
    for name, operand, level in _operations(parsed):
        if level > MOST_LEVELS:
            raise ValueError(f"it nests deeper than {MOST_LEVELS} levels")
        if name == "IN":
            in_ranges += sum(_width(kind.name, value) for kind, value in operand)
    if in_ranges > MOST_IN_RANGES:
        raise ValueError(f"its ranges span more than {MOST_IN_RANGES:,} characters")


def _width(kind: str, value: Any) -> int:
    return int(min(value[1] - value[0], 0xFFFF)) + 1 if kind == "RANGE" else 1


def _remembered(parsed: Any) -> Iterator[int]:
    for name, operand, _ in _operations(parsed):
        if name == "GROUPREF":
            yield operand
        elif name == "GROUPREF_EXISTS":
            yield operand[0]


class _Reader:
    """Turns CPython's parse tree into ours."""

    def __init__(self, remembered: frozenset[int]) -> None:
        self._remembered = remembered

    def sequence(self, parsed: Any, flags: int) -> Node:
        parts = tuple(self._part(operation.name, operand, flags) for operation, operand in parsed)
        return parts[0] if len(parts) == 1 else Sequence(parts)

    def _part(self, name: str, operand: Any, flags: int) -> Node:
        match name, operand:
            case "LITERAL", code:
                return _literal(code, flags)
            case "NOT_LITERAL", code:
                return _chars(f"[^{_escaped(code)}]", flags)
            case "ANY", _:
                return _chars(".", flags)
            case "IN", members:
                return _chars(_set(members), flags)
            case "AT", place:
                return _place(place.name, flags)
            case "BRANCH", (_, options):
                return Choice(tuple(self.sequence(option, flags) for option in options))
            case "SUBPATTERN", (number, added, removed, body):
                inside = self.sequence(body, _combined(flags, added, removed))
                return Capture(number, inside) if number in self._remembered else inside
            case "ATOMIC_GROUP", body:
                return Atomic(self.sequence(body, flags))
            case (("ASSERT" | "ASSERT_NOT" | "FAILURE"), _):
                # Newer Pythons have a word of its own, without operand, for `(?!)`.
                direction, body = operand or (1, ())
                return Look(self.sequence(body, flags), direction < 0, name != "ASSERT")
            case "GROUPREF", number:
                return Reference(number, bool(flags & re.IGNORECASE))
            case "GROUPREF_EXISTS", (number, yes, no):
                otherwise = self.sequence(no, flags) if no else Sequence(())
                return Conditional(number, self.sequence(yes, flags), otherwise)
        least, most, body = operand
        limit = None if most is _parser.MAXREPEAT else int(most)
        return Repeat(self.sequence(body, flags), int(least), limit, _GREEDS[name])


def _combined(flags: int, added: int, removed: int) -> int:
    kept = flags & ~_KINDS if added & _KINDS else flags
    return (kept | added) & ~removed


def _literal(code: int, flags: int) -> Node:
    return _chars(_escaped(code), flags) if flags & re.IGNORECASE else Literal(chr(code))


def _chars(source: str, flags: int) -> Chars:
    return Chars(source, int(flags & _OF_CHARACTERS))


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


def _set(members: Any) -> str:
    return f"[{''.join(_member(kind.name, value) for kind, value in members)}]"


def _member(kind: str, value: Any) -> str:
    match kind:
        case "NEGATE":
            return "^"
        case "LITERAL":
            return _escaped(value)
        case "RANGE":
            return f"{_escaped(value[0])}-{_escaped(value[1])}"
    return _CATEGORIES[value.name]


def _place(name: str, flags: int) -> Node:
    every_line = flags & re.MULTILINE
    match name:
        case "AT_BEGINNING":
            return Edge.LINE_START if every_line else Edge.TEXT_START
        case "AT_BEGINNING_STRING":
            return Edge.TEXT_START
        case "AT_END":
            return Edge.LINE_END if every_line else Edge.LAST_LINE_END
        case "AT_END_STRING":
            return Edge.TEXT_END
    return Boundary(_chars(r"\w", flags), negated=name == "AT_NON_BOUNDARY")
