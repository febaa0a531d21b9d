"""Earlier definitions of tools, rejections, example requests and saved test queries, and their tables in a store."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from toolcrib.core.tool import MAX_EXAMPLES
from toolcrib.errors import InvalidStore
from toolcrib.storage.sql_database import SqlConnection

MAX_VERSIONS_PER_TOOL: Final = 20
MAX_SAVED_QUERIES: Final = 5_000
# Over this number, the oldest example requests are deleted.
MAX_ENRICHED_TOOLS: Final = 50_000

_KEEP_VERSION: Final = (
    "INSERT INTO definition_versions (server, tool, fingerprint, definition, replaced_at) "
    "SELECT server, tool, fingerprint, definition, :now FROM pins "
    "WHERE server = :server AND tool = :tool AND fingerprint <> '' AND fingerprint <> :fingerprint "
    "ON CONFLICT (server, tool, fingerprint) DO UPDATE SET "
    "definition = excluded.definition, replaced_at = excluded.replaced_at"
)
_DROP_VERSIONS: Final = (
    "DELETE FROM definition_versions WHERE server = :server AND tool = :tool AND fingerprint NOT IN ("
    "SELECT fingerprint FROM definition_versions WHERE server = :server AND tool = :tool "
    "ORDER BY replaced_at DESC LIMIT :limit)"
)

_PUT_REQUESTS: Final = (
    "INSERT INTO example_requests (fingerprint, tool, requests, model, written_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (fingerprint) DO UPDATE SET tool = excluded.tool, requests = excluded.requests, "
    "model = excluded.model, written_at = excluded.written_at"
)
_PRUNE_REQUESTS: Final = (
    "DELETE FROM example_requests WHERE fingerprint IN "
    "(SELECT fingerprint FROM example_requests ORDER BY written_at DESC, fingerprint LIMIT -1 OFFSET ?)"
)


class StoredRequests(NamedTuple):
    """The requests that a model wrote for a tool."""

    fingerprint: str
    tool: str
    requests: tuple[str, ...]
    model: str
    written_at: float


@dataclass(frozen=True, slots=True)
class DefinitionVersion:
    """An approved definition of a tool that another one has replaced."""

    fingerprint: str
    definition: Mapping[str, Any]
    replaced_at: float


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """A test for search: a query and the tools that answer it. Without tools, nothing should be found."""

    query: str
    tools: tuple[str, ...]
    created_at: float


def keep_versions(connection: SqlConnection, server: str, replacements: Iterable[tuple[str, str]]) -> None:
    """Keep the definitions of pins that are about to be replaced, given as pairs of tool and new fingerprint."""
    now = time.time()
    for tool, fingerprint in replacements:
        values = {"server": server, "tool": tool, "fingerprint": fingerprint, "now": now}
        if connection.execute(_KEEP_VERSION, values).rowcount > 0:
            connection.execute(_DROP_VERSIONS, {**values, "limit": MAX_VERSIONS_PER_TOOL})


def read_versions(connection: SqlConnection, server: str, tool: str) -> list[DefinitionVersion]:
    """Return the earlier definitions of a tool, newest first."""
    query = (
        "SELECT fingerprint, definition, replaced_at FROM definition_versions "
        "WHERE server = ? AND tool = ? ORDER BY replaced_at DESC, fingerprint"
    )
    return [
        DefinitionVersion(fingerprint, json.loads(definition), replaced_at)
        for fingerprint, definition, replaced_at in connection.execute(query, (server, tool))
    ]


def delete_versions(connection: SqlConnection, server: str) -> None:
    """Delete the earlier definitions and the rejections of a server."""
    connection.execute("DELETE FROM definition_versions WHERE server = ?", (server,))
    connection.execute("DELETE FROM rejections WHERE server = ?", (server,))


def write_rejection(connection: SqlConnection, server: str, tool: str, fingerprint: str) -> bool:
    """Reject a candidate; return whether it was still the candidate of its tool."""
    condition = "server = ? AND tool = ? AND state = 'changed' AND candidate_fingerprint = ?"
    values = (server, tool, fingerprint)
    if not connection.execute(f"SELECT 1 FROM pins WHERE {condition}", values).fetchone():
        return False
    connection.execute(
        "INSERT INTO rejections (server, tool, fingerprint, at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (server, tool) DO UPDATE SET fingerprint = excluded.fingerprint, at = excluded.at",
        (*values, time.time()),
    )
    return True


def read_rejections(connection: SqlConnection) -> frozenset[tuple[str, str, str]]:
    """Return server, tool and fingerprint of every rejected candidate."""
    return frozenset(connection.execute("SELECT server, tool, fingerprint FROM rejections").fetchall())


def write_query(connection: SqlConnection, saved: SavedQuery) -> None:
    """Save a test query in place of an earlier one with the same text."""
    connection.execute(
        "INSERT INTO saved_queries (query, tools, created_at) VALUES (?, ?, ?) "
        "ON CONFLICT (query) DO UPDATE SET tools = excluded.tools, created_at = excluded.created_at",
        (saved.query, json.dumps(saved.tools), saved.created_at),
    )
    if connection.execute("SELECT count(*) FROM saved_queries").fetchone()[0] > MAX_SAVED_QUERIES:
        raise InvalidStore(f"there are {MAX_SAVED_QUERIES:,} saved queries, which is the limit; delete one first")


def read_queries(connection: SqlConnection) -> list[SavedQuery]:
    """Return the saved test queries, the oldest first."""
    query = "SELECT query, tools, created_at FROM saved_queries ORDER BY created_at, query"
    return [SavedQuery(text, tuple(json.loads(tools)), at) for text, tools, at in connection.execute(query)]


def delete_query(connection: SqlConnection, query: str) -> bool:
    """Delete a saved test query; return whether it existed."""
    return connection.execute("DELETE FROM saved_queries WHERE query = ?", (query,)).rowcount > 0


def write_example_requests(connection: SqlConnection, stored: Iterable[StoredRequests]) -> None:
    """Store requests in place of earlier ones for the same definitions."""
    rows = sorted((one.fingerprint, one.tool, json.dumps(one.requests), one.model, one.written_at) for one in stored)
    connection.executemany(_PUT_REQUESTS, rows)
    connection.execute(_PRUNE_REQUESTS, (MAX_ENRICHED_TOOLS,))


def read_example_requests(connection: SqlConnection) -> dict[str, tuple[str, ...]]:
    """Return the requests by fingerprint."""
    rows = connection.execute("SELECT fingerprint, requests FROM example_requests")
    return {fingerprint: tuple(json.loads(requests))[:MAX_EXAMPLES] for fingerprint, requests in rows}
