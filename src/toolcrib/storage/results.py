"""Large tool results that a gateway keeps for later reads, and their table in a store."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from toolcrib.storage.sql_database import DamagedValue, SqlConnection

# Over these limits, the oldest results are deleted: first those of the same owner, then of all.
MAX_RESULTS_PER_OWNER: Final = 1_000
MAX_STORED_RESULTS: Final = 10_000
MAX_RESULT_TEXT_BYTES: Final = 64 * 1024 * 1024
# The limits of all owners are enforced after this many results, or after a part of the bytes: adding up the sizes of
# a thousand results takes several times as long as storing one.
PRUNE_RESULTS: Final = 100
PRUNE_PARTS: Final = 64

_COMPRESSION_LEVEL: Final = 1
_PRUNE_OWNER: Final = (
    "DELETE FROM results WHERE handle IN (SELECT handle FROM results WHERE owner = ? "
    "ORDER BY created, handle DESC LIMIT ?)"
)
_PRUNE_COUNT: Final = (
    "DELETE FROM results WHERE handle IN (SELECT handle FROM results ORDER BY created DESC, handle LIMIT -1 OFFSET ?)"
)
_PRUNE_BYTES: Final = (
    "DELETE FROM results WHERE handle IN (SELECT handle FROM (SELECT handle, "
    "sum(length(body)) OVER (ORDER BY created DESC, handle) AS total FROM results) AS sizes WHERE total > ?)"
)


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The text of a large tool result; only its owner can read it, until it expires."""

    handle: str
    owner: str
    tool: str
    text: str
    created: float
    expires: float


@dataclass(slots=True)
class ResultPruning:
    """Decides when the limits of all owners are enforced, the first time with the first result."""

    count: int = PRUNE_RESULTS
    size: int = 0

    def choose_limit(self, result: StoredResult, max_bytes: int) -> int | None:
        """Return the limit of bytes to enforce with this result, or None if it is not due."""
        self.count += 1
        self.size += len(result.text)
        if self.count <= PRUNE_RESULTS and self.size <= max_bytes // PRUNE_PARTS:
            return None
        self.count = self.size = 0
        return max_bytes


def write_result(connection: SqlConnection, result: StoredResult, max_bytes: int | None) -> None:
    """Store a result, and delete expired ones and the oldest ones over the limits.

    `max_bytes` limits the compressed size of all results; with None, only the limit of the owner is enforced. The new
    result is always kept.
    """
    body = zlib.compress(result.text.encode("utf-8", "surrogatepass"), _COMPRESSION_LEVEL)
    connection.execute(
        "INSERT INTO results (handle, owner, tool, body, created, expires) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (handle) DO UPDATE SET owner = excluded.owner, tool = excluded.tool, body = excluded.body, "
        "created = excluded.created, expires = excluded.expires",
        (result.handle, result.owner, result.tool, body, result.created, result.expires),
    )
    delete_expired(connection, result.created)
    (count,) = connection.execute("SELECT count(*) FROM results WHERE owner = ?", (result.owner,)).fetchone()
    if count > MAX_RESULTS_PER_OWNER:
        connection.execute(_PRUNE_OWNER, (result.owner, count - MAX_RESULTS_PER_OWNER))
    if max_bytes is not None:
        connection.execute(_PRUNE_COUNT, (MAX_STORED_RESULTS,))
        connection.execute(_PRUNE_BYTES, (max(max_bytes, len(body)),))


def read_result(connection: SqlConnection, handle: str, owner: str, now: float) -> StoredResult | None:
    """Return an owner's result, or None if there is none or it has expired."""
    row = connection.execute(
        "SELECT tool, body, created, expires FROM results WHERE handle = ? AND owner = ? AND expires > ?",
        (handle, owner, now),
    ).fetchone()
    if row is None:
        return None
    tool, body, created, expires = row
    return StoredResult(handle, owner, tool, _decompress(body), created, expires)


def delete_expired(connection: SqlConnection, now: float) -> None:
    """Delete the expired results."""
    connection.execute("DELETE FROM results WHERE expires <= ?", (now,))


def _decompress(body: bytes) -> str:
    try:
        decompressor = zlib.decompressobj()
        text = decompressor.decompress(body, MAX_RESULT_TEXT_BYTES)
        if not decompressor.eof:
            raise ValueError("cut off")
        return text.decode("utf-8", "surrogatepass")
    except (zlib.error, ValueError, TypeError) as error:
        raise DamagedValue(f"{error} in a stored result") from error
