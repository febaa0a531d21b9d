from __future__ import annotations

import pytest

from toolcrib.search.lexical.spelling import correct_spelling

KNOWN = {"invoice", "customer", "message", "channel", "calendar", "project", "table"}


def _correct(query: str) -> dict[str, str]:
    return correct_spelling(query, lambda word: word not in KNOWN)


@pytest.mark.parametrize(
    ("query", "corrections"),
    [
        ("Mesage to John", {"Mesage": "message"}),
        # Two swapped letters are likelier than a wrong one.
        ("open the talbe", {"talbe": "table"}),
        # A stop word is in no tool.
        ("thier new invoice", {"thier": "their"}),
        ("a custoomer is new", {"custoomer": "customer"}),
    ],
)
def test_misspelled_word_of_a_short_query_is_corrected(query: str, corrections: dict[str, str]) -> None:
    assert _correct(query) == corrections


def test_misspelled_words_of_a_longer_query_are_corrected() -> None:
    query = "please send it to the custoner and post a mesage in our calandar or tabble"
    # Three words at most are corrected.
    assert _correct(query) == {"custoner": "customer", "mesage": "message", "calandar": "calendar"}


@pytest.mark.parametrize(
    "query",
    [
        "send invocie",
        "send the invoice to our best customer",
        # Forms of English words, and English words that no tool contains.
        "who has been tabling the motion about refunders lately",
        # Names, paths and identifiers.
        "what does MesAge say about the file invocie.txt and my-mesage",
        # No tool contains a similar word.
        "what does the grunge singer say about the phishing mail",
        # Another ending.
        "the custome of the projec was not there today",
    ],
)
def test_other_words_are_not_corrected(query: str) -> None:
    assert _correct(query) == {}
