"""A bounded pool of connections that reports why it cannot connect.

`psycopg_pool` hides the reason from the caller, and waits longer and longer between its attempts, so a
store would stay unavailable for minutes after the server is back.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any, Final

import psycopg
from psycopg import Connection, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from toolcrib.errors import InvalidConfig, InvalidStore, StoreUnavailable
from toolcrib.storage.postgres.migrations import SCHEMA
from toolcrib.storage.sql_database import DamagedValue

_MAX_MESSAGE_CHARS: Final = 300
# The text of an error at login has no code, so the words of the server decide.
_LOGIN_REMEDIES: Final = (
    ("password authentication failed", "the user name or the password is wrong; correct them in `store`"),
    (
        "no password supplied",
        "the server wants a password; add it to `store`, for example as ${TOOLCRIB_STORE_PASSWORD}",
    ),
    ("no pg_hba.conf entry", "the server does not accept this user from this host; allow it in pg_hba.conf"),
    ("role", "there is no such user; create it with CREATE ROLE … LOGIN, or correct `store`"),
    ("database", "there is no such database; create it with CREATE DATABASE, or correct `store`"),
    ("certificate", "the TLS certificate is not accepted; set sslrootcert in `store` to the file of its authority"),
    ("does not support SSL", "the server has no TLS; turn it on, or set sslmode in `store`"),
    ("too many clients", "the server has no free connection; raise its max_connections, or stop other clients"),
    (
        "remaining connection slots",
        "the server has no free connection; raise its max_connections, or stop other clients",
    ),
    ("resolve host", "the host name is unknown; correct it in `store`"),
    ("starting up", "the server is starting; wait"),
)
_CHECK_SECONDS: Final = 0.5
MAX_CONNECTIONS: Final = 8
# How long a thread waits for one of them.
WAIT_SECONDS: Final = 10.0
CONNECT_TIMEOUT_SECONDS: Final = 5
STATEMENT_TIMEOUT_SECONDS: Final = 10
# A function that uses a connection for longer loses it. Several statements may each take their time.
RESPONSE_SECONDS: Final = 30.0
# After a failed attempt to connect, calls fail without another attempt for this time.
RETRY_SECONDS: Final = 1.0
# A connection without an answer for this time is broken.
_NETWORK_TIMEOUT_SECONDS: Final = 10
_LOG: Final = logging.getLogger("toolcrib.storage")
DEFAULT_PARAMETERS: Final[dict[str, Any]] = {
    "application_name": "toolcrib",
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "keepalives_idle": _NETWORK_TIMEOUT_SECONDS,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": _NETWORK_TIMEOUT_SECONDS * 1000,
}
_SESSION_SETTINGS: Final = (
    f"SET search_path TO {SCHEMA}; SET client_encoding TO 'UTF8'; "
    f"SET statement_timeout TO '{STATEMENT_TIMEOUT_SECONDS}s'; SET lock_timeout TO '{STATEMENT_TIMEOUT_SECONDS}s'; "
    f"SET idle_in_transaction_session_timeout TO '{3 * STATEMENT_TIMEOUT_SECONDS}s'"
)


def build_connect_error(target: str, error: psycopg.Error) -> StoreUnavailable:
    """Return the error for a connection that could not be opened."""
    text = str(error)
    for words, remedy in _LOGIN_REMEDIES:
        if words in text and (words not in ("role", "database") or "does not exist" in text):
            return StoreUnavailable(f"{target}: {remedy} ({_shorten(text)})")
    return StoreUnavailable(f"{target}: PostgreSQL cannot be reached; start it, or correct `store` ({_shorten(text)})")


def build_error(target: str, error: Exception) -> InvalidStore:
    """Return the error for a statement that failed."""
    error_type = StoreUnavailable if is_connection_error(error) else InvalidStore
    return error_type(f"{target}: {_describe_error(error)}")


def is_connection_error(error: Exception) -> bool:
    """Return whether an error means that the connection broke, and not that a statement was wrong or too slow."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    # 57P01 to 57P05: the server is shut down, crashes or starts.
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _describe_error(error: Exception) -> str:
    text = _shorten(str(error))
    if isinstance(error, DamagedValue):
        return f"a stored value is malformed ({error}); restore a backup"
    if isinstance(error, UnicodeEncodeError):
        return "a name contains half a surrogate pair, which cannot be stored; rename it"
    if isinstance(error, psycopg.DataError) and "NUL" in text:
        return "a name contains a NUL character, which cannot be stored; rename it"
    if isinstance(error, errors.QueryCanceled | errors.LockNotAvailable):
        return f"a statement took too long ({text}); check the load of the server"
    if isinstance(error, errors.InsufficientPrivilege):
        return f"the user has too few rights ({text}); run: CREATE SCHEMA toolcrib AUTHORIZATION <user>"
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return f"the server is read-only ({text}); connect to the primary server"
    if isinstance(error, errors.DiskFull):
        return f"the disk of the server is full ({text}); free some space"
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
        return f"the tables are incomplete ({text}); restart Toolcrib, or restore a backup"
    if isinstance(error, psycopg.OperationalError):
        return f"the connection to PostgreSQL broke ({text}); check that the server runs"
    return f"PostgreSQL reports an error ({text})"


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_MESSAGE_CHARS]


