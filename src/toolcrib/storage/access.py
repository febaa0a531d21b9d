"""API keys and access profiles that were created at run time, the use of keys, and their tables in a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from toolcrib.errors import InvalidStore
from toolcrib.storage.sql_database import SqlConnection

MAX_STORED_KEYS: Final = 10_000
MAX_STORED_PROFILES: Final = 1_000

_ADD_USE: Final = (
    "INSERT INTO key_usage (hash, requests, last_used) VALUES (?, ?, ?) /* distinct */ ON CONFLICT (hash) DO UPDATE SET "
    "requests = key_usage.requests + excluded.requests, "
    "last_used = CASE WHEN key_usage.last_used > excluded.last_used THEN key_usage.last_used ELSE excluded.last_used END"
)
_PRUNE_USE: Final = (
    "DELETE FROM key_usage WHERE hash IN (SELECT hash FROM key_usage ORDER BY last_used DESC, hash LIMIT -1 OFFSET ?)"
)


@dataclass(frozen=True, slots=True)
class KeyBudget:
    """What a key may use on a day in UTC for requests to LLMs; None means no limit."""

    tokens_per_day: int | None = None
    requests_per_day: int | None = None


UNLIMITED: Final = KeyBudget()


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An API key that was created at run time. Only its SHA-256 in hexadecimal is kept."""

    id: str
    hash: str = field(repr=False)
    name: str
    profile: str | None
    created_at: float
    created_by: str = ""
    budget: KeyBudget = UNLIMITED


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """How often the key with a hash was used since the last report, and when last."""

    hash: str = field(repr=False)
    requests: int
    last_used: float


def write_key(connection: SqlConnection, key: StoredKey) -> None:
    """Store a key."""
    if connection.execute("SELECT count(*) FROM api_keys").fetchone()[0] >= MAX_STORED_KEYS:
        raise InvalidStore(f"there are {MAX_STORED_KEYS:,} keys, which is the limit; revoke one first")
    connection.execute(
        "INSERT INTO api_keys (id, hash, name, profile, created_at, created_by, tokens_per_day, requests_per_day) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (key.id, key.hash, key.name, key.profile, key.created_at, key.created_by, *astuple(key.budget)),
    )


def read_keys(connection: SqlConnection) -> list[StoredKey]:
    """Return all keys, the oldest first."""
    query = (
        "SELECT id, hash, name, profile, created_at, created_by, tokens_per_day, requests_per_day FROM api_keys "
        "ORDER BY created_at, id"
    )
    rows = connection.execute(query)
    return [replace(StoredKey(*row[:-2]), budget=KeyBudget(*row[-2:])) for row in rows]


def update_key_budget(connection: SqlConnection, id: str, budget: KeyBudget) -> bool:
    """Replace the budget of a key; return whether the key exists."""
    query = "UPDATE api_keys SET tokens_per_day = ?, requests_per_day = ? WHERE id = ?"
    return connection.execute(query, (*astuple(budget), id)).rowcount > 0


def delete_key(connection: SqlConnection, id: str) -> bool:
    """Delete a key and its usage; return whether it existed."""
    connection.execute("DELETE FROM key_usage WHERE hash IN (SELECT hash FROM api_keys WHERE id = ?)", (id,))
    return connection.execute("DELETE FROM api_keys WHERE id = ?", (id,)).rowcount > 0


def add_key_usage(connection: SqlConnection, usage: Iterable[KeyUsage], *, prune: bool) -> None:
    """Add requests to the usage of keys; with `prune`, drop the keys over the limit that were unused for longest."""
    connection.executemany(_ADD_USE, sorted((each.hash, each.requests, each.last_used) for each in usage))
    if prune:
        connection.execute(_PRUNE_USE, (2 * MAX_STORED_KEYS,))


def read_key_usage(connection: SqlConnection) -> dict[str, KeyUsage]:
    """Return the total usage of every key, by hash."""
    query = "SELECT hash, requests, last_used FROM key_usage"
    return {row[0]: KeyUsage(*row) for row in connection.execute(query)}


def write_profile(connection: SqlConnection, name: str, settings: Mapping[str, Any], at: float) -> None:
    """Store an access profile in place of a previous one."""
    others = connection.execute("SELECT count(*) FROM access_profiles WHERE name <> ?", (name,)).fetchone()[0]
    if others >= MAX_STORED_PROFILES:
        raise InvalidStore(f"there are {MAX_STORED_PROFILES:,} profiles, which is the limit; delete one first")
    connection.execute(
        "INSERT INTO access_profiles (name, body, created_at) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET body = excluded.body, created_at = excluded.created_at",
        (name, json.dumps(settings), at),
    )


def read_profiles(connection: SqlConnection) -> dict[str, dict[str, Any]]:
    """Return the settings of all access profiles, by name."""
    query = "SELECT name, body FROM access_profiles ORDER BY name"
    return {name: json.loads(body) for name, body in connection.execute(query)}


def delete_profile(connection: SqlConnection, name: str) -> bool:
    """Delete an access profile; return whether it existed."""
    return connection.execute("DELETE FROM access_profiles WHERE name = ?", (name,)).rowcount > 0
