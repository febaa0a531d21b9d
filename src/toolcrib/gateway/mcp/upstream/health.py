"""Find out whether a server still answers, also while clients keep calling it."""

from __future__ import annotations

from typing import Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

from toolcrib.gateway.mcp.upstream.connection import UpstreamConnection

# A server is pinged after this many calls in a row have timed out, and restarted if it does not answer.
MAX_CONSECUTIVE_TIMEOUTS: Final = 2
PING_SECONDS: Final = 15.0


class HealthMonitor:
    """Counts the timeouts of calls on one connection and pings the server."""

    def __init__(self) -> None:
        self._timeouts = 0
        self._is_suspicious = anyio.Event()

    def record_answer(self) -> None:
        """Record that the server answered a call."""
        self._timeouts = 0

    def record_timeout(self) -> None:
        """Record that the server did not answer a call in time."""
        self._timeouts += 1
        if self._timeouts >= MAX_CONSECUTIVE_TIMEOUTS:
            self._is_suspicious.set()

    async def wait(self, closed: anyio.Event, max_seconds: float) -> None:
        """Wait until the connection is closed or the server may hang."""
        with anyio.move_on_after(max_seconds):
            async with anyio.create_task_group() as tasks:

                async def wait_closed() -> None:
                    await closed.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(wait_closed)
                await self._is_suspicious.wait()
                tasks.cancel_scope.cancel()

    async def is_responsive(self, connection: UpstreamConnection, is_busy: bool) -> bool:
        """Return whether the server answers.

        A server with calls in flight may be busy with them, so it is pinged only after timeouts.
        """
        if not self._is_suspicious.is_set():
            return is_busy or await _ping(connection)
        self._is_suspicious = anyio.Event()
        # An answer to a call is as good as one to the ping.
        return await _ping(connection) or not self._timeouts


async def _ping(connection: UpstreamConnection) -> bool:
    method = "server/discover" if connection.session.is_stateless else "ping"
    try:
        await connection.session.raw_request(method, None, timeout=PING_SECONDS)
    except MCPError as error:
        # Some servers do not implement ping, but any response shows that they are alive.
        return error.error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT)
    return True
