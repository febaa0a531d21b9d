"""A journal keeps what was recorded until it is in the store, and a later process writes what a dead one left."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib.errors import InvalidStore
from toolcrib.storage import journal, open_store
from toolcrib.storage.journal import Journal, JournalMark
from toolcrib.storage.store import Store
from toolcrib.storage.tool_usage import ToolUsageTotal

# Records calls without writing them to the store, and acknowledges each by printing its number.
_RECORDER = """
import sys
from pathlib import Path
from toolcrib.storage.journal import Journal
journal = Journal(Path(sys.argv[1]), "calls")
number = 0
while True:
    number += 1
    journal.append(["written", 1])
    if number % 50 == 0:
        journal.take()
    print(number, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def counting_store(folder: Path) -> Iterator[Store]:
    store = open_store("sqlite://", folder)
    yield store
    store.close()


def recover(store: Store) -> int:
    """Write what dead processes have left, and return the counter."""

    def apply(lines: Any, mark: JournalMark) -> None:
        store.add_calls({}, {"written": sum(amount for _, amount in lines)}, mark)

    store.recover_lines(store.open_journal("calls"), apply)
    return store.get_stats().get("written", 0)


def leave_lines(folder: Path, *counts: int) -> None:
    """Leave lines that are not in the store, with a file per count."""
    opened = Journal(folder, "calls")
    for count in counts:
        for _ in range(count):
            opened.append(["written", 1])
        opened.take()
    opened.close()


def test_a_killed_process_leaves_every_acknowledged_line(folder: Path, counting_store: Store) -> None:
    acknowledged = 0
    for kill_after in (1, 49, 50, 160):
        command = [sys.executable, "-c", _RECORDER, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
            assert recorder.stdout
            for _ in range(kill_after):
                recorder.stdout.readline()
            # The journal of a process that lives is not touched.
            before = counting_store.get_stats().get("written", 0)
            assert recover(counting_store) == before
            recorder.kill()
            acknowledged += kill_after + sum(1 for _ in recorder.stdout)
        # The last line may be written and not acknowledged.
        written = recover(counting_store)
        assert acknowledged <= written <= acknowledged + 1
        acknowledged = written
    assert list(folder.iterdir()) == []
    assert counting_store.list_values("journal", 0.0) == {}


def test_lines_that_are_in_the_store_are_not_written_again(
    folder: Path, counting_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_RECOVERED_LINES", 2)
    leave_lines(folder, 5, 4)
    (key,) = (path.stem for path in folder.glob("*.lock"))
    # The process died between the commit and the deletion of the file.
    counting_store.add_calls({}, {"written": 6}, JournalMark(key, 6))
    assert recover(counting_store) == 9


def test_a_failed_recovery_continues_where_it_ended(
    folder: Path, counting_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_RECOVERED_LINES", 2)
    leave_lines(folder, 3, 2)

    def apply_once(lines: Any, mark: JournalMark) -> None:
        if counting_store.get_stats():
            raise InvalidStore("the disk is full")
        counting_store.add_calls({}, {"written": len(lines)}, mark)

    opened = counting_store.open_journal("calls")
    with pytest.raises(InvalidStore):
        counting_store.recover_lines(opened, apply_once)
    assert not opened.is_recovered
    assert recover(counting_store) == 5


def test_half_a_line_is_ignored(folder: Path, counting_store: Store) -> None:
    leave_lines(folder, 3)
    (path,) = folder.glob("*.0*")
    path.write_bytes(path.read_bytes()[:-4])
    assert recover(counting_store) == 2


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        (b"\0\0\0\0", "a damaged line is left out"),
        (b"\xff\xfe", "a damaged line is left out"),
        (b'["cut', "a damaged line is left out"),
        (b'{"a":1}', "a line of another version is left out"),
        (b"7", "a line of another version is left out"),
        (b'["written","many"]', "a line of another version is left out"),
        (b'["written"]', "a line of another version is left out"),
        (b"null", "a line of another version is left out"),
    ],
)
def test_line_that_cannot_be_read_does_not_keep_the_others_from_being_written(
    line: bytes, warning: str, folder: Path, counting_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    leave_lines(folder, 3)
    (path,) = folder.glob("*.0*")
    first, _, last, _ = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([first, line, last, b""]))
    assert recover(counting_store) == 2
    assert warning in caplog.text
    assert list(folder.iterdir()) == []


def test_written_lines_leave_no_file_and_no_mark(folder: Path) -> None:
    store = open_store("sqlite://", folder)
    opened = store.open_journal("calls")
    opened.append(["written", 1])
    mark = opened.take()
    opened.append(["written", 1])
    store.add_calls({"tool": ToolUsageTotal(1, 0, 1.0)}, {}, mark)
    opened.finish(mark)
    # The second line is not written yet.
    assert len(list(folder.glob("calls-*.0*"))) == 1
    assert mark and store.list_values("journal", 0.0) == {mark.key: "1"}
    mark = opened.take()
    store.add_calls({}, {"written": 1}, mark)
    opened.finish(mark)
    store.close()
    assert list(folder.iterdir()) == []


def test_the_size_is_bounded(folder: Path, counting_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_JOURNAL_BYTES", 40)
    opened = Journal(folder, "calls")
    for _ in range(10):
        opened.append(["written", 1])
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 40
    # After everything is in the store, lines are kept again.
    opened.finish(opened.take())
    opened.append(["written", 1])
    opened.close()
    assert recover(counting_store) == 1


def test_a_full_disk_does_not_stop_the_recording(
    folder: Path, counting_store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Journal(folder, "calls")
    opened.append(["written", 1])
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    opened.append(["written", 1])
    opened.append(["written", 1])
    monkeypatch.setattr(os, "write", write)
    assert "a killed gateway loses its last rows" in caplog.text and len(caplog.records) == 1
    opened.append(["written", 1])
    opened.close()
    assert recover(counting_store) == 2


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    file.touch()
    opened = Journal(file / "journal", "calls")
    opened.append(["written", 1])
    assert os.strerror(errno.ENOTDIR) in caplog.text
    assert opened.take() and list(tmp_path.iterdir()) == [file]


def test_without_a_folder_nothing_is_kept() -> None:
    opened = Journal(None, "calls")
    opened.append(["written", 1])
    assert opened.take() is None and opened.close() is None and list(opened.list_abandoned()) == []
