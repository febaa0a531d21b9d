"""The store returns what was put into it, within its limits."""

from __future__ import annotations

from pathlib import Path
from queue import Queue
from random import Random
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib.errors import InvalidConfig, InvalidStore
from toolcrib.safety.pinning import Pin
from toolcrib.storage import llm_usage, open_store, results
from toolcrib.storage.access import StoredKey
from toolcrib.storage.llm_usage import LlmUsage
from toolcrib.storage.manifests import ServerManifest
from toolcrib.storage.results import StoredResult
from toolcrib.storage.sql_database import CHANGES_MESSAGE, MISSED_MESSAGES
from toolcrib.storage.store import Store
from toolcrib.storage.tool_usage import ToolUsageTotal

DEFINITION = {"name": "send", "description": "Send a mail.", "inputSchema": {"type": "object"}}
CHANGED = {**DEFINITION, "description": "Send a mail to us."}
QUARANTINED = Pin("send", "first", DEFINITION, "changed", 1.0, CHANGED, "second")


def test_manifest_is_returned_verbatim_and_in_order(store: Store) -> None:
    tools = ({"name": "z", "x-odd": [1, 2.0, None]}, {"name": "a", "description": "\ud800 \0 é"})
    manifest = ServerManifest("mail", "id", tools, "how \udfff", "2025-11-25", {"name": "mail"}, 12.5)
    store.put_manifest("mail", manifest)
    assert store.get_manifest("mail") == manifest
    stored = store.get_manifest("mail")
    assert stored
    assert [list(tool) for tool in stored.tools] == [["name", "x-odd"], ["name", "description"]]
    assert store.get_manifest("other") is None
    assert store.list_manifests() == {"mail": manifest}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=4))
def test_any_definition_is_returned_unchanged(store: Store, tools: list[dict[str, Any]]) -> None:
    store.put_manifest("s", ServerManifest("s", "id", tuple(tools)))
    stored = store.get_manifest("s")
    assert stored
    assert list(stored.tools) == tools


def test_forgotten_server_has_no_manifest_and_no_pins(store: Store) -> None:
    store.put_manifest("mail", ServerManifest("mail", "id"))
    store.put_pins("mail", [QUARANTINED])
    store.put_pins("other", [QUARANTINED])
    store.forget_server("mail")
    assert store.get_manifest("mail") is None
    assert store.get_pins("mail") == {}
    assert list(store.list_quarantined()) == ["other"]


def test_quarantined_tools_are_approved_by_tool_or_by_server(store: Store) -> None:
    good = Pin("read", "r", {"name": "read"}, first_seen=1.0)
    store.put_pins("mail", [QUARANTINED, good, Pin("b", "", {}, "changed", 2.0, {"name": "b"}, "new")])
    assert {server: list(pins) for server, pins in store.list_quarantined().items()} == {"mail": ["b", "send"]}
    assert store.approve("mail", "nothing") == []
    assert store.approve("elsewhere") == []
    assert store.approve("mail", "send") == ["send"]
    assert store.get_pins("mail")["send"] == Pin("send", "second", CHANGED, first_seen=1.0)
    assert store.approve("mail") == ["b"]
    assert store.list_quarantined() == {}
    assert store.get_pins("mail")["read"] == good


def test_fingerprint_limits_an_approval_to_the_reviewed_candidate(store: Store) -> None:
    store.put_pins("mail", [QUARANTINED])
    assert store.approve("mail", "send", fingerprint="older") == []
    assert store.get_pins("mail")["send"].state == "changed"
    assert store.approve("mail", "send", fingerprint="second") == ["send"]


def test_late_report_of_a_change_does_not_undo_its_approval(store: Store) -> None:
    store.put_pins("mail", [QUARANTINED])
    store.approve("mail")
    store.put_pins("mail", [QUARANTINED])
    assert store.get_pins("mail")["send"].state == "approved"
    store.put_pins("mail", [Pin("send", "second", CHANGED, "changed", 1.0, DEFINITION, "third")])
    assert store.get_pins("mail")["send"].state == "changed"


def test_revision_changes_only_with_pins(store: Store) -> None:
    revisions = [store.get_revision()]
    store.put_pins("mail", [QUARANTINED])
    revisions.append(store.get_revision())
    store.approve("mail")
    revisions.append(store.get_revision())
    store.forget_server("mail")
    revisions.append(store.get_revision())
    assert len(set(revisions)) == 4
    store.approve("mail")
    store.put_pins("mail", [])
    store.add_calls({"a": ToolUsageTotal(1, 0, 1.0, 1.0)})
    assert store.get_revision() == revisions[-1]


def test_only_a_different_manifest_is_a_change(store: Store) -> None:
    assert store.put_manifest("mail", ServerManifest("mail", "id", seen_at=1.0)) == (1, 0)
    assert store.put_manifest("mail", ServerManifest("mail", "id", seen_at=2.0)) is None
    assert store.put_manifest("mail", ServerManifest("mail", "id", ({"name": "send"},))) == (2, 1)
    assert store.get_revision() == 2


