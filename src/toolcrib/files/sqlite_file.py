"""Open, create and migrate the SQLite files of Toolcrib, with error messages that name the remedy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolcrib.errors import ToolcribError

IN_MEMORY: Final = ":memory:"
LOCK_TIMEOUT_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
# The suffixes of the files that SQLite creates next to a database.
_SHARED_MEMORY_BYTES: Final = 32 * 1024
_COMPANION_SUFFIXES: Final = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class SqliteFileType:
    """The schema of a type of SQLite file, and how to report its errors."""

    application_id: int
    # The statements of each version. A file of version n has run those of the first n.
    migrations: tuple[tuple[str, ...], ...]
    error_type: type[ToolcribError]
    # What happens to the data if the user deletes the file.
    recovery_note: str

    def build_error(self, path: str, error: Exception) -> ToolcribError:
        """Return an error with the remedy for an error of SQLite."""
        if is_corruption_error(error) and is_text_file(path):
            return self.error_type(f"{path}: this is a text file, not a database; choose another path")
        return self.error_type(f"{path}: {self._describe_error(path, error)}")

    def _describe_error(self, path: str, error: Exception) -> str:
        text = str(error)
        if isinstance(error, UnicodeEncodeError):
            return "a name contains half a surrogate pair, which cannot be stored; rename it"
        if is_corruption_error(error):
            return (
                f"the file is damaged or is not a database ({text}); stop all processes that use "
                f"it and delete it with its -wal and -shm files ({self.recovery_note}), or choose "
                "another path"
            )
        if "locked" in text or "busy" in text:
            return (
                f"another process has locked the file for {LOCK_TIMEOUT_SECONDS:.0f} seconds "
                f"({text}); stop that process"
            )
        # Without space for its -shm file, a database reports an I/O error.
        if "full" in text or ("I/O error" in text and shutil.disk_usage(Path(path).parent).free < _SHARED_MEMORY_BYTES):
            return f"the disk is full ({text}); free some space, or choose another path"
        if "readonly" in text:
            return f"the file is read-only ({text}); check its permissions and its folder's"
        return (
            f"the file cannot be opened or written ({text}); "
            "check that its folder exists and that you may write to both"
        )


def is_corruption_error(error: Exception) -> bool:
    """Return whether SQLite found the file damaged or not a database."""
    text = str(error)
    return isinstance(error, sqlite3.Error) and ("not a database" in text or "malformed" in text)


def is_text_file(path: str) -> bool:
    """Return whether a file contains text, which means that the path is wrong."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(4096)
        head.decode()
    except UnicodeDecodeError as error:
        # A character may be cut off at the end of the first block.
        if error.start < len(head) - 4:
            return False
    except OSError:
        return False
    return b"\0" not in head


def open_connection(path: str, *, any_thread: bool = False) -> sqlite3.Connection:
    """Return a connection in autocommit mode. The caller closes it. Only its owner can read a new file."""
    if path != IN_MEMORY:
        create_private_file(path)
    connection = sqlite3.connect(
        path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=not any_thread
    )
    try:
        # Survives a crash of the process. A crash of the machine may lose the last transactions
        # but does not damage the file.
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def create_private_file(path: str) -> None:
    """Create a file that only its owner can read, unless it exists.

    An existing file is not opened, because closing it would release this process's SQLite locks.
    """
    # SQLite reports what is wrong with the path.
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def migrate_file(connection: sqlite3.Connection, path: str, file_type: SqliteFileType) -> None:
    """Create the tables of an empty file, or run the missing migrations of an existing one."""
    newest = len(file_type.migrations)
    if not query_int(connection, "SELECT count(*) FROM sqlite_schema"):
        _enable_wal(connection)
    elif query_int(connection, "PRAGMA application_id") != file_type.application_id:
        raise file_type.error_type(f"{path}: this is a database of another program; choose another path")
    version = query_int(connection, "PRAGMA user_version")
    if version > newest:
        raise file_type.error_type(
            f"{path}: written by a newer version of Toolcrib (file version {version}, supported "
            f"up to {newest}); update Toolcrib, choose another path, or delete the file "
            f"({file_type.recovery_note})"
        )
    if version == newest:
        return
    with transaction(connection):
        # Another process may have run the migrations in the meantime.
        version = query_int(connection, "PRAGMA user_version")
        for statements in file_type.migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        if version < newest:
            connection.execute(f"PRAGMA application_id = {file_type.application_id}")
            connection.execute(f"PRAGMA user_version = {newest}")


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log, so that others can read during a write.

    SQLite does not wait if another process does the same, so this function retries.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction that locks the file for writing from the start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def query_int(connection: sqlite3.Connection, sql: str) -> int:
    """Return the single integer result of a statement."""
    return int(connection.execute(sql).fetchone()[0])


def move_aside(path: str) -> str:
    """Rename a damaged database and its companion files, and return the new path."""
    new_path = next(name for count in range(1, 10_000) if not os.path.lexists(name := f"{path}.damaged-{count}"))
    Path(path).rename(new_path)
    for suffix in _COMPANION_SUFFIXES:
        companion = Path(path + suffix)
        if companion.exists():
            companion.rename(new_path + suffix)
    return new_path
