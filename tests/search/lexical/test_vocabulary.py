from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.search.lexical.vocabulary import Vocabulary


def _vocabulary(terms: list[str]) -> Vocabulary:
    vocabulary = Vocabulary()
    for term in terms:
        vocabulary.get_or_add(term)
    return vocabulary


def _correct(vocabulary: Vocabulary, word: str) -> list[str]:
    return vocabulary.find_corrections(word, lambda term: True)


def test_unaccepted_term_does_not_hide_an_accepted_one() -> None:
    vocabulary = _vocabulary(["transcribf", "transcribing"])
    assert _correct(vocabulary, "transcribe") == ["transcribf"]
    assert vocabulary.find_corrections("transcribi", lambda term: term != "transcribf") == ["transcribing"]


# Enough terms that the vocabulary sorts most of them and leaves only the last ones unsorted.
FILLERS = [f"filler{number}" for number in range(150)]


@pytest.mark.parametrize("before", [[], FILLERS], ids=["fresh", "sorted"])
@pytest.mark.parametrize("after", [[], ["late"]], ids=["alone", "with a late term"])
def test_terms_are_found_by_prefix_substring_and_edit_distance(before: list[str], after: list[str]) -> None:
    vocabulary = _vocabulary([*before, "email", "emails", "invoice", "salesforce", "transcribe"])
    assert set(vocabulary.find_by_prefix("em")) == {"email", "emails"}
    for term in after:
        vocabulary.get_or_add(term)
    assert set(vocabulary.find_by_prefix("email")) == {"email", "emails"}
    assert set(vocabulary.find_by_prefix("zz")) == set()
    assert set(vocabulary.find_containing("force")) == {"salesforce"}
    assert _correct(vocabulary, "emial") == ["email"]
    assert _correct(vocabulary, "invoise") == ["invoice"]
    assert _correct(vocabulary, "trascibe") == ["transcribe"]
    assert _correct(vocabulary, "ema") == []
    assert set(vocabulary.find_by_prefix("lat")) == set(after)


def test_term_keeps_its_number() -> None:
    vocabulary = _vocabulary(["a", "b", "a"])
    assert vocabulary.get_or_add("a") == vocabulary.get("a") == 0
    assert vocabulary.get_or_add("b") == 1
    assert vocabulary.get("c") is None


_words = st.text("abcd", min_size=4, max_size=9)


def _misspell(word: str, kind: int, at: int, letter: str) -> str:
    at %= len(word)
    return (
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
        word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
    )[kind]


@given(_words, st.integers(0, 3), st.integers(0, 8), st.sampled_from("abcdé"), st.booleans())
def test_any_single_edit_is_recognized(word: str, kind: int, at: int, letter: str, is_sorted: bool) -> None:
    misspelled = _misspell(word, kind, at, letter)
    vocabulary = _vocabulary([word, *(FILLERS if is_sorted else ())])
    if len(misspelled) >= 4:
        assert word in _correct(vocabulary, misspelled)
