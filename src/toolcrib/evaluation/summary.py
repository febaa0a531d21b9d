"""The metrics of an eval set: per mode, for all queries and for each value of each facet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolcrib.evaluation.eval_set import FACETS, EvalQuery
from toolcrib.evaluation.runner import METRIC_NAMES, EvalResult

Values = NDArray[np.float64]

RESAMPLES: Final = 2_000
CONFIDENCE_LEVEL: Final = 0.95
# The same results give the same statistics.
_SEED: Final = 20_240_229
# With fewer queries of either kind, bootstrap samples vary too little for a p-value.
MIN_AUC_QUERIES: Final = 20
# How many random numbers are drawn per chunk, which limits memory.
MAX_CHUNK_NUMBERS: Final = 4_000_000
_TAILS: Final = ((1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2)

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


class Estimate(NamedTuple):
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class PairedDifference(NamedTuple):
    """The difference of two modes with its confidence interval and p-value."""

    value: float
    low: float
    high: float
    p: float


def bootstrap_means(values: Values) -> list[Estimate | None]:
    """Return each column's mean with a bootstrap interval; None for a column of NaN only.

    NaN values are left out.
    """
    if not len(values):
        return [None] * values.shape[1]
    is_number = ~np.isnan(values)
    filled = np.where(is_number, values, 0.0)
    sums, counts = [], []
    for weights in _resamples(len(values)):
        sums.append(weights @ filled)
        counts.append(weights @ is_number.astype(np.float64))
    resampled = _ratio(np.concatenate(sums), np.concatenate(counts))
    observed = _ratio(filled.sum(axis=0), is_number.sum(axis=0).astype(np.float64))
    return [
        None if np.isnan(value) else Estimate(float(value), *_interval(resampled[:, column]))
        for column, value in enumerate(observed)
    ]


def paired_differences(values: Values, base: Values) -> list[PairedDifference | None]:
    """Return each column's mean difference with a bootstrap interval and a p-value.

    The p-value comes from a paired permutation test, which flips the signs of rows at random. Pairs
    with NaN are left out.
    """
    differences = values - base
    return [
        None if mean is None else PairedDifference(*mean, p)
        for mean, p in zip(bootstrap_means(differences), _sign_flip_p(np.nan_to_num(differences)), strict=True)
    ]


class RocAuc:
    """The area under the ROC curve, with bootstrap samples.

    It is the probability that a positive scores higher than a negative; a tie counts half.
    """

    def __init__(self, positive: Values, negative: Values) -> None:
        levels, codes = np.unique(np.concatenate((positive, negative)), return_inverse=True)
        above, below = codes[: len(positive)], codes[len(positive) :]
        count = len(levels)
        observed = _compute_areas(_count_codes(above[np.newaxis], count), _count_codes(below[np.newaxis], count))
        resampled = []
        rng = np.random.default_rng(_SEED)
        # Chunks depend only on the number of scores, so two modes draw the same samples in pairs.
        for rows in _chunk_sizes(len(codes)):
            positives = above[rng.integers(0, len(above), (rows, len(above)))]
            negatives = below[rng.integers(0, len(below), (rows, len(below)))]
            resampled.append(_compute_areas(_count_codes(positives, count), _count_codes(negatives, count)))
        self._min_count = min(len(positive), len(negative))
        self._area = float(observed[0])
        self._resampled = np.concatenate(resampled)

    def estimate(self) -> Estimate:
        """Return the area with a bootstrap interval."""
        return Estimate(self._area, *_interval(self._resampled))

    def difference_from(self, base: RocAuc) -> PairedDifference | None:
        """Return the paired difference from the AUC of another mode on the same queries.

        Returns None with fewer than `MIN_AUC_QUERIES` positives or negatives.
        """
        if self._min_count < MIN_AUC_QUERIES:
            return None
        differences = self._resampled - base._resampled
        tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
        p = min(1.0, 2 * (tail + 1) / (RESAMPLES + 1))
        return PairedDifference(self._area - base._area, *_interval(differences), p)


def _compute_areas(positive: Values, negative: Values) -> Values:
    """Return the area for each row of counts per score level."""
    negatives_below = np.cumsum(negative, axis=1) - negative / 2
    areas: Values = (positive * negatives_below).sum(axis=1)
    areas /= positive.sum(axis=1) * negative.sum(axis=1)
    return areas


def _count_codes(codes: NDArray[np.intp], levels: int) -> Values:
    """Return how often each code occurs in each row."""
    rows = len(codes)
    flat = codes + np.arange(rows)[:, np.newaxis] * levels
    counts = np.bincount(flat.ravel(), minlength=rows * levels).reshape(rows, levels)
    return counts.astype(np.float64)


def _resamples(count: int) -> Iterator[Values]:
    """Yield chunks of bootstrap samples: how often each of `count` rows is drawn."""
    rng = np.random.default_rng(_SEED)
    for rows in _chunk_sizes(count):
        yield _count_codes(rng.integers(0, count, (rows, count)), count)


def _sign_flip_p(differences: Values) -> list[float]:
    """Return, per column, how often random signs give a sum at least as far from zero."""
    rng = np.random.default_rng(_SEED)
    # Slightly less, so that sums which differ only by rounding count as equal.
    observed = np.abs(differences.sum(axis=0)) * (1 - 1e-9)
    extreme = np.zeros(differences.shape[1])
    for rows in _chunk_sizes(len(differences)):
        signs = rng.integers(0, 2, (rows, len(differences))) * 2.0 - 1
        extreme += (np.abs(signs @ differences) >= observed).sum(axis=0)
    return [float(p) for p in (extreme + 1) / (RESAMPLES + 1)]


def _chunk_sizes(row_size: int) -> Iterator[int]:
    """Split the number of resamples into chunks that fit into memory."""
    chunk = max(1, MAX_CHUNK_NUMBERS // max(1, row_size))
    for start in range(0, RESAMPLES, chunk):
        yield min(chunk, RESAMPLES - start)


def _ratio(sums: Values, counts: Values) -> Values:
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _interval(resampled: Values) -> tuple[float, float]:
    low, high = np.nanquantile(resampled, _TAILS)
    return float(low), float(high)


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
    unsearchable = {mode: sum(bool(result.error) for result in mode_results) for mode, mode_results in results.items()}
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
    return find_best_values(metric, {m: found[metric].value for m, found in group.metrics.items() if metric in found})


def find_best_values(metric: str, values: Mapping[str, float]) -> frozenset[str]:
    """Return the modes with the best of some values after rounding; none if all are equal."""
    rounded = {mode: round(100 * value, 1) for mode, value in values.items()}
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
            mode: np.array([result.confidence for result in mode_results]) for mode, mode_results in results.items()
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
