"""Write files atomically: after an error or a crash the previous content is still there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

DEFAULT_MODE: Final = 0o666
FileContent = bytes | Callable[[IO[bytes]], None]
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)


def write_file_atomically(
    path: Path, content: FileContent, *, mode: int = DEFAULT_MODE, check: Callable[[], None] | None = None
) -> None:
    """Replace a file in one step. Errors of the file system raise OSError.

    `content` is the bytes, or a function that writes them. Symbolic links are followed. An existing file keeps its
    permissions; a new one gets `mode` minus the umask. `check` is called last and may raise to cancel the write. Pipes
    and devices are written to directly.
    """
    if path.exists() and not path.is_file():
        if check is not None:
            check()
        with path.open("wb") as file:
            file.write(content) if isinstance(content, bytes) else content(file)
        return
    target = resolve_links(path)
    new = target.with_name(f".toolcrib-{secrets.token_hex(8)}.new")
    try:
        create_file(new, content, mode)
        if target.exists():
            new.chmod(target.stat().st_mode & 0o777)
        if check is not None:
            check()
        new.replace(target)
    except OSError as error:
        # Name the file that the caller knows.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            new.unlink()


def create_file(path: Path, content: FileContent, mode: int = DEFAULT_MODE) -> None:
    """Write a new file to disk. Raises FileExistsError if it exists, OSError on other errors.

    If writing fails, the incomplete file is removed.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content) if isinstance(content, bytes) else content(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def resolve_links(path: Path) -> Path:
    """Return the target of all links. Unlike `Path.resolve`, a loop of links does not raise."""
    return Path(os.path.realpath(path))
