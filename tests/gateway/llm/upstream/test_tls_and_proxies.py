"""Upstreams with TLS, proxies or several addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.llm.certificates import Certificate, create_certificate
from tests.gateway.llm.wire_server import Run, ServerConnection, loops, open_upstream, response_with_length, wire_server
from toolcrib.errors import RequestFailed

HELLO = response_with_length(b"hello")


@loops
def test_tls_connection_is_reused(run: Run, certificate: Certificate) -> None:
    async def work() -> None:
        context = certificate.context("http/1.1")
        async with wire_server(HELLO, context) as server, open_upstream(server.url) as upstream:
            assert [await upstream.read() for _ in range(3)] == [b"hello"] * 3
            assert server.connections == [1, 1, 1]

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


@asynccontextmanager
async def tunnel_proxy(requests: list[bytes]) -> AsyncIterator[str]:
    """Run a proxy that opens tunnels to any host on this machine; yield its address without a scheme."""

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(4096):
            target.write(data)
        target.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        port = int(requests[-1].split()[1].rpartition(b":")[2])
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copy(reader, upstream_writer), copy(upstream_reader, writer), return_exceptions=True)

    async with await asyncio.start_server(tunnel, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_tls_upstream_is_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch, certificate: Certificate) -> None:
    async def work() -> None:
        requests: list[bytes] = []
        async with tunnel_proxy(requests) as address, wire_server(HELLO, certificate.context()) as server:
            monkeypatch.setenv("all_proxy", address)
            async with open_upstream(server.url) as upstream:
                assert [await upstream.read() for _ in range(2)] == [b"hello"] * 2
        assert [request.split()[0] for request in requests] == [b"CONNECT"]

    asyncio.run(asyncio.wait_for(work(), 30))


@loops
def test_proxy_that_refuses_a_tunnel_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(connection: ServerConnection) -> None:
        await connection.send(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")

    async def work() -> None:
        async with wire_server(refuse) as proxy:
            monkeypatch.setenv("https_proxy", proxy.url)
            async with open_upstream("https://model.invalid") as upstream:
                with pytest.raises(RequestFailed, match="cannot be reached"):
                    await upstream.read()

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
