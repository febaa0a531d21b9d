"""Patterns of `re` that can be stopped after a timeout.

`re` parses and compiles a pattern, so syntax and errors are those of Python. Its own search cannot
be stopped, so the parsed pattern is translated for the `regex` module, whose search can. There,
Unicode characters that are newer than this Python, and case-insensitive back-references to
non-ASCII letters, follow the rules of `regex`.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from string import ascii_letters
from threading import Lock
from typing import Any, Final, NamedTuple

import regex

from toolcrib.errors import InvalidPattern

MAX_PATTERN_CHARS: Final = 1_000
MAX_NESTING: Final = 60
# `re` compiles a case-insensitive range character by character.
MAX_NON_ASCII_RANGES: Final = 8
# `regex` writes counted repeats out when it compiles a pattern.
MAX_UNROLLED_ITEMS: Final = 5_000
# A search with a timeout costs several times as much as one without. It is used only if
# backtracking could take more steps than this.
_MAX_UNTIMED_STEPS: Final = 100_000

# The parser of `re` is not public. Hypothesis and others depend on it too.
_parser: Any = importlib.import_module("re._parser")
# The members of each kind of character, for Unicode patterns and for patterns with the flag `a`.
_CATEGORIES: Final = {
    "WORD": (r"\p{L}\p{N}_", "a-zA-Z0-9_"),
    "SPACE": (r"\s\x1c-\x1f", r" \t\n\r\f\v"),
    "DIGIT": (r"\p{Nd}", "0-9"),
}
# Before Python 3.14, `\B` does not match an empty text.
_NOT_EMPTY: Final = "" if re.search(r"\B", "") else r"(?!\A\Z)"
# If case is ignored, `re` takes these four for one letter, `regex` only some pairs of them.
_CASES_OF_I: Final = "iIİı"
# Errors of `re` that are likely due to a character that was meant literally.
_LITERAL_ERRORS = re.compile(r"missing \)|unbalanced|unterminated character set|nothing to|multiple repeat|bad escape")
_warnings_lock = Lock()


class CompiledPattern(NamedTuple):
    """A pattern compiled by `re` and by `regex`, and the length of a text up to which `re` is safe."""

    search: Callable[[str], object]
    search_interruptibly: Callable[..., Any]
    max_untimed_chars: int


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
    translation = _Translation()
    try:
        # `catch_warnings` changes global state, so threads take turns.
        with _warnings_lock, warnings.catch_warnings(action="ignore"):
            compiled = re.compile(pattern, flags)
            tree = _parser.parse(pattern, flags)
        interruptible = regex.compile(translation.translate(tree, compiled.flags).text, regex.VERSION0)
    except re.error as error:
        raise _syntax_error(pattern, error) from error
    except (ValueError, OverflowError, RecursionError, MemoryError, regex.error) as error:
        raise _rejection(str(error)) from error
    return CompiledPattern(compiled.search, interruptible.search, translation.max_untimed_chars())


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


class _Part(NamedTuple):
    """A translated part of a pattern: its number of items with all repeats unrolled, and whether its length varies."""

    text: str
    items: int = 1
    varies: bool = False


class _Translation:
    """Translates a parsed pattern for `regex` and adds up the work that it may cause."""

    def __init__(self) -> None:
        self._options, self._loops, self._has_nested_loops = 1, 0, False

    def max_untimed_chars(self) -> int:
        """Return the length of a text up to which `re` is safe.

        Without nested loops, backtracking takes at most `options * length ** (1 + loops)` steps.
        """
        if self._has_nested_loops:
            return -1
        return int((_MAX_UNTIMED_STEPS / self._options) ** (1 / (1 + self._loops))) - 1

    def translate(self, tree: Any, flags: int, depth: int = 0) -> _Part:
        """Translate the items of a parsed pattern."""
        if depth > MAX_NESTING:
            raise _rejection(f"it nests deeper than {MAX_NESTING} levels")
        text, items, varies = "", 1, False
        for code, value in tree:
            part = self._translate_item(str(code), value, flags, depth + 1)
            text, items, varies = text + part.text, items + part.items, varies or part.varies
            if items > MAX_UNROLLED_ITEMS:
                raise _rejection(f"its repeats make more than {MAX_UNROLLED_ITEMS:,} items")
        return _Part(text, items, varies)

    def _translate_item(self, code: str, value: Any, flags: int, depth: int) -> _Part:
        match code:
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._translate_repeat(code, value, flags, depth)
            case "BRANCH":
                self._options *= len(value[1])
                parts = [self.translate(part, flags, depth) for part in value[1]]
                return _Part(f"(?:{'|'.join(part.text for part in parts)})", sum(part.items for part in parts), True)
            case "GROUPREF_EXISTS":
                yes, no = (self.translate(part or (), flags, depth) for part in value[1:])
                return _Part(f"(?({value[0]}){yes.text}|{no.text})", yes.items + no.items, yes.varies or no.varies)
            case "GROUPREF":
                self._loops += 1
                return _Part(_ignore_case(rf"\g<{value}>", flags))
            case "SUBPATTERN":
                number, on, off, tree = value
                opening, cleared = (
                    "(" if number else "(?:",
                    off | (_parser.TYPE_FLAGS if on & _parser.TYPE_FLAGS else 0),
                )
                flags = flags & ~cleared | on
            case "ASSERT" | "ASSERT_NOT":
                (direction, tree), sign = value, "=" if code == "ASSERT" else "!"
                opening = f"(?<{sign}" if direction < 0 else f"(?{sign}"
            case "ATOMIC_GROUP":
                opening, tree = "(?>", value
            case _:
                return _Part(_translate_leaf(code, value, flags))
        part = self.translate(tree, flags, depth)
        return part._replace(text=f"{opening}{part.text})")

    def _translate_repeat(self, code: str, value: Any, flags: int, depth: int) -> _Part:
        least, most, tree = value
        text, items, varies = self.translate(tree, flags, depth)
        self._has_nested_loops |= varies and most != 1
        self._loops += most not in (least, 1)
        self._options *= 1 + (most == 1)
        counts = f"{{{least},{'' if most == _parser.MAXREPEAT else most}}}"
        if code == "POSSESSIVE_REPEAT":
            # `re` does not return to an earlier repetition either.
            text = f"(?>(?>{text}){counts})"
        else:
            text = f"(?:{text}){counts}{'?' if code == 'MIN_REPEAT' else ''}"
        return _Part(text, items * (least + (most != least)), most != least)


def _translate_leaf(code: str, value: Any, flags: int) -> str:
    match code, str(value):
        case "ANY", _:
            return "(?s:.)" if flags & re.DOTALL else "."
        case "AT", "AT_BEGINNING" | "AT_END" as place:
            sign = "^" if place == "AT_BEGINNING" else "$"
            return f"(?m:{sign})" if flags & re.MULTILINE else sign
        case "AT", "AT_BEGINNING_STRING" | "AT_END_STRING" as place:
            return r"\A" if place == "AT_BEGINNING_STRING" else r"\Z"
        case "AT", place:
            word = f"[{_CATEGORIES['WORD'][bool(flags & re.ASCII)]}]"
            if place == "AT_BOUNDARY":
                return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
            return f"(?:{_NOT_EMPTY}(?:(?<={word})(?={word})|(?<!{word})(?!{word})))"
        case "IN", _:
            return _translate_set(value, flags)
    if code == "LITERAL" and (not flags & re.IGNORECASE or chr(value) not in _letters_of_re(flags)):
        return _ignore_case(_escape(value), flags)
    return _translate_set([("NEGATE" if code == "NOT_LITERAL" else "", None), ("LITERAL", value)], flags)


def _translate_set(members: Iterable[tuple[Any, Any]], flags: int) -> str:
    is_ascii = bool(flags & re.ASCII)
    sign, source, kept, complements = "", "", "", list[str]()
    for code, value in members:
        kind = str(value).removeprefix("CATEGORY_")
        match str(code):
            case "NEGATE":
                sign = "^"
            case "LITERAL" | "RANGE":
                text = "-".join(map(_escape, [value] if str(code) == "LITERAL" else value))
                source, kept = source + text, kept + text
            case "CATEGORY" if kind.startswith("NOT_"):
                source += "\\" + kind[4]
                complements.append(f"[^{_CATEGORIES[kind[4:]][is_ascii]}]")
            case "CATEGORY":
                source += "\\" + kind[0].lower()
                kept += _CATEGORIES[kind][is_ascii]
    text = f"[{sign}{kept}]"
    if complements:
        union = "|".join([f"[{kept}]", *complements] if kept else complements)
        text = f"(?:(?!{union})(?s:.))" if sign else f"(?:{union})"
    # A set that has only categories does not depend on case.
    if flags & re.IGNORECASE and r"\U" in source:
        letters = _letters_of_re(flags)
        search = re.compile(f"[{sign}{source}]", flags & (re.IGNORECASE | re.ASCII)).search
        cases = "".join(filter(search, letters))
        text = f"(?:(?![{letters}]){_ignore_case(text, flags)}{f'|[{cases}]' if cases else ''})"
    return text


def _letters_of_re(flags: int) -> str:
    """Return the letters whose case the two modules treat differently, so that `re` decides about them."""
    return ascii_letters if flags & re.ASCII else _CASES_OF_I


def _ignore_case(text: str, flags: int) -> str:
    return f"(?i:{text})" if flags & re.IGNORECASE and not flags & re.ASCII else text


def _escape(character: int) -> str:
    return f"\\U{character:08x}"
