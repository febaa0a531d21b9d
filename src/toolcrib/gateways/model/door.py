"""Where requests come in: read within limits, answered, and given up when the client has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.types import Message, Receive, Scope, Send

from toolcrib.errors import RequestFailed
from toolcrib.gateways.model.body import written
from toolcrib.gateways.model.sse import event

MAX_BODY_BYTES: Final = 32 << 20
SWITCH_HEADER: Final = "x-toolcrib-tool-search"

Shape = Callable[[RequestFailed], dict[str, Any]]

_log = logging.getLogger(__name__)


class Exchange:
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
        self.started = False
        self._send = send

    @property
    def target(self) -> str:
        """The path with the query, as an upstream is asked."""
        segments = unquote(self._raw_path).replace("\\", "/").split("/")
        if {".", ".."} & set(segments) or not unquote(self._raw_path).isprintable():
            raise RequestFailed("a path has no dots for its parts and no control characters", 400)
        return f"{self._raw_path}?{self.query}" if self.query else self._raw_path

    def header(self, name: str) -> str:
        """The value of a header; empty if it is not there."""
        return next((value for one, value in self.headers if one == name), "")

    async def answer(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Answer at once."""
        await self._start(status, [*headers, ("content-length", str(len(body)))])
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Begin an answer that comes in pieces."""
        await self._start(status, headers)

    async def write(self, chunk: bytes) -> None:
        """Send a piece; this waits while the client takes no more."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        """The answer is complete."""
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self.started = True
        raw = [
            (name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})


Handler = Callable[[Exchange], Awaitable[None]]


class Door:
    """An ASGI application around a handler: what it raises is answered in the API's own shape."""

    def __init__(
        self, handler: Handler, shape: Shape, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._handler = handler
        self._shape = shape
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; stop as soon as nobody waits for the answer."""
        try:
            body = await self._body(receive)
        except RequestFailed as fault:
            await self._fail(Exchange(scope, b"", send), fault)
            return
        if body is None:
            return
        work = asyncio.ensure_future(self._answer(Exchange(scope, body, send)))
        gone = asyncio.ensure_future(_disconnection(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
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

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._handler(exchange)
        except RequestFailed as fault:
            await self._fail(exchange, fault)
        except Exception:
            # The body may hold anything, so nothing of it is logged.
            _log.exception("a request to %s failed", exchange.path)
            unforeseen = "the gateway failed on this request; its log says why"
            await self._fail(exchange, RequestFailed(unforeseen, 500))

    async def _fail(self, exchange: Exchange, fault: RequestFailed) -> None:
        body = written(self._shape(fault))
        if not exchange.started:
            await exchange.answer(fault.status, [("content-type", "application/json")], body)
            return
        await exchange.write(event("error", body))
        await exchange.end()


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
