"""How far figures can be trusted: intervals, differences, and telling two kinds apart.

Chance is seeded, so that the same answers give the same figures.
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
# Drawn anew from fewer, scores differ too little: chance would look like a difference.
MIN_AUC_QUERIES: Final = 20
# How many numbers are drawn at a time, which bounds memory.
_CHUNK: Final = 4_000_000
_TAILS: Final = ((1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2)


class Estimate(NamedTuple):
    """A figure, and the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float


class PairedDifference(NamedTuple):
    """By how much one mode is better than another, and how likely chance alone does as much."""

    value: float
    low: float
    high: float
    p: float


def bootstrap_means(values: Values) -> list[Estimate | None]:
    """Each column's mean with a bootstrap interval over the rows.

    What is not a number is left out; a column without any number has no mean.
    """
    if not len(values):
        return [None] * values.shape[1]
    given = ~np.isnan(values)
    filled = np.where(given, values, 0.0)
    sums, counts = [], []
    for weights in _resamples(len(values)):
        sums.append(weights @ filled)
        counts.append(weights @ given.astype(np.float64))
    drawn = _ratio(np.concatenate(sums), np.concatenate(counts))
    observed = _ratio(filled.sum(axis=0), given.sum(axis=0).astype(np.float64))
    return [
        None if np.isnan(value) else Estimate(float(value), *_interval(drawn[:, column]))
        for column, value in enumerate(observed)
    ]


def paired_differences(values: Values, base: Values) -> list[PairedDifference | None]:
    """Each column's mean of paired differences, with its bootstrap interval and a p-value.

    The p-value is that of a permutation test: if the modes were alike, each row's differences
    could as well have the other sign. Pairs that are not numbers are left out.
    """
    gains = values - base
    return [
        None if mean is None else PairedDifference(*mean, p)
        for mean, p in zip(bootstrap_means(gains), _sign_flip_p(np.nan_to_num(gains)), strict=True)
    ]


class RocAuc:
    """How well scores tell positives from negatives: the area under the ROC curve.

    It is the chance that a positive is above a negative, a tie counting half.
    """

    def __init__(self, positive: Values, negative: Values) -> None:
        levels, codes = np.unique(np.concatenate((positive, negative)), return_inverse=True)
        above, below = codes[: len(positive)], codes[len(positive) :]
        count = len(levels)
        areas = [
            _compute_areas(
                _count_codes(above[np.newaxis], count), _count_codes(below[np.newaxis], count)
            )
        ]
        chance = np.random.default_rng(_SEED)
        # Chunks depend on the number of scores alone: two separations draw alike, in pairs.
        for rows in _chunk_sizes(len(codes)):
            more = above[chance.integers(0, len(above), (rows, len(above)))]
            less = below[chance.integers(0, len(below), (rows, len(below)))]
            areas.append(_compute_areas(_count_codes(more, count), _count_codes(less, count)))
        self._fewest = min(len(positive), len(negative))
        self._area = float(areas[0][0])
        self._drawn = np.concatenate(areas[1:])

    def estimate(self) -> Estimate:
        """The area, with a bootstrap interval."""
        return Estimate(self._area, *_interval(self._drawn))

    def difference_from(self, base: RocAuc) -> PairedDifference | None:
        """By how much it is better than another of the same questions, by a paired bootstrap.

        None with fewer than `MIN_SEPARATED` positives or negatives.
        """
        if self._fewest < MIN_AUC_QUERIES:
            return None
        drawn = self._drawn - base._drawn
        tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
        p = min(1.0, 2 * (tail + 1) / (RESAMPLES + 1))
        return PairedDifference(self._area - base._area, *_interval(drawn), p)


def _compute_areas(positive: Values, negative: Values) -> Values:
    """The area for each row of counts by level."""
    beaten = np.cumsum(negative, axis=1) - negative / 2
    areas: Values = (positive * beaten).sum(axis=1)
    areas /= positive.sum(axis=1) * negative.sum(axis=1)
    return areas


def _count_codes(codes: NDArray[np.intp], levels: int) -> Values:
    """How often each code occurs in each row."""
    rows = len(codes)
    flat = codes + np.arange(rows)[:, np.newaxis] * levels
    counts = np.bincount(flat.ravel(), minlength=rows * levels).reshape(rows, levels)
    return counts.astype(np.float64)


def _resamples(count: int) -> Iterator[Values]:
    """How often each of so many rows is drawn, in each of the resamples; some of them at a time."""
    chance = np.random.default_rng(_SEED)
    for rows in _chunk_sizes(count):
        yield _count_codes(chance.integers(0, count, (rows, count)), count)


def _sign_flip_p(gains: Values) -> list[float]:
    """For each column, how often random signs give a sum that is as far from nothing."""
    chance = np.random.default_rng(_SEED)
    # A hair less, so that sums which differ in rounding alone are seen as equal.
    observed = np.abs(gains.sum(axis=0)) * (1 - 1e-9)
    extreme = np.zeros(gains.shape[1])
    for rows in _chunk_sizes(len(gains)):
        signs = chance.integers(0, 2, (rows, len(gains))) * 2.0 - 1
        extreme += (np.abs(signs @ gains) >= observed).sum(axis=0)
    return [float(p) for p in (extreme + 1) / (RESAMPLES + 1)]


def _chunk_sizes(numbers: int) -> Iterator[int]:
    """All resamples, as many at a time as memory allows for rows of so many numbers."""
    at_once = max(1, _CHUNK // max(1, numbers))
    for start in range(0, RESAMPLES, at_once):
        yield min(at_once, RESAMPLES - start)


def _ratio(sums: Values, counts: Values) -> Values:
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _interval(drawn: Values) -> tuple[float, float]:
    low, high = np.nanquantile(drawn, _TAILS)
    return float(low), float(high)
