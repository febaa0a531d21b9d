"""Values with an expiry that the replicas of a gateway share, and their table in a store.

Client sessions, hidden parts of conversations, approvals in flight, browser logins, leases and positions in
journals are such values. Losing one costs a new handshake, search, question or login, never an approval or a key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from toolcrib.storage.sql_database import SqlConnection

ValueKind = Literal[
    "session", "conversation", "response", "approval", "login", "link", "lease", "message", "quota", "journal"
]

# Over this number per kind, the values that expire first are deleted.
MAX_SHARED_VALUES: Final = 200_000
# Values are pruned once per this many writes.
PRUNE_WRITES: Final = 500

_PUT: Final = (
    "INSERT INTO shared_values (kind, key, body, expires_at) VALUES (?, ?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET "
    "body = excluded.body, expires_at = excluded.expires_at"
)
_TAKE_LEASE: Final = (
    "INSERT INTO shared_values (kind, key, body, expires_at) VALUES ('lease', ?, ?, ?) ON CONFLICT (kind, key) "
    "DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at "
    "WHERE shared_values.body = excluded.body OR shared_values.expires_at <= ?"
)
_PRUNE_COUNT: Final = (
    "DELETE FROM shared_values WHERE kind = ? AND key IN (SELECT key FROM shared_values WHERE kind = ? "
    "ORDER BY expires_at DESC, key LIMIT -1 OFFSET ?)"
)


class SharedValue(NamedTuple):
    """A value, as JSON, and until when it is kept."""

    kind: ValueKind
    key: str
    body: str
    expires_at: float


def write_values(connection: SqlConnection, values: Iterable[SharedValue]) -> None:
    """Store values in place of those with the same kind and key."""
    connection.executemany(_PUT, [(value.kind, value.key, value.body, value.expires_at) for value in values])


def read_values(connection: SqlConnection, kind: ValueKind, keys: Iterable[str], now: float) -> dict[str, str]:
    """Return the values of some keys that have not expired."""
    query = "SELECT body FROM shared_values WHERE kind = ? AND key = ? AND expires_at > ?"
    found = {key: connection.execute(query, (kind, key, now)).fetchone() for key in keys}
    return {key: row[0] for key, row in found.items() if row is not None}


def read_kind(connection: SqlConnection, kind: ValueKind, now: float, limit: int = MAX_SHARED_VALUES) -> dict[str, str]:
    """Return the values of a kind that have not expired, at most those that expire last."""
    query = "SELECT key, body FROM shared_values WHERE kind = ? AND expires_at > ? ORDER BY expires_at DESC LIMIT ?"
    return {row[0]: row[1] for row in connection.execute(query, (kind, now, limit))}


def extend_values(connection: SqlConnection, kind: ValueKind, keys: Iterable[str], expires_at: float) -> None:
    """Keep values for longer."""
    statement = "UPDATE shared_values SET expires_at = ? WHERE kind = ? AND key = ? AND expires_at < ?"
    connection.executemany(statement, [(expires_at, kind, key, expires_at) for key in keys])


def take_value(connection: SqlConnection, kind: ValueKind, key: str, now: float) -> str | None:
    """Return a value and delete it, so that it is used once."""
    found = read_values(connection, kind, [key], now)
    deleted = connection.execute("DELETE FROM shared_values WHERE kind = ? AND key = ?", (kind, key)).rowcount
    return found.get(key) if deleted else None


def delete_values(connection: SqlConnection, kind: ValueKind, keys: Iterable[str]) -> None:
    """Delete the values of some keys."""
    connection.executemany("DELETE FROM shared_values WHERE kind = ? AND key = ?", [(kind, key) for key in keys])


def take_lease(connection: SqlConnection, name: str, holder: str, now: float, seconds: float) -> str:
    """Take or extend a lease, unless another holder has it; return its holder."""
    connection.execute(_TAKE_LEASE, (name, holder, now + seconds, now))
    row = connection.execute("SELECT body FROM shared_values WHERE kind = 'lease' AND key = ?", (name,)).fetchone()
    return str(row[0])


def release_lease(connection: SqlConnection, name: str, holder: str) -> None:
    """Give a lease back, so that another holder can take it without waiting."""
    connection.execute("DELETE FROM shared_values WHERE kind = 'lease' AND key = ? AND body = ?", (name, holder))


def prune_values(connection: SqlConnection, now: float) -> None:
    """Delete expired values, and those over the limit of their kind."""
    connection.execute("DELETE FROM shared_values WHERE expires_at <= ?", (now,))
    counts = connection.execute("SELECT kind, count(*) FROM shared_values GROUP BY kind").fetchall()
    for kind, count in counts:
        if count > MAX_SHARED_VALUES:
            connection.execute(_PRUNE_COUNT, (kind, kind, MAX_SHARED_VALUES))
