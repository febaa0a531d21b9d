"""The ways to an upstream other than a plain connection: TLS, HTTP/2, proxies, several addresses."""

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

from tests.gateway.llm.certificates import Certificate, certificate
from tests.gateway.llm.wire_server import (
    Run,
    ServerConnection,
    loops,
    open_upstream,
    response_with_length,
    wait_until,
    wire_server,
)
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.connect import by_turns, connected


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificate:
    """A certificate that we trust, as a user would say so."""
    found = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(found.file))
    return found


@loops
def test_a_secured_upstream_is_asked_and_its_connection_used_again(
    run: Run, trusted: Certificate
) -> None:
    async def work() -> None:
        context = trusted.context("http/1.1")
        async with (
            wire_server(response_with_length(b"hello"), context) as server,
            open_upstream(server.url) as ask,
        ):
            assert [await ask.read(), await ask.read()] == [b"hello", b"hello"]
            assert server.connections == [1, 1]

    run(work())


@loops
def test_a_certificate_that_is_not_to_be_trusted_is_said_so(
    run: Run, tmp_path: Path, trusted: Certificate
) -> None:
    async def work() -> None:
        stranger = certificate(tmp_path, "127.0.0.2")
        async with (
            wire_server(response_with_length(b"hello"), stranger.context()) as server,
            open_upstream(server.url, retries=2) as ask,
        ):
            with pytest.raises(RequestFailed, match=r"certificate .* trusted") as raised:
                await ask.read()
            assert raised.value.status == 502 and not server.requests

    run(work())


@loops
def test_a_certificate_for_another_address_is_not_to_be_trusted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        other = certificate(tmp_path, "127.0.0.2")
        monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
        async with (
            wire_server(response_with_length(b"hello"), other.context()) as server,
            open_upstream(server.url) as ask,
        ):
            with pytest.raises(RequestFailed, match=r"127\.0\.0\.1"):
                await ask.read()

    run(work())


@loops
def test_a_server_that_does_not_speak_tls_cannot_be_reached(run: Run, trusted: Certificate) -> None:
    async def work() -> None:
        async def greet(peer: ServerConnection) -> None:
            await peer.send(b"220 smtp\r\n")

        async with (
            wire_server(greet) as server,
            open_upstream(server.url.replace("http:", "https:"), connect_seconds=1) as ask,
        ):
            with pytest.raises(RequestFailed) as raised:
                await ask.read()
            assert raised.value.status in (502, 504)

    run(work())


@asynccontextmanager
async def http2_server(context: Certificate, seen: list[str]) -> AsyncIterator[str]:
    """A real server that offers HTTP/2, and streams."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        # A server takes it from a failure that the application does not care when it starts and ends.
        assert scope["type"] == "http"
        seen.append(f"{scope['http_version']} {scope['method']} {scope['path']}")
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
    config.certfile, config.keyfile = str(context.file), str(context.key)
    config.errorlog = None
    over = asyncio.Event()
    serving = asyncio.ensure_future(
        hypercorn.asyncio.serve(app, config, shutdown_trigger=over.wait)
    )
    try:
        await wait_until(lambda: _listens(port))
        yield f"https://127.0.0.1:{port}"
    finally:
        over.set()
        await serving


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_http2_is_spoken_where_it_is_offered(trusted: Certificate) -> None:
    async def work() -> None:
        seen: list[str] = []
        async with http2_server(trusted, seen) as url, open_upstream(url) as ask:
            replies = await asyncio.gather(*(ask.send(f"/{number}") for number in range(5)))
            assert all(reply.is_success and reply.is_event_stream for reply in replies)
            assert not any(name == "set-cookie" for name, _ in replies[0].forwarded_headers())
            assert await replies[0].read() == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
            taken: list[bytes] = []

            def take(piece: bytes) -> bool:
                taken.append(piece)
                return True

            assert await replies[1].stream_to(take) and len(b"".join(taken)) == 27
            for reply in replies:
                await reply.discard_rest()
                await reply.close()
            await asyncio.wait_for(ask.read("/last"), 10)
        assert len(seen) == 6 and all(one.startswith("2 POST /") for one in seen)

    asyncio.run(asyncio.wait_for(work(), 60))


@loops
def test_an_upstream_behind_a_proxy_is_asked_through_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with wire_server(response_with_length(b"by proxy")) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            async with open_upstream("http://model.invalid/base") as ask:
                assert await ask.read("/v1/x") == b"by proxy"
            async with (
                wire_server(response_with_length(b"direct")) as server,
                open_upstream(server.url) as ask,
            ):
                assert await ask.read() == b"direct"
        ((_, said),) = proxy.requests
        assert said.startswith(b"POST http://model.invalid/base/v1/x HTTP/1.1\r\n")

    run(work())


@loops
def test_a_proxy_that_is_not_there_is_said_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed.getsockname()[1]}")
            async with open_upstream("http://model.invalid") as ask:
                with pytest.raises(RequestFailed, match="cannot be reached"):
                    await ask.read()

    run(work())


def test_the_kinds_of_addresses_come_by_turns() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found: Any = [(six, 1), (six, 2), (six, 3), (four, 4), (four, 5)]
    assert [one[1] for one in by_turns(found)] == [1, 4, 2, 5, 3]


class Loop(asyncio.SelectorEventLoop):
    """An event loop that resolves every name to these addresses."""

    addresses: list[Any]

    async def getaddrinfo(self, host: Any, port: Any, **given: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one) for one in self.addresses]


@pytest.mark.parametrize("first", ["refused", "silent"])
def test_an_address_that_does_not_answer_is_passed_over(first: str) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        async with wire_server(response_with_length(b"hello")) as server:
            port = int(server.url.rpartition(":")[2])
            with socket.socket() as dead, socket.socket() as filler:
                dead.bind(("127.0.0.1", 0))
                filler.setblocking(False)
                if first == "silent":
                    # A queue that is full takes nobody in, and refuses nobody.
                    dead.listen(0)
                    filler.connect_ex(dead.getsockname())
                loop.addresses = [dead.getsockname(), ("127.0.0.1", port)]
                one = await connected("upstream.invalid", port)
                assert one.getpeername() == ("127.0.0.1", port)
                one.close()

    with asyncio.Runner(loop_factory=Loop) as runner:
        Loop.addresses = [("127.0.0.1", 0)]
        runner.run(asyncio.wait_for(work(), 30))


@loops
def test_no_address_at_all_is_said_so(run: Run) -> None:
    async def work() -> None:
        async with open_upstream("http://model.invalid", connect_seconds=30) as ask:
            with pytest.raises(RequestFailed, match="cannot be reached"):
                await ask.read()

    run(work())
