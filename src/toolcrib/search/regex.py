"""Regular expressions: `re.search` over each text of each tool, within a time budget.

`re` runs the pattern on texts so short that backtracking cannot take long. Other texts are left to
the `regex` module, which can stop after a timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from toolcrib.core.catalog import Catalog
from toolcrib.core.schema import list_parameters
from toolcrib.core.tool import Tool
from toolcrib.errors import SearchTimeout
from toolcrib.search.pattern import CompiledPattern, compile_pattern
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, analyze_slots, ranking_from_scores

# The time budget of one search, in seconds of CPU time.
BUDGET_SECONDS: Final = 0.05
BUDGET_SECONDS_PER_TOOL: Final = 50e-6
_TEXTS_PER_CLOCK_READ: Final = 64
# How long the search of one text may hold the GIL.
_GIL_SECONDS: Final = 0.002

_SCORES: Final = {"name": 1.0, "title": 0.9, "description": 0.6, "parameter": 0.5, "parameter_text": 0.4}


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
