"""Regular expressions: `re.search` over each text of each tool, within a time budget.

`re` parses and compiles a pattern, so syntax and errors are those of Python. It searches the texts
that are so short that backtracking cannot take long. Its search cannot be stopped, so for other
texts the parsed pattern is translated for the `regex` module, whose search can. There, Unicode
characters that are newer than this Python, and case-insensitive back-references to non-ASCII
letters, follow the rules of `regex`.
"""

from __future__ import annotations

import importlib
import math
import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from string import ascii_letters
from threading import Lock
from typing import Any, Final, NamedTuple

import regex

from toolcrib.core.catalog import Catalog
from toolcrib.core.schema import list_parameter_texts
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidPattern, SearchTimeout
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import EMPTY_CATALOG, MatchReason, Ranking, analyze_slots, ranking_from_scores

# The time budget of one search, in seconds of CPU time.
BUDGET_SECONDS: Final = 0.05
BUDGET_SECONDS_PER_TOOL: Final = 50e-6
_SCORES: Final = {"name": 1.0, "title": 0.9, "description": 0.6, "parameter": 0.5, "parameter_text": 0.4}

MAX_PATTERN_CHARS: Final = 1_000
MAX_NESTING: Final = 60
# `re` compiles a case-insensitive range character by character.
MAX_NON_ASCII_RANGES: Final = 8
# `regex` writes counted repeats out when it compiles a pattern.
MAX_UNROLLED_ITEMS: Final = 5_000
# A search with a timeout costs several times as much as one without. It is used only if
# backtracking could take more steps than this.
_MAX_UNTIMED_STEPS: Final = 400_000
# How long the search of one text may hold the GIL.
_GIL_SECONDS: Final = 0.002

# The parser of `re` is not public. Hypothesis and others depend on it too.
_parser: Any = importlib.import_module("re._parser")
# The members of each kind of character, for Unicode patterns and for patterns with the flag `a`.
_CATEGORIES: Final = {
    "WORD": (r"\p{L}\p{N}_", "a-zA-Z0-9_"),
    "SPACE": (r"\s\x1c-\x1f", r" \t\n\r\f\v"),
    "DIGIT": (r"\p{Nd}", "0-9"),
}
# The letters whose other cases are written out, for both kinds of patterns. If case is ignored, `re`
# takes all cases of the letter i for one, `regex` only some pairs of them.
_CASES: Final = (dict.fromkeys("iIİı", "iIİı"), {letter: letter.swapcase() for letter in ascii_letters})
_PLACES: Final = {"AT_BEGINNING": "^", "AT_END": "$", "AT_BEGINNING_STRING": r"\A", "AT_END_STRING": r"\Z"}
# Before Python 3.14, `\B` does not match an empty text.
_NOT_EMPTY: Final = "" if re.search(r"\B", "") else r"(?!\A\Z)"
# Errors of `re` that are likely due to a character that was meant literally.
_LITERAL_ERRORS = re.compile(r"missing \)|unbalanced|unterminated character set|nothing to|multiple repeat|bad escape")
_warnings_lock = Lock()


class Deadline(NamedTuple):
    """The end of a time budget, as shown by `clock`. After it, `SearchTimeout` is raised with `message`."""

    end: float
    message: str
    clock: Callable[[], float] = time.monotonic

    def remaining_seconds(self) -> float:
        """Return what is left of the budget; raise `SearchTimeout` if nothing is."""
        if (remaining := self.end - self.clock()) <= 0:
            raise SearchTimeout(self.message)
        return remaining


class CompiledPattern(NamedTuple):
    """A pattern compiled by `re` and by `regex`, and the length of a text up to which `re` is safe."""

    search: Callable[[str], object]
    search_interruptibly: Callable[..., Any]
    max_untimed_chars: int

    def search_timed(self, text: str, deadline: Deadline) -> Any:
        """Return the match in a text, or None; raise `SearchTimeout` if it takes too long."""
        if len(text) <= self.max_untimed_chars:
            return self.search(text)
        for max_seconds, releases_gil in ((_GIL_SECONDS, False), (math.inf, True)):
            with suppress(TimeoutError):
                timeout = min(deadline.remaining_seconds(), max_seconds)
                return self.search_interruptibly(text, timeout=timeout, concurrent=releases_gil)
        raise SearchTimeout(deadline.message)


