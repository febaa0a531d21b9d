"""Write configuration files atomically, with backups in the same folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from toolcrib.errors import InvalidConfig
from toolcrib.files.atomic_write import create_file, resolve_links, write_file_atomically

MAX_BACKUPS = 50
PRIVATE_MODE = 0o600
_BACKUP_SUFFIX = ".toolcrib-backup"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def replace_file(path: Path, content: bytes, expected: bytes | None) -> None:
    """Replace the content of a file atomically; `expected` is its current content, None for no file.

    Links are followed. An existing file keeps its mode; a new one is readable only by its owner,
    because it may hold secrets. A file that was changed meanwhile is not overwritten.
    """
    try:
        resolve_links(path).parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(path, content, mode=PRIVATE_MODE, check=lambda: _check_unchanged(path, expected))
    except OSError as error:
        raise _write_error(path, error) from error


def check_writable(path: Path, expected: bytes | None) -> None:
    """Raise the errors that `replace_file` would raise, without writing."""
    folder = resolve_links(path).parent
    try:
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        _check_unchanged(path, expected)
    except OSError as error:
        raise _write_error(path, error) from error


def encode_like(before: bytes | None, text: str) -> bytes:
    """Return the text in UTF-8, with the byte order mark that the file had before."""
    mark = _BYTE_ORDER_MARK if (before or b"").startswith(_BYTE_ORDER_MARK) else b""
    # A lone surrogate has no UTF-8 encoding; it becomes the escape sequence of JSON.
    return mark + text.encode("utf-8", "backslashreplace")


def create_backup(path: Path, content: bytes) -> Path:
    """Write the content of a file to a new backup in its folder, and return its path."""
    target = resolve_links(path)
    mode = target.stat().st_mode & 0o777 if target.exists() else PRIVATE_MODE
    for backup in _backup_paths(target):
        try:
            create_file(backup, content, mode)
        except FileExistsError:
            continue
        except OSError as error:
            raise _write_error(backup, error) from error
        return backup
    raise _too_many_backups(path)


def check_backup_possible(path: Path) -> None:
    """Raise `InvalidConfig` if a file has the maximum number of backups."""
    if all(backup.exists() for backup in _backup_paths(resolve_links(path))):
        raise _too_many_backups(path)


def find_latest_backup(path: Path) -> Path | None:
    """Return the latest backup of a file, or None."""
    backups = reversed(_backup_paths(resolve_links(path)))
    return next((backup for backup in backups if backup.is_file()), None)


def _backup_paths(target: Path) -> list[Path]:
    first = f"{target.name}{_BACKUP_SUFFIX}"
    numbered = [f"{first}-{number}" for number in range(2, MAX_BACKUPS + 1)]
    return [target.with_name(name) for name in (first, *numbered)]


def _too_many_backups(path: Path) -> InvalidConfig:
    first = _backup_paths(resolve_links(path))[0]
    return InvalidConfig(f"{path}: it has {MAX_BACKUPS} backups; remove some of {first}*")


def _check_unchanged(path: Path, expected: bytes | None) -> None:
    try:
        content: bytes | None = path.read_bytes()
    except FileNotFoundError:
        content = None
    if content != expected:
        raise InvalidConfig(f"{path}: another program changed it meanwhile; try again")


def _write_error(path: Path, error: OSError) -> InvalidConfig:
    reason = error.strerror or error
    return InvalidConfig(f"{path}: cannot be written: {reason}; check its permissions")
