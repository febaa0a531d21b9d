from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.evaluation.eval_query import EvalQuery, build_targets
from toolcrib.evaluation.metrics import METRIC_NAMES, RankingScores, score_ranking


def asking(*groups: str, in_steps: bool = False) -> EvalQuery:
    """A question that needs one tool of each group, tools being letters."""
    return EvalQuery(id="q", text="?", targets=tuple(map(frozenset, groups)), has_steps=in_steps)


def test_a_need_is_one_tool_or_any_of_some_or_one_of_each_group() -> None:
    assert build_targets(["a", "b", "a"]) == (frozenset("a"), frozenset("b"))
    assert build_targets(["a", "b"], any_of=True) == (frozenset("ab"),)
    assert build_targets(["a"], [["a", "b"], ["c"]], any_of=True) == (
        frozenset("ab"),
        frozenset("c"),
    )
    assert build_targets([], any_of=True) == ()


def test_every_figure_has_a_name() -> None:
    told = dict(zip(RankingScores._fields, METRIC_NAMES, strict=True))
    assert told["hit_5"] == "hit@5"
    assert told["ndcg_10"] == "nDCG@10"
    assert told["all_steps_5"] == "all-steps@5"


def test_a_perfect_list_scores_1_and_an_empty_one_0() -> None:
    question = asking("a", "b", in_steps=True)
    best = score_ranking(["b", "a", "x"], question)
    assert best == RankingScores(1, 1, 1, 0.5, 1, 1, 1, 1, 1)
    assert score_ranking([], question) == RankingScores(*[0.0] * 9)


def test_later_places_count_less_and_a_need_is_met_once() -> None:
    question = asking("ab", "c")
    best = 1 + 1 / math.log2(3)
    found = score_ranking(["a", "b", "c"], question)
    assert found.ndcg_10 == pytest.approx((1 + 1 / math.log2(4)) / best)
    assert (found.recall_1, found.recall_5, found.mrr) == (0.5, 1, 1)
    late = score_ranking([*"uvwxyz", "c"], question)
    assert late.ndcg_10 == pytest.approx(1 / math.log2(8) / best)
    assert (late.hit_5, late.hit_10, late.recall_10, late.mrr) == (0, 1, 0.5, 1 / 7)
    assert score_ranking([*"uvwxyzrstp", "c"], question).mrr == 0


def test_steps_are_covered_together_by_one_tool_too_and_only_where_they_are_told_apart() -> None:
    question = asking("ab", "bc", "d", in_steps=True)
    assert score_ranking(["b", "x", "d"], question).all_steps_5 == 1
    assert score_ranking(["a", "b", "c"], question).all_steps_5 == 0
    assert score_ranking([*"bvwxyd"], question).all_steps_5 == 0
    assert math.isnan(score_ranking(["a"], asking("a", "b")).all_steps_5)


def test_the_order_of_the_groups_changes_nothing() -> None:
    for groups in permutations(["ab", "a"]):
        assert (
            score_ranking(["a", "b"], asking(*groups))[:-1]
            == RankingScores(1, 1, 1, 0.5, 1, 1, 1, 1, 0)[:-1]
        )
    # The first two make room for the third by going over to what else they can do.
    for groups in permutations(["ab", "bc", "a"]):
        assert score_ranking(["b", "a", "c"], asking(*groups)).ndcg_10 == 1


def test_a_tool_that_does_two_steps_alone_is_all_that_can_be_had() -> None:
    question = asking("a", "a", in_steps=True)
    assert score_ranking(["a"], question) == RankingScores(*[1.0] * 9)
    assert score_ranking(["a", "a"], question) == RankingScores(*[1.0] * 9)
    assert score_ranking(["x", "a"], question).ndcg_10 == pytest.approx(1 / math.log2(3))
    # Two tools for three steps: what is needed is both.
    assert score_ranking(["a", "x"], asking("ab", "ab", "b")).recall_10 == 0.5


@given(
    st.lists(st.sets(st.sampled_from("abcde"), min_size=1), min_size=1, max_size=5),
    st.permutations("abcdexy"),
)
def test_as_many_needs_are_met_as_can_be_and_some_order_of_the_tools_is_perfect(
    groups: list[set[str]], found: list[str]
) -> None:
    question = asking(*map("".join, groups))
    told = score_ranking(found, question)[:-1]
    assert score_ranking(found, asking(*map("".join, groups[::-1])))[:-1] == told
    most = max(
        sum(id in need for id, need in zip(order, groups, strict=False))
        for order in permutations("abcde")
    )
    reached = [score_ranking(found[:depth], question).recall_10 for depth in range(len(found) + 1)]
    assert reached[-1] == 1
    # Those that met one more need, put first, are a perfect answer.
    useful = [id for at, id in enumerate(found) if reached[at + 1] > reached[at]]
    assert len(useful) == most
    assert score_ranking(useful, question).ndcg_10 == pytest.approx(1)
