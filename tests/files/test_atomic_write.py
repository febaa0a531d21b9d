"""A file that is written is there as a whole, or as it was."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from toolcrib.files.atomic_write import write_file_atomically


def test_a_new_file_has_the_rights_that_the_user_gives_to_new_files(tmp_path: Path) -> None:
    plain, mine = tmp_path / "plain", tmp_path / "mine"
    usual = tmp_path / "usual"
    usual.write_bytes(b"")
    write_file_atomically(plain, b"x")
    write_file_atomically(mine, b"x", mode=0o600)
    assert plain.read_bytes() == mine.read_bytes() == b"x"
    assert plain.stat().st_mode == usual.stat().st_mode
    if os.name == "posix":
        assert stat.S_IMODE(mine.stat().st_mode) == 0o600


def test_a_file_keeps_its_rights_and_its_links(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    rights = real.stat().st_mode
    write_file_atomically(link, b"new")
    assert link.is_symlink()
    assert (real.read_bytes(), real.stat().st_mode) == (b"new", rights)


def test_what_the_last_look_refuses_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def refuse() -> None:
        raise ValueError("no")

    for place in (path, tmp_path / "none", tmp_path):
        with pytest.raises(ValueError, match="no"):
            write_file_atomically(place, b"new", check=refuse)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_written_to(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        write_file_atomically(tmp_path, b"x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there, links need rights")
def test_a_link_that_leads_to_itself_is_replaced(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    write_file_atomically(loop, b"new")
    assert loop.read_bytes() == b"new"
