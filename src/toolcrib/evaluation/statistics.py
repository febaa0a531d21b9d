"""Confidence intervals, paired comparisons and ROC AUC.

Random numbers are seeded, so the same results give the same statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

RESAMPLES: Final = 2_000
CONFIDENCE_LEVEL: Final = 0.95
_SEED: Final = 20_240_229
# With fewer queries of either kind, bootstrap samples vary too little for a p-value.
MIN_AUC_QUERIES: Final = 20
# How many random numbers are drawn per chunk, which limits memory.
MAX_CHUNK_NUMBERS: Final = 4_000_000
_TAILS: Final = ((1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2)


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
        for mean, p in zip(
            bootstrap_means(differences), _sign_flip_p(np.nan_to_num(differences)), strict=True
        )
    ]


class RocAuc:
    """The area under the ROC curve, with bootstrap samples.

    It is the probability that a positive scores higher than a negative; a tie counts half.
    """

    def __init__(self, positive: Values, negative: Values) -> None:
        levels, codes = np.unique(np.concatenate((positive, negative)), return_inverse=True)
        above, below = codes[: len(positive)], codes[len(positive) :]
        count = len(levels)
        observed = _compute_areas(
            _count_codes(above[np.newaxis], count), _count_codes(below[np.newaxis], count)
        )
        resampled = []
        rng = np.random.default_rng(_SEED)
        # Chunks depend only on the number of scores, so two modes draw the same samples in pairs.
        for rows in _chunk_sizes(len(codes)):
            positives = above[rng.integers(0, len(above), (rows, len(above)))]
            negatives = below[rng.integers(0, len(below), (rows, len(below)))]
            resampled.append(
                _compute_areas(_count_codes(positives, count), _count_codes(negatives, count))
            )
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
