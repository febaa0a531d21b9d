"""A SQLite file or a database in memory: one connection, which one thread at a time uses.

The connection stays open. Closing the last connection of a file writes its log back, so a
connection per call would make every write wait for the disk. A lock shows other processes that the file is in use.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import IO, Final, TypeVar

from toolcrib.errors import InvalidStore
from toolcrib.files.sqlite_file import (
    IN_MEMORY,
    SqliteFileType,
    create_private_file,
    is_corruption_error,
    is_text_file,
    migrate_file,
    move_aside,
    open_connection,
    transaction,
)
from toolcrib.storage.sql_database import DamagedValue, OnMessage, SqlFunction
from toolcrib.storage.sqlite.migrations import MIGRATIONS

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    # Windows has no such locks, and does not need them: it refuses to move an open file.
    fcntl = None

LOCK_SUFFIX: Final = "-use"
WAIT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02
_FILE_TYPE: Final = SqliteFileType(
    # "crbs" in ASCII.
    application_id=0x63726273,
    migrations=MIGRATIONS,
    error_type=InvalidStore,
    recovery_note="tools are then trusted again on first use",
)
_LOG: Final = logging.getLogger("toolcrib.storage")
T = TypeVar("T")


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


class SqliteDatabase:
    """Runs functions with the connection of a database, and replaces a damaged file."""

    # Unlike a server, a file is never unavailable for a time: one that cannot be used raises an error each time.
    is_available: Final = True
    copy_statements: Final = ()

    def __init__(self, path: str) -> None:
        self.path = path
        # A notice for the operator, such as a damaged file that was moved; empty if none.
        self.notice = ""
        self._listeners: list[OnMessage] = []
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._file_lock: FileLock | None = None
        self._file_identity: tuple[int, int] | None = None
        self._in_use_elsewhere = False
        self._closed = False
        try:
            self.run(lambda connection: None)
        except BaseException:
            self._close_connection()
            if self._file_lock is not None:
                self._file_lock.remove()
            raise

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._closed = True
            self._close_connection()
            if self._file_lock is not None:
                self._file_lock.close()
                self._file_lock = None

    def write(
        self, write: SqlFunction[T], /, *, durable: bool = False, lock: str = "", notify: str = "", seconds: float = 0
    ) -> T:
        """Run a function in a transaction, of which there is one at a time. A durable write survives a crash."""

        def write_in_transaction(connection: sqlite3.Connection) -> T:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with transaction(connection):
                return write(connection)

        result = self.run(write_in_transaction)
        if notify:
            for on_message in self._listeners:
                on_message(notify)
        return result

    def listen(self, on_message: OnMessage, /) -> None:
        """Call a function with every message of this process."""
        self._listeners.append(on_message)

    def run(self, function: Callable[[sqlite3.Connection], T], /) -> T:
        """Run a function with the connection; replace a damaged file and run it again."""
        with self._lock:
            if self._closed:
                raise InvalidStore(f"{self.path}: the store is closed; open it again")
            try:
                try:
                    return self._call(function)
                except (sqlite3.DatabaseError, ValueError) as error:
                    if not is_corruption_error(error) or not self._move_damaged_file(error):
                        raise
                    return self._call(function)
            except (sqlite3.Error, ValueError, OSError) as error:
                raise _FILE_TYPE.build_error(self.path, error) from error

    def _call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return function(self._get_connection())
        except DamagedValue as error:
            raise sqlite3.DatabaseError(f"malformed value: {error}") from error

    def _get_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            if self.path != IN_MEMORY:
                self._file_lock = self._file_lock or FileLock(self.path)
                create_private_file(self.path)
                self._file_identity = _read_file_identity(self.path)
            connection = open_connection(self.path, any_thread=True)
            try:
                migrate_file(connection, self.path, _FILE_TYPE)
                state = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if state != "ok":
                    raise sqlite3.DatabaseError(f"malformed: {state}")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _move_damaged_file(self, error: Exception) -> bool:
        """Move a damaged file away if no other process uses it; return whether to try again."""
        if self._file_lock is None or self._in_use_elsewhere or is_text_file(self.path):
            return False
        self._close_connection()
        if self._file_lock.acquire_exclusive(is_done=self._is_replaced):
            moved_to = move_aside(self.path)
            self._file_lock.downgrade()
            self.notice = (
                f"{self.path} was damaged ({error}) and was moved to {moved_to}. A new file takes "
                "its place: servers list their tools again, and all tools are trusted on first "
                "use, including those that waited for approval. Restore a backup if you have one."
            )
            _LOG.warning("%s", self.notice)
            return True
        self._in_use_elsewhere = not self._is_replaced()
        return not self._in_use_elsewhere

    def _is_replaced(self) -> bool:
        """Return whether another process has moved the damaged file."""
        return _read_file_identity(self.path) != self._file_identity


def _read_file_identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if it does not exist."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
