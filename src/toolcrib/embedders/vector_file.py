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
from toolcrib.files.sqlite_file import SqliteFileType, migrate_file, open_connection, transaction

# At 384 numbers a vector this is about 200 MB; the oldest go first.
MAX_STORED_VECTORS: Final = 200_000

_FILE_TYPE: Final = SqliteFileType(
    # "crib" in ASCII.
    application_id=0x63726962,
    migrations=(
        (
            "CREATE TABLE vectors (id INTEGER PRIMARY KEY AUTOINCREMENT, "
            "key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)",
        ),
    ),
    error_type=InvalidCacheFile,
    content="vectors",
    recovery_note="it is filled anew",
)
# SQLite takes this many values in one statement on every build.
_MAX_SQL_PARAMETERS: Final = 500


class VectorStore:
    """A file of vectors. Whatever is wrong with it raises `InvalidCacheFile`, which names the cure."""

    def __init__(self, path: str | PathLike[str], max_vectors: int = MAX_STORED_VECTORS) -> None:
        self.path = fspath(path)
        self._most = max_vectors
        with self._connection():
            pass

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The vectors that are known, by key; what somebody put there instead, as bytes too."""
        known: dict[bytes, bytes] = {}
        with self._connection() as connection:
            for start in range(0, len(keys), _MAX_SQL_PARAMETERS):
                some = keys[start : start + _MAX_SQL_PARAMETERS]
                marks = ",".join("?" * len(some))
                asked = f"SELECT key, CAST(vector AS BLOB) FROM vectors WHERE key IN ({marks})"
                known.update(connection.execute(asked, some))
        return known

    def put(self, vectors: Mapping[bytes, bytes]) -> None:
        """Keep these, also in place of others: all of them, or none if something goes wrong."""
        with self._connection() as connection, transaction(connection):
            connection.executemany(
                "INSERT INTO vectors (key, vector) VALUES (?, ?) ON CONFLICT (key) "
                "DO UPDATE SET vector = excluded.vector WHERE vector IS NOT excluded.vector",
                vectors.items(),
            )
            connection.execute(
                "DELETE FROM vectors WHERE id <= (SELECT max(id) FROM vectors) - ?", (self._most,)
            )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(open_connection(self.path)) as connection:
                # Each time: somebody may have deleted the file since.
                migrate_file(connection, self.path, _FILE_TYPE)
                yield connection
        except (sqlite3.Error, ValueError) as fault:
            raise _FILE_TYPE.build_error(self.path, fault) from fault
