"""Whether other processes use a file: a lock on a file beside it.

A database that is open elsewhere must not be moved: SQLite would go on by the old name, and its
log would end up beside the wrong file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import IO, Final

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    # Where this is missing, the system itself refuses to move a file that is open.
    fcntl = None

ENDING: Final = "-use"
WAIT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02


class Presence:
    """Says to other processes that we use a file, for as long as it is not closed."""

    def __init__(self, path: str) -> None:
        self._file: IO[bytes] = Path(path + ENDING).open("ab")  # noqa: SIM115
        if not self._locked(False):
            self._file.close()
            raise BlockingIOError(f"{path}{ENDING} is locked")

    def alone(self, is_done: Callable[[], bool]) -> bool:
        """Whether we are the only ones, once those who come and go have gone.

        While this waits, nobody is told that we use the file, so that of several who wait one is
        alone; the others learn by `is_done` that there is nothing left to wait for.
        """
        until = time.monotonic() + WAIT_SECONDS
        self._unlock()
        while not is_done() and time.monotonic() < until:
            if self._try(True):
                return True
            time.sleep(_PAUSE_SECONDS)
        self._locked(False)
        return False

    def share(self) -> None:
        """Let others in again, after having been alone."""
        self._locked(False)

    def close(self) -> None:
        """We use the file no longer."""
        self._file.close()

    def _locked(self, exclusive: bool) -> bool:
        until = time.monotonic() + WAIT_SECONDS
        while not self._try(exclusive):
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _try(self, exclusive: bool) -> bool:
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
