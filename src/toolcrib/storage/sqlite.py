"""A store in a SQLite file, which several processes may share, or in memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from toolcrib.errors import InvalidStore
from toolcrib.files.sqlite_file import query_int
from toolcrib.safety.pinning import Pin
from toolcrib.storage import access, audit, definitions, time_series
from toolcrib.storage.access import KeyUsage, StoredKey
from toolcrib.storage.audit import AuditFilter, AuditRow
from toolcrib.storage.definitions import DefinitionVersion, SavedQuery
from toolcrib.storage.llm_usage import LlmUsage, add_usage, read_usage
from toolcrib.storage.results import StoredResult, count_results, read_result, write_result
from toolcrib.storage.sqlite_database import SqliteDatabase
from toolcrib.storage.store import (
    MAX_COUNTERS,
    MAX_PINS_PER_SERVER,
    MAX_SERVERS,
    MAX_USED_TOOLS,
    MAX_VALUE_BYTES,
    ServerManifest,
    ToolUsage,
    ToolUsageTotal,
)
from toolcrib.storage.time_series import Resolution, SeriesAmount

# The usage table is pruned once per this many calls, so it can exceed its limit by that much.
PRUNE_INTERVAL: Final = 256

_PIN_FIELDS: Final = "tool, fingerprint, definition, state, first_seen, candidate, candidate_fingerprint"


class SqliteStore:
    """Keeps manifests, pins, usage totals and counters. Open it after a fork, not before.

    The methods are synchronous, fast and thread-safe; call them from an event loop through a
    thread. Every failure raises `InvalidStore` with a message that names the remedy.
    """

    def __init__(self, path: str) -> None:
        self._database = SqliteDatabase(path)
        self._calls_since_prune = PRUNE_INTERVAL

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._database.path

    @property
    def notice(self) -> str:
        """A notice for the operator, such as a damaged file that was moved; empty if none."""
        return self._database.notice

    def get_manifest(self, server: str) -> ServerManifest | None:
        """Return a server's manifest."""
        return self._query_manifests("WHERE server = ?", server).get(server)

    def list_manifests(self) -> dict[str, ServerManifest]:
        """Return the manifests of all servers, by server."""
        return self._query_manifests("ORDER BY server")

    def put_manifest(self, server: str, manifest: ServerManifest) -> None:
        """Store a server's manifest in place of the previous one."""
        body = _encode_json(
            {
                "tools": manifest.tools,
                "instructions": manifest.instructions,
                "protocol": manifest.protocol,
                "info": dict(manifest.info),
                "faults": manifest.problems,
                "altered": manifest.repaired_tools,
            },
            f"the manifest of {server!r}",
        )

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO manifests (server, identity, body, seen) VALUES (?, ?, ?, ?)",
                (server, manifest.identity, body, manifest.seen_at),
            )
            connection.execute(
                "DELETE FROM manifests WHERE server IN (SELECT server FROM manifests "
                "ORDER BY seen DESC, server LIMIT -1 OFFSET ?)",
                (MAX_SERVERS,),
            )

        self._database.write(write, durable=True)

    def forget_server(self, server: str) -> None:
        """Delete a server's manifest and pins; its tools are trusted on first use again."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM manifests WHERE server = ?", (server,))
            connection.execute("DELETE FROM pins WHERE server = ?", (server,))
            definitions.delete_versions(connection, server)
            _increment_revision(connection)

        self._database.write(write, durable=True)

    def get_pins(self, server: str) -> dict[str, Pin]:
        """Return a server's pins by tool name."""
        query = f"SELECT {_PIN_FIELDS} FROM pins WHERE server = ? ORDER BY tool"

        def read(connection: sqlite3.Connection) -> dict[str, Pin]:
            return {row[0]: _pin_from_row(row) for row in connection.execute(query, (server,))}

        return self._database.run(read)

    def list_quarantined(self) -> dict[str, dict[str, Pin]]:
        """Return the pins that wait for approval, by server and tool name, both sorted."""
        query = f"SELECT server, {_PIN_FIELDS} FROM pins WHERE state = 'changed' ORDER BY 1, 2"

        def read(connection: sqlite3.Connection) -> dict[str, dict[str, Pin]]:
            pins: dict[str, dict[str, Pin]] = {}
            for server, *row in connection.execute(query):
                pins.setdefault(server, {})[row[0]] = _pin_from_row(row)
            return pins

        return self._database.run(read)

    def put_pins(self, server: str, pins: Iterable[Pin]) -> None:
        """Store pins. A candidate that was approved in the meantime stays approved."""
        pins = list(pins)
        rows = [_row_from_pin(server, pin) for pin in pins]

        def write(connection: sqlite3.Connection) -> None:
            definitions.keep_versions(connection, server, ((pin.tool, pin.fingerprint) for pin in pins))
            connection.executemany(
                f"INSERT INTO pins (server, {_PIN_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (server, tool) DO UPDATE SET fingerprint = excluded.fingerprint, "
                "definition = excluded.definition, state = excluded.state, "
                "candidate = excluded.candidate, "
                "candidate_fingerprint = excluded.candidate_fingerprint "
                "WHERE NOT (pins.state = 'approved' AND excluded.state = 'changed' "
                "AND pins.fingerprint = excluded.candidate_fingerprint)",
                rows,
            )
            query = "SELECT count(*) FROM pins WHERE server = ?"
            if connection.execute(query, (server,)).fetchone()[0] > MAX_PINS_PER_SERVER:
                raise InvalidStore(
                    f"the server {server!r} has listed tools under more than "
                    f"{MAX_PINS_PER_SERVER:,} different names, which is the limit; if you trust "
                    f"the server, run `toolcrib approve --forget {server}`"
                )
            _increment_revision(connection)

        if rows:
            self._database.write(write, durable=True)

    def approve(self, server: str, tool: str | None = None, *, fingerprint: str | None = None) -> list[str]:
        """Approve the candidates of a server or of one tool; return the approved tools.

        With a `fingerprint`, approve only the candidate that has it. This protects against a
        candidate that was replaced after the user reviewed it.
        """
        condition = (
            "server = :server AND state = 'changed' AND candidate IS NOT NULL "
            "AND (:tool IS NULL OR tool = :tool) "
            "AND (:fingerprint IS NULL OR candidate_fingerprint = :fingerprint)"
        )
        values = {"server": server, "tool": tool, "fingerprint": fingerprint}

        def write(connection: sqlite3.Connection) -> list[str]:
            query = f"SELECT tool, candidate_fingerprint FROM pins WHERE {condition} ORDER BY tool"
            replacements = connection.execute(query, values).fetchall()
            definitions.keep_versions(connection, server, replacements)
            tools = [tool for tool, _ in replacements]
            connection.execute(
                "UPDATE pins SET state = 'approved', fingerprint = candidate_fingerprint, "
                "definition = candidate, candidate = NULL, candidate_fingerprint = '' "
                f"WHERE {condition}",
                values,
            )
            if tools:
                _increment_revision(connection)
            return tools

        return self._database.write(write, durable=True)

    def reject(self, server: str, tool: str, fingerprint: str) -> bool:
        """Reject a candidate, so that it no longer waits; return whether it was still the candidate."""
        return self._database.write(
            lambda connection: definitions.write_rejection(connection, server, tool, fingerprint), durable=True
        )

    def list_rejections(self) -> frozenset[tuple[str, str, str]]:
        """Return server, tool and fingerprint of every rejected candidate."""
        return self._database.run(definitions.read_rejections)

    def list_definition_versions(self, server: str, tool: str) -> list[DefinitionVersion]:
        """Return the earlier approved definitions of a tool, newest first."""
        return self._database.run(lambda connection: definitions.read_versions(connection, server, tool))

    def put_saved_query(self, saved: SavedQuery) -> None:
        """Save a test query in place of an earlier one with the same text."""
        self._database.write(lambda connection: definitions.write_query(connection, saved), durable=True)

    def list_saved_queries(self) -> list[SavedQuery]:
        """Return the saved test queries, the oldest first."""
        return self._database.run(definitions.read_queries)

    def delete_saved_query(self, query: str) -> bool:
        """Delete a saved test query; return whether it existed."""
        return self._database.write(lambda connection: definitions.delete_query(connection, query), durable=True)

    def get_revision(self) -> int:
        """Return a number that grows whenever a process changes pins."""
        return self._database.run(lambda connection: query_int(connection, "SELECT number FROM revision"))

    def record_calls(self, calls: Iterable[ToolUsage]) -> None:
        """Add tool calls to the usage totals."""
        rows = [(call.tool_id, int(not call.succeeded), call.seconds, call.at) for call in calls]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO usage (tool_id, calls, failures, seconds, last_used) "
                "VALUES (?, 1, ?, ?, ?) ON CONFLICT (tool_id) DO UPDATE SET calls = calls + 1, "
                "failures = failures + excluded.failures, seconds = seconds + excluded.seconds, "
                "last_used = max(last_used, excluded.last_used)",
                rows,
            )
            self._calls_since_prune += len(rows)
            if self._calls_since_prune > PRUNE_INTERVAL:
                self._calls_since_prune = 0
                connection.execute(
                    "DELETE FROM usage WHERE tool_id IN (SELECT tool_id FROM usage "
                    "ORDER BY last_used DESC, tool_id LIMIT -1 OFFSET ?)",
                    (MAX_USED_TOOLS,),
                )

        if rows:
            self._database.write(write)

    def get_usage(self) -> dict[str, ToolUsageTotal]:
        """Return the usage totals by tool id."""
        query = "SELECT tool_id, calls, failures, last_used, seconds FROM usage ORDER BY tool_id"

        def read(connection: sqlite3.Connection) -> dict[str, ToolUsageTotal]:
            return {id: ToolUsageTotal(*totals) for id, *totals in connection.execute(query)}

        return self._database.run(read)

    def add_stats(self, amounts: Mapping[str, int]) -> None:
        """Add amounts to counters; a new counter is ignored if there are too many."""
        rows = [(name, amount, MAX_COUNTERS, name) for name, amount in amounts.items()]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO counters (name, amount) SELECT ?, ? "
                "WHERE (SELECT count(*) FROM counters) < ? "
                "OR EXISTS (SELECT 1 FROM counters WHERE name = ?) "
                "ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount",
                rows,
            )

        if rows:
            self._database.write(write)

    def get_stats(self) -> dict[str, int]:
        """Return all counters by name."""
        query = "SELECT name, amount FROM counters ORDER BY name"
        return self._database.run(lambda connection: dict(connection.execute(query).fetchall()))

    def add_llm_usage(self, rows: Iterable[LlmUsage]) -> None:
        """Add requests and tokens to the rows of their day, key and model."""
        self._database.write(lambda connection: add_usage(connection, rows))

    def list_llm_usage(self, since_day: str = "") -> list[LlmUsage]:
        """Return the usage from a day on, sorted by day, key and model."""
        return self._database.run(lambda connection: read_usage(connection, since_day))

    def put_result(self, result: StoredResult, max_bytes: int) -> None:
        """Store a large tool result; delete expired results, and the oldest over the limits."""
        self._database.write(lambda connection: write_result(connection, result, max_bytes), durable=True)

    def get_result(self, handle: str, owner: str, now: float) -> StoredResult | None:
        """Return an owner's result, or None if there is none or it has expired."""
        return self._database.run(lambda connection: read_result(connection, handle, owner, now))

    def count_results(self) -> tuple[int, int]:
        """Return the number of stored results and their compressed bytes."""
        return self._database.run(count_results)

    def append_audit(self, rows: Sequence[AuditRow], *, durable: bool = False) -> None:
        """Append rows to the audit log. Durable rows survive a crash of the machine."""
        self._database.write(lambda connection: audit.append_rows(connection, rows), durable=durable)

    def list_audit(self, where: AuditFilter, limit: int) -> list[AuditRow]:
        """Return audit rows: the newest first, or with `where.after` the oldest after that id first."""
        return self._database.run(lambda connection: audit.read_rows(connection, where, limit))

    def prune_audit(self, before: float, max_rows: int) -> int:
        """Delete some of the audit rows that are too old or too many; return how many."""
        return self._database.write(lambda connection: audit.prune_rows(connection, before, max_rows))

    def add_series(self, amounts: Sequence[SeriesAmount]) -> None:
        """Add amounts to the time series of every resolution."""
        self._database.write(lambda connection: time_series.add_amounts(connection, amounts))

    def list_series(self, resolution: Resolution, since: float) -> list[SeriesAmount]:
        """Return the amounts of a resolution since a time, sorted by time."""
        return self._database.run(lambda connection: time_series.read_amounts(connection, resolution, since))

    def prune_series(self, now: float) -> None:
        """Delete the amounts that are too old or too many."""
        self._database.write(lambda connection: time_series.prune_amounts(connection, now))

    def put_key(self, key: StoredKey) -> None:
        """Store an API key."""
        self._database.write(lambda connection: access.write_key(connection, key), durable=True)

    def list_keys(self) -> list[StoredKey]:
        """Return the stored API keys, the oldest first."""
        return self._database.run(access.read_keys)

    def delete_key(self, id: str) -> bool:
        """Delete an API key; return whether it existed."""
        return self._database.write(lambda connection: access.delete_key(connection, id), durable=True)

    def add_key_usage(self, usage: Sequence[KeyUsage]) -> None:
        """Add requests to the usage of API keys."""
        self._database.write(lambda connection: access.add_key_usage(connection, usage))

    def get_key_usage(self) -> dict[str, KeyUsage]:
        """Return the usage of API keys, by hash."""
        return self._database.run(access.read_key_usage)

    def put_profile(self, name: str, settings: Mapping[str, Any], at: float) -> None:
        """Store an access profile in place of a previous one."""
        self._database.write(lambda connection: access.write_profile(connection, name, settings, at), durable=True)

    def list_profiles(self) -> dict[str, dict[str, Any]]:
        """Return the settings of the stored access profiles, by name."""
        return self._database.run(access.read_profiles)

    def delete_profile(self, name: str) -> bool:
        """Delete a stored access profile; return whether it existed."""
        return self._database.write(lambda connection: access.delete_profile(connection, name), durable=True)

    def close(self) -> None:
        """Close the store."""
        self._database.close()

    def _query_manifests(self, clause: str, *values: str) -> dict[str, ServerManifest]:
        query = f"SELECT server, identity, body, seen FROM manifests {clause}"

        def read(connection: sqlite3.Connection) -> dict[str, ServerManifest]:
            return {row[0]: _manifest_from_row(*row) for row in connection.execute(query, values)}

        return self._database.run(read)


