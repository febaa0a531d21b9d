from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.lexical.scores import find_scores
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.lexical import keyword
from toolcrib.search.lexical.keyword import KeywordRanker
from toolcrib.search.query.parser import ParsedQuery

BAKERY = Catalog(
    [Tool("bake_bread", "Put dough into the oven"), Tool("knead", "Work the dough for bread"), Tool("Bake", "Anything")]
)


def score(query: str, name: str, description: str = "") -> int:
    return keyword.score_keywords(keyword.parse_keywords(query), keyword.build_texts(name, description))


@pytest.mark.parametrize(
    ("query", "terms", "name"),
    [
        ("Read, FILE!", ("read", "file"), "read, file"),
        ('"read_file"', ("read_file",), "read_file"),
        ("a -- b", ("a", "b"), "a -- b"),
        ("?! …", (), ""),
        ("", (), ""),
        ("(हिन्दी)", ("हिन्दी",), "हिन्दी"),
        ("x" + "!" * 50_000 + "y", ("x" + "!" * 50_000 + "y",), "x" + "!" * 50_000 + "y"),
    ],
)
def test_surrounding_punctuation_is_stripped(query: str, terms: tuple[str, ...], name: str) -> None:
    assert keyword.parse_keywords(query) == (terms, name)


def test_term_counts_three_in_the_name_and_one_in_the_description() -> None:
    assert score("bread", "bake_bread", "bread") == 3
    assert score("bread", "knead", "dough for bread") == 1
    assert score("bread bread", "knead", "dough for bread") == 2
    assert score("fish", "knead", "dough for bread") == 0


def test_exact_name_adds_a_hundred_points_in_any_case_and_quoting() -> None:
    assert score("`KNEAD`", "knead") == 103
    assert score("knead it", "knead") == 3


def test_scores_are_relative_to_all_terms_in_the_name() -> None:
    index = KeywordRanker().fit(BAKERY)
    assert find_scores(index, "bake dough") == pytest.approx({"bake_bread": 4 / 6, "knead": 1 / 6, "Bake": 3 / 6})
    assert find_scores(index, "knead") == {"knead": 1.0}


@pytest.mark.parametrize("query", ["", " ", "?!"])
def test_query_without_terms_finds_nothing(query: str) -> None:
    index = KeywordRanker().fit(BAKERY)
    assert find_scores(index, query) == {}
    assert index.reasons(ParsedQuery(query), 0) == ()


def test_reasons_name_term_and_field_and_add_up() -> None:
    reasons = KeywordRanker().fit(BAKERY).reasons(ParsedQuery("bread oven fish"), 0)
    assert [(reason.term, reason.field) for reason in reasons] == [("bread", "name"), ("oven", "description")]
    exact = KeywordRanker().fit(BAKERY).reasons(ParsedQuery("'bake'"), 2)
    assert [(reason.term, reason.field) for reason in exact] == [("bake", "name"), ("bake", "name")]
    for one in (reasons, exact):
        assert sum(reason.share for reason in one) == pytest.approx(1)


def test_tool_that_does_not_match_has_no_reasons() -> None:
    index = KeywordRanker().fit(BAKERY)
    assert index.reasons(ParsedQuery("fish"), 0) == ()
    assert index.with_catalog(BAKERY.without(["knead"])).reasons(ParsedQuery("knead"), 1) == ()


def test_update_analyzes_only_changed_tools() -> None:
    index = KeywordRanker().fit(BAKERY)
    later = BAKERY.without(["Bake"]).with_tools([Tool("knead", "Press"), Tool("slice", "Cut bread")])
    updated = index.with_catalog(later)
    assert updated.texts[0] is index.texts[0]
    for query in ("bread", "press", "bake"):
        assert find_scores(updated, query) == find_scores(KeywordRanker().fit(later), query)


def test_unrelated_catalog_is_analyzed_completely() -> None:
    other = Catalog([Tool("sweep", "Clean the floor")])
    assert list(find_scores(KeywordRanker().fit(BAKERY).with_catalog(other), "floor")) == ["sweep"]


@given(st.lists(st.sampled_from(["bake", "BREAD", "'dough'", "!"]) | st.text(max_size=6)).map(" ".join))
def test_scores_are_above_zero_and_at_most_one(query: str) -> None:
    index = KeywordRanker().fit(BAKERY)
    ranking = index.rank(ParsedQuery(query))
    assert all(0 < score <= 1 for score in ranking.scores.tolist())
    assert ranking.slots.tolist() == [slot for slot in range(3) if index.reasons(ParsedQuery(query), slot)]
