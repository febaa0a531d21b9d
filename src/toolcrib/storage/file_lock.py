"""Whether other processes use a file: a lock on a file beside it.

A database that is open elsewhere must not be moved: SQLite would go on by the old name, and its
log would end up beside the wrong file.
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
    # Where this is missing, the system itself refuses to move a file that is open.
    fcntl = None

LOCK_SUFFIX: Final = "-use"
WAIT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02


class FileLock:
    """Says to other processes that we use a file, for as long as it is not closed."""

    def __init__(self, path: str) -> None:
        self._path = Path(path + LOCK_SUFFIX)
        self._file: IO[bytes]
        until = time.monotonic() + WAIT_SECONDS
        while True:
            self._file, self._is_new = _open_lock_file(self._path)
            if self._acquire(False) and self._is_current_file():
                return
            self._file.close()
            if time.monotonic() > until:
                raise BlockingIOError(f"{self._path} is locked")

    def acquire_exclusive(self, is_done: Callable[[], bool]) -> bool:
        """Whether we are the only ones, once those who come and go have gone.

        While this waits, nobody is told that we use the file, so that of several who wait one is
        alone; the others learn by `is_done` that there is nothing left to wait for.
        """
        until = time.monotonic() + WAIT_SECONDS
        self._unlock()
        while not is_done() and time.monotonic() < until:
            if self._try_lock(True):
                return self._is_current_file()
            time.sleep(_PAUSE_SECONDS)
        self._acquire(False)
        return False

    def downgrade(self) -> None:
        """Let others in again, after having been alone."""
        self._acquire(False)

    def close(self) -> None:
        """We use the file no longer."""
        self._file.close()

    def remove(self) -> None:
        """We never came to use the file: leave nothing beside it that was not there before.

        What somebody else has come to lock stays. Who has opened it and not locked it yet sees
        that it is gone, and makes another.
        """
        if fcntl is not None and self._is_new and self._try_lock(True) and self._is_current_file():
            self._path.unlink()
        self._file.close()
        if fcntl is None and self._is_new:
            # Here the system refuses this while another has it open.
            with suppress(OSError):
                self._path.unlink()

    def _is_current_file(self) -> bool:
        """Whether the file that we have open is the one that others find."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def _acquire(self, exclusive: bool) -> bool:
        until = time.monotonic() + WAIT_SECONDS
        while not self._try_lock(exclusive):
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _try_lock(self, exclusive: bool) -> bool:
        if fcntl is None:
            return True
        how = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # Some network drives know no such locks; then nobody can be told.
            return True
        return True

    def _unlock(self) -> None:
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def _open_lock_file(path: Path) -> tuple[IO[bytes], bool]:
    """The file to lock, and whether it was made now."""
    try:
        return path.open("xb"), True
    except FileExistsError:
        return path.open("ab"), False
