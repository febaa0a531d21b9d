"""Vectors in a file, by fingerprint: a SQLite database that many threads and processes may share.

A connection lives for one act. That costs a fraction of a millisecond beside encoding, and leaves
nothing that a thread or a forked process could share by accident.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from os import PathLike, fspath
from typing import Final

from toolcrib.errors import InvalidCacheFile

# At 384 numbers a vector this is about 200 MB; the oldest go first.
MAX_STORED: Final = 200_000
WAIT_SECONDS: Final = 10.0

# How SQLite files say whose they are: "crib" in ASCII.
_OURS: Final = 0x63726962
_VERSION: Final = 1
_TABLE: Final = (
    "CREATE TABLE vectors "
    "(id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)"
)
# SQLite takes this many values in one statement on every build.
_ASKED_AT_ONCE: Final = 500


class VectorStore:
    """A file of vectors. Whatever is wrong with it raises `InvalidCacheFile`, which names the cure."""

    def __init__(self, path: str | PathLike[str], most: int = MAX_STORED) -> None:
        self.path = fspath(path)
        self._most = most
        with self._connection() as connection:
            self._prepare(connection)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The vectors that are known, by key."""
        known: dict[bytes, bytes] = {}
        with self._connection() as connection:
            for start in range(0, len(keys), _ASKED_AT_ONCE):
                some = keys[start : start + _ASKED_AT_ONCE]
                marks = ",".join("?" * len(some))
                asked = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"
                known.update(connection.execute(asked, some))
        return known

    def put(self, vectors: Mapping[bytes, bytes]) -> None:
        """Keep these: all of them, or none if something goes wrong."""
        with self._connection() as connection, _transaction(connection):
            connection.executemany(
                "INSERT INTO vectors (key, vector) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
                vectors.items(),
            )
            connection.execute(
                "DELETE FROM vectors WHERE id <= (SELECT max(id) FROM vectors) - ?", (self._most,)
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """See that the file is ours, or make it so if it is empty."""
        if not _number(connection, "SELECT count(*) FROM sqlite_schema"):
            connection.execute("PRAGMA journal_mode = WAL")
            with _transaction(connection):
                # Another process may have been faster.
                if not _number(connection, "SELECT count(*) FROM sqlite_schema"):
                    connection.execute(_TABLE)
                    connection.execute(f"PRAGMA application_id = {_OURS}")
                    connection.execute(f"PRAGMA user_version = {_VERSION}")
        if _number(connection, "PRAGMA application_id") != _OURS:
            raise InvalidCacheFile(
                f"{self.path}: a database of another program, which is left as it is; "
                "choose another path for the vectors"
            )
        if _number(connection, "PRAGMA user_version") != _VERSION:
            raise InvalidCacheFile(
                f"{self.path}: written by another version of Toolcrib; "
                "delete the file, it is filled anew, or choose another path"
            )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
            ) as connection:
                # Safe against a crash of the program; a crash of the machine may cost the last
                # vectors, never the file.
                connection.execute("PRAGMA synchronous = NORMAL")
                yield connection
        except (sqlite3.Error, ValueError) as fault:
            raise InvalidCacheFile(f"{self.path}: {_cure(fault)}") from fault


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; the right to write is taken at once, so that two writers wait in line."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _number(connection: sqlite3.Connection, asked: str) -> int:
    return int(connection.execute(asked).fetchone()[0])


def _cure(fault: Exception) -> str:
    text = str(fault)
    if "not a database" in text or "malformed" in text:
        return (
            f"damaged, or no file of vectors ({text}); delete it and those beside it that end in "
            "-wal and -shm, it is filled anew, or choose another path"
        )
    if "locked" in text or "busy" in text:
        return f"another process has held it for {WAIT_SECONDS:.0f} seconds ({text}); end that one"
    if "full" in text:
        return f"no room to write ({text}); free some, or choose another path"
    return (
        f"cannot be opened or written ({text}); "
        "see that its folder exists and that you may write to both"
    )
