"""A store is copied between SQLite and PostgreSQL with every row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from toolcrib.cli.main import toolcrib
from toolcrib.errors import InvalidStore
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store
from toolcrib.storage.access import StoredKey
from toolcrib.storage.audit import AuditFilter, AuditRow
from toolcrib.storage.manifests import ServerManifest
from toolcrib.storage.shared_values import SharedValue
from toolcrib.storage.sql_database import COPIED_TABLES
from toolcrib.storage.store import Store
from toolcrib.storage.tool_usage import ToolUsageTotal

DEFINITION = {"name": "send", "description": "Send \ud83d\udce8 a mail: 100 % of them?"}
# Tables with a version, and one that no version uses any more.
OTHER_TABLES = {"revision", "schema_version", "sessions", "sqlite_sequence"}


def fill(store: Store) -> None:
    store.put_manifest("mail", ServerManifest("mail", "id", (DEFINITION,), seen_at=1.5, scan="{}"))
    store.put_pins("mail", [Pin(f"tool {n}", "f", DEFINITION, "changed", 0.5, DEFINITION, "g") for n in range(450)])
    store.append_audit([AuditRow("search", at=float(n), details={"query": "é"}) for n in range(450)], durable=True)
    store.put_key(StoredKey("1", "hash", "laptop", None, 1.0, "me"))
    store.put_profile("team", {"servers": ["mail"]}, 1.0)
    store.add_calls({"mail___send": ToolUsageTotal(3, 1, 2.0, 0.25)}, {"searches": 7})
    store.put_token("mail", b"\x00\xff token")
    store.put_vectors({b"\x00\x01": b"\xff\x00", b"\x02": b""})
    store.put_values([SharedValue("lease", "a", "body", 4e9)], now=1.0)


def read(store: Store) -> list[object]:
    return [
        store.list_manifests(),
        store.get_pins("mail"),
        store.list_audit(AuditFilter(after=0), 1_000),
        store.list_keys(),
        store.list_profiles(),
        store.get_usage(),
        store.get_stats(),
        store.list_tokens(),
        store.get_vectors([b"\x00\x01", b"\x02"]),
        store.get_revision(),
        store.list_changes(0),
    ]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'first.db'}"
    with closing(open_store(url)) as store:
        fill(store)
    return url


def test_store_moves_to_postgresql_and_back(sqlite_url: str, postgres_url: str, tmp_path: Path) -> None:
    back_url = f"sqlite:///{tmp_path / 'back.db'}"
    result = CliRunner().invoke(toolcrib, ["store", "copy", sqlite_url, postgres_url])
    assert result.exit_code == 0, result.output
    assert "pins: 450 rows" in result.output and "audit: 450 rows" in result.output
    assert CliRunner().invoke(toolcrib, ["store", "copy", postgres_url, back_url, "--json"]).exit_code == 0
    with (
        closing(open_store(sqlite_url)) as first,
        closing(open_store(postgres_url)) as moved,
        closing(open_store(back_url)) as back,
    ):
        assert read(moved) == read(first)
        assert read(back) == read(first)
        # New rows follow after the copied ones.
        for store in (moved, back):
            store.append_audit([AuditRow("call", at=999.0)], durable=True)
            assert [row.id for row in store.list_audit(AuditFilter(after=449), 10)] == [450, 451]


def test_target_with_rows_is_refused_and_not_changed(sqlite_url: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'second.db'}"
    with closing(open_store(target)) as store:
        store.put_profile("other", {}, 1.0)
    result = CliRunner().invoke(toolcrib, ["store", "copy", sqlite_url, target])
    assert result.exit_code == 1
    assert "the target is not empty" in result.output
    with closing(open_store(target)) as store:
        assert list(store.list_profiles()) == ["other"]
        assert store.list_manifests() == {}


def test_failed_copy_leaves_the_target_empty(sqlite_url: str, postgres_url: str) -> None:
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("INSERT INTO counters (name, amount) VALUES ('a' || char(0), 1)")
    with closing(open_store(sqlite_url)) as source, closing(open_store(postgres_url)) as target:
        with pytest.raises(InvalidStore, match="NUL"):
            source.copy_to(target)
        assert target.list_manifests() == {}
        assert target.list_audit(AuditFilter(), 10) == []


def test_unknown_source_and_the_same_store_are_refused(sqlite_url: str, tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path / 'missing.db'}"
    assert "no such file" in CliRunner().invoke(toolcrib, ["store", "copy", missing, sqlite_url]).output
    assert "the same store" in CliRunner().invoke(toolcrib, ["store", "copy", sqlite_url, sqlite_url]).output


def test_every_table_and_column_is_copied(sqlite_url: str, postgres_url: str) -> None:
    copied = {name: {*table.key, *table.values} for name, table in COPIED_TABLES.items()}
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        columns = {
            name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")} for name in names - OTHER_TABLES
        }
    assert columns == copied
    open_store(postgres_url).close()
    with psycopg.connect(postgres_url) as server:
        query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'toolcrib'"
        found: dict[str, set[str]] = {}
        for name, column in server.execute(query):
            found.setdefault(name, set()).add(column)
    assert {name: columns for name, columns in found.items() if name not in OTHER_TABLES} == copied
