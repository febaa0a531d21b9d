from __future__ import annotations

import pytest

from toolcrib import Catalog, Tool
from toolcrib.search.lexical.exact_name import NameIndex, NameMatch


@pytest.fixture
def index(office: Catalog) -> NameIndex:
    return NameIndex.fit(office)


@pytest.mark.parametrize(
    ("query", "slots", "only"),
    [
        ("send_email", [0], True),
        ("`send_email`", [0], True),
        ('"send-email".', [0], True),
        ("sendEmail", [0], True),
        ("mail___send_email", [0], True),
        ("mail.sendEmail", [0], True),
        ("send email", [0], False),
        ("Send Email", [0], False),
        ("refund", [5], False),
        ("create_invoice", [3], True),
        ("send_email read_email", [0, 1], True),
        ("send_email, createInvoice and 'list-invoices'", [0, 3, 4], True),
        ("read_email send_email", [1, 0], True),
        ("refund, search", [5, 11], False),
        ("Übersetzen", [10], False),
    ],
)
def test_name_is_matched_in_every_case_style(index: NameIndex, query: str, slots: list[int], only: bool) -> None:
    assert index.match_names(query) == NameMatch(slots, only)


@pytest.mark.parametrize(
    "query", ["send an email", "refund the charge", "search for files", "???", "send_email now", "x", "refund search"]
)
def test_query_with_other_words_is_not_a_name(index: NameIndex, query: str) -> None:
    assert index.match_names(query) is None


def test_same_name_on_two_servers_matches_both_tools() -> None:
    index = NameIndex.fit(Catalog([Tool("get_file", server="a"), Tool("get_file", server="b")]))
    assert index.match_names("getFile") == NameMatch([0, 1], True)
    assert index.match_names("b___get_file") == NameMatch([1], True)


def test_name_index_follows_catalog_changes() -> None:
    catalog = Catalog([Tool("get_file"), Tool("put_file")])
    index = NameIndex.fit(catalog)
    later = catalog.with_tools([Tool("new_file")]).without(["put_file"])
    index = index.with_catalog(later)
    assert index.match_names("newFile") == NameMatch([2], True)
    assert index.match_names("putFile") is None
    assert index.match_names("getFile") == NameMatch([0], True)
    again = later.with_tools([Tool("put_file")])
    assert index.with_catalog(again).match_names("putFile") == NameMatch([3], True)
    other = Catalog([Tool("other_file")])
    assert index.with_catalog(other).match_names("otherFile") == NameMatch([0], True)


def test_tool_that_changes_often_is_matched_once() -> None:
    catalog = Catalog([Tool("get_file")])
    index = NameIndex.fit(catalog)
    for number in range(50):
        catalog = catalog.with_tools([Tool("get_file", str(number))])
        index = index.with_catalog(catalog)
    assert index.changed_names == 1
    assert index.match_names("getFile") == NameMatch([0], True)


def test_name_without_letters_is_matched() -> None:
    index = NameIndex.fit(Catalog([Tool("🔥"), Tool("💧")]))
    assert index.match_names("💧") == NameMatch([1], False)


def test_many_changes_fit_the_index_again() -> None:
    catalog = Catalog([Tool("get_file")])
    index = NameIndex.fit(catalog)
    for number in range(2_100):
        catalog = catalog.with_tools([Tool(f"t_{number}")])
        index = index.with_catalog(catalog)
    assert index.changed_names <= 1_001
    assert index.match_names("T2099") == NameMatch([2_100], False)
    assert index.match_names("t_7") == NameMatch([8], True)
