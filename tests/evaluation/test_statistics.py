from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.evaluation import summary
from toolcrib.evaluation.summary import RocAuc, bootstrap_means, paired_differences

NAN = float("nan")
SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=8)


def test_interval_of_a_mean_shrinks_with_the_number_of_rows() -> None:
    few = np.array([[1.0], [0.0]] * 10)
    many = np.array([[1.0], [0.0]] * 500)
    (small,), (large,) = bootstrap_means(few), bootstrap_means(many)
    assert small is not None and large is not None
    assert small.value == large.value == 0.5
    assert 0.2 < small.low < large.low < 0.5 < large.high < small.high < 0.8
    # Within half a percent of the normal approximation.
    assert large.high - 0.5 == pytest.approx(1.96 * 0.5 / 1000**0.5, abs=0.005)


def test_nan_is_left_out() -> None:
    first, second = bootstrap_means(np.array([[1.0, NAN], [NAN, NAN], [1.0, NAN]]))
    assert first == (1, 1, 1)
    assert second is None
    assert bootstrap_means(np.empty((0, 2))) == [None, None]
    assert paired_differences(np.empty((0, 1)), np.empty((0, 1))) == [None]


def test_statistics_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.array([[0.1], [0.7], [0.4]])
    expected = (bootstrap_means(rows), paired_differences(rows, rows[::-1]), RocAuc(rows[:, 0], rows[:2, 0]).estimate())
    assert bootstrap_means(rows) == expected[0]
    monkeypatch.setattr(summary, "MAX_CHUNK_NUMBERS", 3_000)
    assert bootstrap_means(rows) == expected[0]
    assert paired_differences(rows, rows[::-1]) == expected[1]


def test_difference_is_significant_if_many_rows_agree() -> None:
    base = np.zeros((30, 3))
    better = np.zeros((30, 3))
    better[:20, 0] = 1
    better[:2, 1] = 1
    clear, faint, none = paired_differences(better, base)
    assert clear is not None and faint is not None and none is not None
    assert clear.value == pytest.approx(2 / 3)
    assert clear.low > 0.4
    assert clear.p < 0.001
    # With two nonzero rows, half of the sign combinations are as extreme.
    assert faint.p == pytest.approx(0.5, abs=0.05)
    assert none == (0, 0, 0, 1)
    assert paired_differences(base, better)[0] == pytest.approx((-2 / 3, -clear.high, -clear.low, clear.p))


@given(SCORES, SCORES)
def test_auc_is_the_share_of_correctly_ordered_pairs(positive: list[float], negative: list[float]) -> None:
    pairs = [(more > less) + (more == less) / 2 for more in positive for less in negative]
    area = RocAuc(np.array(positive), np.array(negative)).estimate()
    assert area.value == pytest.approx(sum(pairs) / len(pairs))
    assert 0 <= area.low <= area.high <= 1


def test_auc_difference_and_its_significance() -> None:
    negative = np.linspace(0, 0.4, 20)
    apart = RocAuc(np.linspace(0.5, 1, 20), negative)
    mixed = RocAuc(np.linspace(0, 0.41, 20), negative)
    assert apart.estimate() == (1, 1, 1)
    gain = apart.difference_from(mixed)
    assert gain is not None
    assert gain.value == pytest.approx(1 - mixed.estimate().value)
    assert gain.p < 0.01
    assert gain.low > 0
    assert mixed.difference_from(mixed) == (0, 0, 0, 1)