class ResponseDeadlines:
    """Closes the socket of a connection that is used for too long. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_use: dict[object, tuple[float, Connection[Any]]] = {}
        self._closed = Event()
        self._thread = Thread(target=self._run, name="toolcrib-deadlines", daemon=True)

    @contextmanager
    def limit(self, connection: Connection[Any], seconds: float) -> Iterator[None]:
        """Break the connection if the block takes longer than a time; its statement then raises an error."""
        token = object()
        with self._lock:
            self._in_use[token] = (time.monotonic() + seconds, connection)
            if self._thread.ident is None:
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._in_use[token]

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_CHECK_SECONDS):
            now = time.monotonic()
            # With the lock, so that no block ends and gives its connection to another one meanwhile.
            with self._lock:
                for deadline, connection in self._in_use.values():
                    if now > deadline:
                        _shut_down(connection)


def _shut_down(connection: Connection[Any]) -> None:
    with suppress(OSError), socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


class PostgresPool:
    """Opens connections on demand and keeps the idle ones. Thread-safe."""

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The message of psycopg quotes the URL.
            raise InvalidConfig(
                "store: is not a valid URL; use postgresql://user@host/database, and write special characters "
                "of the password as %XX"
            ) from None
        self._parameters: dict[str, Any] = {**DEFAULT_PARAMETERS, **given}
        self.target = _describe_target(given)
        self._idle: list[Connection[Any]] = []
        self._lock = Lock()
        self._deadlines = ResponseDeadlines()
        self._slots = BoundedSemaphore(MAX_CONNECTIONS)
        self._failure: StoreUnavailable | None = None
        self._next_attempt = 0.0
        self._closed = False

    @property
    def failure(self) -> StoreUnavailable | None:
        """Why the server cannot be reached at the moment; None if it can."""
        return self._failure

    @contextmanager
    def connection(self, seconds: float | None = None) -> Iterator[Connection[Any]]:
        """Lend a connection, for at most `RESPONSE_SECONDS` or another time."""
        if not self._slots.acquire(timeout=WAIT_SECONDS):
            raise InvalidStore(
                f"{self.target}: all {MAX_CONNECTIONS} connections are busy; check the load of the server"
            )
        try:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            connection = connection or self.try_to_connect()
            try:
                with self._deadlines.limit(connection, seconds or RESPONSE_SECONDS):
                    yield connection
            finally:
                self._take_back(connection)
        finally:
            self._slots.release()

    def connect(self) -> Connection[Any]:
        """Open a connection that the caller closes."""
        try:
            connection = psycopg.connect(**self._parameters, autocommit=True)
        except psycopg.Error as error:
            raise build_connect_error(self.target, error) from error
        try:
            with self._deadlines.limit(connection, CONNECT_TIMEOUT_SECONDS):
                connection.execute(_SESSION_SETTINGS.encode())
        except psycopg.Error as error:
            connection.close()
            raise build_connect_error(self.target, error) from error
        return connection

    def try_to_connect(self) -> Connection[Any]:
        """Open a connection that the caller closes, unless the last attempt has just failed."""
        with self._lock:
            if self._closed:
                raise InvalidStore(f"{self.target}: the store is closed; open it again")
            if self._failure is not None:
                if time.monotonic() < self._next_attempt:
                    raise StoreUnavailable(str(self._failure))
                # Only one thread tries; the others fail.
                self._next_attempt = time.monotonic() + CONNECT_TIMEOUT_SECONDS
        try:
            connection = self.connect()
        except StoreUnavailable as error:
            self._set_failure(error)
            raise
        self._set_failure(None)
        return connection

    def report_failure(self, error: psycopg.Error) -> None:
        """Note that a connection broke."""
        if is_connection_error(error):
            self._set_failure(build_connect_error(self.target, error))

    def check(self, connection: Connection[Any]) -> None:
        """Raise an error of psycopg unless the server answers on a connection."""
        with self._deadlines.limit(connection, CONNECT_TIMEOUT_SECONDS):
            connection.execute("SELECT 1")

    def drop_idle(self) -> None:
        """Close the idle connections, which are probably broken if one of them was."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close the idle connections; those that are in use are closed when they come back."""
        self._closed = True
        self._deadlines.close()
        self.drop_idle()

    def _set_failure(self, failure: StoreUnavailable | None) -> None:
        with self._lock:
            if (failure is None) != (self._failure is None):
                _LOG.warning("%s", failure or f"{self.target}: PostgreSQL can be reached again")
            self._failure, self._next_attempt = failure, time.monotonic() + RETRY_SECONDS

    def _take_back(self, connection: Connection[Any]) -> None:
        is_usable = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
        if is_usable and not self._closed:
            with self._lock:
                self._idle.append(connection)
        else:
            connection.close()


def _describe_target(parameters: dict[str, Any]) -> str:
    """Return where a database is, without the user and the password."""
    host = str(parameters.get("host") or parameters.get("hostaddr") or "localhost")
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{host}{port}/{parameters.get('dbname') or ''}"
