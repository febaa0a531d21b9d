"""Patterns of `re` that can be stopped after a timeout.

`re` parses and compiles a pattern, so syntax and errors are those of Python. Its own search cannot
be stopped, so the parsed pattern is translated for the `regex` module, whose search can. There,
Unicode characters that are newer than this Python, and case-insensitive back-references to
non-ASCII letters, follow the rules of `regex`.
"""

from __future__ import annotations

import importlib
import re
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_letters
from threading import Lock
from typing import Any, Final, NamedTuple

import regex

from toolcrib.errors import InvalidPattern, SearchTimeout

MAX_PATTERN_CHARS: Final = 1_000
MAX_NESTING: Final = 60
# `re` compiles a case-insensitive range character by character.
MAX_NON_ASCII_RANGES: Final = 8
# `regex` writes counted repeats out when it compiles a pattern.
MAX_UNROLLED_ITEMS: Final = 5_000
# A search with a timeout costs several times as much as one without. It is used only if
# backtracking could take more steps than this.
_MAX_UNTIMED_STEPS: Final = 100_000
# How long the search of one text may hold the GIL.
_GIL_SECONDS: Final = 0.002

# The parser and the compiler of `re` are not public. Hypothesis and others depend on them too.
_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")
# The members of each kind of character, for Unicode patterns and for patterns with the flag `a`.
_CATEGORIES: Final = {
    "WORD": (r"\p{L}\p{N}_", "a-zA-Z0-9_"),
    "SPACE": (r"\s\x1c-\x1f", r" \t\n\r\f\v"),
    "DIGIT": (r"\p{Nd}", "0-9"),
}
_PLACES: Final = {"AT_BEGINNING": "^", "AT_END": "$", "AT_BEGINNING_STRING": r"\A", "AT_END_STRING": r"\Z"}
# Before Python 3.14, `\B` does not match an empty text.
_NOT_EMPTY: Final = "" if re.search(r"\B", "") else r"(?!\A\Z)"
# If case is ignored, `re` takes these four for one letter, `regex` only some pairs of them.
_CASES_OF_I: Final = "iIİı"
# Errors of `re` that are likely due to a character that was meant literally.
_LITERAL_ERRORS = re.compile(r"missing \)|unbalanced|unterminated character set|nothing to|multiple repeat|bad escape")
_warnings_lock = Lock()


@dataclass(frozen=True)
class Deadline:
    """The end of a time budget, as shown by `clock`. After it, `SearchTimeout` is raised with `message`."""

    end: float
    message: str
    clock: Callable[[], float] = time.monotonic

    def remaining_seconds(self) -> float:
        """Return what is left of the budget; raise `SearchTimeout` if nothing is."""
        remaining = self.end - self.clock()
        if remaining <= 0:
            raise self.timeout_error()
        return remaining

    def timeout_error(self) -> SearchTimeout:
        """Return the error for a search that exceeds the budget."""
        return SearchTimeout(self.message)


class CompiledPattern(NamedTuple):
    """A pattern compiled by `re` and by `regex`, and the length of a text up to which `re` is safe."""

    search: Callable[[str], object]
    search_interruptibly: Callable[..., Any]
    max_untimed_chars: int

    def search_timed(self, text: str, deadline: Deadline) -> object:
        """Return the match in a text, or None; raise `SearchTimeout` if it takes too long."""
        if len(text) <= self.max_untimed_chars:
            return self.search(text)
        try:
            timeout = min(deadline.remaining_seconds(), _GIL_SECONDS)
            return self.search_interruptibly(text, timeout=timeout, concurrent=False)
        except TimeoutError:
            pass
        try:
            return self.search_interruptibly(text, timeout=deadline.remaining_seconds())
        except TimeoutError:
            raise deadline.timeout_error() from None


