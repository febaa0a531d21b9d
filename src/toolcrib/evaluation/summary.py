"""The figures of a set: for each mode, over all questions and for each kind of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolcrib.evaluation.eval_query import FACETS, EvalQuery
from toolcrib.evaluation.metrics import METRIC_NAMES
from toolcrib.evaluation.runner import EvalResult
from toolcrib.evaluation.statistics import (
    Estimate,
    PairedDifference,
    RocAuc,
    Values,
    bootstrap_means,
    paired_differences,
)

WRONGLY_REFUSED: Final = "wrongly refused"
RIGHTLY_REFUSED: Final = "rightly refused"
REFUSAL_PRECISION: Final = "refusal precision"
AUC: Final = "AUC"

FIGURES: Final = (*METRIC_NAMES, AUC, WRONGLY_REFUSED, RIGHTLY_REFUSED, REFUSAL_PRECISION)
LOWER_IS_BETTER: Final = frozenset({WRONGLY_REFUSED})
MAX_FACET_VALUES: Final = 100

_COLUMNS: Final = (*METRIC_NAMES, WRONGLY_REFUSED, RIGHTLY_REFUSED, REFUSAL_PRECISION)
# Two modes refuse different questions, so their precisions have no pairs.
_UNPAIRED: Final = frozenset({REFUSAL_PRECISION})

_Figure = TypeVar("_Figure")
ResultsByMode = Mapping[str, Sequence[EvalResult]]


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """The figures of some of a set's questions.

    `figures` and `gains` go by mode and then by figure; a gain is that over the first mode. What
    cannot be told of these questions is absent.
    """

    facet: str
    value: str
    answerable_count: int
    impossible_count: int
    figures: Mapping[str, Mapping[str, Estimate]]
    gains: Mapping[str, Mapping[str, PairedDifference]]


@dataclass(frozen=True, slots=True)
class EvalSummary:
    """The figures of one set: over all, and by facet."""

    name: str
    tool_count: int
    modes: tuple[str, ...]
    overall: QueryGroup
    groups: tuple[QueryGroup, ...]
    # How many questions a mode could not search, such as a pattern that is none.
    unsearchable: Mapping[str, int]


def summarize(name: str, tools: int, answers: ResultsByMode) -> EvalSummary:
    """The figures of a set, from each mode's answers to the same questions."""
    first = next(iter(answers.values()))
    questions = [answer.query for answer in first]
    everything = np.arange(len(questions))
    impossible = np.array([question.is_impossible for question in questions], np.bool_)
    measured = _ScoreTable(answers, impossible)
    groups = []
    for facet in FACETS:
        for value, places in _rows_by_value(questions, facet).items():
            groups.append(measured.summarize_group(facet, value, np.array(places, np.intp)))
    unread = {mode: sum(bool(one.error) for one in given) for mode, given in answers.items()}
    overall = measured.summarize_group("", "", everything)
    return EvalSummary(name, tools, tuple(answers), overall, tuple(groups), unread)


def average_over_sets(summaries: Sequence[EvalSummary]) -> dict[str, dict[str, float]]:
    """By mode, each figure's mean over the sets that have it, every set counting alike."""
    return {
        mode: {
            figure: fmean(found)
            for figure in FIGURES
            if (
                found := [
                    one.overall.figures[mode][figure].value
                    for one in summaries
                    if figure in one.overall.figures[mode]
                ]
            )
        }
        for mode in summaries[0].modes
    }


def find_best_modes(group: QueryGroup, figure: str) -> frozenset[str]:
    """The modes whose figure is best as it is printed; none where all are alike."""
    shown = {
        mode: round(100 * figures[figure].value, 1)
        for mode, figures in group.figures.items()
        if figure in figures
    }
    if len(set(shown.values())) < 2:
        return frozenset()
    best = (min if figure in LOWER_IS_BETTER else max)(shown.values())
    return frozenset(mode for mode, value in shown.items() if value == best)


class _ScoreTable:
    """Every mode's answers as rows of numbers, from which groups take theirs."""

    def __init__(self, answers: ResultsByMode, impossible: NDArray[np.bool_]) -> None:
        self._impossible = impossible
        self._rows = {mode: _score_rows(given) for mode, given in answers.items()}
        self._confidences = {
            mode: np.array([one.confidence for one in given]) for mode, given in answers.items()
        }

    def summarize_group(self, facet: str, value: str, places: NDArray[np.intp]) -> QueryGroup:
        """The figures of the questions at these places."""
        rows = {mode: all_rows[places] for mode, all_rows in self._rows.items()}
        base = next(iter(rows))
        figures = {mode: _name_columns(bootstrap_means(values)) for mode, values in rows.items()}
        gains = {
            mode: _name_columns(paired_differences(values, rows[base]))
            for mode, values in rows.items()
            if mode != base
        }
        for gained in gains.values():
            for figure in _UNPAIRED:
                gained.pop(figure, None)
        asked = places[~self._impossible[places]]
        if len(asked) in (0, len(places)):
            # Then none of the refusals can be right, or all must be: that tells nothing.
            for found in figures.values():
                found.pop(REFUSAL_PRECISION, None)
        if len(asked) and self._impossible.any():
            # An impossible question belongs to no kind of answerable ones: all of them count.
            separations = {
                mode: RocAuc(confidences[asked], confidences[self._impossible])
                for mode, confidences in self._confidences.items()
            }
            for mode, separation in separations.items():
                figures[mode][AUC] = separation.estimate()
                gain = separation.difference_from(separations[base]) if mode != base else None
                if gain is not None:
                    gains[mode][AUC] = gain
        return QueryGroup(facet, value, len(asked), len(places) - len(asked), figures, gains)


def _score_rows(answers: Sequence[EvalResult]) -> Values:
    """A row of figures for each answer; what does not apply to it is not a number."""
    nothing = (np.nan,) * len(METRIC_NAMES)
    rows = []
    for answer in answers:
        refused = not answer.is_confident
        impossible = answer.query.is_impossible
        rows.append(
            (
                *(answer.scores or nothing),
                np.nan if impossible else refused,
                refused if impossible else np.nan,
                impossible if refused else np.nan,
            )
        )
    return np.array(rows, np.float64).reshape(len(rows), len(_COLUMNS))


def _name_columns(columns: Sequence[_Figure | None]) -> dict[str, _Figure]:
    """The columns that have a figure, by its name."""
    named = zip(_COLUMNS, columns, strict=True)
    return {figure: value for figure, value in named if value is not None}


def _rows_by_value(questions: Sequence[EvalQuery], facet: str) -> dict[str, list[int]]:
    """Where each value of a facet stands: the most frequent, in their order of appearance.

    A single value that all questions have would repeat the whole.
    """
    places: dict[str, list[int]] = {}
    for place, question in enumerate(questions):
        places.setdefault(getattr(question, facet), []).append(place)
    if len(places) == 1:
        return {}
    frequent = sorted(places, key=lambda value: -len(places[value]))[:MAX_FACET_VALUES]
    return {value: found for value, found in places.items() if value and value in frequent}
