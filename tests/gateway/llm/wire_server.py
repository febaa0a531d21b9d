"""A server that sends exactly the given bytes and counts its connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.upstream.http_messages import UpstreamRequest, UpstreamResponse
from toolcrib.gateway.llm.upstream.upstreams import LlmUpstreams

Responder = Callable[["ServerConnection"], Awaitable[None]]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def response_with_length(body: bytes, status: str = "200 OK", head: bytes = b"") -> bytes:
    """Return a response with a content length."""
    length = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode()
    return length + head + b"\r\n" + body


def encode_chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked response."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@dataclass
class ServerConnection:
    """The server's side of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def send(self, *pieces: bytes) -> None:
        """Send each piece separately."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def wait_for_disconnect(self) -> None:
        """Wait until the client closes the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass


@dataclass
class WireServer:
    """The requests that a server received, each with the number of its connection."""

    url: str
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    open_count: int = 0

    async def wait_until_idle(self) -> None:
        """Wait until no connection is open."""
        await wait_until(lambda: not self.open_count)

    @property
    def connections(self) -> list[int]:
        """The connection number of each request."""
        return [number for number, _ in self.requests]


@asynccontextmanager
async def wire_server(
    response: Responder | bytes | Sequence[bytes], context: ssl.SSLContext | None = None
) -> AsyncIterator[WireServer]:
    """Run a server that sends the same response to every request.

    If the response is a function, the server closes the connection when it returns.
    """
    tasks: list[asyncio.Task[Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        wire.open_count += 1
        try:
            await respond(ServerConnection(reader, writer, len(tasks)))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client disconnected or the server is shutting down.
            pass
        finally:
            wire.open_count -= 1
            writer.close()

    async def respond(connection: ServerConnection) -> None:
        while True:
            head = await connection.reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            body = await connection.reader.readexactly(int(length or 0))
            wire.requests.append((connection.number, head + body))
            if callable(response):
                await response(connection)
                return
            await connection.send(*([response] if isinstance(response, bytes) else response))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    wire = WireServer(f"{'https' if context else 'http'}://127.0.0.1:{port}")
    try:
        yield wire
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class UpstreamUnderTest:
    """An upstream and the client that sends requests to it."""

    upstreams: LlmUpstreams
    upstream: LlmUpstreamConfig

    async def send(self, path: str = "/v1/x", **options: Any) -> UpstreamResponse:
        """Send a request and return its response."""
        method, headers = options.pop("method", "POST"), options.pop("headers", [("a", "b")])
        body = options.pop("body", b"{}")
        return await self.upstreams.send(UpstreamRequest(self.upstream, method, path, headers, body), **options)

    async def read(self, path: str = "/v1/x", **options: Any) -> bytes:
        """Send a request and return the body of its response."""
        return await (await self.send(path, **options)).read()


@asynccontextmanager
async def open_upstream(url: str, **settings: Any) -> AsyncIterator[UpstreamUnderTest]:
    """Open a client for one upstream."""
    upstream = LlmUpstreamConfig("there", url=url, **{"retries": 0, **settings})
    upstreams = LlmUpstreams(lambda: LlmGatewayConfig((upstream,)))
    await upstreams.open()
    try:
        yield UpstreamUnderTest(upstreams, upstream)
    finally:
        await upstreams.close()


Run = Callable[[Coroutine[Any, Any, None]], None]


def _run_on_asyncio(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def _run_on_uvloop(work: Coroutine[Any, Any, None]) -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work, 60))


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    while not condition():
        await asyncio.sleep(0.005)


# Run a test on the event loop of the standard library and on the gateway's own.
loops = pytest.mark.parametrize("run", [_run_on_asyncio, _run_on_uvloop], ids=["asyncio", "uvloop"])