@lru_cache(maxsize=100)
def compile_pattern(pattern: str, ignore_case: bool = False) -> CompiledPattern:
    """Compile a pattern; raise `InvalidPattern` if `re` rejects it or `regex` cannot run it."""
    flags = re.IGNORECASE if ignore_case else 0
    translator = _PatternTranslator()
    try:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ValueError(f"it has {len(pattern):,} characters, {MAX_PATTERN_CHARS:,} are allowed")
        if len(re.findall(r"-(?:\\[xuUN]|[^\x00-\x7f])", pattern)) > MAX_NON_ASCII_RANGES:
            raise ValueError(f"it has more than {MAX_NON_ASCII_RANGES} ranges of non-ASCII characters")
        # `catch_warnings` changes global state, so threads take turns.
        with _warnings_lock, warnings.catch_warnings(action="ignore"):
            compiled = re.compile(pattern, flags)
            tree = _parser.parse(pattern, flags)
        interruptible = regex.compile(translator.translate(tree, compiled.flags), regex.VERSION1)
    except (re.error, regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _pattern_error(pattern, error) from error
    max_untimed_chars = int((_MAX_UNTIMED_STEPS / translator.choices) ** (1 / (1 + translator.loops))) - 1
    return CompiledPattern(compiled.search, interruptible.search, max_untimed_chars)


def _pattern_error(pattern: str, error: Exception) -> InvalidPattern:
    if not isinstance(error, re.error) or error.pos is None:
        return InvalidPattern(f"this pattern cannot be used: {error}; make it simpler or search with plain words")
    remedy = f"escape it as \\{pattern[error.pos]}" if _LITERAL_ERRORS.match(error.msg) else "correct it"
    return InvalidPattern(
        f"not a valid pattern at character {error.pos + 1}: {error.msg}; {remedy} or search with plain words", error.pos
    )


@dataclass
class _PatternTranslator:
    """Translates a parsed pattern for `regex`, and counts what makes a search expensive.

    Backtracking takes at most `choices * length ** (1 + loops)` steps.
    """

    unrolled_items: int = 0
    choices: float = 1.0
    loops: int = 0

    def translate(self, tree: Any, flags: int, depth: int = 0) -> str:
        """Return the items of a parsed pattern as a pattern for `regex`."""
        if depth > MAX_NESTING:
            raise ValueError(f"it nests deeper than {MAX_NESTING} levels")
        text = "".join([self._translate_item(str(code), value, flags, depth + 1) for code, value in tree])
        self.unrolled_items += len(tree)
        if self.unrolled_items > MAX_UNROLLED_ITEMS:
            raise ValueError(f"its repeats make more than {MAX_UNROLLED_ITEMS:,} items")
        return text

    def _translate_item(self, kind: str, value: Any, flags: int, depth: int) -> str:
        match kind:
            case "SUBPATTERN":
                number, on, off, *parts = value
                opening = "(" if number else "(?:"
                flags = flags & ~(off | (_parser.TYPE_FLAGS if on & _parser.TYPE_FLAGS else 0)) | on
            case "ASSERT" | "ASSERT_NOT":
                direction, *parts = value
                opening = f"(?{'<' if direction < 0 else ''}{'=' if kind == 'ASSERT' else '!'}"
            case "ATOMIC_GROUP":
                opening, parts = "(?>", [value]
            case "BRANCH":
                opening, parts = "(?:", value[1]
            case "GROUPREF_EXISTS":
                opening, parts = f"(?({value[0]})", value[1:]
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._translate_repeat(kind, value, flags, depth)
            case "GROUPREF":
                self.loops += 1
                return f"(?i-f:\\g<{value}>)" if flags & re.IGNORECASE else f"\\g<{value}>"
            case "ANY":
                return "(?s:.)" if flags & re.DOTALL else "."
            case "AT":
                return _translate_place(str(value), flags)
            case _:
                return _translate_set(value if kind == "IN" else [(kind, value)], flags)
        self.choices *= len(parts)
        return f"{opening}{'|'.join([self.translate(part or (), flags, depth) for part in parts])})"

    def _translate_repeat(self, kind: str, value: Any, flags: int, depth: int) -> str:
        least, most, tree = value
        items, choices, loops = self.unrolled_items, self.choices, self.loops
        text = self.translate(tree, flags, depth)
        self.unrolled_items += (self.unrolled_items - items) * (least + (most != least) - 1)
        if most > 1 and (choices, loops) != (self.choices, self.loops):
            self.choices = math.inf  # Each repetition has the choices of the group again.
        elif most == _parser.MAXREPEAT:
            self.loops += 1
        else:
            self.choices *= most - least + 1
        # After a possessive repeat, `re` does not return to an earlier repetition either.
        opening, end = ("(?>(?>", ")") if kind == "POSSESSIVE_REPEAT" else ("(?:", "?" * (kind == "MIN_REPEAT"))
        return f"{opening}{text}){{{least},{'' if most == _parser.MAXREPEAT else most}}}{end}"


def _translate_place(place: str, flags: int) -> str:
    if text := _PLACES.get(place):
        return f"(?m:{text})" if flags & re.MULTILINE else text
    word = f"[{_CATEGORIES['WORD'][bool(flags & re.ASCII)]}]"
    boundary = f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
    return boundary if place == "AT_BOUNDARY" else f"{_NOT_EMPTY}(?!{boundary})"


def _translate_set(members: Sequence[tuple[Any, Any]], flags: int) -> str:
    is_ascii = bool(flags & re.ASCII)
    cases = _CASES[is_ascii] if flags & re.IGNORECASE else {}
    text = "^" if str(members[0][0]) in ("NEGATE", "NOT_LITERAL") else ""
    for code, value in members:
        if str(code) == "CATEGORY":
            _, negation, name = str(value).removeprefix("CATEGORY_").rpartition("NOT_")
            text += f"[{'^' if negation else ''}{_CATEGORIES[name][is_ascii]}]"
        elif str(code) != "NEGATE":
            first, last = value if str(code) == "RANGE" else (value, value)
            text += f"\\U{first:08x}-\\U{last:08x}"
            text += "".join([others for letter, others in cases.items() if first <= ord(letter) <= last])
    # A set that has only categories does not depend on case.
    return f"(?i-f:[{text}])" if cases and not is_ascii and r"\U" in text else f"[{text}]"


def searchable_texts(tool: Tool) -> Iterable[tuple[str, str]]:
    """Return the texts of a tool that a pattern can match, each with its field."""
    texts = [("name", name) for name in dict.fromkeys((tool.name, tool.id))]
    texts += [("title", tool.title), ("description", tool.description)]
    for parameter in list_parameter_texts(tool.input_schema):
        texts.append(("parameter", parameter.name))
        texts += [("parameter_text", text) for text in (parameter.description, *parameter.choices)]
    return [(field, text) for field, text in texts if text]


@dataclass(frozen=True, slots=True)
class RegexRanker:
    """Ranks by `re.search` over each text of a tool; raises `SearchTimeout` when out of time.

    `clock` is that of the thread, so that other threads do not use up the budget of a search.
    """

    syntax: Syntax = field(default="pattern", init=False, repr=False)

    ignore_case: bool = False
    budget_seconds: float = BUDGET_SECONDS
    budget_seconds_per_tool: float = BUDGET_SECONDS_PER_TOOL
    texts: Callable[[Tool], Iterable[tuple[str, str]]] = searchable_texts
    clock: Callable[[], float] = time.thread_time

    def fit(self, catalog: Catalog) -> RegexIndex:
        return RegexIndex(self, EMPTY_CATALOG, {}).with_catalog(catalog)


@dataclass(frozen=True, eq=False)
class RegexIndex:
    """The texts of the tools of one catalog, by slot."""

    _ranker: RegexRanker
    _catalog: Catalog
    _texts: Mapping[int, list[tuple[str, str]]]

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool with a text in which the pattern is found."""
        pattern = compile_pattern(query.text, self._ranker.ignore_case)
        search, search_timed, max_untimed_chars = pattern.search, pattern.search_timed, pattern.max_untimed_chars
        deadline = self._start_budget()
        scores, count = dict[int, float](), 0
        for slot, texts in self._texts.items():
            for name, text in texts:
                if count % 32 == 0:
                    deadline.remaining_seconds()
                count += 1
                if search(text) if len(text) <= max_untimed_chars else search_timed(text, deadline):
                    scores[slot] = _SCORES[name]
                    break
        return ranking_from_scores(scores)

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return the fields of a tool in which the pattern is found, highest score first."""
        pattern = compile_pattern(query.text, self._ranker.ignore_case)
        deadline = self._start_budget()
        texts = self._texts.get(slot, ())
        found = dict.fromkeys(field for field, text in texts if pattern.search_timed(text, deadline))
        total = sum(_SCORES[field] for field in found)
        return tuple(MatchReason(query.text, field, round(_SCORES[field] / total, 4)) for field in found)

    def with_catalog(self, catalog: Catalog) -> RegexIndex:
        """Return an index for a later catalog, reading only the tools that changed."""
        return RegexIndex(self._ranker, catalog, analyze_slots(catalog, self._analyze, self._texts, self._catalog))

    def _analyze(self, tool: Tool) -> list[tuple[str, str]]:
        """Return the distinct texts of a tool, each with its field, highest score first."""
        return sorted(dict.fromkeys(self._ranker.texts(tool)), key=lambda text: -_SCORES[text[0]])

    def _start_budget(self) -> Deadline:
        ranker = self._ranker
        budget_seconds = ranker.budget_seconds + ranker.budget_seconds_per_tool * len(self._catalog)
        message = (
            f"the pattern did not finish within {budget_seconds * 1000:g} ms; make it simpler "
            "(no repeats inside repeats, fewer look-arounds and back-references) or search with plain words"
        )
        return Deadline(ranker.clock() + budget_seconds, message, ranker.clock)
