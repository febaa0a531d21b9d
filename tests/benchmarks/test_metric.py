from __future__ import annotations

import math

import pytest

from benchmarks.metric import Quality, needs, score


def test_a_need_is_one_tool_or_any_of_some_or_one_of_each_group() -> None:
    assert needs({"relevant": ["a", 2]}) == (frozenset("a"), frozenset("2"))
    assert needs({"relevant": ["a", "b"], "any_of": True}) == (frozenset("ab"),)
    assert needs({"relevant": ["a"], "groups": [["a", "b"], ["c"]]}) == (
        frozenset("ab"),
        frozenset("c"),
    )
    assert needs({"relevant": []}) == ()


def test_a_perfect_list_scores_1_and_an_empty_one_0() -> None:
    asked = (frozenset("a"), frozenset("b"))
    assert score(["b", "a", "x"], asked) == Quality(1.0, 1.0, 1.0)
    assert score([], asked) == Quality(0.0, 0.0, 0.0)


def test_later_places_count_less_and_a_need_is_met_once() -> None:
    asked = (frozenset("ab"), frozenset("c"))
    found = score(["a", "b", "c"], asked)
    best = 1 + 1 / math.log2(3)
    assert found == pytest.approx(Quality((1 + 1 / math.log2(4)) / best, 1.0, 1.0))
    late = score([*"uvwxyz", "c"], asked)
    assert late == pytest.approx(Quality(1 / math.log2(8) / best, 0.0, 1 / 7))
