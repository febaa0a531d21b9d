"""The OAuth tokens of servers, encrypted by the caller, and their table in a store."""

from __future__ import annotations

from typing import Final

from toolcrib.errors import InvalidStore
from toolcrib.storage.sql_database import SqlConnection

MAX_STORED_TOKENS: Final = 10_000

_PUT: Final = (
    "INSERT INTO oauth_tokens (name, body, claimed_until) VALUES (?, ?, 0) "
    "ON CONFLICT (name) DO UPDATE SET body = excluded.body, claimed_until = 0"
)


def write_token(connection: SqlConnection, name: str, body: bytes) -> None:
    """Store a token in place of a previous one, and end the claim to refresh it."""
    others = connection.execute("SELECT count(*) FROM oauth_tokens WHERE name <> ?", (name,)).fetchone()[0]
    if others >= MAX_STORED_TOKENS:
        raise InvalidStore(f"there are {MAX_STORED_TOKENS:,} tokens, which is the limit; run `toolcrib login --forget`")
    connection.execute(_PUT, (name, body))


def read_tokens(connection: SqlConnection, name: str | None = None) -> dict[str, bytes]:
    """Return all tokens by name, or one."""
    clause, values = ("", ()) if name is None else ("WHERE name = ?", (name,))
    rows = connection.execute(f"SELECT name, body FROM oauth_tokens {clause}", values)
    return {name: bytes(body) for name, body in rows}


def delete_token(connection: SqlConnection, name: str) -> bool:
    """Delete a token; return whether it existed."""
    return connection.execute("DELETE FROM oauth_tokens WHERE name = ?", (name,)).rowcount > 0


def claim_token(connection: SqlConnection, name: str, now: float, until: float) -> bool:
    """Claim the refresh of a token until a time; return False if another process has claimed it."""
    statement = "UPDATE oauth_tokens SET claimed_until = ? WHERE name = ? AND claimed_until <= ?"
    return connection.execute(statement, (until, name, now)).rowcount > 0
