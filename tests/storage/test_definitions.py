"""Earlier definitions, rejections, example requests and saved queries in the store."""

from __future__ import annotations

import pytest

from toolcrib.errors import InvalidStore
from toolcrib.safety.pinning import Pin
from toolcrib.storage import definitions
from toolcrib.storage.definitions import SavedQuery, StoredRequests
from toolcrib.storage.store import Store

FIRST, SECOND, THIRD = ({"name": "send", "description": text} for text in ("one", "two", "three"))


def test_replaced_definitions_are_kept(store: Store) -> None:
    store.put_pins("mail", [Pin("send", "1", FIRST)])
    store.put_pins("mail", [Pin("send", "1", FIRST, "changed", 0.0, SECOND, "2")])
    assert store.list_definition_versions("mail", "send") == []
    store.approve("mail")
    store.put_pins("mail", [Pin("send", "3", THIRD)])
    versions = store.list_definition_versions("mail", "send")
    assert [(each.fingerprint, each.definition) for each in versions] == [("2", SECOND), ("1", FIRST)]
    assert versions[0].replaced_at >= versions[1].replaced_at
    store.forget_server("mail")
    assert store.list_definition_versions("mail", "send") == []


def test_oldest_versions_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MAX_VERSIONS_PER_TOOL", 2)
    for number in range(5):
        store.put_pins("mail", [Pin("send", str(number), {"number": number})])
    assert [each.fingerprint for each in store.list_definition_versions("mail", "send")] == ["3", "2"]


def test_rejection_is_for_one_candidate(store: Store) -> None:
    store.put_pins("mail", [Pin("send", "1", FIRST, "changed", 0.0, SECOND, "2")])
    assert not store.reject("mail", "send", "another")
    assert store.reject("mail", "send", "2")
    assert store.list_rejections() == {("mail", "send", "2")}
    assert store.approve("mail", "send", fingerprint="2") == ["send"]


def test_saved_query_replaces_one_with_the_same_text(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_saved_query(SavedQuery("send a mail", ("mail__send",), 1.0))
    store.put_saved_query(SavedQuery("send a mail", ("mail__send", "post__send"), 2.0))
    store.put_saved_query(SavedQuery("make coffee", (), 3.0))
    assert [each.tools for each in store.list_saved_queries()] == [("mail__send", "post__send"), ()]
    assert store.delete_saved_query("make coffee") and not store.delete_saved_query("make coffee")
    monkeypatch.setattr(definitions, "MAX_SAVED_QUERIES", 1)
    with pytest.raises(InvalidStore, match="delete one first"):
        store.put_saved_query(SavedQuery("another", (), 4.0))
    assert len(store.list_saved_queries()) == 1


def test_example_requests_replace_earlier_ones_and_are_announced(store: Store) -> None:
    revision = store.get_revision()
    store.put_example_requests([StoredRequests("f1", "mail__send", ("write to Ann",), "small", 1.0)])
    store.put_example_requests(
        [
            StoredRequests("f2", "mail__read", ("what is new?",), "small", 2.0),
            StoredRequests("f1", "mail__send", ("write to Bob", "answer Ann"), "small", 3.0),
        ]
    )
    assert store.list_example_requests() == {"f1": ("write to Bob", "answer Ann"), "f2": ("what is new?",)}
    assert [change.topic for change in store.list_changes(revision)] == ["requests"]


def test_oldest_example_requests_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MAX_ENRICHED_TOOLS", 2)
    for number in range(4):
        store.put_example_requests([StoredRequests(f"f{number}", "t", ("a request",), "small", float(number))])
    assert sorted(store.list_example_requests()) == ["f2", "f3"]
