from __future__ import annotations

import math

import pytest

from toolcrib.evaluation.metric import NAMES, Scores, scores
from toolcrib.evaluation.question import Question, needs


def asking(*groups: str, in_steps: bool = False) -> Question:
    """A question that needs one tool of each group, tools being letters."""
    return Question(id="q", text="?", needs=tuple(map(frozenset, groups)), in_steps=in_steps)


def test_a_need_is_one_tool_or_any_of_some_or_one_of_each_group() -> None:
    assert needs(["a", "b", "a"]) == (frozenset("a"), frozenset("b"))
    assert needs(["a", "b"], any_of=True) == (frozenset("ab"),)
    assert needs(["a"], [["a", "b"], ["c"]], any_of=True) == (frozenset("ab"), frozenset("c"))
    assert needs([], any_of=True) == ()


def test_every_figure_has_a_name() -> None:
    told = dict(zip(Scores._fields, NAMES, strict=True))
    assert told["hit_5"] == "hit@5"
    assert told["ndcg_10"] == "nDCG@10"
    assert told["all_steps_5"] == "all-steps@5"


def test_a_perfect_list_scores_1_and_an_empty_one_0() -> None:
    question = asking("a", "b", in_steps=True)
    best = scores(["b", "a", "x"], question)
    assert best == Scores(1, 1, 1, 0.5, 1, 1, 1, 1, 1)
    assert scores([], question) == Scores(*[0.0] * 9)


def test_later_places_count_less_and_a_need_is_met_once() -> None:
    question = asking("ab", "c")
    best = 1 + 1 / math.log2(3)
    found = scores(["a", "b", "c"], question)
    assert found.ndcg_10 == pytest.approx((1 + 1 / math.log2(4)) / best)
    assert (found.recall_1, found.recall_5, found.mrr) == (0.5, 1, 1)
    late = scores([*"uvwxyz", "c"], question)
    assert late.ndcg_10 == pytest.approx(1 / math.log2(8) / best)
    assert (late.hit_5, late.hit_10, late.recall_10, late.mrr) == (0, 1, 0.5, 1 / 7)
    assert scores([*"uvwxyzrstp", "c"], question).mrr == 0


def test_steps_are_covered_together_by_one_tool_too_and_only_where_they_are_told_apart() -> None:
    question = asking("ab", "bc", "d", in_steps=True)
    assert scores(["b", "x", "d"], question).all_steps_5 == 1
    assert scores(["a", "b", "c"], question).all_steps_5 == 0
    assert scores([*"bvwxyd"], question).all_steps_5 == 0
    assert math.isnan(scores(["a"], asking("a", "b")).all_steps_5)
