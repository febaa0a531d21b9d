from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.ranking.needs import MAX_NEEDS, names, needs


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("resize a picture", ("resize a picture",)),
        ("", ("",)),
        ("find the invoice and mail it to Ann", ("find the invoice", "mail it to Ann")),
        # What joins the things of one need does not part needs.
        ("book a flight from Lisbon and Porto", ("book a flight from Lisbon and Porto",)),
        # What asks for nothing is told of the next request, or of the last.
        ("the car is dirty. Wash it. Then sell it.", ("the car is dirty Wash it", "sell it")),
        ("wash the car, then sell it; nobody drives", ("wash the car", "sell it nobody drives")),
        # Said once, it is meant for all.
        (
            "in Jira: open a ticket, then assign it to me",
            ("in Jira: open a ticket", "in Jira: assign it to me"),
        ),
        ("please stop, could you start again?", ("please stop", "could you start again")),
        # A word that joins needs no room around it, and a full stop does.
        ("sort the files/AND/list them", ("sort the files/", "/list them")),
        ("list parser.py or run it?", ("list parser.py or run it?",)),
    ],
)
def test_a_query_is_cut_where_a_request_begins(query: str, expected: tuple[str, ...]) -> None:
    assert needs(query) == expected


def test_there_are_only_so_many_needs() -> None:
    assert len(needs(". ".join(["send one letter"] * 50))) == MAX_NEEDS


@given(st.text())
def test_every_text_has_a_need_and_none_is_lost(query: str) -> None:
    found = needs(query)
    assert found
    assert found == (query,) or len(found) > 1


def test_names_are_told_by_their_capitals_but_for_the_first_word() -> None:
    assert names("Send it to our Telegram group in Oslo. Then call Bo") == (
        "Telegram",
        "Oslo",
        "Bo",
    )
    assert names("send a mail") == ()
