"""A lock file that shows whether other processes use a database.

A database that is open in another process must not be moved: SQLite would continue under the old
name, and its log would end up next to the wrong file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Final

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    # Windows, which refuses to move an open file anyway.
    fcntl = None

LOCK_SUFFIX: Final = "-use"
WAIT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02


class FileLock:
    """A shared lock on the use of a file; it can become exclusive while no other process uses it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path + LOCK_SUFFIX)
        self._file: IO[bytes]
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            self._file, self._is_new = open_lock_file(self._path)
            if self._acquire_shared() and self._is_current_file():
                return
            self._file.close()
            if time.monotonic() > deadline:
                raise BlockingIOError(f"{self._path} is locked")

    def acquire_exclusive(self, is_done: Callable[[], bool]) -> bool:
        """Wait until no other process holds the lock; return whether it is now exclusive.

        The shared lock is released during the wait, so that one of several waiting processes gets
        the exclusive lock. The wait ends early when `is_done` returns true, which means that
        another process has done the work.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        while not is_done() and time.monotonic() < deadline:
            if self._try_lock(exclusive=True):
                return self._is_current_file()
            time.sleep(_PAUSE_SECONDS)
        self._acquire_shared()
        return False

    def downgrade(self) -> None:
        """Make an exclusive lock shared again."""
        self._acquire_shared()

    def close(self) -> None:
        """Release the lock."""
        self._file.close()

    def remove(self) -> None:
        """Release the lock and delete the lock file if this object created it.

        The file stays if another process has locked it. A process that has opened it but not
        locked it yet notices that it is gone, and creates another.
        """
        if fcntl is not None and self._is_new and self._try_lock(exclusive=True) and self._is_current_file():
            self._path.unlink()
        self._file.close()
        if fcntl is None and self._is_new:
            # Windows refuses to delete a file that another process has open.
            with suppress(OSError):
                self._path.unlink()

    def _is_current_file(self) -> bool:
        """Return whether the open file is still the one at the path."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def _acquire_shared(self) -> bool:
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._try_lock(exclusive=False):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _try_lock(self, *, exclusive: bool) -> bool:
        if fcntl is None:
            return True
        operation = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # Some network drives do not support locks.
            return True
        return True


def open_lock_file(path: Path) -> tuple[IO[bytes], bool]:
    """Open the lock file; return it and whether it was created."""
    try:
        return path.open("xb"), True
    except FileExistsError:
        return path.open("ab"), False
