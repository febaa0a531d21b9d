"""A PostgreSQL database: reads and transactions for a store, repeated after a broken connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection, errors

from toolcrib.errors import InvalidStore
from toolcrib.storage.postgres.dialect import PostgresConnection
from toolcrib.storage.postgres.errors import build_error, is_connection_error
from toolcrib.storage.postgres.listener import CHANNEL, MessageListener
from toolcrib.storage.postgres.migrations import LOCK_CLASS, MIGRATION_TIMEOUT_SECONDS, migrate_database
from toolcrib.storage.postgres.pool import PostgresPool
from toolcrib.storage.sql_database import OnMessage, SqlFunction

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
