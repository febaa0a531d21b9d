"""Regular expressions over names, descriptions and parameters, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.core.schema import list_parameters
from toolcrib.core.tool import Tool
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, Slots

if TYPE_CHECKING:
    # Loaded by the first search for a pattern. Most processes never make one, and all would wait.
    from toolcrib.search.regex import Deadline, Passages, Pattern

BUDGET_SECONDS: Final = 0.05

# A pattern matches or it does not: what tells hits apart is where it does.
_FIELD_SCORES: Final = {
    "name": 1.0,
    "title": 0.9,
    "description": 0.6,
    "parameter": 0.5,
    "parameter_text": 0.4,
}
_FIELDS: Final = tuple(_FIELD_SCORES)
_SCORES: Final = np.array(tuple(_FIELD_SCORES.values()), np.float32)
# Changed tools are few compared with those at rest; beyond this they are worth a new fit.
_MOST_CHANGED: Final = 256


def passages(tool: Tool) -> Iterable[tuple[str, str]]:
    """The texts of a tool that a pattern can match, each with its field and each by itself."""
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
        for choice in parameter.choices:
            yield "parameter_text", choice


@dataclass(frozen=True, slots=True)
class RegexRanker:
    """Python's `re.search` over each text of a tool. Over budget, `SearchTimeout` is raised."""

    syntax: ClassVar[Syntax] = "pattern"

    ignore_case: bool = False
    budget_seconds: float = BUDGET_SECONDS
    texts: Callable[[Tool], Iterable[tuple[str, str]]] = passages
    # Of its own thread: others that compute meanwhile take nothing from a search's time.
    clock: Callable[[], float] = time.thread_time

    def deadline(self) -> Deadline:
        """When a search that begins now has to end."""
        from toolcrib.search.regex import Deadline

        return Deadline(self.budget_seconds, self.clock)

    def pattern(self, query: str) -> Pattern:
        """The pattern that a query is."""
        from toolcrib.search.regex import read

        return read(query, ignore_case=self.ignore_case)

    def fit(self, catalog: Catalog) -> RegexIndex:
        """Fit to a catalog."""
        at_rest = _Laid.out(self, catalog, range(catalog.slot_count))
        return RegexIndex(self, catalog, catalog, at_rest, _Laid.out(self, catalog, ()), ())


@dataclass(frozen=True, slots=True, eq=False)
class _Laid:
    """The texts of some tools, ready to be searched, and whose and what each is."""

    passages: Passages
    slots: Slots
    fields: NDArray[np.int8]

    @classmethod
    def out(cls, ranker: RegexRanker, catalog: Catalog, slots: Iterable[int]) -> _Laid:
        from toolcrib.search.regex import Passages

        texts: list[str] = []
        owners: list[int] = []
        fields: list[int] = []
        for slot in slots:
            tool = catalog.tool_at(slot)
            for field, text in ranker.texts(tool) if tool else ():
                texts.append(text)
                owners.append(slot)
                fields.append(_FIELDS.index(field))
        return cls(Passages(texts), np.array(owners, np.int32), np.array(fields, np.int8))


@dataclass(frozen=True, slots=True, eq=False)
class RegexIndex:
    """The regex ranker fitted to one catalog: most tools as they were, the changed ones apart."""

    _ranker: RegexRanker
    _catalog: Catalog
    _fitted_to: Catalog
    _at_rest: _Laid
    _changed: _Laid
    _changed_slots: tuple[int, ...]

    def rank(self, query: ParsedQuery) -> Ranking:
        """Every tool with a text in which the pattern is found."""
        pattern = self._ranker.pattern(query.text)
        deadline = self._ranker.deadline()
        best = np.zeros(self._catalog.slot_count, np.float32)
        _note_hits(best, self._at_rest, pattern, deadline)
        best[list(self._changed_slots)] = 0
        _note_hits(best, self._changed, pattern, deadline)
        slots = np.flatnonzero(best).astype(np.int32)
        return Ranking(slots, best[slots])

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """The fields of a tool in which the pattern is found, the most telling first."""
        pattern = self._ranker.pattern(query.text)
        laid = _Laid.out(self._ranker, self._catalog, (slot,))
        found = laid.passages.matching(pattern, self._ranker.deadline())
        scores = {_FIELDS[at]: float(_SCORES[at]) for at in sorted({*laid.fields[found].tolist()})}
        whole = sum(scores.values())
        return tuple(
            MatchReason(query.text, field, round(score / whole, 4))
            for field, score in scores.items()
        )

    def with_catalog(self, catalog: Catalog) -> RegexIndex:
        """This index brought to a later catalog."""
        slots = catalog.changed_slots(self._fitted_to)
        if (
            slots is None
            or len(slots) > _MOST_CHANGED
            or catalog.slot_count < self._fitted_to.slot_count
        ):
            return self._ranker.fit(catalog)
        changed = _Laid.out(self._ranker, catalog, slots)
        return RegexIndex(
            self._ranker, catalog, self._fitted_to, self._at_rest, changed, tuple(slots)
        )


def _note_hits(
    best: NDArray[np.float32], laid: _Laid, pattern: Pattern, deadline: Deadline
) -> None:
    found = laid.passages.matching(pattern, deadline)
    np.maximum.at(best, laid.slots[found], _SCORES[laid.fields[found]])
