"""Upstreams with TLS, HTTP/2, proxies or several addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hypercorn.asyncio
import hypercorn.config
import pytest

from tests.gateway.llm.certificates import Certificate, create_certificate
from tests.gateway.llm.wire_server import (
    Run,
    ServerConnection,
    loops,
    open_upstream,
    response_with_length,
    wait_until,
    wire_server,
)
from tests.support.ports import is_listening
from toolcrib.errors import RequestFailed

HELLO = response_with_length(b"hello")


@loops
def test_tls_connection_without_http2_is_reused(run: Run, certificate: Certificate) -> None:
    async def work() -> None:
        context = certificate.context("http/1.1")
        async with wire_server(HELLO, context) as server, open_upstream(server.url) as upstream:
            assert [await upstream.read() for _ in range(3)] == [b"hello"] * 3
            # The first connection only showed that the upstream does not offer HTTP/2.
            assert server.connections == [1, 2, 2]

    run(work())


@loops
def test_untrusted_certificate_is_an_error(run: Run, tmp_path: Path, certificate: Certificate) -> None:
    async def work() -> None:
        untrusted = create_certificate(tmp_path, "127.0.0.2")
        async with wire_server(HELLO, untrusted.context()) as server, open_upstream(server.url, retries=2) as upstream:
            with pytest.raises(RequestFailed, match=r"certificate .* trusted") as raised:
                await upstream.read()
            assert raised.value.status == 502 and not server.requests

    run(work())


@loops
def test_certificate_that_becomes_untrusted_is_an_error(run: Run, tmp_path: Path, certificate: Certificate) -> None:
    async def work() -> None:
        context = certificate.context("http/1.1")
        response = response_with_length(b"hello", head=b"Connection: close\r\n")
        async with wire_server(response, context) as server, open_upstream(server.url) as upstream:
            assert [await upstream.read() for _ in range(2)] == [b"hello"] * 2
            untrusted = create_certificate(tmp_path, "127.0.0.2")
            context.load_cert_chain(untrusted.file, untrusted.key)
            with pytest.raises(RequestFailed, match=r"certificate .* trusted"):
                await upstream.read()

    run(work())


@loops
def test_certificate_for_another_address_is_an_error(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        other = create_certificate(tmp_path, "127.0.0.2")
        monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
        async with wire_server(HELLO, other.context()) as server, open_upstream(server.url) as upstream:
            with pytest.raises(RequestFailed, match=r"127\.0\.0\.1"):
                await upstream.read()

    run(work())


@loops
def test_https_upstream_without_tls_is_an_error(run: Run, certificate: Certificate) -> None:
    async def greet(connection: ServerConnection) -> None:
        await connection.send(b"220 smtp\r\n")

    async def work() -> None:
        async with (
            wire_server(greet) as server,
            open_upstream(server.url.replace("http:", "https:"), connect_seconds=1) as upstream,
        ):
            with pytest.raises(RequestFailed) as raised:
                await upstream.read()
            assert raised.value.status in (502, 504)

    run(work())


@asynccontextmanager
async def http2_server(certificate: Certificate, requests: list[str]) -> AsyncIterator[str]:
    """Run a server that offers HTTP/2 and streams three events."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        # The server accepts that an application fails on lifespan events.
        assert scope["type"] == "http"
        requests.append(f"{scope['http_version']} {scope['method']} {scope['path']}")
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"text/event-stream"), (b"set-cookie", b"a=b")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(3):
            body = b"data: %d\n\n" % number
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = str(certificate.file), str(certificate.key)
    config.errorlog = None
    shutdown = asyncio.Event()
    server = asyncio.ensure_future(hypercorn.asyncio.serve(app, config, shutdown_trigger=shutdown.wait))
    try:
        await wait_until(lambda: is_listening(port))
        yield f"https://127.0.0.1:{port}"
    finally:
        shutdown.set()
        await server


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_http2_is_used_if_the_upstream_offers_it(certificate: Certificate) -> None:
    async def work() -> None:
        requests: list[str] = []
        async with http2_server(certificate, requests) as url, open_upstream(url) as upstream:
            responses = await asyncio.gather(*(upstream.send(f"/{i}") for i in range(5)))
            assert all(each.is_success and each.is_event_stream for each in responses)
            assert not any(name == "set-cookie" for name, _ in responses[0].forwarded_headers())
            for response in responses[:2]:
                assert await response.read() == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
            for response in responses:
                await response.discard_rest()
                await response.close()
            await asyncio.wait_for(upstream.read("/last"), 10)
        assert len(requests) == 6 and all(each.startswith("2 POST /") for each in requests)

    asyncio.run(asyncio.wait_for(work(), 60))


@loops
def test_proxy_of_the_environment_is_used(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with wire_server(response_with_length(b"by proxy")) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            async with open_upstream("http://model.invalid/base") as upstream:
                assert await upstream.read("/v1/x") == b"by proxy"
            async with wire_server(HELLO) as server, open_upstream(server.url) as upstream:
                assert await upstream.read() == b"hello"
        ((_, request),) = proxy.requests
        assert request.startswith(b"POST http://model.invalid/base/v1/x HTTP/1.1\r\n")

    run(work())


@loops
def test_refused_proxy_connection_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed.getsockname()[1]}")
            async with open_upstream("http://model.invalid") as upstream:
                with pytest.raises(RequestFailed, match="cannot be reached"):
                    await upstream.read()

    run(work())


class FixedAddressLoop(asyncio.SelectorEventLoop):
    """An event loop that resolves every host name to the same addresses."""

    addresses: list[tuple[str, int]]

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in self.addresses]


@pytest.mark.parametrize("first", ["refused", "silent"])
def test_next_address_is_tried_if_the_first_does_not_respond(first: str) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FixedAddressLoop)
        with socket.socket() as dead, socket.socket() as filler:
            dead.bind(("127.0.0.1", 0))
            filler.setblocking(False)
            if first == "silent":
                # A listener with a full queue neither accepts nor refuses connections.
                dead.listen(0)
                filler.connect_ex(dead.getsockname())
            async with wire_server(HELLO) as server:
                port = int(server.url.rpartition(":")[2])
                loop.addresses = [dead.getsockname(), ("127.0.0.1", port)]
                async with open_upstream("http://upstream.invalid") as upstream:
                    assert await upstream.read() == b"hello"

    with asyncio.Runner(loop_factory=FixedAddressLoop) as runner:
        FixedAddressLoop.addresses = [("127.0.0.1", 0)]
        runner.run(asyncio.wait_for(work(), 30))


@loops
def test_unknown_host_is_an_error(run: Run) -> None:
    async def work() -> None:
        async with open_upstream("http://model.invalid", connect_seconds=30) as upstream:
            with pytest.raises(RequestFailed, match="cannot be reached"):
                await upstream.read()

    run(work())
