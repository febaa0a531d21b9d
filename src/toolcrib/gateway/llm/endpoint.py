"""Where requests come in: read within limits, answered, and given up when the client has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.types import Message, Receive, Scope, Send

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.sse import format_event

MAX_BODY_BYTES: Final = 32 << 20
TOOL_SEARCH_HEADER: Final = "x-toolcrib-tool-search"
# Clients give up on a stream that is silent for some minutes; and we on one that takes nothing.
PING_SECONDS: Final = 15.0
STALL_SECONDS: Final = 120.0
CHECK_INTERVAL_SECONDS: Final = 5.0

ErrorRenderer = Callable[[RequestFailed], dict[str, Any]]

_log = logging.getLogger(__name__)


class HttpExchange:
    """A client's request, read, and the way to answer it."""

    def __init__(self, scope: Scope, body: bytes, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        # As the client wrote it: decoded, a path could lead out of what this gateway serves.
        raw: bytes = scope.get("raw_path") or quote(self.path).encode("ascii")
        self._raw_path = raw.decode("latin-1")
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers: list[tuple[str, str]] = [
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in scope["headers"]
        ]
        self.principal: Any = scope.get("state", {}).get("principal")
        self.body = body
        self.has_started = False
        # What a client is sent that has heard nothing for a while, if it is to be sent anything.
        self.ping = b""
        self._send = send
        self._writes = 0
        self._under_way = 0
        self._look: asyncio.TimerHandle | None = None
        self._pinging: asyncio.Task[None] | None = None

    @property
    def target(self) -> str:
        """The path with the query, as an upstream is asked."""
        segments = unquote(self._raw_path).replace("\\", "/").split("/")
        if {".", ".."} & set(segments) or not unquote(self._raw_path).isprintable():
            raise RequestFailed("a path has no dots for its parts and no control characters", 400)
        return f"{self._raw_path}?{self.query}" if self.query else self._raw_path

    def get_header(self, name: str) -> str:
        """The value of a header; empty if it is not there."""
        return next((value for one, value in self.headers if one == name), "")

    async def send_response(
        self, status: int, headers: Iterable[tuple[str, str]], body: bytes
    ) -> None:
        """Answer at once."""
        await self._start(status, [*headers, ("content-length", str(len(body)))])
        await self._send({"type": "http.response.body", "body": body})

    async def start_response(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Begin an answer that comes in pieces."""
        await self._start(status, headers)
        self._look_later(asyncio.current_task(), 0, asyncio.get_running_loop().time())

    async def write(self, chunk: bytes) -> None:
        """Send a piece; this waits while the client takes no more."""
        self._writes += 1
        self._under_way += 1
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._under_way -= 1

    async def end_response(self) -> None:
        """The answer is complete. This too waits while the client takes no more."""
        self.ping = b""
        self._writes += 1
        self._under_way += 1
        await self._send({"type": "http.response.body", "body": b""})

    def cancel_timers(self) -> None:
        """Nothing more is sent."""
        if self._look is not None:
            self._look.cancel()
        if self._pinging is not None:
            self._pinging.cancel()

    def _look_later(self, work: asyncio.Task[Any] | None, writes: int, since: float) -> None:
        """Look now and then at what was sent, which costs less than a clock for every piece."""
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(CHECK_INTERVAL_SECONDS, self._look_after, work, writes, since)

    def _look_after(self, work: asyncio.Task[Any] | None, writes: int, since: float) -> None:
        now = asyncio.get_running_loop().time()
        if self._writes != writes:
            writes, since = self._writes, now
        elif self._under_way and now - since >= STALL_SECONDS and work is not None:
            _log.warning("a client of %s takes nothing of its answer; it is given up", self.path)
            work.cancel()
            return
        elif self.ping and not self._under_way and now - since >= PING_SECONDS:
            self._pinging = asyncio.ensure_future(self._ping())
        self._look_later(work, writes, since)

    async def _ping(self) -> None:
        # The answer may have ended since this was thought of.
        if self.ping:
            await self.write(self.ping)

    async def _start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self.has_started = True
        raw = [
            (name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})


Handler = Callable[[HttpExchange], Awaitable[None]]


class LlmEndpoint:
    """An ASGI application around a handler: what it raises is answered in the API's own shape."""

    def __init__(
        self, handler: Handler, shape: ErrorRenderer, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._handler = handler
        self._shape = shape
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; stop as soon as nobody waits for the answer."""
        try:
            body = await self._body(receive)
        except RequestFailed as fault:
            await self._fail(HttpExchange(scope, b"", send), fault)
            return
        if body is None:
            return
        exchange = HttpExchange(scope, body, send)
        work = asyncio.ensure_future(self._answer(exchange))
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            exchange.cancel_timers()
            gone.cancel()
            if not work.done():
                work.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
        if not work.cancelled():
            work.result()

    async def _body(self, receive: Receive) -> bytes | None:
        """The body, or None if the client has gone before its end."""
        pieces: list[bytes] = []
        left = self._max_body_bytes
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece: bytes = message.get("body", b"")
            left -= len(piece)
            if left < 0:
                raise RequestFailed(
                    f"the request is larger than {self._max_body_bytes:,} bytes; send less, or "
                    "raise the limit of the gateway",
                    413,
                )
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)

    async def _answer(self, exchange: HttpExchange) -> None:
        try:
            await self._handler(exchange)
        except RequestFailed as fault:
            await self._fail(exchange, fault)
        except Exception:
            # The body may hold anything, so nothing of it is logged.
            _log.exception("a request to %s failed", exchange.path)
            unforeseen = "the gateway failed on this request; its log says why"
            await self._fail(exchange, RequestFailed(unforeseen, 500))

    async def _fail(self, exchange: HttpExchange, fault: RequestFailed) -> None:
        body = serialize_json(self._shape(fault))
        if not exchange.has_started:
            await exchange.send_response(fault.status, [("content-type", "application/json")], body)
            return
        await exchange.write(format_event("error", body))
        await exchange.end_response()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
