"""The HTTP protocol of the server, with a time limit for the head of a request.

Without it, a client that sends its headers slowly could keep a connection open forever.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# From the first byte of a connection or of a request to the end of its headers.
HEADER_SECONDS: Final = 15.0

_Protocol: Any = AutoHTTPProtocol


class TimedHttpProtocol(_Protocol):  # type: ignore[misc]
    """Closes a connection whose headers take too long."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Start the time limit of a further request, or stop it at the end of the headers."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
