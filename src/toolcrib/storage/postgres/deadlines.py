"""Break connections whose server does not respond: psycopg itself waits without a limit."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Any, Final

from psycopg import Connection

_CHECK_SECONDS: Final = 0.5


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