def test_changes_are_listed_in_their_order_with_the_last_of_each_subject(store: Store) -> None:
    store.put_pins("mail", [QUARANTINED])
    store.put_pins("git", [QUARANTINED])
    store.put_profile("team", {}, 1.0)
    store.put_key(StoredKey("1", "hash", "laptop", None, 1.0))
    store.approve("mail")
    changes = store.list_changes(0)
    assert changes == [(2, "server", "git"), (3, "profiles", ""), (4, "keys", ""), (5, "server", "mail")]
    assert store.list_changes(4) == changes[-1:]
    store.delete_key("1")
    store.delete_profile("team")
    store.forget_server("mail")
    assert [change[1:] for change in store.list_changes(5)] == [("keys", ""), ("profiles", ""), ("server", "mail")]
    assert store.list_changes(store.get_revision()) == []


def test_listeners_get_messages(store: Store, store_url: str) -> None:
    messages: Queue[str] = Queue()
    store.listen(messages.put)
    if store_url.startswith("postgresql"):
        # Messages from before the connection were missed.
        assert messages.get(timeout=60) == MISSED_MESSAGES
    store.put_values([], now=1.0, notify="hello")
    store.put_pins("mail", [QUARANTINED])
    assert [messages.get(timeout=60) for _ in range(2)] == ["hello", CHANGES_MESSAGE]


def test_calls_are_summed_by_tool(store: Store) -> None:
    store.add_calls({"a": ToolUsageTotal(2, 1, 10.0, 1.5)})
    store.add_calls({"b": ToolUsageTotal(1, 0, 7.0, 0.25), "a": ToolUsageTotal(1, 0, 6.0, 0.0)})
    store.add_calls({})
    assert store.get_usage() == {"a": ToolUsageTotal(3, 1, 10.0, 1.5), "b": ToolUsageTotal(1, 0, 7.0, 0.25)}


def test_counters_add_up(store: Store) -> None:
    store.add_calls({}, {"searches": 2, "calls": 1})
    store.add_calls({}, {"searches": 3})
    store.add_calls({}, {})
    assert store.get_stats() == {"calls": 1, "searches": 5}


def test_tables_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tool_usage.MAX_USED_TOOLS", "tool_usage.MAX_COUNTERS", "manifests.MAX_SERVERS"):
        monkeypatch.setattr(f"toolcrib.storage.{name}", 10)
    monkeypatch.setattr("toolcrib.storage.store.PRUNE_INTERVAL", 5)
    for number in range(40):
        store.add_calls({f"tool {number}": ToolUsageTotal(1, 0, float(number))})
        store.put_manifest(f"{number}", ServerManifest(f"{number}", "id", seen_at=float(number)))
        store.add_calls({}, {f"counter {number}": 1})
    assert 10 <= len(store.get_usage()) <= 16
    assert "tool 39" in store.get_usage()
    assert sorted(store.list_manifests()) == [str(number) for number in range(30, 40)]
    assert len(store.get_stats()) == 10
    store.add_calls({}, {"counter 3": 1})
    assert store.get_stats()["counter 3"] == 2


def test_pins_of_a_server_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.storage.pins.MAX_PINS_PER_SERVER", 3)
    pins = [Pin(f"tool {number}", "print", {}) for number in range(4)]
    store.put_pins("other", pins[:3])
    store.put_pins("mail", pins[:3])
    with pytest.raises(InvalidStore, match=r"'mail' has listed .* more than 3 different names.*--forget mail"):
        store.put_pins("mail", pins[3:])
    assert len(store.get_pins("mail")) == 3


