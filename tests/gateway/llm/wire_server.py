"""A server that says exactly what it is told to, on connections that it counts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.upstreams import LlmUpstreams, UpstreamResponse

Stage = Callable[["ServerConnection"], Awaitable[None]]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def response_with_length(body: bytes, status: str = "200 OK", head: bytes = b"") -> bytes:
    """An answer that says how long it is."""
    length = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode()
    return length + head + b"\r\n" + body


def encode_chunk(data: bytes) -> bytes:
    """A piece of an answer that comes in pieces."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@dataclass
class ServerConnection:
    """One connection, as the server has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def send(self, *pieces: bytes) -> None:
        """Send some bytes, each piece by itself."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def wait_for_disconnect(self) -> None:
        """Wait until the other side has hung up."""
        with suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass


@dataclass
class WireServer:
    """What was asked of it, on which connection."""

    url: str
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    open_count: int = 0

    async def wait_until_idle(self) -> None:
        """Wait until nobody is connected any more."""
        await wait_until(lambda: not self.open_count)

    @property
    def connections(self) -> list[int]:
        """The number of the connection of each request."""
        return [number for number, _ in self.requests]


@asynccontextmanager
async def wire_server(
    answer: Stage | bytes | Sequence[bytes], context: ssl.SSLContext | None = None
) -> AsyncIterator[WireServer]:
    """A server that answers every request so; it hangs up after a function has returned."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        peer = ServerConnection(reader, writer, count)
        known.open_count += 1
        try:
            await _answered(peer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Gone, or the server is: either way there is nobody to tell.
            pass
        finally:
            known.open_count -= 1
            writer.close()

    async def _answered(peer: ServerConnection) -> None:
        while True:
            head = await peer.reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            body = await peer.reader.readexactly(int(length or 0))
            known.requests.append((peer.number, head + body))
            if callable(answer):
                await answer(peer)
                return
            await peer.send(*([answer] if isinstance(answer, bytes) else answer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    known = WireServer(f"{'https' if context else 'http'}://127.0.0.1:{port}")
    try:
        yield known
    finally:
        server.close()
        for task in asyncio.all_tasks():
            if getattr(task.get_coro(), "__name__", "") == "serve":
                task.cancel()
                await task


@dataclass
class UpstreamUnderTest:
    """An upstream, and the way to ask it."""

    upstreams: LlmUpstreams
    upstream: LlmUpstreamConfig

    async def send(self, path: str = "/v1/x", **given: Any) -> UpstreamResponse:
        """Ask something."""
        method, headers = given.pop("method", "POST"), given.pop("headers", [("a", "b")])
        body = given.pop("body", b"{}")
        return await self.upstreams.send(self.upstream, method, path, headers, body, **given)

    async def read(self, path: str = "/v1/x", **given: Any) -> bytes:
        """Ask something, and read the answer."""
        return await (await self.send(path, **given)).read()


@asynccontextmanager
async def open_upstream(url: str, **settings: Any) -> AsyncIterator[UpstreamUnderTest]:
    """Somebody who asks the upstream at an address."""
    upstream = LlmUpstreamConfig("there", url=url, **{"retries": 0, **settings})
    upstreams = LlmUpstreams(LlmGatewayConfig((upstream,)))
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


async def wait_until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    while not holds():
        await asyncio.sleep(0.005)


# Runs a test on the loop of the standard library, and on the one that the gateway takes.
loops = pytest.mark.parametrize(
    "run", [_run_on_asyncio, _run_on_uvloop], ids=["asyncio", "as served"]
)
