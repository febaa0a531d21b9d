"""The lock file shows other processes that a database is in use."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from toolcrib.storage.sqlite import database
from toolcrib.storage.sqlite.database import LOCK_SUFFIX, FileLock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "toolcrib.db")


def test_remove_deletes_a_new_lock_file(path: str) -> None:
    FileLock(path).remove()
    assert not Path(path + LOCK_SUFFIX).exists()


def test_remove_keeps_an_existing_lock_file(path: str) -> None:
    FileLock(path).close()
    FileLock(path).remove()
    assert Path(path + LOCK_SUFFIX).exists()


@pytest.mark.skipif(database.fcntl is None, reason="the platform has no file locks")
def test_remove_keeps_a_file_that_another_process_has_locked(path: str) -> None:
    first = FileLock(path)
    with closing(FileLock(path)) as second:
        first.remove()
        assert Path(path + LOCK_SUFFIX).exists()
        assert second.acquire_exclusive(lambda: False)


@pytest.mark.skipif(database.fcntl is None, reason="an open file cannot be deleted")
def test_lock_opened_during_a_removal_is_still_visible(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, open_lock_file = FileLock(path), database.open_lock_file
    stale: list[IO[bytes]] = []

    def open_while_first_is_removed(file: Path) -> tuple[IO[bytes], bool]:
        opened = open_lock_file(file)
        if not stale:
            stale.append(opened[0])
            first.remove()
        return opened

    monkeypatch.setattr(database, "open_lock_file", open_while_first_is_removed)
    with closing(FileLock(path)), closing(FileLock(path)) as third:
        assert stale[0].closed
        monkeypatch.setattr(database, "WAIT_SECONDS", 0.05)
        assert not third.acquire_exclusive(lambda: False)
