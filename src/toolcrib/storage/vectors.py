"""Vectors of tool texts, which all gateways of a store share, and their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toolcrib.storage.sql_database import SqlConnection

# About 1 GB with 384 dimensions. The oldest vectors are deleted first.
MAX_SHARED_VECTORS: Final = 1_000_000
_MAX_KEYS_PER_STATEMENT: Final = 500

_PUT: Final = (
    "INSERT INTO vectors (key, vector, stored_at) VALUES (?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET vector = excluded.vector WHERE vectors.vector <> excluded.vector"
)
_PRUNE: Final = (
    "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY stored_at DESC, key LIMIT -1 OFFSET ?)"
)


def read_vectors(connection: SqlConnection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the vectors that are stored for some keys."""
    vectors: dict[bytes, bytes] = {}
    # Most batches are full, so PostgreSQL prepares few statements.
    for start in range(0, len(keys), _MAX_KEYS_PER_STATEMENT):
        batch = keys[start : start + _MAX_KEYS_PER_STATEMENT]
        marks = ", ".join("?" * len(batch))
        rows = connection.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", tuple(batch))
        vectors.update((bytes(key), bytes(vector)) for key, vector in rows)
    return vectors


def write_vectors(connection: SqlConnection, vectors: Mapping[bytes, bytes], now: float) -> None:
    """Store vectors, in the order of their keys, so that two writers do not deadlock."""
    connection.executemany(_PUT, [(key, vectors[key], now) for key in sorted(vectors)])


def prune_vectors(connection: SqlConnection) -> None:
    """Delete the oldest vectors over the limit."""
    connection.execute(_PRUNE, (MAX_SHARED_VECTORS,))
