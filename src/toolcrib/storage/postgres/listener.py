"""Receive messages of other replicas on a separate connection, and detect when the server is unavailable."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from threading import Event, Thread
from typing import Any, Final

import psycopg
from psycopg import Connection

from toolcrib.errors import InvalidStore
from toolcrib.storage.postgres.pool import RETRY_SECONDS, PostgresPool
from toolcrib.storage.sql_database import MISSED_MESSAGES, OnMessage

CHANNEL: Final = "toolcrib"
# After this time without a message, a query checks whether the server still answers.
HEARTBEAT_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
_LOG: Final = logging.getLogger("toolcrib.storage")


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
