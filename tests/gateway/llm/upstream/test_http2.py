"""Requests over HTTP/2 that end early."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import hypercorn.asyncio
import hypercorn.config
import pytest

from tests.gateway.llm.certificates import Certificate
from tests.gateway.llm.wire_server import UpstreamUnderTest, open_upstream, wait_until
from tests.support.ports import is_listening
from toolcrib.errors import RequestFailed

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
EVENT = b"data: 0\n\n"


@dataclass
class Http2Server:
    """A server with HTTP/2. `/ok` ends, `/endless` never stops sending events, `/silent` sends nothing."""

    url: str = ""
    started: list[str] = field(default_factory=list)
    # The paths of requests that the client has cancelled.
    cancelled: list[str] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # The server accepts that an application fails on lifespan events.
        assert scope["type"] == "http" and scope["http_version"] == "2"
        self.connections.add(scope["client"])
        path: str = scope["path"]
        while (await receive()).get("more_body"):
            pass
        self.started.append(path)
        stream = asyncio.ensure_future(self._respond(path, send))
        if path != "/ok":
            while (await receive())["type"] != "http.disconnect":
                pass
            self.cancelled.append(path)
            stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)

    async def _respond(self, path: str, send: Any) -> None:
        if path == "/silent":
            await asyncio.Event().wait()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
        while path == "/endless":
            await send({"type": "http.response.body", "body": EVENT * 100, "more_body": True})
            await asyncio.sleep(0.001)
        if path == "/large":
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        if path in ("/stalled", "/large"):
            await asyncio.Event().wait()
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def http2_upstream(
    certificate: Certificate, **settings: Any
) -> AsyncIterator[tuple[Http2Server, UpstreamUnderTest]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = Http2Server(f"https://127.0.0.1:{port}")
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = str(certificate.file), str(certificate.key)
    config.errorlog = None
    config.graceful_timeout = 0.1
    shutdown = asyncio.Event()
    server = asyncio.ensure_future(hypercorn.asyncio.serve(app, config, shutdown_trigger=shutdown.wait))
    try:
        await wait_until(lambda: is_listening(port))
        async with open_upstream(app.url, **settings) as upstream:
            yield app, upstream
    finally:
        shutdown.set()
        await server


def test_every_way_to_end_a_request_early_resets_its_stream_only(certificate: Certificate) -> None:
    async def work() -> None:
        async with http2_upstream(certificate, max_response_bytes=4096, read_seconds=1.0) as (server, upstream):
            survivor = await upstream.send("/stalled")
            assert await survivor.read_chunk() == EVENT
            # The client disconnects in the middle of a stream.
            response = await upstream.send("/endless")
            await response.read_chunk()
            await response.close()
            await wait_until(lambda: server.cancelled == ["/endless"])
            # The client disconnects before the response begins.
            waiting = asyncio.ensure_future(upstream.send("/silent"))
            await wait_until(lambda: "/silent" in server.started)
            waiting.cancel()
            await wait_until(lambda: server.cancelled == ["/endless", "/silent"])
            # The response is too large.
            with pytest.raises(RequestFailed, match="maxResponseBytes"):
                await upstream.read("/endless")
            await wait_until(lambda: server.cancelled[2:] == ["/endless"])
            # The response stops while another request on the same connection is served.
            with pytest.raises(RequestFailed, match=r"silent for 1 s"):
                await survivor.read_chunk()
            await survivor.close()
            await wait_until(lambda: server.cancelled[3:] == ["/stalled"])
            assert await upstream.read("/ok") == EVENT
            assert len(server.connections) == 1

    asyncio.run(asyncio.wait_for(work(), 60))


def test_cancelled_streams_do_not_use_up_the_window_of_the_connection(certificate: Certificate) -> None:
    async def work() -> None:
        async with http2_upstream(certificate) as (server, upstream):
            # The data that is left unread is more than the 16 MiB that the connection may have in flight.
            for _ in range(40):
                response = await upstream.send("/large")
                await response.read_chunk()
                await response.close()
            assert await upstream.read("/ok") == EVENT
            assert len(server.connections) == 1

    asyncio.run(asyncio.wait_for(work(), 60))
