"""A PostgreSQL database: reads and transactions for a store, repeated after a broken connection.

The statements are written for `sqlite3` and translated. A listener receives the changes of other gateways.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from threading import Event, Thread
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection, Cursor, errors

from toolcrib.errors import InvalidStore
from toolcrib.storage.postgres.migrations import LOCK_CLASS, MIGRATION_TIMEOUT_SECONDS, migrate_database
from toolcrib.storage.postgres.pool import RETRY_SECONDS, PostgresPool, build_error, is_connection_error
from toolcrib.storage.sql_database import MISSED_MESSAGES, OnMessage, SqlFunction

_NAMED_VALUE: Final = re.compile(r"(?<![:\w]):(\w+)")
# Statements that add rows only, and those that are marked because no two of their rows have the same key: one
# PostgreSQL statement must not update a row twice.
_NEW_ROWS: Final = re.compile(r"INSERT INTO (\w+ \([\w, ]+\)) VALUES \([?, ]+\)")
_DISTINCT_ROWS: Final = re.compile(r"INSERT INTO (\w+) \(([\w, ]+)\) VALUES \([?, ]+\) /\* distinct \*/ (.+)")
_SPELLINGS: Final = {
    "%": "%%",
    "?": "%s",
    "LIMIT -1": "LIMIT ALL",
    "instr(": "strpos(",
    "/* with ids */": "OVERRIDING SYSTEM VALUE",
}
CHANNEL: Final = "toolcrib"
# After this time without a message, a query checks whether the server still answers.
HEARTBEAT_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
_LOG: Final = logging.getLogger("toolcrib.storage")
# A read or a transaction is tried this often before it fails.
MAX_ATTEMPTS: Final = 3
# After a connection broke during a commit, the outcome is asked for until this time has passed.
OUTCOME_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.1
_CONSEQUENCES: Final = (
    "Searches and calls continue. Usage and audit rows are written when it is back; approvals, keys and profiles "
    "cannot be changed until then."
)
T = TypeVar("T")


@lru_cache(maxsize=512)
def translate_sql(sql: str) -> str:
    """Return a statement with the placeholders and spellings of PostgreSQL. No literal may contain a `?`."""
    for ours, theirs in _SPELLINGS.items():
        sql = sql.replace(ours, theirs)
    return _NAMED_VALUE.sub(r"%(\1)s", sql)


class PostgresConnection:
    """Runs statements for `sqlite3` with a connection of psycopg."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Any = (), /) -> Cursor[Any]:
        """Run a statement."""
        return self._connection.execute(translate_sql(sql).encode(), values)

    def executemany(self, sql: str, values: Iterable[Any], /) -> Cursor[Any]:
        """Run a statement once per item of values, in one round trip.

        New rows are copied, and rows with different keys are sent as one value, because psycopg needs
        several times as long for a statement per row.
        """
        rows = list(values)
        if len(rows) == 1:
            return self.execute(sql, rows[0])
        cursor = self._connection.cursor()
        if new := _NEW_ROWS.fullmatch(sql):
            with cursor.copy(f"COPY {new[1]} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
        elif rows and (distinct := _DISTINCT_ROWS.fullmatch(sql)):
            table, columns, rest = distinct.groups()
            source = f"json_populate_recordset(NULL::{table}, %s)"
            names = columns.split(", ")
            body = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
            cursor.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {source} {rest}".encode(), (body,))
        else:
            cursor.executemany(translate_sql(sql).encode(), rows)
        return cursor


class MessageListener:
    """Calls functions with every message, in its own thread. It connects again after every failure."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool
        self._functions: list[OnMessage] = []
        self._closed = Event()
        self._thread = Thread(target=self._run, name="toolcrib-listener", daemon=True)

    def add(self, on_message: OnMessage) -> None:
        """Call one more function; the first one starts the thread."""
        self._functions.append(on_message)
        if not self._thread.is_alive():
            self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        if self._closed.is_set() or not self._thread.is_alive():
            return
        self._closed.set()
        try:
            # Ends the wait for a message.
            with self._pool.connection() as connection:
                connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, MISSED_MESSAGES))
        except (psycopg.Error, InvalidStore):
            return
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._pool.try_to_connect() as connection:
                    connection.execute(f"LISTEN {CHANNEL}".encode())
                    # Messages from before this moment were missed.
                    self._deliver([MISSED_MESSAGES])
                    self._receive(connection)
            except InvalidStore:
                pass
            except psycopg.Error as error:
                self._pool.report_failure(error)
                self._pool.drop_idle()
            self._closed.wait(RETRY_SECONDS)

    def _receive(self, connection: Connection[Any]) -> None:
        while not self._closed.is_set():
            messages = [notice.payload for notice in connection.notifies(timeout=HEARTBEAT_SECONDS, stop_after=1)]
            self._deliver(messages)
            if not messages:
                self._pool.check(connection)

    def _deliver(self, messages: Iterable[str]) -> None:
        if self._closed.is_set():
            return
        for message in messages:
            for function in self._functions:
                try:
                    function(message)
                except Exception:
                    _LOG.exception("a listener failed")


class PostgresDatabase:
    """Runs functions with connections of a pool. Thread-safe. Open it after a fork, not before."""

    # The ids of new audit rows follow those of the copied ones.
    copy_statements: Final = (
        "SELECT setval(pg_get_serial_sequence('audit', 'id'), coalesce(max(id), 0) + 1, FALSE) FROM audit",
    )

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url)
        self._listener = MessageListener(self._pool)
        try:
            with self._pool.connection(2 * MIGRATION_TIMEOUT_SECONDS) as connection:
                migrate_database(connection)
        except (psycopg.Error, InvalidStore) as error:
            self._pool.close()
            raise error if isinstance(error, InvalidStore) else build_error(self._pool.target, error) from error

    @property
    def notice(self) -> str:
        """Why the server cannot be reached at the moment, and what that means; empty if it can."""
        failure = self._pool.failure
        return f"{failure}. {_CONSEQUENCES}" if failure else ""

    @property
    def is_available(self) -> bool:
        """Whether the server could be reached at the last attempt."""
        return self._pool.failure is None

    def run(self, read: SqlFunction[T], /) -> T:
        """Run a function that only reads."""
        return self._try_repeatedly(lambda connection: read(PostgresConnection(connection)))

    def write(
        self, write: SqlFunction[T], /, *, durable: bool = False, lock: str = "", notify: str = "", seconds: float = 0
    ) -> T:
        """Run a function in a transaction. Every committed write survives a crash."""

        def write_in_transaction(connection: Connection[Any]) -> T:
            transaction_id = ""
            try:
                with connection.transaction():
                    started = _start_transaction(connection, lock)
                    result = write(PostgresConnection(connection))
                    if notify:
                        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, notify))
                    transaction_id = started
                return result
            except psycopg.OperationalError:
                # Only the commit is left, so the server may have done it before the connection broke.
                if transaction_id and connection.broken and self._is_committed(transaction_id):
                    return result
                raise

        return self._try_repeatedly(write_in_transaction, seconds)

    def listen(self, on_message: OnMessage, /) -> None:
        """Call a function with every message of this or another replica."""
        self._listener.add(on_message)

    def close(self) -> None:
        """Close all connections."""
        self._listener.close()
        self._pool.close()

    def _try_repeatedly(self, function: Callable[[Connection[Any]], T], seconds: float = 0) -> T:
        """Run a function with a connection; run it again if its connection broke or if it met a deadlock."""
        attempt = 1
        while True:
            try:
                with self._pool.connection(seconds) as connection:
                    return function(connection)
            except (errors.DeadlockDetected, errors.SerializationFailure) as error:
                failure: Exception = error
            except (psycopg.Error, ValueError) as error:
                if not is_connection_error(error):
                    raise build_error(self._pool.target, error) from error
                failure = error
                # The others are probably broken too.
                self._pool.drop_idle()
            if attempt >= MAX_ATTEMPTS:
                raise build_error(self._pool.target, failure) from failure
            attempt += 1

    def _is_committed(self, transaction_id: str) -> bool:
        """Return whether a transaction was committed whose connection broke. Raise `InvalidStore` if this stays unknown."""
        deadline = time.monotonic() + OUTCOME_SECONDS
        while time.monotonic() < deadline:
            try:
                with self._pool.connection() as connection:
                    row = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (transaction_id,)).fetchone()
            except (psycopg.Error, InvalidStore):
                row = ("in progress",)
            if row and row[0] != "in progress":
                return bool(row[0] == "committed")
            time.sleep(_PAUSE_SECONDS)
        raise InvalidStore(f"{self._pool.target}: the connection broke during a commit, which may have succeeded")


def _start_transaction(connection: Connection[Any], lock: str) -> str:
    """Wait for a lock, if any, and return the id of the transaction."""
    if lock:
        query = "SELECT pg_current_xact_id()::text, pg_advisory_xact_lock(%s, hashtext(%s))"
        row = connection.execute(query, (LOCK_CLASS, lock)).fetchone()
    else:
        row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
    return str(row[0]) if row else ""
