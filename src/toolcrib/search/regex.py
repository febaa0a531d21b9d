"""Regular expressions: `re.search` over each text of each tool, within a time budget.

`re` validates a pattern, so syntax and errors are those of Python. It also runs the pattern on texts
so short that backtracking cannot take long. Other texts are left to the `regex` module, which can
stop after a timeout; what it reads differently is rewritten before or refused. There, Unicode
characters that are newer than this Python, and case-insensitive back-references to non-ASCII
letters, follow the rules of `regex`.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, ClassVar, Final, NamedTuple

import regex

from toolcrib.core.catalog import Catalog
from toolcrib.core.schema import list_parameters
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidPattern, SearchTimeout
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, analyze_slots, ranking_from_scores

# The time budget of one search, in seconds of CPU time.
BUDGET_SECONDS: Final = 0.05
BUDGET_SECONDS_PER_TOOL: Final = 50e-6
MAX_PATTERN_CHARS: Final = 1_000
MAX_NESTING: Final = 60
# `re` compiles a case-insensitive range character by character.
MAX_NON_ASCII_RANGES: Final = 8
# `regex` writes counted repeats out when it compiles a pattern.
MAX_UNROLLED_ITEMS: Final = 5_000
# A search with a timeout costs several times as much as one without. It is used only if
# backtracking could take more steps than this.
_MAX_UNTIMED_STEPS: Final = 100_000
_TEXTS_PER_CLOCK_READ: Final = 64
# How long the search of one text may hold the GIL.
_GIL_SECONDS: Final = 0.002

_SCORES: Final = {"name": 1.0, "title": 0.9, "description": 0.6, "parameter": 0.5, "parameter_text": 0.4}

_WORD: Final = r"[\p{L}\p{N}_]"
# Before Python 3.14, `\B` does not match an empty text.
_NOT_EMPTY: Final = "" if re.search(r"\B", "") else r"(?!\A\Z)"
_ESCAPES: Final = {
    r"\w": _WORD,
    r"\W": r"[^\p{L}\p{N}_]",
    r"\s": r"[\s\x1c-\x1f]",
    r"\S": r"[^\s\x1c-\x1f]",
    r"\b": f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    r"\B": f"(?:{_NOT_EMPTY}(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD})))",
}
# If case is ignored, `re` takes these four for one letter, `regex` only some pairs of them.
_CASES_OF_I: Final = "iIİı"
_REPEAT: Final = r"(?:[*+?]|\{(?:\d+,?\d*|,\d*)\})"
_TOKEN = re.compile(
    rf"""\[(?P<negated>\^?)(?P<set>\]?(?:\\.|[^\]\\])*)\]
    | (?P<ignored>\(\?\#[^)]*\)|\(\?[imsu]+\))
    | (?P<reference>\(\?P=\w+\)|\\[1-9][0-9]?)
    | (?P<open>\((?:\?(?:P<\w+>|\(\w+\)|<?[=!]|>|(?P<on>[aimsux]*)-?(?P<off>[imsx]*):))?)
    | (?P<possessive>\){_REPEAT}\+)
    | (?P<close>\))
    | (?P<repeat>{_REPEAT})[?+]?
    | (?P<item>\\(?:x..|u.{{4}}|U.{{8}}|N\{{[^}}]*\}}|.)|.)""",
    re.VERBOSE | re.DOTALL,
)
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
    try:
        compiled = _compile_re(pattern, re.IGNORECASE if ignore_case else 0)
        text, max_untimed_chars = _rewrite(pattern, compiled.flags)
        interruptible = regex.compile(text, compiled.flags | regex.VERSION0)
    except re.error as error:
        raise _syntax_error(pattern, error) from error
    except (ValueError, OverflowError, RecursionError, MemoryError, regex.error) as error:
        raise _rejection(str(error)) from error
    return CompiledPattern(compiled.search, interruptible.search, max_untimed_chars)


def _compile_re(pattern: str, flags: int) -> re.Pattern[str]:
    # `catch_warnings` changes global state, so threads take turns.
    with _warnings_lock, warnings.catch_warnings(action="ignore"):
        return re.compile(pattern, flags)


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


@dataclass(slots=True)
class _Group:
    """A group or a single item of a pattern, and the work that it may cause."""

    ignores_case: bool = False
    items: int = 1
    options: int = 1
    is_variable: bool = False


def _rewrite(pattern: str, flags: int) -> tuple[str, int]:
    """Return a pattern for `regex`, and the length of a text up to which `re` is safe.

    Without nested loops, backtracking takes at most `options * length ** (1 + loops)` steps.
    """
    if flags & (re.ASCII | re.VERBOSE):
        raise _rejection("the flags `a` and `x` are not supported")
    output: list[str] = []
    groups, last = [_Group(bool(flags & re.IGNORECASE))], _Group()
    options, loops, has_nested_loops = 1, 0, False
    for token in _TOKEN.finditer(pattern):
        group, text = groups[-1], token[0]
        if token["open"]:
            groups.append(_open_group(token, group))
        elif token["close"]:
            last = groups.pop()
            groups[-1].items += last.items
            groups[-1].is_variable |= last.is_variable
            options *= last.options
        elif token["repeat"]:
            least, most = _parse_counts(token["repeat"])
            group.items += last.items * (least + (most != least) - 1)
            group.is_variable |= most != least
            has_nested_loops |= last.is_variable and most != 1
            loops += most not in (least, 1)
            options *= 1 + (most == 1)
        elif token["possessive"]:
            raise _rejection("possessive repeats of groups are not supported")
        elif text == "|":
            group.options += 1
            group.is_variable = True
        else:
            last = _Group()
            group.items += 1
            loops += token["reference"] is not None
            text = _rewrite_item(token, group.ignores_case)
        output.append(text)
        if len(groups) > MAX_NESTING:
            raise _rejection(f"it nests deeper than {MAX_NESTING} levels")
        if groups[-1].items > MAX_UNROLLED_ITEMS:
            raise _rejection(f"its repeats make more than {MAX_UNROLLED_ITEMS:,} items")
    steps = _MAX_UNTIMED_STEPS / (options * groups[0].options)
    return "".join(output), -1 if has_nested_loops else int(steps ** (1 / (1 + loops))) - 1


def _open_group(token: re.Match[str], outer: _Group) -> _Group:
    on, off = token["on"] or "", token["off"] or ""
    if not {"a", "x"}.isdisjoint(on + off):
        raise _rejection("the flags `a` and `x` are not supported")
    return _Group("i" in on or (outer.ignores_case and "i" not in off))


def _parse_counts(repeat: str) -> tuple[int, int | None]:
    """Return the least and the most times of a repeat; the most is None if it has no limit."""
    if repeat in "*+?":
        return int(repeat == "+"), 1 if repeat == "?" else None
    least, comma, most = repeat[1:-1].partition(",")
    return int(least or 0), int(most or least) if most or not comma else None


def _rewrite_item(token: re.Match[str], ignores_case: bool) -> str:
    if token["set"] is not None:
        return _rewrite_set(token["negated"], token["set"], ignores_case)
    if token["item"] == "{":
        # Not a count, but `regex` may take it for the beginning of a fuzzy match.
        return r"\{"
    if ignores_case and token[0] in _CASES_OF_I:
        return f"(?-i:[{_CASES_OF_I}])"
    return _ESCAPES.get(token[0], token[0])


def _rewrite_set(negated: str, members: str, ignores_case: bool) -> str:
    kept, complements = "", []
    for member in re.findall(r"\\.|.", members, re.DOTALL):
        if member in (r"\W", r"\S"):
            complements.append(_ESCAPES[member])
        elif member in (r"\w", r"\s"):
            kept += _ESCAPES[member][1:-1]
        else:
            kept += rf"\{member}" if member in "[]^" else member
    text = f"[{negated}{kept}]"
    if complements:
        union = "|".join([f"[{kept}]", *complements] if kept else complements)
        text = f"(?:(?!{union})(?s:.))" if negated else f"(?:{union})"
    if ignores_case:
        search = _compile_re(f"[{negated}{members}]", re.IGNORECASE).search
        cases = "".join(filter(search, _CASES_OF_I))
        text = f"(?:(?-i:(?![{_CASES_OF_I}])){text}{f'|(?-i:[{cases}])' if cases else ''})"
    return text


class _Deadline:
    """The end of a search's time budget."""

    def __init__(self, budget_seconds: float, clock: Callable[[], float]) -> None:
        self._budget_seconds = budget_seconds
        self._clock = clock
        self._end = clock() + budget_seconds

    def remaining_seconds(self) -> float:
        """Return what is left of the budget; raise `SearchTimeout` if nothing is."""
        remaining = self._end - self._clock()
        if remaining <= 0:
            raise self.timeout_error()
        return remaining

    def timeout_error(self) -> SearchTimeout:
        """Return the error that names the budget."""
        return SearchTimeout(
            f"the pattern did not finish within {self._budget_seconds * 1000:g} ms; make it simpler "
            "(no repeats inside repeats, fewer look-arounds and back-references) "
            "or search with plain words"
        )


