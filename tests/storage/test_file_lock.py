"""The lock beside a file comes and goes without anybody losing sight of anybody."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from toolcrib.storage import file_lock
from toolcrib.storage.file_lock import LOCK_SUFFIX, FileLock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "toolcrib.db")


def test_who_withdraws_takes_away_what_he_has_made(path: str) -> None:
    FileLock(path).remove()
    assert not Path(path + LOCK_SUFFIX).exists()


def test_who_withdraws_leaves_what_was_there_before(path: str) -> None:
    FileLock(path).close()
    FileLock(path).remove()
    assert Path(path + LOCK_SUFFIX).exists()


@pytest.mark.skipif(file_lock.fcntl is None, reason="without locks the system sees to this itself")
def test_who_withdraws_leaves_what_others_have_locked(path: str) -> None:
    first = FileLock(path)
    with closing(FileLock(path)) as second:
        first.remove()
        assert Path(path + LOCK_SUFFIX).exists()
        assert second.acquire_exclusive(lambda: False)


@pytest.mark.skipif(file_lock.fcntl is None, reason="a file that is open cannot be taken away")
def test_who_comes_while_another_withdraws_is_seen(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, opened = FileLock(path), file_lock._open_lock_file
    gone: list[IO[bytes]] = []

    def withdrawn_meanwhile(file: Path) -> tuple[IO[bytes], bool]:
        found = opened(file)
        if not gone:
            gone.append(found[0])
            first.remove()
        return found

    monkeypatch.setattr(file_lock, "_open_lock_file", withdrawn_meanwhile)
    with closing(FileLock(path)), closing(FileLock(path)) as third:
        assert gone[0].closed
        monkeypatch.setattr(file_lock, "LOCK_TIMEOUT_SECONDS", 0.05)
        assert not third.acquire_exclusive(lambda: False)
