from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.lexical.scores import find_scores
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import QueryTooLong
from toolcrib.search.lexical import fuzzy
from toolcrib.search.lexical.fuzzy import FuzzyRanker
from toolcrib.search.query.parser import ParsedQuery

HARBOUR = Catalog(
    [
        Tool("moor_boat", "Tie a boat to the quay", hint="After landing"),
        Tool("weigh_anchor", "Lift the anchor"),
        Tool("hoist_sail", "Pull up a sail"),
    ]
)


def test_score_is_similarity_plus_a_bonus_per_word() -> None:
    text = fuzzy.build_haystack("Moor", "Tie a boat", "")
    assert text == "moor tie a boat "
    similarity = SequenceMatcher(None, "boat boat car", text).ratio()
    assert fuzzy.score_haystack("Boat boat car", text, 0.1) == round(similarity + 0.2, 4)


def test_scores_are_relative_to_the_best_possible_score() -> None:
    raw = fuzzy.score_haystack("boat", fuzzy.build_haystack("moor_boat", "Tie a boat to the quay", "After landing"))
    best = find_scores(FuzzyRanker().fit(HARBOUR), "boat")["moor_boat"]
    assert best == pytest.approx(raw / 1.12)


def test_scores_at_or_below_the_minimum_are_not_found() -> None:
    assert find_scores(FuzzyRanker().fit(HARBOUR), "ÿÿ") == {}


@pytest.mark.parametrize("query", ["", "  \n"])
def test_query_without_words_finds_nothing(query: str) -> None:
    index = FuzzyRanker().fit(HARBOUR)
    assert find_scores(index, query) == {}
    assert index.reasons(ParsedQuery(query), 0) == ()


def test_reasons_name_word_and_field_and_add_up() -> None:
    reasons = FuzzyRanker().fit(HARBOUR).reasons(ParsedQuery("moor quay landing zz"), 0)
    assert [(reason.term, reason.field) for reason in reasons] == [
        ("moor", "name"),
        ("quay", "description"),
        ("landing", "hint"),
        ("moor quay landing zz", "spelling"),
    ]
    assert sum(reason.share for reason in reasons) == pytest.approx(1)


def test_words_explain_a_score_without_spelling_similarity() -> None:
    # difflib ignores frequent letters in long texts, so the similarity can be zero.
    index = FuzzyRanker(1 / 3).fit(Catalog([Tool("log", "tide " * 100)]))
    assert [reason.share for reason in index.reasons(ParsedQuery("tide"), 0)] == pytest.approx([1, 0], abs=1e-3)


def test_tool_that_does_not_match_has_no_reasons() -> None:
    index = FuzzyRanker().fit(HARBOUR)
    assert index.reasons(ParsedQuery("ÿÿ"), 0) == ()
    assert index.with_catalog(HARBOUR.without(["moor_boat"])).reasons(ParsedQuery("boat"), 0) == ()


def test_update_analyzes_only_changed_tools() -> None:
    index = FuzzyRanker(token_bonus=0.5).fit(HARBOUR)
    later = HARBOUR.without(["hoist_sail"]).with_tools([Tool("weigh_anchor", "Raise iron")])
    updated = index.with_catalog(later.with_tools([Tool("row_boat", "Use oars")]))
    assert updated.haystacks[0] is index.haystacks[0]
    for query in ("boat", "iron", "sail"):
        assert find_scores(updated, query) == find_scores(FuzzyRanker(0.5).fit(updated.catalog), query)


def test_unrelated_catalog_is_analyzed_completely() -> None:
    other = Catalog([Tool("fish", "Catch cod")])
    assert list(find_scores(FuzzyRanker().fit(HARBOUR).with_catalog(other), "cod")) == ["fish"]


@given(st.text(max_size=30), st.floats(0, 1))
def test_scores_are_above_zero_and_at_most_one(query: str, bonus: float) -> None:
    index = FuzzyRanker(bonus).fit(HARBOUR)
    ranking = index.rank(ParsedQuery(query))
    assert all(0 < score <= 1.000001 for score in ranking.scores.tolist())
    assert ranking.slots.tolist() == sorted(ranking.slots.tolist())
    assert [bool(index.reasons(ParsedQuery(query), slot)) for slot in range(3)] == [
        slot in ranking.slots.tolist() for slot in range(3)
    ]


def test_too_long_query_is_rejected() -> None:
    index = FuzzyRanker().fit(Catalog([Tool("a")]))
    with pytest.raises(QueryTooLong, match="in mode fuzzy the limit is 500"):
        index.rank(ParsedQuery("x" * 501))
