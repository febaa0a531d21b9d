"""Files are written atomically, with backups."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib.config.clients import file_writes
from toolcrib.config.clients.file_writes import (
    check_backup_possible,
    check_writable,
    create_backup,
    find_latest_backup,
    replace_file,
)
from toolcrib.errors import InvalidConfig


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _refusal(act: Callable[[], None]) -> str:
    """Return the error text of an action, or an empty string."""
    try:
        act()
    except InvalidConfig as fault:
        return str(fault)
    return ""


def test_new_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "f.json"
    replace_file(path, b"x", None)
    assert path.read_bytes() == b"x"
    assert _mode(path) == 0o600
    assert _names(path.parent) == ["f.json"]


def test_existing_file_keeps_its_mode_and_links_are_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_bytes(b"old")
    real.chmod(0o644)
    link.symlink_to(real)
    replace_file(link, b"new", b"old")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert _mode(real) == 0o644


def test_concurrent_change_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"theirs")
    for expected in (b"old", None):
        with pytest.raises(InvalidConfig, match="another program changed it meanwhile; try again"):
            replace_file(path, b"new", expected)
    assert path.read_bytes() == b"theirs"
    assert _names(tmp_path) == ["f"]


def test_unwritable_path_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidConfig, match=r"cannot be written: .*; check its permissions"):
        replace_file(tmp_path / "file" / "f", b"x", None)
    with pytest.raises(InvalidConfig, match="cannot be written"):
        create_backup(tmp_path / "none" / "f", b"x")


@pytest.mark.parametrize("place", ["folder", "file", "file/below/f", "shut/f", "new/folder/f"])
@pytest.mark.parametrize("expected", [None, b"old"])
def test_check_writable_raises_the_error_of_the_write(tmp_path: Path, place: str, expected: bytes | None) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "shut").mkdir(mode=0o500)
    path = tmp_path / place
    foretold = _refusal(lambda: check_writable(path, expected))
    assert _refusal(lambda: replace_file(path, b"new", expected)) == foretold
    assert foretold or path.read_bytes() == b"new"


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InvalidConfig, match="No space left on device"):
        replace_file(path, b"new", b"old")
    with pytest.raises(InvalidConfig, match="No space left on device"):
        create_backup(path, b"old")
    assert _names(tmp_path) == ["f"]
    assert path.read_bytes() == b"old"


def test_incomplete_backup_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def raise_interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", raise_interrupt)
    for act in (lambda: create_backup(path, b"old"), lambda: replace_file(path, b"new", b"old")):
        with pytest.raises(KeyboardInterrupt):
            act()
    assert _names(tmp_path) == ["f"]
    assert path.read_bytes() == b"old"


def test_backups_are_numbered_and_the_latest_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(b"3")
    path.chmod(0o640)
    assert find_latest_backup(path) is None
    first, second = create_backup(path, b"1"), create_backup(path, b"2")
    assert [first.name, second.name] == ["f.json.toolcrib-backup", "f.json.toolcrib-backup-2"]
    assert _mode(first) == 0o640
    assert find_latest_backup(path) == second
    second.unlink()
    assert find_latest_backup(path) == first
    monkeypatch.setattr(file_writes, "MAX_BACKUPS", 1)
    with pytest.raises(InvalidConfig, match="it has 1 backups; remove some"):
        create_backup(path, b"4")
    with pytest.raises(InvalidConfig, match="it has 1 backups; remove some"):
        check_backup_possible(path)
