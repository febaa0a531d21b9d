"""A store in a SQLite file, which several processes may share, or in memory.

One connection is held open, and threads take turns: closing the last connection of a file folds
its log into it, which would make every write wait for the disk.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, Final, TypeVar

from toolcrib.errors import InvalidStore
from toolcrib.files.sqlite_file import (
    IN_MEMORY,
    SqliteFileType,
    is_corruption_error,
    is_text_file,
    migrate_file,
    move_aside,
    open_connection,
    query_int,
    transaction,
)
from toolcrib.safety.pin import Pin
from toolcrib.storage.file_lock import FileLock
from toolcrib.storage.migrations import MIGRATIONS
from toolcrib.storage.store import (
    MAX_COUNTERS,
    MAX_PINS_PER_SERVER,
    MAX_SERVERS,
    MAX_SESSIONS,
    MAX_USED_TOOLS,
    MAX_VALUE_BYTES,
    ServerManifest,
    ToolUsage,
    ToolUsageTotal,
)

# A table is cut to its limit once in so many writes, so it may be this much over.
PRUNE_INTERVAL: Final = 256

_FILE_KIND: Final = SqliteFileType(
    # "crbs" in ASCII.
    application_id=0x63726273,
    migrations=MIGRATIONS,
    error_type=InvalidStore,
    recovery_note="tools are then trusted again on first use",
)
_LOG: Final = logging.getLogger("toolcrib.storage")
_PIN_FIELDS: Final = (
    "tool, fingerprint, definition, state, first_seen, candidate, candidate_fingerprint"
)

T = TypeVar("T")


class SqliteStore:
    """A `Store` in a file, or in memory. Open it after a fork, not before."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = RLock()
        self._notice = ""
        self._connection: sqlite3.Connection | None = None
        self._file_lock: FileLock | None = None
        self._file_identity: tuple[int, int] | None = None
        self._in_use_elsewhere = False
        self._closed = False
        self._calls_since_prune = self._sessions_since_prune = PRUNE_INTERVAL
        try:
            self.get_revision()
        except BaseException:
            self._close_connection()
            if self._file_lock is not None:
                # What was refused is not ours to leave files beside.
                self._file_lock.withdraw()
            raise

    @property
    def notice(self) -> str:
        """What the user should know, such as a damaged file that was set aside."""
        return self._notice

    def get_manifest(self, server: str) -> ServerManifest | None:
        """What this server said of itself when it was last up."""
        return self._query_manifests("WHERE server = ?", server).get(server)

    def list_manifests(self) -> dict[str, ServerManifest]:
        """The manifests of all servers, by server."""
        return self._query_manifests("ORDER BY server")

    def put_manifest(self, server: str, manifest: ServerManifest) -> None:
        """Keep what a server says, in place of what it said before."""
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

        def act(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO manifests (server, identity, body, seen) "
                "VALUES (?, ?, ?, ?)",
                (server, manifest.identity, body, manifest.seen_at),
            )
            connection.execute(
                "DELETE FROM manifests WHERE server IN (SELECT server FROM manifests "
                "ORDER BY seen DESC, server LIMIT -1 OFFSET ?)",
                (MAX_SERVERS,),
            )

        self._write(act, durable=True)

    def forget_server(self, server: str) -> None:
        """Drop a server's manifest and pins: its tools are trusted anew on first use."""

        def act(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM manifests WHERE server = ?", (server,))
            connection.execute("DELETE FROM pins WHERE server = ?", (server,))
            _increment_revision(connection)

        self._write(act, durable=True)

    def get_pins(self, server: str) -> dict[str, Pin]:
        """A server's pins, by the tool's name."""
        asked = f"SELECT {_PIN_FIELDS} FROM pins WHERE server = ? ORDER BY tool"

        def act(connection: sqlite3.Connection) -> dict[str, Pin]:
            return {row[0]: _pin_from_row(row) for row in connection.execute(asked, (server,))}

        return self._read(act)

    def list_quarantined(self) -> dict[str, dict[str, Pin]]:
        """The pins that wait for approval, by server and tool; both in order of name."""
        asked = f"SELECT server, {_PIN_FIELDS} FROM pins WHERE state = 'changed' ORDER BY 1, 2"

        def act(connection: sqlite3.Connection) -> dict[str, dict[str, Pin]]:
            found: dict[str, dict[str, Pin]] = {}
            for server, *row in connection.execute(asked):
                found.setdefault(server, {})[row[0]] = _pin_from_row(row)
            return found

        return self._read(act)

    def put_pins(self, server: str, pins: Iterable[Pin]) -> None:
        """Keep these pins. A candidate that was approved in the meantime stays approved."""
        rows = [_row_from_pin(server, pin) for pin in pins]

        def act(connection: sqlite3.Connection) -> None:
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
            asked = "SELECT count(*) FROM pins WHERE server = ?"
            if connection.execute(asked, (server,)).fetchone()[0] > MAX_PINS_PER_SERVER:
                raise InvalidStore(
                    f"the server {server!r} has shown more than {MAX_PINS_PER_SERVER:,} tools by "
                    "different names, which is the limit; if you trust it, forget what was pinned "
                    "of it and begin anew"
                )
            _increment_revision(connection)

        if rows:
            self._write(act, durable=True)

    def approve(
        self, server: str, tool: str | None = None, *, fingerprint: str | None = None
    ) -> list[str]:
        """Trust what waits for approval, of one tool or of the whole server; gives the tools."""
        wanted = (
            "server = :server AND state = 'changed' AND candidate IS NOT NULL "
            "AND (:tool IS NULL OR tool = :tool) "
            "AND (:fingerprint IS NULL OR candidate_fingerprint = :fingerprint)"
        )
        values = {"server": server, "tool": tool, "fingerprint": fingerprint}

        def act(connection: sqlite3.Connection) -> list[str]:
            asked = f"SELECT tool FROM pins WHERE {wanted} ORDER BY tool"
            tools = [row[0] for row in connection.execute(asked, values)]
            connection.execute(
                "UPDATE pins SET state = 'approved', fingerprint = candidate_fingerprint, "
                "definition = candidate, candidate = NULL, candidate_fingerprint = '' "
                f"WHERE {wanted}",
                values,
            )
            if tools:
                _increment_revision(connection)
            return tools

        return self._write(act, durable=True)

    def get_revision(self) -> int:
        """A number that is another one whenever pins have changed, in whatever process."""
        return self._read(lambda connection: query_int(connection, "SELECT number FROM revision"))

    def record_calls(self, calls: Iterable[ToolUsage]) -> None:
        """Count calls of tools."""
        rows = [(call.tool_id, int(not call.succeeded), call.seconds, call.at) for call in calls]

        def act(connection: sqlite3.Connection) -> None:
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
            self._write(act)

    def get_usage(self) -> dict[str, ToolUsageTotal]:
        """How much each tool was used, by the tool's id."""
        asked = "SELECT tool_id, calls, failures, last_used, seconds FROM usage ORDER BY tool_id"

        def act(connection: sqlite3.Connection) -> dict[str, ToolUsageTotal]:
            return {id: ToolUsageTotal(*sums) for id, *sums in connection.execute(asked)}

        return self._read(act)

    def add_stats(self, amounts: Mapping[str, int]) -> None:
        """Add to counters; one that is new begins at zero, unless there are too many."""
        rows = [(name, amount, MAX_COUNTERS, name) for name, amount in amounts.items()]

        def act(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO counters (name, amount) SELECT ?, ? "
                "WHERE (SELECT count(*) FROM counters) < ? "
                "OR EXISTS (SELECT 1 FROM counters WHERE name = ?) "
                "ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount",
                rows,
            )

        if rows:
            self._write(act)

    def get_stats(self) -> dict[str, int]:
        """All counters, by name."""
        asked = "SELECT name, amount FROM counters ORDER BY name"
        return self._read(lambda connection: dict(connection.execute(asked).fetchall()))

    def get_session(self, key: str) -> dict[str, Any] | None:
        """What was kept of a session."""

        def act(connection: sqlite3.Connection) -> dict[str, Any] | None:
            asked = "SELECT body FROM sessions WHERE key = ?"
            row = connection.execute(asked, (key,)).fetchone()
            return _decode_object(row[0]) if row else None

        return self._read(act)

    def put_session(self, key: str, session: Mapping[str, Any], at: float) -> None:
        """Keep a session, in place of what was kept of it before."""
        body = _encode_json(dict(session), f"the session {key!r}")

        def act(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO sessions (key, body, at) VALUES (?, ?, ?)", (key, body, at)
            )
            self._sessions_since_prune += 1
            if self._sessions_since_prune > PRUNE_INTERVAL:
                self._sessions_since_prune = 0
                _prune_sessions(connection, MAX_SESSIONS)

        self._write(act)

    def prune_sessions(self, keep: int = MAX_SESSIONS) -> None:
        """Drop all sessions but those that were kept last."""
        self._write(lambda connection: _prune_sessions(connection, keep))

    def close(self) -> None:
        """Let go of the file. What was kept stays kept."""
        with self._lock:
            self._closed = True
            self._close_file()

    def _query_manifests(self, which: str, *values: str) -> dict[str, ServerManifest]:
        asked = f"SELECT server, identity, body, seen FROM manifests {which}"

        def act(connection: sqlite3.Connection) -> dict[str, ServerManifest]:
            return {row[0]: _manifest_from_row(*row) for row in connection.execute(asked, values)}

        return self._read(act)

    def _write(self, act: Callable[[sqlite3.Connection], T], durable: bool = False) -> T:
        """Do all of an act or nothing of it; what is durable outlives a crash of the machine."""

        def written(connection: sqlite3.Connection) -> T:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with transaction(connection):
                return act(connection)

        return self._read(written)

    def _read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            if self._closed:
                raise InvalidStore(f"{self.path}: the store is closed; open it anew")
            try:
                try:
                    return act(self._get_connection())
                except (sqlite3.DatabaseError, ValueError) as fault:
                    if not is_corruption_error(fault) or not self._move_damaged_file(fault):
                        raise
                    return act(self._get_connection())
            except (sqlite3.Error, ValueError, OSError) as fault:
                raise _FILE_KIND.build_error(self.path, fault) from fault

    def _get_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            if self.path != IN_MEMORY:
                self._file_lock = self._file_lock or FileLock(self.path)
                _create_file(self.path)
                self._file_identity = _read_file_identity(self.path)
            connection = open_connection(self.path, any_thread=True)
            try:
                migrate_file(connection, self.path, _FILE_KIND)
                state = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if state != "ok":
                    raise sqlite3.DatabaseError(f"malformed: {state}")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close_file(self) -> None:
        self._close_connection()
        if self._file_lock is not None:
            self._file_lock.close()
            self._file_lock = None

    def _move_damaged_file(self, fault: Exception) -> bool:
        """Move a damaged file away, if that hurts nobody; gives whether to try again."""
        if self._file_lock is None or self._in_use_elsewhere or is_text_file(self.path):
            return False
        self._close_connection()
        if self._file_lock.acquire_exclusive(is_done=self._is_replaced):
            place = move_aside(self.path)
            self._file_lock.downgrade()
            self._notice = (
                f"{self.path} was damaged ({fault}) and is now {place}. A new one takes its "
                "place: servers are asked for their tools again, and tools are trusted anew on "
                "first use, also those that waited for approval. Put a copy back if you have one."
            )
            _LOG.warning("%s", self._notice)
            return True
        self._in_use_elsewhere = not self._is_replaced()
        return not self._in_use_elsewhere

    def _is_replaced(self) -> bool:
        """Whether another process has set the damaged file aside."""
        return _read_file_identity(self.path) != self._file_identity


def _create_file(path: str) -> None:
    """Make a file that is nobody else's business, unless there is one.

    One that is there is not opened: closing it would take the locks of this process from it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _read_file_identity(path: str) -> tuple[int, int] | None:
    """Which file stands at a path; None if there is none."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _increment_revision(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE revision SET number = number + 1")