def _search_timed(pattern: CompiledPattern, text: str, deadline: _Deadline) -> object:
    search = pattern.search_interruptibly
    try:
        timeout = min(deadline.remaining_seconds(), _GIL_SECONDS)
        return search(text, timeout=timeout, concurrent=False)
    except TimeoutError:
        pass
    try:
        return search(text, timeout=deadline.remaining_seconds())
    except TimeoutError:
        raise deadline.timeout_error() from None


def searchable_texts(tool: Tool) -> Iterable[tuple[str, str]]:
    """Yield the texts of a tool that a pattern can match, each with its field."""
    yield "name", tool.name
    if tool.id != tool.name:
        yield "name", tool.id
    if tool.title:
        yield "title", tool.title
    if tool.description:
        yield "description", tool.description
    for parameter in list_parameters(tool.input_schema):
        yield "parameter", parameter.name
        if parameter.description:
            yield "parameter_text", parameter.description
        yield from (("parameter_text", choice) for choice in parameter.choices)


@dataclass(frozen=True, slots=True)
class RegexRanker:
    """Ranks by `re.search` over each text of a tool; raises `SearchTimeout` when out of time.

    `clock` is that of the thread, so that other threads do not use up the budget of a search.
    """

    syntax: ClassVar[Syntax] = "pattern"

    ignore_case: bool = False
    budget_seconds: float = BUDGET_SECONDS
    budget_seconds_per_tool: float = BUDGET_SECONDS_PER_TOOL
    texts: Callable[[Tool], Iterable[tuple[str, str]]] = searchable_texts
    clock: Callable[[], float] = time.thread_time

    def fit(self, catalog: Catalog) -> RegexIndex:
        """Fit to a catalog."""
        return RegexIndex(self, catalog, analyze_slots(catalog, self.analyze, {}))

    def analyze(self, tool: Tool) -> list[tuple[str, str]]:
        """Return the texts of a tool, each with its field."""
        return list(self.texts(tool))


