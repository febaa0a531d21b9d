"""Writing files of configuration: whole or not at all, with what there was kept beside it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from toolcrib.errors import InvalidConfig
from toolcrib.files.atomic_write import create_file, resolve_links, write_file_atomically

MAX_BACKUPS = 50
PRIVATE_MODE = 0o600
_BACKUP_SUFFIX = ".toolcrib-backup"


def write_atomically(path: Path, content: bytes, expected: bytes | None) -> None:
    """Put content in place of a file in one step; `expected` is what it holds now, None for no file.

    A link is followed, so that it stays one. A new file is for its owner's eyes only, as there may
    be secrets in it; another keeps its rights. What somebody wrote meanwhile is not overwritten.
    """
    try:
        resolve_links(path).parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(
            path, content, mode=PRIVATE_MODE, check=lambda: _check_unchanged(path, expected)
        )
    except OSError as fault:
        raise _write_error(path, fault) from fault


def check_writable(path: Path, expected: bytes | None) -> None:
    """Refuse what `write_atomically` would refuse, as far as it can be told without writing."""
    folder = resolve_links(path).parent
    try:
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        _check_unchanged(path, expected)
    except OSError as fault:
        raise _write_error(path, fault) from fault


def create_backup(path: Path, content: bytes) -> Path:
    """Keep what a file held beside it, under a name that is free; earlier ones are kept too."""
    target = resolve_links(path)
    for number in range(1, MAX_BACKUPS + 1):
        backup = _backup_path(target, number)
        try:
            create_file(backup, content, _file_mode(target))
        except FileExistsError:
            continue
        except OSError as fault:
            raise _write_error(backup, fault) from fault
        return backup
    raise _too_many_backups(path)


def check_backup_possible(path: Path) -> None:
    """Refuse what `keep_backup` would refuse for want of a free name."""
    target = resolve_links(path)
    if all(_backup_path(target, number).exists() for number in range(1, MAX_BACKUPS + 1)):
        raise _too_many_backups(path)


def find_latest_backup(path: Path) -> Path | None:
    """What was kept of a file last, if anything was."""
    target = resolve_links(path)
    found = [_backup_path(target, number) for number in range(1, MAX_BACKUPS + 1)]
    return next((backup for backup in reversed(found) if backup.is_file()), None)


def _backup_path(target: Path, number: int) -> Path:
    return target.with_name(f"{target.name}{_BACKUP_SUFFIX}{'' if number == 1 else f'-{number}'}")


def _too_many_backups(path: Path) -> InvalidConfig:
    first = _backup_path(resolve_links(path), 1)
    return InvalidConfig(
        f"{path}: there are {MAX_BACKUPS} copies of it already; remove some of {first}*"
    )


def _read_bytes_if_exists(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _check_unchanged(path: Path, expected: bytes | None) -> None:
    if _read_bytes_if_exists(path) != expected:
        raise InvalidConfig(f"{path}: somebody else changed it meanwhile; try again")


def _file_mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return PRIVATE_MODE


def _write_error(path: Path, fault: OSError) -> InvalidConfig:
    reason = fault.strerror or fault
    return InvalidConfig(f"{path}: cannot be written: {reason}; check who may write there")