def _prune_sessions(connection: sqlite3.Connection, keep: int) -> None:
    connection.execute(
        "DELETE FROM sessions WHERE key IN "
        "(SELECT key FROM sessions ORDER BY at DESC, key LIMIT -1 OFFSET ?)",
        (keep,),
    )


def _encode_json(value: object, what: str) -> str:
    try:
        text = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as fault:
        raise InvalidStore(f"{what} is not JSON and cannot be kept: {fault}") from fault
    if len(text) > MAX_VALUE_BYTES:
        raise InvalidStore(
            f"{what} has {len(text):,} bytes; the limit is {MAX_VALUE_BYTES:,}; make it smaller"
        )
    return text


def _decode_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as fault:
        raise sqlite3.DatabaseError(f"malformed value: {fault}") from fault
    if not isinstance(value, dict):
        raise sqlite3.DatabaseError(f"malformed value: {type(value).__name__} for an object")
    return value


def _manifest_from_row(server: str, identity: str, text: str, seen: float) -> ServerManifest:
    body = _decode_object(text)
    return ServerManifest(
        server,
        identity,
        tuple(body.get("tools", ())),
        body.get("instructions", ""),
        body.get("protocol", ""),
        body.get("info", {}),
        seen,
        tuple(body.get("faults", ())),
        tuple(body.get("altered", ())),
    )


def _row_from_pin(server: str, pin: Pin) -> tuple[object, ...]:
    what = f"the definition of {pin.tool!r}"
    candidate = None if pin.candidate is None else _encode_json(dict(pin.candidate), what)
    return (
        server,
        pin.tool,
        pin.fingerprint,
        _encode_json(dict(pin.definition), what),
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