@lru_cache(maxsize=100)
def compile_pattern(pattern: str, ignore_case: bool = False) -> CompiledPattern:
    """Compile a pattern; raise `InvalidPattern` if `re` rejects it or `regex` cannot run it."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidPattern(
            f"the pattern has {len(pattern):,} characters, {MAX_PATTERN_CHARS:,} are allowed; "
            "shorten it or search with plain words",
            MAX_PATTERN_CHARS,
        )
    if len(re.findall(r"-(?:\\[xuUN]|[^\x00-\x7f])", pattern)) > MAX_NON_ASCII_RANGES:
        raise _rejection(f"it has more than {MAX_NON_ASCII_RANGES} ranges of non-ASCII characters")
    flags = re.IGNORECASE if ignore_case else 0
    try:
        # `catch_warnings` changes global state, so threads take turns.
        with _warnings_lock, warnings.catch_warnings(action="ignore"):
            compiled = re.compile(pattern, flags)
            tree = _parser.parse(pattern, flags)
        interruptible = regex.compile(_translate(tree, compiled.flags)[0], regex.VERSION1)
    except re.error as error:
        raise _syntax_error(pattern, error) from error
    except (ValueError, OverflowError, RecursionError, MemoryError, regex.error) as error:
        raise _rejection(str(error)) from error
    return CompiledPattern(compiled.search, interruptible.search, _max_untimed_chars(pattern))


def _rejection(reason: str) -> InvalidPattern:
    return InvalidPattern(f"this pattern cannot be used: {reason}; make it simpler or search with plain words")


def _syntax_error(pattern: str, error: re.error) -> InvalidPattern:
    if error.pos is None:
        return _rejection(error.msg)
    is_literal = _LITERAL_ERRORS.match(error.msg)
    remedy = f"escape it as \\{pattern[error.pos]}" if is_literal else "correct it"
    return InvalidPattern(
        f"not a valid pattern at character {error.pos + 1}: {error.msg}; {remedy} or search with plain words", error.pos
    )


def _max_untimed_chars(pattern: str) -> int:
    """Return the length of a text up to which `re` is safe.

    If no group is repeated, backtracking takes at most `options * length ** (1 + loops)` steps.
    """
    pattern = re.sub(r"(?s)\\[^1-9]", "a", pattern)
    if re.search(r"\)[*+{]|\(\?\w*x", pattern):  # A verbose pattern can have a space before a repeat.
        return -1
    groups = 1 + pattern.count("(")
    options = (1 + pattern.count("|") / groups) ** groups * 2 ** len(re.findall(r"(?<!\()\?", pattern))
    loops = len(re.findall(r"[*+]|\{\d*,|\\|\(\?P=", pattern))
    return int((_MAX_UNTIMED_STEPS / options) ** (1 / (1 + loops))) - 1


def _translate(tree: Any, flags: int, depth: int = 0) -> tuple[str, int]:
    """Return the items of a parsed pattern as a pattern for `regex`, and their number with all repeats unrolled."""
    if depth > MAX_NESTING:
        raise _rejection(f"it nests deeper than {MAX_NESTING} levels")
    text, items = "", 1
    for code, value in tree:
        item_text, item_items = _translate_item(code, value, flags, depth + 1)
        text, items = text + item_text, items + item_items
        if items > MAX_UNROLLED_ITEMS:
            raise _rejection(f"its repeats make more than {MAX_UNROLLED_ITEMS:,} items")
    return text, items


def _translate_item(code: Any, value: Any, flags: int, depth: int) -> tuple[str, int]:
    match str(code):
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT" as kind:
            least, most, tree = value
            text, items = _translate(tree, flags, depth)
            # After a possessive repeat, `re` does not return to an earlier repetition either.
            opening, end = ("(?>(?>", ")") if kind == "POSSESSIVE_REPEAT" else ("(?:", "?" * (kind == "MIN_REPEAT"))
            text = f"{opening}{text}){{{least},{'' if most == _parser.MAXREPEAT else most}}}{end}"
            return text, items * (least + (most != least))
        case "BRANCH":
            texts, counts = zip(*(_translate(part, flags, depth) for part in value[1]), strict=True)
            return f"(?:{'|'.join(texts)})", sum(counts)
        case "GROUPREF_EXISTS":
            (yes, items), (no, more) = (_translate(part or (), flags, depth) for part in value[1:])
            return f"(?({value[0]}){yes}|{no})", items + more
        case "GROUPREF":
            return f"(?i-f:\\g<{value}>)" if flags & re.IGNORECASE else f"\\g<{value}>", 1
        case "SUBPATTERN":
            number, on, off, tree = value
            opening = "(" if number else "(?:"
            flags = flags & ~(off | (_parser.TYPE_FLAGS if on & _parser.TYPE_FLAGS else 0)) | on
        case "ASSERT" | "ASSERT_NOT" as kind:
            direction, tree = value
            opening = f"(?{'<' if direction < 0 else ''}{'=' if kind == 'ASSERT' else '!'}"
        case "ATOMIC_GROUP":
            opening, tree = "(?>", value
        case _:
            return _translate_leaf(code, value, flags), 1
    text, items = _translate(tree, flags, depth)
    return f"{opening}{text})", items


def _translate_leaf(code: Any, value: Any, flags: int) -> str:
    match str(code):
        case "ANY":
            return "(?s:.)" if flags & re.DOTALL else "."
        case "AT" if place := _PLACES.get(str(value)):
            return f"(?m:{place})" if flags & re.MULTILINE else place
        case "AT":
            word = f"[{_CATEGORIES['WORD'][bool(flags & re.ASCII)]}]"
            if str(value) == "AT_BOUNDARY":
                return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
            return f"(?:{_NOT_EMPTY}(?:(?<={word})(?={word})|(?<!{word})(?!{word})))"
        case "IN":
            text = _translate_set(value, flags)
        case kind:
            text = _escape(value) if kind == "LITERAL" else f"[^{_escape(value)}]"
    # A set that has only categories does not depend on case.
    if not flags & re.IGNORECASE or r"\U" not in text:
        return text
    # `re` decides about the letters whose case the two modules treat differently.
    letters = ascii_letters if flags & re.ASCII else _CASES_OF_I
    text = text if flags & re.ASCII else f"(?i-f:{text})"
    if str(code) == "LITERAL" and chr(value) not in letters:
        return text
    state = _parser.State()
    state.flags = flags
    search = _compiler.compile(_parser.SubPattern(state, [(code, value)]), flags).search
    cases = "".join(filter(search, letters))
    return f"(?:(?![{letters}]){text}{f'|[{cases}]' if cases else ''})"


def _translate_set(members: Iterable[tuple[Any, Any]], flags: int) -> str:
    sign, kept = "", ""
    for code, value in members:
        match str(code):
            case "NEGATE":
                sign = "^"
            case "LITERAL":
                kept += _escape(value)
            case "RANGE":
                kept += "-".join(map(_escape, value))
            case _:
                kind = str(value).removeprefix("CATEGORY_")
                characters = _CATEGORIES[kind.removeprefix("NOT_")][bool(flags & re.ASCII)]
                kept += f"[^{characters}]" if kind.startswith("NOT_") else characters
    return f"[{sign}{kept}]"


def _escape(character: int) -> str:
    return f"\\U{character:08x}"
