"""SQLite files of ours: opened in one way, known by their mark, brought up to date, told apart
from damaged ones, with errors that name the cure."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolcrib.errors import InvalidConfig, ToolcribError

IN_MEMORY: Final = ":memory:"
LOCK_TIMEOUT_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
# SQLite keeps what was written last, and who reads and writes, in files of these endings.
_COMPANION_SUFFIXES: Final = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class SqliteFileType:
    """A kind of file: how SQLite knows it, how it is made, what to say when it is unfit."""

    application_id: int
    # Statements by version: a file of version n has had those of the first n.
    migrations: tuple[tuple[str, ...], ...]
    error_type: type[ToolcribError]
    content: str
    # What happens to the data if the file is deleted.
    recovery_note: str

    def build_error(self, path: str, fault: Exception) -> ToolcribError:
        """The error for what SQLite said of this file."""
        if is_corruption_error(fault) and is_text_file(path):
            return self.error_type(
                f"{path}: a text, and no store of {self.content}; it is left as it is, choose another path"
            )
        return self.error_type(f"{path}: {self._describe_error(fault)}")

    def _describe_error(self, fault: Exception) -> str:
        text = str(fault)
        if isinstance(fault, UnicodeEncodeError):
            return "a name holds half a character, which no file can; give it another name"
        if is_corruption_error(fault):
            return (
                f"damaged, or no file of {self.content} ({text}); end other processes that use it, "
                f"delete it and those beside it that end in -wal and -shm, {self.recovery_note}, "
                "or choose another path"
            )
        if "locked" in text or "busy" in text:
            return f"another process has held it for {LOCK_TIMEOUT_SECONDS:.0f} seconds ({text}); end that one"
        if "full" in text:
            return f"no room to write ({text}); free some, or choose another path"
        if "readonly" in text:
            return f"may not be written ({text}); see that you may write to it and to its folder"
        return (
            f"cannot be opened or written ({text}); "
            "see that its folder exists and that you may write to both"
        )


def path_from_url(url: str) -> str:
    """The file a URL names, or `MEMORY`. The URL may hold a secret: it is not told."""
    scheme, separator, path = url.partition("://")
    if not separator:
        raise InvalidConfig("is not a URL; for a file write sqlite:///toolcrib.db")
    if scheme != "sqlite":
        raise InvalidConfig(f"{scheme!r:.60} is not known; write sqlite:///toolcrib.db")
    if path in ("", f"/{IN_MEMORY}"):
        return IN_MEMORY
    if not path.startswith("/") or path == "/":
        raise InvalidConfig("a file comes after three slashes; write sqlite:///toolcrib.db")
    return str(Path(path[1:]).expanduser())


def is_corruption_error(fault: Exception) -> bool:
    """Whether SQLite says that the file itself is broken, or is no database."""
    text = str(fault)
    return isinstance(fault, sqlite3.Error) and ("not a database" in text or "malformed" in text)


def is_text_file(path: str) -> bool:
    """Whether a file is somebody's text: then the path is wrong, not the file."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(4096)
        head.decode()
    except UnicodeDecodeError as fault:
        if fault.start < len(head) - 4:
            return False
    except OSError:
        return False
    return b"\0" not in head


def open_connection(path: str, *, any_thread: bool = False) -> sqlite3.Connection:
    """A connection without a transaction of its own; the caller closes it."""
    connection = sqlite3.connect(
        path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=not any_thread
    )
    try:
        # Safe against a crash of the program; a crash of the machine may cost the last acts,
        # never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def migrate_file(connection: sqlite3.Connection, path: str, file_type: SqliteFileType) -> None:
    """See that the file is of this kind, made anew if it is empty and brought up to date if old."""
    newest = len(file_type.migrations)
    if not query_int(connection, "SELECT count(*) FROM sqlite_schema"):
        _enable_wal(connection)
    elif query_int(connection, "PRAGMA application_id") != file_type.application_id:
        raise file_type.error_type(
            f"{path}: a database of another program, which is left as it is; "
            f"choose another path for the {file_type.content}"
        )
    version = query_int(connection, "PRAGMA user_version")
    if version > newest:
        raise file_type.error_type(
            f"{path}: written by another version of Toolcrib, which is newer (file {version}, "
            f"this one reads up to {newest}); update Toolcrib, choose another path, or "
            f"delete the file, {file_type.recovery_note}"
        )
    if version == newest:
        return
    with transaction(connection):
        # Another process may have been faster.
        version = query_int(connection, "PRAGMA user_version")
        for statements in file_type.migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        if version < newest:
            connection.execute(f"PRAGMA application_id = {file_type.application_id}")
            connection.execute(f"PRAGMA user_version = {newest}")


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log, which lets others read while one writes.

    SQLite does not wait for other processes that do the same at that moment, so we do.
    """
    until = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as fault:
            if "locked" not in str(fault) or time.monotonic() > until:
                raise
            time.sleep(_PAUSE_SECONDS)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; the right to write is taken at once, so that two writers wait in line."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def query_int(connection: sqlite3.Connection, sql: str) -> int:
    """The one number that a question is answered with."""
    return int(connection.execute(sql).fetchone()[0])


def move_aside(path: str) -> str:
    """Give a file, and those beside it, a name that is free; gives that name."""
    place = next(
        name for count in range(1, 10_000) if not os.path.lexists(name := f"{path}.damaged-{count}")
    )
    Path(path).rename(place)
    for ending in _COMPANION_SUFFIXES:
        beside = Path(path + ending)
        if beside.exists():
            beside.rename(place + ending)
    return place