@pytest.mark.parametrize(
    ("info", "message"),
    [({"odd": {1, 2}}, "not valid JSON"), ({"long": "x" * 200}, r"the limit is 100; make it smaller")],
)
def test_unstorable_manifest_is_rejected(
    store: Store, monkeypatch: pytest.MonkeyPatch, info: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("toolcrib.storage.manifests.MAX_VALUE_BYTES", 100)
    with pytest.raises(InvalidStore, match=message):
        store.put_manifest("mail", ServerManifest("mail", "id", info=info))
    assert store.list_manifests() == {}


def test_lone_surrogate_in_a_name_is_rejected(store: Store) -> None:
    with pytest.raises(InvalidStore, match="half a surrogate pair"):
        store.put_pins("mail", [Pin("bad \ud800", "print", {})])
    with pytest.raises(InvalidStore, match="half a surrogate pair"):
        store.get_pins("\ud800")


def test_closed_store_raises(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(InvalidStore, match="closed; open it again"):
        store.get_usage()


def test_threads_can_share_a_store(store: Store) -> None:
    def write_repeatedly(name: str) -> None:
        for number in range(50):
            store.add_calls({"shared": ToolUsageTotal(1, 0, float(number))})
            store.put_manifest(name, ServerManifest(name, str(number)))
            assert store.get_manifest(name) == ServerManifest(name, str(number))

    threads = [Thread(target=write_repeatedly, args=(f"thread {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get_usage()["shared"].calls == 200


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("toolcrib.db", "use sqlite:///toolcrib.db"),
        ("mysql://host/db", "'mysql' is not supported; use sqlite.* or postgresql://"),
        ("sqlite://toolcrib.db", "three slashes"),
        ("sqlite:///", "three slashes"),
    ],
)
def test_invalid_url_is_rejected_with_an_example(url: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        open_store(url)


def test_url_locates_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    open_store("sqlite:///here.db").close()
    open_store(f"sqlite:///{tmp_path}/there.db").close()
    open_store("sqlite:///~/home.db").close()
    open_store("sqlite:///:memory:").close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"here.db", "there.db", "home.db"}
    assert (tmp_path / "here.db").stat().st_mode & 0o077 == 0


def test_llm_usage_is_added_per_day_key_and_model_and_the_oldest_days_are_deleted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = LlmUsage("2026-11-16", "ann", "opus", 1, 100, 20, 60, 5)
    other_day = LlmUsage("2026-11-17", "ann", "opus", 1, 1, 1, 1, 1)
    store.add_llm_usage([first, other_day, first])
    store.add_llm_usage([first])
    total = LlmUsage("2026-11-16", "ann", "opus", 3, 300, 60, 180, 15)
    assert store.list_llm_usage() == [total, other_day]
    assert store.list_llm_usage("2026-11-17") == [other_day]
    monkeypatch.setattr(llm_usage, "MAX_USAGE_ROWS", 2)
    newest = LlmUsage("2026-11-18", "bob", "haiku", 1)
    store.add_llm_usage([newest])
    assert store.list_llm_usage() == [other_day, newest]


def test_result_is_read_only_by_its_owner_until_it_expires(store: Store) -> None:
    result = StoredResult("res_1", "ann", "mail___list", "row \ud800 é\n" * 1000, created=10.0, expires=20.0)
    store.put_result(result, max_bytes=10**6)
    assert store.get_result("res_1", "ann", now=19.0) == result
    assert store.get_result("res_1", "bob", now=19.0) is None
    assert store.get_result("res_2", "ann", now=19.0) is None
    assert store.get_result("res_1", "ann", now=20.0) is None
    store.put_result(StoredResult("res_2", "bob", "mail___list", "x", created=30.0, expires=40.0), max_bytes=10**6)
    assert store.get_result("res_1", "ann", now=10.0) is None


def test_oldest_results_are_deleted_over_the_limit_of_bytes(store: Store) -> None:
    random = Random(7)
    for number in range(5):
        text = "".join(random.choices("abcdefghijklmnop", k=4000))
        result = StoredResult(f"res_{number}", "ann", "t", text, created=float(number), expires=99.0)
        store.put_result(result, max_bytes=5000)
    kept = [number for number in range(5) if store.get_result(f"res_{number}", "ann", now=5.0)]
    assert kept == [3, 4]


def test_owner_with_many_results_does_not_delete_those_of_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_RESULTS_PER_OWNER", 3)
    store.put_result(StoredResult("bob", "bob", "t", "x", created=0.0, expires=99.0), max_bytes=10**6)
    for number in range(6):
        store.put_result(
            StoredResult(f"{number}", "ann", "t", "x", created=1.0 + number, expires=99.0), max_bytes=10**6
        )
    assert store.get_result("bob", "bob", now=9.0)
    assert [n for n in range(6) if store.get_result(f"{n}", "ann", now=9.0)] == [3, 4, 5]


def test_vectors_are_read_in_bulk_and_the_oldest_are_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = {number.to_bytes(16): bytes([number % 256]) * 8 for number in range(1200)}
    store.put_vectors(vectors)
    assert store.get_vectors([*vectors, b"unknown"]) == vectors
    assert store.get_vectors([]) == {}
    monkeypatch.setattr("toolcrib.storage.vectors.MAX_SHARED_VECTORS", 2)
    monkeypatch.setattr("toolcrib.storage.store.VECTOR_PRUNE_INTERVAL", 0)
    store.put_vectors({b"new": b"1", b"newer": b"2"})
    assert store.get_vectors([*vectors, b"new", b"newer"]) == {b"new": b"1", b"newer": b"2"}
    store.put_vectors({b"new": b"3"})
    assert store.get_vectors([b"new"]) == {b"new": b"3"}


def test_tokens_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.storage.oauth_tokens.MAX_STORED_TOKENS", 1)
    store.put_token("one", b"a")
    store.put_token("one", b"b")
    with pytest.raises(InvalidStore, match="which is the limit"):
        store.put_token("two", b"c")
    assert store.list_tokens() == {"one": b"b"}
