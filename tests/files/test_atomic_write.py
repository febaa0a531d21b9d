from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from toolcrib.files.atomic_write import create_file, write_file_atomically


def test_new_file_has_the_default_or_given_permissions(tmp_path: Path) -> None:
    default, private = tmp_path / "default", tmp_path / "private"
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(b"")
    write_file_atomically(default, b"x")
    write_file_atomically(private, b"x", mode=0o600)
    assert default.read_bytes() == private.read_bytes() == b"x"
    assert default.stat().st_mode == ordinary.stat().st_mode
    if os.name == "posix":
        assert stat.S_IMODE(private.stat().st_mode) == 0o600


def test_existing_file_keeps_its_permissions_and_links(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    mode = real.stat().st_mode
    write_file_atomically(link, b"new")
    assert link.is_symlink()
    assert (real.read_bytes(), real.stat().st_mode) == (b"new", mode)


def test_check_can_cancel_the_write(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def cancel() -> None:
        raise ValueError("no")

    for target in (path, tmp_path / "none", tmp_path):
        with pytest.raises(ValueError, match="no"):
            write_file_atomically(target, b"new", check=cancel)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        write_file_atomically(tmp_path, b"x")
    assert list(tmp_path.iterdir()) == []


def test_error_names_the_file_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_file_atomically(tmp_path / "missing" / "f", b"x")
    assert caught.value.filename == str(tmp_path / "missing" / "f")


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need special permissions on Windows")
def test_link_to_itself_is_replaced(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    write_file_atomically(loop, b"new")
    assert loop.read_bytes() == b"new"


def test_create_file_does_not_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "f"
    create_file(path, b"old", 0o600)
    with pytest.raises(FileExistsError):
        create_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_create_file_removes_an_incomplete_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        create_file(tmp_path / "f", b"x")
    assert list(tmp_path.iterdir()) == []
