"""Writing a file whole or not at all: whatever stops it, what was there before stays."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

DEFAULT_MODE: Final = 0o666
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)


def write_file_atomically(
    path: Path,
    content: bytes,
    *,
    mode: int = DEFAULT_MODE,
    check: Callable[[], None] | None = None,
) -> None:
    """Put content in place of a file in one step; what goes wrong is an OSError.

    A link is followed, so that it stays one. A file that is there keeps its rights; a new one gets
    `mode`, without what the user's mask takes from it. `check` is asked last, and may still raise.
    A pipe or a device holds nothing that could stay, and is written to as it is.
    """
    if path.exists() and not path.is_file():
        if check is not None:
            check()
        path.write_bytes(content)
        return
    target = resolve_links(path)
    new = target.with_name(f".toolcrib-{secrets.token_hex(8)}.new")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            new.chmod(target.stat().st_mode & 0o777)
        if check is not None:
            check()
        new.replace(target)
    finally:
        with suppress(OSError):
            new.unlink()


def resolve_links(path: Path) -> Path:
    """Where links lead, and if in a circle, to themselves: `Path.resolve` may raise what is no OSError."""
    return Path(os.path.realpath(path))
