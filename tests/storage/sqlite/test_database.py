"""The store's file survives killed writers, damage, other processes and a full disk."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from toolcrib.errors import InvalidStore
from toolcrib.files.sqlite_file import SqliteFileType, migrate_file, open_connection
from toolcrib.safety.pinning import Pin
from toolcrib.storage.manifests import ServerManifest
from toolcrib.storage.sqlite import database
from toolcrib.storage.sqlite.database import SqliteDatabase
from toolcrib.storage.store import Store
from toolcrib.storage.tool_usage import ToolUsageTotal


def open_file(path: str) -> Store:
    return Store(SqliteDatabase(path))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "toolcrib.db")


_COUNTER = """
import sys
from toolcrib.storage import open_store
from toolcrib.storage.tool_usage import ToolUsageTotal
store = open_store(f"sqlite:///{sys.argv[1]}")
for number in range(100):
    store.add_calls({"shared": ToolUsageTotal(1, 0, 1.0, 1.0)})
    store.add_calls({}, {"searches": 1})
store.close()
"""


def test_processes_can_create_and_share_a_file(path: str) -> None:
    command = [sys.executable, "-c", _COUNTER, path]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    with closing(open_file(path)) as store:
        assert store.get_usage()["shared"].calls == 400
        assert store.get_stats() == {"searches": 400}


def test_approval_in_another_process_changes_the_revision(path: str) -> None:
    with closing(open_file(path)) as gateway, closing(open_file(path)) as command:
        gateway.put_pins("mail", [Pin("send", "a", {}, "changed", 0.0, {"name": "send"}, "b")])
        before = gateway.get_revision()
        assert command.approve("mail") == ["send"]
        assert gateway.get_revision() != before
        assert gateway.get_pins("mail")["send"].fingerprint == "b"


def _list_files(path: str) -> list[str]:
    return sorted(file.name for file in Path(path).parent.iterdir())


def _fill_store(path: str) -> None:
    with closing(open_file(path)) as store:
        store.put_manifest("mail", ServerManifest("mail", "id", ({"name": "x" * 40_000},)))
        store.put_pins("mail", [Pin(f"tool {n}", "f", {"text": "y" * 500}) for n in range(50)])


@pytest.mark.parametrize("damage_type", ["head", "middle", "cut", "zero"])
def test_damaged_file_is_moved_and_reported(path: str, damage_type: str, caplog: pytest.LogCaptureFixture) -> None:
    _fill_store(path)
    file = Path(path)
    content = bytearray(file.read_bytes())
    if damage_type == "head":
        content[:200] = b"\xff\x00" * 100
    elif damage_type == "middle":
        content[4096:] = b"\xaa" * (len(content) - 4096)
    elif damage_type == "cut":
        del content[len(content) // 2 :]
    else:
        content[:] = bytes(len(content))
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING), closing(open_file(path)) as store:
        assert store.list_manifests() == {}
        store.put_manifest("mail", ServerManifest("mail", "id"))
        assert "toolcrib.db.damaged-1" in store.notice
        assert "trusted on first use" in store.notice
    assert store.notice in caplog.text
    assert Path(f"{path}.damaged-1").read_bytes() == content
    with closing(open_file(path)) as store:
        assert store.notice == ""
        assert list(store.list_manifests()) == ["mail"]


def test_second_damaged_file_does_not_overwrite_the_first(path: str) -> None:
    for _ in range(2):
        Path(path).write_bytes(b"\xff\0" * 3000)
        open_file(path).close()
    assert Path(f"{path}.damaged-2").exists()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE manifests SET body = substr(body, 3)",
        "UPDATE manifests SET body = '[]'",
        "UPDATE pins SET definition = '{'",
        "UPDATE pins SET state = 'trust me'",
    ],
)
def test_unreadable_value_counts_as_damage(path: str, damage: str) -> None:
    _fill_store(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(damage)
    with closing(open_file(path)) as store:
        assert store.list_manifests() == {} or store.get_pins("mail") == {}
        assert "malformed value" in store.notice
        store.put_pins("mail", [Pin("send", "f", {})])
        assert list(store.get_pins("mail")) == ["send"]


def test_damaged_file_in_use_is_not_moved(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.storage.sqlite.database.WAIT_SECONDS", 0.05)
    _fill_store(path)
    with closing(open_file(path)):
        content = b"\xff\0" * 3000
        Path(path).write_bytes(content)
        with pytest.raises(InvalidStore, match="stop all processes that use"):
            open_file(path)
        assert Path(path).read_bytes() == content
    with closing(open_file(path)) as store:
        assert store.notice


_OPENER = """
import sys
from toolcrib.storage import open_store
store = open_store(f"sqlite:///{sys.argv[1]}")
store.add_calls({}, {"opened": 1})
store.close()
"""


def test_only_one_of_several_processes_moves_a_damaged_file(path: str) -> None:
    Path(path).write_bytes(b"\xff\0" * 3000)
    command = [sys.executable, "-c", _OPENER, path]
    processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait() for process in processes] == [0] * 3
    assert not Path(f"{path}.damaged-2").exists()
    with closing(open_file(path)) as store:
        assert store.get_stats() == {"opened": 3}


def test_text_file_is_not_treated_as_a_damaged_store(path: str) -> None:
    text = '{"mcpServers": {"é": "' + "é" * 4000 + '"}}'
    Path(path).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidStore, match=r"this is a text file, not a database; choose another path") as raised:
        open_file(path)
    assert "delete" not in str(raised.value)
    assert Path(path).read_text(encoding="utf-8") == text
    assert _list_files(path) == ["toolcrib.db"]


def test_database_of_another_program_is_left_unchanged(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    before = Path(path).read_bytes()
    with pytest.raises(InvalidStore, match=r"another program.*choose another path"):
        open_file(path)
    assert Path(path).read_bytes() == before
    assert _list_files(path) == ["toolcrib.db"]


def test_folder_as_path_leaves_no_files_behind(path: str) -> None:
    Path(path).mkdir()
    with pytest.raises(InvalidStore, match="cannot be opened"):
        open_file(path)
    assert _list_files(path) == ["toolcrib.db"]


def test_newer_file_version_is_refused_with_the_remedy(path: str) -> None:
    _fill_store(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InvalidStore, match=r"newer version .*99.*update Toolcrib"):
        open_file(path)


def test_older_file_version_is_migrated_with_its_data(path: str) -> None:
    first = ("CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1)")
    second = ("ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 2",)

    def build_file_type(*migrations: tuple[str, ...]) -> SqliteFileType:
        return SqliteFileType(7, migrations, InvalidStore, "they are counted again")

    with closing(open_connection(path)) as connection:
        migrate_file(connection, path, build_file_type(first))
        assert connection.execute("SELECT * FROM t").fetchall() == [(1,)]
    with closing(open_connection(path)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate_file(connection, path, build_file_type(first, (*second, "NONSENSE")))
        assert connection.execute("SELECT * FROM t").fetchall() == [(1,)]
        migrate_file(connection, path, build_file_type(first, second))
        migrate_file(connection, path, build_file_type(first, second))
        assert connection.execute("SELECT * FROM t").fetchall() == [(1, 2)]
        with pytest.raises(InvalidStore, match="newer"):
            migrate_file(connection, path, build_file_type(first))


_FULL = """
import resource, signal, sys
from toolcrib.errors import InvalidStore
from toolcrib.storage import open_store
from toolcrib.storage.manifests import ServerManifest
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = open_store(f"sqlite:///{sys.argv[1]}")
store.add_calls({}, {"before": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    store.put_manifest("mail", ServerManifest("mail", "id", ({"name": "x" * 1_000_000},)))
except InvalidStore as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.add_calls({}, {"after": 1})
print(store.get_stats(), store.list_manifests())
store.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of a file")
def test_full_disk_is_reported_and_recoverable(path: str) -> None:
    command = [sys.executable, "-c", _FULL, path]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    message, stored = printed.splitlines()
    assert "toolcrib.db: " in message
    assert "choose another path" in message or "check that its folder exists" in message
    assert stored == "{'after': 1, 'before': 1} {}"


def test_a_store_that_is_opened_on_a_full_disk_names_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted")
    try:
        open_file(str(folder / "toolcrib.db")).close()
        with pytest.raises(OSError), (folder / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(InvalidStore, match="the disk is full"):
            open_file(str(folder / "toolcrib.db")).close()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_full_or_read_only_database_is_reported(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[sqlite3.Connection] = []

    def open_and_record(path: str, *, any_thread: bool) -> sqlite3.Connection:
        connections.append(open_connection(path, any_thread=any_thread))
        return connections[-1]

    monkeypatch.setattr(database, "open_connection", open_and_record)
    with closing(open_file(path)) as store:
        (connection,) = connections
        connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(InvalidStore, match="the disk is full"):
            store.put_manifest("mail", ServerManifest("mail", "id", ({"name": "x" * 100_000},)))
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(InvalidStore, match="the file is read-only"):
            store.add_calls({"a": ToolUsageTotal(1, 0, 0.0)})
        assert store.get_usage() == {}


@pytest.mark.parametrize("name", ["missing/toolcrib.db", "", "a\0b"])
def test_unwritable_path_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidStore, match="check that its folder exists"):
        open_file(str(tmp_path / name) if "\0" not in name else name)


def test_locked_file_is_reported(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.files.sqlite_file.LOCK_TIMEOUT_SECONDS", 0.0)
    with closing(open_file(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(InvalidStore, match="another process has locked the file"):
            store.add_calls({}, {"searches": 1})
        assert store.get_stats() == {}