def _increment_revision(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE revision SET number = number + 1")


def _encode_json(value: object, description: str) -> str:
    try:
        text = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidStore(f"{description} is not valid JSON and cannot be stored: {error}") from error
    if len(text) > MAX_VALUE_BYTES:
        raise InvalidStore(f"{description} has {len(text):,} bytes; the limit is {MAX_VALUE_BYTES:,}; make it smaller")
    return text


def _decode_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise sqlite3.DatabaseError(f"malformed value: {error}") from error
    if not isinstance(value, dict):
        raise sqlite3.DatabaseError(f"malformed value: {type(value).__name__} for an object")
    return value


def _manifest_from_row(server: str, identity: str, body: str, seen: float) -> ServerManifest:
    fields = _decode_object(body)
    return ServerManifest(
        server,
        identity,
        tools=tuple(fields.get("tools", ())),
        instructions=fields.get("instructions", ""),
        protocol=fields.get("protocol", ""),
        info=fields.get("info", {}),
        seen_at=seen,
        problems=tuple(fields.get("faults", ())),
        repaired_tools=tuple(fields.get("altered", ())),
    )


def _row_from_pin(server: str, pin: Pin) -> tuple[object, ...]:
    description = f"the definition of {pin.tool!r}"
    candidate = None if pin.candidate is None else _encode_json(dict(pin.candidate), description)
    return (
        server,
        pin.tool,
        pin.fingerprint,
        _encode_json(dict(pin.definition), description),
        pin.state,
        pin.first_seen,
        candidate,
        pin.candidate_fingerprint,
    )


def _pin_from_row(row: Any) -> Pin:
    tool, fingerprint, definition, state, first_seen, candidate, candidate_fingerprint = row
    if state not in ("approved", "changed"):
        raise sqlite3.DatabaseError(f"malformed value: {state!r} for the state of a pin")
    return Pin(
        tool,
        fingerprint,
        _decode_object(definition),
        state,
        first_seen,
        None if candidate is None else _decode_object(candidate),
        candidate_fingerprint,
    )