@dataclass(frozen=True, eq=False)
class RegexIndex:
    """The texts of the tools of one catalog, by slot."""

    _ranker: RegexRanker
    _catalog: Catalog
    _texts: Mapping[int, list[tuple[str, str]]]

    @cached_property
    def _slots(self) -> dict[str, dict[str, list[int]]]:
        """The slots of each text by field, so that a text of many tools is searched only once."""
        slots: dict[str, dict[str, list[int]]] = {field: {} for field in _SCORES}
        for slot, texts in self._texts.items():
            for field, text in texts:
                slots[field].setdefault(text, []).append(slot)
        return slots

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool with a text in which the pattern is found."""
        pattern = compile_pattern(query.text, self._ranker.ignore_case)
        slots_by_field = self._slots
        deadline = self._deadline()
        search, max_untimed_chars = pattern.search, pattern.max_untimed_chars
        scores: dict[int, float] = {}
        for field, slots_by_text in slots_by_field.items():
            for count, (text, slots) in enumerate(slots_by_text.items()):
                if count % _TEXTS_PER_CLOCK_READ == 0:
                    deadline.remaining_seconds()
                if slots[0] in scores and (len(slots) == 1 or scores.keys() >= {*slots}):
                    continue
                match = search(text) if len(text) <= max_untimed_chars else _search_timed(pattern, text, deadline)
                if match:
                    for slot in slots:
                        scores.setdefault(slot, _SCORES[field])
        deadline.remaining_seconds()
        return ranking_from_scores(scores)

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return the fields of a tool in which the pattern is found, highest score first."""
        pattern = compile_pattern(query.text, self._ranker.ignore_case)
        deadline = self._deadline()
        texts = self._texts.get(slot, ())
        found = {field for field, text in texts if _search_timed(pattern, text, deadline)}
        total = sum(_SCORES[field] for field in found)
        return tuple(
            MatchReason(query.text, field, round(score / total, 4))
            for field, score in _SCORES.items()
            if field in found
        )

    def with_catalog(self, catalog: Catalog) -> RegexIndex:
        """Return an index for a later catalog, reading only the tools that changed."""
        texts = analyze_slots(catalog, self._ranker.analyze, self._texts, self._catalog)
        return RegexIndex(self._ranker, catalog, texts)

    def _deadline(self) -> _Deadline:
        ranker = self._ranker
        budget = ranker.budget_seconds + ranker.budget_seconds_per_tool * len(self._catalog)
        return _Deadline(budget, ranker.clock)
