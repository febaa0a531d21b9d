from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.evaluation.eval_set import EvalQuery, build_targets
from toolcrib.evaluation.runner import METRIC_NAMES, RankingScores, score_ranking


def build_query(*groups: str, has_steps: bool = False) -> EvalQuery:
    """Return a query with one target per group; each letter is the id of a tool."""
    return EvalQuery(id="q", text="?", targets=tuple(map(frozenset, groups)), has_steps=has_steps)


def test_targets_are_single_tools_or_any_of_all_or_groups() -> None:
    assert build_targets(["a", "b", "a"]) == (frozenset("a"), frozenset("b"))
    assert build_targets(["a", "b"], any_of=True) == (frozenset("ab"),)
    assert build_targets(["a"], [["a", "b"], ["c"]], any_of=True) == (frozenset("ab"), frozenset("c"))
    assert build_targets([], any_of=True) == ()


def test_metric_names_match_the_fields() -> None:
    names = dict(zip(RankingScores._fields, METRIC_NAMES, strict=True))
    assert names["hit_5"] == "hit@5"
    assert names["ndcg_10"] == "nDCG@10"
    assert names["all_steps_5"] == "all-steps@5"


def test_perfect_list_scores_1_and_empty_list_0() -> None:
    query = build_query("a", "b", has_steps=True)
    best = score_ranking(["b", "a", "x"], query)
    assert best == RankingScores(1, 1, 1, 0.5, 1, 1, 1, 1, 1)
    assert score_ranking([], query) == RankingScores(*[0.0] * 9)


def test_lower_ranks_count_less_and_each_target_counts_once() -> None:
    query = build_query("ab", "c")
    best = 1 + 1 / math.log2(3)
    scores = score_ranking(["a", "b", "c"], query)
    assert scores.ndcg_10 == pytest.approx((1 + 1 / math.log2(4)) / best)
    assert (scores.recall_1, scores.recall_5, scores.mrr) == (0.5, 1, 1)
    late = score_ranking([*"uvwxyz", "c"], query)
    assert late.ndcg_10 == pytest.approx(1 / math.log2(8) / best)
    assert (late.hit_5, late.hit_10, late.recall_10, late.mrr) == (0, 1, 0.5, 1 / 7)
    assert score_ranking([*"uvwxyzrstp", "c"], query).mrr == 0


def test_one_tool_may_cover_several_steps() -> None:
    query = build_query("ab", "bc", "d", has_steps=True)
    assert score_ranking(["b", "x", "d"], query).all_steps_5 == 1
    assert score_ranking(["a", "b", "c"], query).all_steps_5 == 0
    assert score_ranking([*"bvwxyd"], query).all_steps_5 == 0
    assert math.isnan(score_ranking(["a"], build_query("a", "b")).all_steps_5)


def test_order_of_the_groups_does_not_matter() -> None:
    for groups in permutations(["ab", "a"]):
        assert score_ranking(["a", "b"], build_query(*groups))[:-1] == RankingScores(1, 1, 1, 0.5, 1, 1, 1, 1, 0)[:-1]
    # The first two tools move to other targets, so that the third can be matched.
    for groups in permutations(["ab", "bc", "a"]):
        assert score_ranking(["b", "a", "c"], build_query(*groups)).ndcg_10 == 1


def test_best_possible_list_scores_1_with_fewer_tools_than_targets() -> None:
    query = build_query("a", "a", has_steps=True)
    assert score_ranking(["a"], query) == RankingScores(*[1.0] * 9)
    assert score_ranking(["a", "a"], query) == RankingScores(*[1.0] * 9)
    assert score_ranking(["x", "a"], query).ndcg_10 == pytest.approx(1 / math.log2(3))
    # Two tools for three targets: a perfect list has both tools.
    assert score_ranking(["a", "x"], build_query("ab", "ab", "b")).recall_10 == 0.5


@given(st.lists(st.sets(st.sampled_from("abcde"), min_size=1), min_size=1, max_size=5), st.permutations("abcdexy"))
def test_matching_is_maximal_and_an_ideal_order_is_perfect(groups: list[set[str]], ids: list[str]) -> None:
    query = build_query(*map("".join, groups))
    scores = score_ranking(ids, query)[:-1]
    assert score_ranking(ids, build_query(*map("".join, groups[::-1])))[:-1] == scores
    most = max(sum(id in target for id, target in zip(order, groups, strict=False)) for order in permutations("abcde"))
    recalls = [score_ranking(ids[:depth], query).recall_10 for depth in range(len(ids) + 1)]
    assert recalls[-1] == 1
    # The tools that increased the recall are a perfect list.
    useful = [id for rank, id in enumerate(ids) if recalls[rank + 1] > recalls[rank]]
    assert len(useful) == most
    assert score_ranking(useful, query).ndcg_10 == pytest.approx(1)
