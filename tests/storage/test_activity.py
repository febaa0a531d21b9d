"""The store keeps audit rows, time series, API keys and access profiles, within their limits."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from toolcrib.errors import InvalidStore
from toolcrib.files.sqlite_file import open_connection
from toolcrib.storage import access, open_store, time_series
from toolcrib.storage.access import KeyBudget, KeyUsage, StoredKey
from toolcrib.storage.audit import AuditFilter, AuditRow
from toolcrib.storage.store import Store
from toolcrib.storage.time_series import SeriesAmount

DAY = 86_400.0


def test_audit_rows_are_returned_unchanged_and_newest_first(store: Store) -> None:
    call = AuditRow(
        "call", "error", 5.0, "laptop", "ann", "team", "cursor", "s1", "mail", "mail___send", 0.5, 10, 20, "r1"
    )
    search = AuditRow("search", at=6.0, details={"query": "half \ud800 a pair \0", "hits": ["a", "b"]})
    store.append_audit([call])
    store.append_audit([search], durable=True)
    stored = store.list_audit(AuditFilter(), 10)
    assert [row.id for row in stored] == [2, 1]
    assert [{**row.to_json(), "id": 0} for row in stored] == [search.to_json(), call.to_json()]
    assert [row.id for row in store.list_audit(AuditFilter(), 1)] == [2]


def test_audit_row_with_unstorable_text_is_kept(store: Store) -> None:
    store.append_audit([AuditRow("call", at=1.0, client="é \ud800 \0", tool="\0")])
    (row,) = store.list_audit(AuditFilter(), 10)
    assert (row.client, row.tool) == ("é ? \ufffd", "\ufffd")


def test_audit_rows_are_selected_by_every_field(store: Store) -> None:
    rows = [
        AuditRow("call", "ok", 1.0, key="Laptop", client="claude-code", server="mail", tool="mail___send"),
        AuditRow("call", "error", 2.0, client="cursor", server="git", tool="git___push", session="one"),
        AuditRow("search", "ok", 3.0, client="cursor", session="one"),
    ]
    store.append_audit(rows)

    def ids(**fields: object) -> list[int]:
        return [row.id for row in store.list_audit(AuditFilter(**fields), 10)]  # type: ignore[arg-type]

    assert ids(action="call") == [2, 1]
    assert ids(outcome="error") == [2]
    assert ids(key="lapt") == [1]
    assert ids(client="CURSOR") == [3, 2]
    assert ids(client="cur%") == []
    assert ids(session="one", action="call") == [2]
    assert ids(server="mail") == [1] and ids(server="mai") == []
    assert ids(tool="push") == [2]
    assert ids(since=2.0) == [3, 2] and ids(until=2.0) == [1]
    assert ids(before=3) == [2, 1]
    # Rows after an id come in the order in which they were written.
    assert ids(after=1) == [2, 3]


def test_old_and_surplus_audit_rows_are_deleted(store: Store) -> None:
    store.append_audit([AuditRow("call", at=float(number)) for number in range(10)])
    assert store.prune_audit(before=3.0, max_rows=100) == 3
    assert store.prune_audit(before=0.0, max_rows=4) == 3
    assert [row.at for row in store.list_audit(AuditFilter(), 20)] == [9.0, 8.0, 7.0, 6.0]
    store.append_audit([AuditRow("call")])
    # Ids are not used twice, because clients continue after the last id that they know.
    assert store.list_audit(AuditFilter(), 1)[0].id == 11


def test_stored_audit_rows_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "toolcrib.db"
    store = open_store(f"sqlite:///{path}")
    store.append_audit([AuditRow("call")])
    with (
        closing(open_connection(str(path))) as connection,
        pytest.raises(Exception, match="audit rows cannot be changed"),
    ):
        connection.execute("UPDATE audit SET outcome = 'ok'")
    store.close()


_WRITER = """
import sys
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditRow
store = open_store(sys.argv[1])
number = int(sys.argv[2])
while True:
    number += 1
    store.append_audit([AuditRow("approval", tool=str(number))], durable=number % 2 == 0)
    print(number, flush=True)
