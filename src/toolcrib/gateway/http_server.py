"""The HTTP server: limits of time and size for headers, and a shutdown that loses no request.

Without these limits, a client that sends its headers slowly could keep a connection open forever, or fill the memory.

After SIGTERM a gateway first reports that it is not ready, so that a proxy sends new requests elsewhere. When no new
requests come, it stops accepting connections, ends the streams that have no end, and finishes the requests in flight.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from types import FrameType
from typing import Any, Final

import anyio
import uvicorn
from sse_starlette.sse import AppStatus
from uvicorn.protocols.http.auto import AutoHTTPProtocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

# From the first byte of a connection or of a request to the end of its headers.
HEADER_SECONDS: Final = 15.0
# The headers and the request line. More are refused after the next chunk of data.
MAX_HEADER_BYTES: Final = 64 * 1024
# A connection that is idle when the server stops is closed after this time, because a request may be on its way.
IDLE_CLOSE_SECONDS: Final = 2.0
# A proxy that has sent no request for this time has noticed that the gateway is not ready.
QUIET_SECONDS: Final = 1.0
_STATUS_PATHS: Final = frozenset({"/health", "/ready"})

_Protocol: Any = AutoHTTPProtocol


class TimedHttpProtocol(_Protocol):  # type: ignore[misc]
    """Closes a connection whose headers take too long or are too large."""

    # Whether a connection that is idle when the server stops is kept for a short time.
    waits_for_requests = True
    _timer: asyncio.TimerHandle | None = None
    # The size of headers whose end has not arrived, without the chunk in which they begin, because it may also have
    # the end of a request before. The other HTTP parser, h11, has its own limit.
    _header_bytes = 0
    _is_in_headers = False
    _has_just_begun = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Start the time limit of a further request, or stop it at the end of the headers."""
        self._has_just_begun = False
        super().data_received(data)
        is_continued = self._is_in_headers and not self._has_just_begun
        self._header_bytes = self._header_bytes + len(data) if is_continued else 0
        if self._header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The headers have more than {MAX_HEADER_BYTES} bytes.")
        if not self._is_idle():
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        """Start counting the bytes of the headers."""
        self._is_in_headers = self._has_just_begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Stop counting the bytes of the headers."""
        self._is_in_headers = False
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End the connection after its request. If it has none, wait a short time for one."""
        if self.waits_for_requests and self._is_idle():
            asyncio.get_running_loop().call_later(
                IDLE_CLOSE_SECONDS, lambda: self._is_idle() and self.transport.close()
            )
        else:
            super().shutdown()

    def _is_idle(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Drain:
    """The state of a shutdown: whether one has begun, and when streams without an end are ended."""

    def __init__(self) -> None:
        self.is_started = False
        self.last_request_at = 0.0
        self._streams_ended = anyio.Event()
        # Called when the streams are ended.
        self.on_end_streams: list[Callable[[], None]] = []

    def start(self) -> None:
        """Report from now on that the gateway is not ready."""
        self.is_started = True

    def end_streams(self) -> None:
        """End the streams that would otherwise stay open."""
        self.start()
        self._streams_ended.set()
        for end in self.on_end_streams:
            end()

    def wrap_receive(self, receive: Receive) -> Receive:
        """Return a receive function that reports a disconnect when the streams are ended."""

        async def receive_or_end() -> Message:
            message: Message = {"type": "http.disconnect"}

            async def receive_message() -> None:
                nonlocal message
                message = await receive()
                tasks.cancel_scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive_message)
                await self._streams_ended.wait()
                tasks.cancel_scope.cancel()
            return message

        return receive_or_end


class DrainMiddleware:
    """An ASGI application that ends the streams and the connections of another one during a shutdown."""

    def __init__(self, app: App, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] not in _STATUS_PATHS:
            self._drain.last_request_at = time.monotonic()

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and self._drain.is_started:
                # The proxy has to open a new connection, which another replica accepts.
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        # Only streams without an end are read with GET.
        receive = self._drain.wrap_receive(receive) if scope["method"] == "GET" else receive
        await self._app(scope, receive, send_and_close)


class DrainingServer(uvicorn.Server):
    """An HTTP server that drains on SIGTERM; SIGINT and a second SIGTERM skip the notice to the proxy."""

    def __init__(self, config: uvicorn.Config, drain: Drain, *, notice_seconds: float) -> None:
        super().__init__(config)
        # The library for event streams would cut off every stream at the first signal.
        AppStatus.enable_automatic_graceful_drain = False
        self._drain = drain
        self._notice_seconds = notice_seconds
        self._stop_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to drain, or stop if the server drains already."""
        # A person who presses Ctrl-C has no proxy and does not want to wait.
        TimedHttpProtocol.waits_for_requests = sig != signal.SIGINT
        if sig == signal.SIGTERM and self._notice_seconds and self._stop_at is None:
            self._captured_signals.append(sig)
            self._stop_at = time.monotonic() + self._notice_seconds
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Return whether the server stops now."""
        if self._stop_at is not None:
            self._drain.start()
            self.should_exit = self.should_exit or self._may_stop(self._stop_at, time.monotonic())
        return await super().on_tick(counter)

    def _may_stop(self, stop_at: float, now: float) -> bool:
        """Return whether the proxy sends no more requests, or has done so for half of the time of the shutdown."""
        is_quiet = now - self._drain.last_request_at >= QUIET_SECONDS
        return now >= stop_at + (0 if is_quiet else (self.config.timeout_graceful_shutdown or 0) / 2)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections and finish the requests in flight."""
        if self._stop_at is not None and self.config.timeout_graceful_shutdown:
            late_seconds = max(time.monotonic() - self._stop_at, 0)
            self.config.timeout_graceful_shutdown = max(int(self.config.timeout_graceful_shutdown - late_seconds), 1)
        self._drain.end_streams()
        await super().shutdown(sockets)
