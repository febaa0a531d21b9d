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
from toolcrib.search.pattern import Deadline, compile_pattern
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, analyze_slots, ranking_from_scores

# The time budget of one search, in seconds of CPU time.
BUDGET_SECONDS: Final = 0.05
BUDGET_SECONDS_PER_TOOL: Final = 50e-6
_TEXTS_PER_CLOCK_READ: Final = 64

_SCORES: Final = {"name": 1.0, "title": 0.9, "description": 0.6, "parameter": 0.5, "parameter_text": 0.4}


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
    def _slots(self) -> dict[tuple[str, str], list[int]]:
        """The slots of each text of a field, so that a text of many tools is searched only once."""
        texts = [(field, text, slot) for slot, texts in self._texts.items() for field, text in texts]
        slots: dict[tuple[str, str], list[int]] = {}
        for field, text, slot in sorted(texts, key=lambda text: -_SCORES[text[0]]):
            slots.setdefault((field, text), []).append(slot)
        return slots

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool with a text in which the pattern is found."""
        pattern = compile_pattern(query.text, self._ranker.ignore_case)
        search, search_timed, max_untimed_chars = pattern.search, pattern.search_timed, pattern.max_untimed_chars
        deadline = self._start_budget()
        scores: dict[int, float] = {}
        for count, ((field, text), slots) in enumerate(self._slots.items()):
            if count % _TEXTS_PER_CLOCK_READ == 0:
                deadline.remaining_seconds()
            if slots[0] in scores and scores.keys() >= {*slots}:
                continue
            if search(text) if len(text) <= max_untimed_chars else search_timed(text, deadline):
                for slot in slots:
                    scores.setdefault(slot, _SCORES[field])
        deadline.remaining_seconds()
        return ranking_from_scores(scores)

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return the fields of a tool in which the pattern is found, highest score first."""
        pattern = compile_pattern(query.text, self._ranker.ignore_case)
        deadline = self._start_budget()
        texts = self._texts.get(slot, ())
        found = {field for field, text in texts if pattern.search_timed(text, deadline)}
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

    def _start_budget(self) -> Deadline:
        ranker = self._ranker
        budget_seconds = ranker.budget_seconds + ranker.budget_seconds_per_tool * len(self._catalog)
        message = (
            f"the pattern did not finish within {budget_seconds * 1000:g} ms; make it simpler "
            "(no repeats inside repeats, fewer look-arounds and back-references) "
            "or search with plain words"
        )
        return Deadline(ranker.clock() + budget_seconds, message, ranker.clock)