"""


def test_killed_writer_loses_no_acknowledged_audit_row(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'toolcrib.db'}"
    written = 0
    for kill_after in (1, 7, 30):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, url, str(written)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout
            for _ in range(kill_after):
                written = int(writer.stdout.readline())
            writer.kill()
            for line in writer.stdout:
                written = int(line)
        store = open_store(url)
        numbers = [int(row.tool) for row in reversed(store.list_audit(AuditFilter(), 1_000_000))]
        store.close()
        # The row that was written when the process was killed may be there or not.
        assert sorted(set(numbers)) in (list(range(1, written + 1)), list(range(1, written + 2)))


def test_amounts_are_summed_by_minute_hour_and_day(store: Store) -> None:
    start = 10 * DAY
    store.append_audit(
        [],
        series=[
            SeriesAmount(start + 1, "cursor", "calls", 2),
            SeriesAmount(start + 59, "cursor", "calls", 1),
            SeriesAmount(start + 60, "cursor", "calls", 4),
            SeriesAmount(start + 60, "", "calls", 8),
        ],
    )
    store.append_audit(
        [], series=[SeriesAmount(start + 3_600, "cursor", "calls", 16), SeriesAmount(start, "cursor", "errors", 1)]
    )
    assert store.list_series("minute", start + 61) == [
        SeriesAmount(start + 60, "", "calls", 8),
        SeriesAmount(start + 60, "cursor", "calls", 4),
        SeriesAmount(start + 3_600, "cursor", "calls", 16),
    ]
    hours = [amount for amount in store.list_series("hour", start) if amount.name == "calls"]
    assert [(amount.at - start, amount.client, amount.amount) for amount in hours] == [
        (0.0, "", 8),
        (0.0, "cursor", 7),
        (3_600.0, "cursor", 16),
    ]
    days = {(amount.client, amount.name): amount.amount for amount in store.list_series("day", 0.0)}
    assert days == {("", "calls"): 8, ("cursor", "calls"): 23, ("cursor", "errors"): 1}


def test_old_steps_are_deleted_and_coarse_ones_are_kept_longer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5_000 * DAY
    for age_days in (0, 2, 100, 2_000):
        store.append_audit([], series=[SeriesAmount(now - age_days * DAY, "", "calls", 1)])
    store.prune_series(now)
    assert [len(store.list_series(resolution, 0.0)) for resolution in ("minute", "hour", "day")] == [1, 2, 3]
    monkeypatch.setattr(time_series, "MAX_SERIES_ROWS", 4)
    store.prune_series(now)
    assert [len(store.list_series(resolution, 0.0)) for resolution in ("minute", "hour", "day")] == [0, 1, 3]


def test_keys_are_stored_and_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    laptop = StoredKey("k1", "a" * 64, "laptop", None, 1.0, "ann")
    team = StoredKey("k2", "b" * 64, "team", "readers", 2.0)
    store.put_key(team)
    store.put_key(laptop)
    assert store.list_keys() == [laptop, team]
    budget = KeyBudget(tokens_per_day=10**12, requests_per_day=0)
    assert store.set_key_budget("k2", budget) and not store.set_key_budget("k3", budget)
    team = replace(team, budget=budget)
    assert store.list_keys() == [laptop, team]
    store.add_key_usage([KeyUsage("a" * 64, 3, 10.0), KeyUsage("c" * 64, 1, 5.0)])
    store.add_key_usage([KeyUsage("a" * 64, 1, 9.0)])
    assert store.get_key_usage()["a" * 64] == KeyUsage("a" * 64, 4, 10.0)
    assert store.delete_key("k1") and not store.delete_key("k1")
    assert store.list_keys() == [team]
    assert set(store.get_key_usage()) == {"c" * 64}
    monkeypatch.setattr(access, "MAX_STORED_KEYS", 1)
    with pytest.raises(InvalidStore, match="1 keys, which is the limit; revoke one"):
        store.put_key(laptop)


def test_access_profiles_are_stored_replaced_and_deleted(store: Store) -> None:
    store.put_profile("readers", {"servers": ["git"]}, 1.0)
    store.put_profile("readers", {"tools": ["*read*"]}, 2.0)
    store.put_profile("all", {}, 3.0)
    assert store.list_profiles() == {"all": {}, "readers": {"tools": ["*read*"]}}
    assert store.delete_profile("all") and not store.delete_profile("all")
    assert list(store.list_profiles()) == ["readers"]


def test_amounts_of_two_minutes_are_summed_by_hour(store: Store) -> None:
    amounts = [SeriesAmount(float(at), "agent", "calls", 2) for at in (60, 61, 120)]
    store.append_audit([], series=amounts)
    store.append_audit([], series=amounts)
    assert [each.amount for each in store.list_series("minute", 0.0)] == [8, 4]
    assert [each.amount for each in store.list_series("hour", 0.0)] == [12]


def test_keys_that_were_unused_for_longest_are_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_STORED_KEYS", 1)
    store.add_key_usage([KeyUsage(name * 64, 1, float(at)) for at, name in enumerate("abcd")])
    assert sorted(store.get_key_usage()) == ["c" * 64, "d" * 64]
