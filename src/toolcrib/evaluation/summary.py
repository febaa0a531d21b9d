"""The metrics of an eval set: per mode, for all queries and for each value of each facet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolcrib.evaluation.eval_set import FACETS, EvalQuery
from toolcrib.evaluation.runner import METRIC_NAMES, EvalResult
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

METRICS: Final = (*METRIC_NAMES, AUC, WRONGLY_REFUSED, RIGHTLY_REFUSED, REFUSAL_PRECISION)
LOWER_IS_BETTER: Final = frozenset({WRONGLY_REFUSED})
MAX_FACET_VALUES: Final = 100

_COLUMNS: Final = (*METRIC_NAMES, WRONGLY_REFUSED, RIGHTLY_REFUSED, REFUSAL_PRECISION)
# Two modes refuse different queries, so their precisions cannot be paired.
_UNPAIRED: Final = frozenset({REFUSAL_PRECISION})

_Statistic = TypeVar("_Statistic")
ResultsByMode = Mapping[str, Sequence[EvalResult]]


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """The metrics of a group of queries.

    `metrics` and `gains` map modes to metric names to values. A gain is the difference from the
    first mode. Metrics that do not apply to the group are absent.
    """

    facet: str
    value: str
    answerable_count: int
    impossible_count: int
    metrics: Mapping[str, Mapping[str, Estimate]]
    gains: Mapping[str, Mapping[str, PairedDifference]]


@dataclass(frozen=True, slots=True)
class EvalSummary:
    """The metrics of one eval set: overall and by facet."""

    name: str
    tool_count: int
    modes: tuple[str, ...]
    overall: QueryGroup
    groups: tuple[QueryGroup, ...]
    # How many queries a mode rejected, for example as an invalid pattern.
    unsearchable: Mapping[str, int]


def summarize(name: str, tool_count: int, results: ResultsByMode) -> EvalSummary:
    """Return the metrics of an eval set, given each mode's results for the same queries."""
    first = next(iter(results.values()))
    queries = [result.query for result in first]
    impossible = np.array([query.is_impossible for query in queries], np.bool_)
    table = _ScoreTable(results, impossible)
    groups = tuple(
        table.summarize_group(facet, value, np.array(rows, np.intp))
        for facet in FACETS
        for value, rows in _rows_by_value(queries, facet).items()
    )
    overall = table.summarize_group("", "", np.arange(len(queries)))
    unsearchable = {
        mode: sum(bool(result.error) for result in mode_results)
        for mode, mode_results in results.items()
    }
    return EvalSummary(name, tool_count, tuple(results), overall, groups, unsearchable)


def average_over_sets(summaries: Sequence[EvalSummary]) -> dict[str, dict[str, float]]:
    """Return, by mode, the mean of each metric over the sets that have it."""
    return {
        mode: {
            metric: fmean(values)
            for metric in METRICS
            if (
                values := [
                    summary.overall.metrics[mode][metric].value
                    for summary in summaries
                    if metric in summary.overall.metrics[mode]
                ]
            )
        }
        for mode in summaries[0].modes
    }


def find_best_modes(group: QueryGroup, metric: str) -> frozenset[str]:
    """Return the modes with the best value after rounding; none if all are equal."""
    rounded = {
        mode: round(100 * metrics[metric].value, 1)
        for mode, metrics in group.metrics.items()
        if metric in metrics
    }
    if len(set(rounded.values())) < 2:
        return frozenset()
    best = (min if metric in LOWER_IS_BETTER else max)(rounded.values())
    return frozenset(mode for mode, value in rounded.items() if value == best)


class _ScoreTable:
    """The results of every mode as arrays, one row per query."""

    def __init__(self, results: ResultsByMode, impossible: NDArray[np.bool_]) -> None:
        self._impossible = impossible
        self._scores = {mode: _score_rows(mode_results) for mode, mode_results in results.items()}
        self._confidences = {
            mode: np.array([result.confidence for result in mode_results])
            for mode, mode_results in results.items()
        }

    def summarize_group(self, facet: str, value: str, rows: NDArray[np.intp]) -> QueryGroup:
        """Return the metrics of the queries in these rows."""
        scores = {mode: mode_scores[rows] for mode, mode_scores in self._scores.items()}
        base = next(iter(scores))
        metrics = {mode: _name_columns(bootstrap_means(values)) for mode, values in scores.items()}
        gains = {
            mode: _name_columns(paired_differences(values, scores[base]))
            for mode, values in scores.items()
            if mode != base
        }
        for mode_gains in gains.values():
            for metric in _UNPAIRED:
                mode_gains.pop(metric, None)
        answerable = rows[~self._impossible[rows]]
        if len(answerable) in (0, len(rows)):
            # All refusals are right, or all are wrong, so their precision is meaningless.
            for mode_metrics in metrics.values():
                mode_metrics.pop(REFUSAL_PRECISION, None)
        if len(answerable) and self._impossible.any():
            # Compare with all impossible queries: they seldom share a facet with answerable ones.
            aucs = {
                mode: RocAuc(confidences[answerable], confidences[self._impossible])
                for mode, confidences in self._confidences.items()
            }
            for mode, auc in aucs.items():
                metrics[mode][AUC] = auc.estimate()
                gain = auc.difference_from(aucs[base]) if mode != base else None
                if gain is not None:
                    gains[mode][AUC] = gain
        counts = len(answerable), len(rows) - len(answerable)
        return QueryGroup(facet, value, *counts, metrics, gains)


def _score_rows(results: Sequence[EvalResult]) -> Values:
    """Return one row of metrics per result, with NaN where a metric does not apply."""
    no_scores = (np.nan,) * len(METRIC_NAMES)
    rows = []
    for result in results:
        refused = not result.confident
        impossible = result.query.is_impossible
        rows.append(
            (
                *(result.scores or no_scores),
                np.nan if impossible else refused,
                refused if impossible else np.nan,
                impossible if refused else np.nan,
            )
        )
    return np.array(rows, np.float64).reshape(len(rows), len(_COLUMNS))


def _name_columns(columns: Sequence[_Statistic | None]) -> dict[str, _Statistic]:
    named = zip(_COLUMNS, columns, strict=True)
    return {metric: value for metric, value in named if value is not None}


def _rows_by_value(queries: Sequence[EvalQuery], facet: str) -> dict[str, list[int]]:
    """Return the rows of each value of a facet: the most frequent ones, in order of appearance.

    If all queries share one value, the result is empty: the group would equal the whole set.
    """
    rows: dict[str, list[int]] = {}
    for row, query in enumerate(queries):
        rows.setdefault(getattr(query, facet), []).append(row)
    if len(rows) == 1:
        return {}
    frequent = sorted(rows, key=lambda value: -len(rows[value]))[:MAX_FACET_VALUES]
    return {value: found for value, found in rows.items() if value and value in frequent}
