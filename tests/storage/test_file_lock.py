"""The lock beside a file comes and goes without anybody losing sight of anybody."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from toolcrib.storage import file_lock
from toolcrib.storage.file_lock import ENDING, Presence


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "toolcrib.db")


def test_who_withdraws_takes_away_what_he_has_made(path: str) -> None:
    Presence(path).withdraw()
    assert not Path(path + ENDING).exists()


def test_who_withdraws_leaves_what_was_there_before(path: str) -> None:
    Presence(path).close()
    Presence(path).withdraw()
    assert Path(path + ENDING).exists()


@pytest.mark.skipif(file_lock.fcntl is None, reason="without locks the system sees to this itself")
def test_who_withdraws_leaves_what_others_have_locked(path: str) -> None:
    first = Presence(path)
    with closing(Presence(path)) as second:
        first.withdraw()
        assert Path(path + ENDING).exists()
        assert second.alone(lambda: False)


@pytest.mark.skipif(file_lock.fcntl is None, reason="a file that is open cannot be taken away")
def test_who_comes_while_another_withdraws_is_seen(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, opened = Presence(path), file_lock._file
    gone: list[IO[bytes]] = []

    def withdrawn_meanwhile(file: Path) -> tuple[IO[bytes], bool]:
        found = opened(file)
        if not gone:
            gone.append(found[0])
            first.withdraw()
        return found

    monkeypatch.setattr(file_lock, "_file", withdrawn_meanwhile)
    with closing(Presence(path)), closing(Presence(path)) as third:
        assert gone[0].closed
        monkeypatch.setattr(file_lock, "WAIT_SECONDS", 0.05)
        assert not third.alone(lambda: False)
