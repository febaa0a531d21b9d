from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.lexical.scores import find_scores
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.lexical import prefix
from toolcrib.search.lexical.prefix import PrefixRanker
from toolcrib.search.query.parser import ParsedQuery

LIBRARY = Catalog(
    [
        Tool("lend_book", "Give a book to a reader", tags=["lending", "out desk"]),
        Tool("find", "Find books by title"),
        Tool("Fine", "Ask for money"),
    ]
)


def test_words_are_distinct_and_keep_their_underscores() -> None:
    assert prefix.distinct_words("Send_Email, send e-mail e") == ("send_email", "send", "e", "mail")
    assert prefix.tool_words(LIBRARY["lend_book"])[:2] == ("lend_book", "give")
    assert prefix.tool_words(LIBRARY["lend_book"])[-3:] == ("lending", "out", "desk")


def test_whole_word_counts_one_and_each_longer_word_half() -> None:
    assert PrefixRanker().fit(LIBRARY).tally_points("book") == {0: 1.0, 1: 0.5}
    assert PrefixRanker().fit(LIBRARY).tally_points("lend") == {0: 1.0}
    assert PrefixRanker().fit(LIBRARY).tally_points("f f") == {1: 0.5, 2: 1.0}


def test_whole_words_are_found_before_longer_ones() -> None:
    postings = {"booking": ["a"], "bookings": ["a"], "book": ["b"], "boo": ["c"]}
    assert list(prefix.tally_points(["book"], postings).items()) == [("b", 1.0), ("a", 1.0)]


def test_scores_are_relative_to_one_point_per_word() -> None:
    index = PrefixRanker().fit(LIBRARY)
    assert find_scores(index, "book money") == {"lend_book": 0.5, "find": 0.25, "Fine": 0.5}
    assert find_scores(index, "find title book by") == {"lend_book": 0.25, "find": 0.875}
    assert find_scores(index, "l") == {"lend_book": 1.0}


@pytest.mark.parametrize("query", ["", " ", "?!", "zebra"])
def test_query_without_matching_words_finds_nothing(query: str) -> None:
    index = PrefixRanker().fit(LIBRARY)
    assert find_scores(index, query) == {}
    assert index.reasons(ParsedQuery(query), 0) == ()


def test_reasons_name_word_and_field_and_add_up() -> None:
    reasons = PrefixRanker().fit(LIBRARY).reasons(ParsedQuery("lend reader"), 0)
    assert [(reason.term, reason.field) for reason in reasons] == [
        ("lend_book", "name"),
        ("lending", "tags"),
        ("reader", "description"),
    ]
    assert sum(reason.share for reason in reasons) == pytest.approx(1)


def test_empty_slot_has_no_reasons() -> None:
    later = LIBRARY.without(["lend_book"])
    assert PrefixRanker().fit(LIBRARY).with_catalog(later).reasons(ParsedQuery("book"), 0) == ()


def test_update_changes_only_the_words_of_changed_tools() -> None:
    index = PrefixRanker().fit(LIBRARY)
    later = LIBRARY.without(["Fine"]).with_tools([Tool("find", "Search"), Tool("sell", "Sell a book")])
    updated = index.with_catalog(later)
    assert updated.postings["lending"] is index.postings["lending"]
    assert updated.postings["book"] == (0, 3)
    assert "money" not in updated.postings and "books" not in updated.postings
    assert dict(updated.postings) == dict(PrefixRanker().fit(later).postings)


def test_unrelated_catalog_is_analyzed_completely() -> None:
    other = Catalog([Tool("shelve", "Put books away")])
    assert find_scores(PrefixRanker().fit(LIBRARY).with_catalog(other), "lend put") == {"shelve": 0.5}


@given(st.text("abefiklnot _?", max_size=12) | st.text(max_size=12))
def test_scores_are_above_zero_and_at_most_one(query: str) -> None:
    index = PrefixRanker().fit(LIBRARY)
    ranking = index.rank(ParsedQuery(query))
    assert all(0 < score <= 1 for score in ranking.scores.tolist())
    assert ranking.slots.tolist() == [slot for slot in range(3) if index.reasons(ParsedQuery(query), slot)]
