"""HTTP/1.1 with upstreams that are correct, unusual, broken, slow or gone."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.gateway.llm.wire_server import (
    CHUNKED,
    Run,
    ServerConnection,
    UpstreamUnderTest,
    encode_chunk,
    loops,
    open_upstream,
    response_with_length,
    wait_until,
    wire_server,
)
from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.upstream import http_client, http_messages

HELLO = response_with_length(b"hello")
REUSABLE = [
    (HELLO, b"hello"),
    (response_with_length(b"hello", head=b"X-Odd:   a  \r\n"), b"hello"),
    (response_with_length(b""), b""),
    (CHUNKED + encode_chunk(b"hel") + encode_chunk(b"lo") + b"0\r\n\r\n", b"hello"),
    (CHUNKED + b"5;extension=1\r\nhello\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n", b"hello"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO, b"hello"),
    (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO, b"hello"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
]


@loops
@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize(("response", "body"), REUSABLE)
def test_connection_is_reused_after_every_kind_of_framing(
    run: Run, response: bytes, body: bytes, bytewise: bool
) -> None:
    async def work() -> None:
        pieces = [bytes([byte]) for byte in response] if bytewise else [response]
        async with wire_server(pieces) as server, open_upstream(server.url) as upstream:
            assert [await upstream.read(), await upstream.read()] == [body, body]
            assert server.connections == [1, 1]

    run(work())


@loops
@pytest.mark.parametrize(
    ("response", "method", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "POST", b"hello"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "POST", b"hello"),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", "POST", b"hello"),
        (response_with_length(b"hello", head=b"Connection: close\r\n"), "POST", b"hello"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", b""),
    ],
)
def test_connection_that_ends_with_its_response_is_not_reused(
    run: Run, response: bytes, method: str, body: bytes
) -> None:
    async def respond_once(connection: ServerConnection) -> None:
        await connection.send(response)

    async def work() -> None:
        async with wire_server(respond_once) as server, open_upstream(server.url) as upstream:
            assert await upstream.read(method=method) == body
            assert await upstream.read(method=method) == body
            assert server.connections == [1, 2]

    run(work())


@loops
def test_request_is_sent_unchanged(run: Run) -> None:
    async def work() -> None:
        async with wire_server(response_with_length(b"")) as server, open_upstream(f"{server.url}/base/") as upstream:
            path = "/a/../b%2F%20?q=1&r=\xe9 #"
            await upstream.read(path, headers=[("x-one", "1"), ("x-one", "caf\xc3\xa9")])
            await upstream.read("/c", method="GET", body=b"")
        host = server.url.removeprefix("http://").encode()
        first, second = (request for _, request in server.requests)
        assert first == (
            b"POST /base/a/../b%2F%20?q=1&r=%E9%20# HTTP/1.1\r\nHost: " + host + b"\r\n"
            b"x-one: 1\r\nx-one: caf\xc3\xa9\r\nContent-Length: 2\r\n\r\n{}"
        )
        assert second == b"GET /base/c HTTP/1.1\r\nHost: " + host + b"\r\na: b\r\n\r\n"

    run(work())


@loops
def test_user_and_password_of_the_url_replace_the_authorization_header(run: Run) -> None:
    async def work() -> None:
        async with wire_server(response_with_length(b"")) as server:
            url = server.url.replace("://", "://me:p%40ss@")
            async with open_upstream(url) as upstream:
                await upstream.read(headers=[("authorization", "Bearer theirs")])
        request = server.requests[0][1]
        assert b"authorization: Basic bWU6cEBzcw==\r\n" in request and b"theirs" not in request

    run(work())


@loops
@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0", "→"])
def test_invalid_header_value_is_rejected_before_sending(run: Run, value: str) -> None:
    async def work() -> None:
        async with wire_server(response_with_length(b"")) as server, open_upstream(server.url) as upstream:
            with pytest.raises(RequestFailed, match="header"):
                await upstream.send(headers=[("x", value)])
            assert not server.requests

    run(work())


LONG_LINE = b"x" * (http_client.MAX_HEADER_LINE_BYTES * 4)
MANY_LINES = b"Trailer: x\r\n" * (http_client.MAX_HEADERS * 4)


@loops
@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + b"x" * 99,
        b"HTTP/1.1 200 OK\r\nX: " + LONG_LINE,
        b"HTTP/1.1 200 OK\r\n" + MANY_LINES,
        CHUNKED + b"zz\r\nhello\r\n",
        CHUNKED + encode_chunk(b"hello") + b"0\r\n" + MANY_LINES,
    ],
)
def test_invalid_http_is_a_bad_gateway_error(run: Run, response: bytes) -> None:
    async def respond(connection: ServerConnection) -> None:
        await connection.send(response)
        await connection.wait_for_disconnect()

    async def work() -> None:
        async with wire_server(respond) as server, open_upstream(server.url, retries=2) as upstream:
            with pytest.raises(RequestFailed, match="does not speak HTTP") as raised:
                await upstream.read()
            assert raised.value.status == 502 and server.connections == [1]
            await server.wait_until_idle()

    run(work())


@loops
@pytest.mark.parametrize("partial", [HELLO[:-1], CHUNKED + encode_chunk(b"hello"), CHUNKED + b"5\r\nhe"])
def test_truncated_response_is_not_retried(run: Run, partial: bytes) -> None:
    async def respond(connection: ServerConnection) -> None:
        await connection.send(partial)

    async def work() -> None:
        async with wire_server(respond) as server, open_upstream(server.url, retries=3) as upstream:
            with pytest.raises(RequestFailed, match="broke off") as raised:
                await upstream.read()
            assert raised.value.status == 502 and server.connections == [1]

    run(work())


@loops
def test_stale_connection_is_replaced_immediately(run: Run) -> None:
    async def respond_once(connection: ServerConnection) -> None:
        await connection.send(HELLO)
        if connection.number > 1:
            await connection.wait_for_disconnect()
            return
        # Accept the next request and close the connection without a response.
        await connection.reader.readuntil(b"{}")

    async def work() -> None:
        async with wire_server(respond_once) as server, open_upstream(server.url, retries=0) as upstream:
            assert [await upstream.read(), await upstream.read()] == [b"hello", b"hello"]
            assert server.connections == [1, 2]

    run(work())


@loops
@pytest.mark.parametrize("arrives_late", [False, True])
def test_connection_with_unexpected_data_is_not_reused(run: Run, arrives_late: bool) -> None:
    has_sent_all = asyncio.Event()

    async def respond(connection: ServerConnection) -> None:
        extra = response_with_length(b"forged") if connection.number == 1 else b""
        if arrives_late:
            await connection.send(HELLO, extra)
        else:
            await connection.send(HELLO + extra)
        has_sent_all.set()
        await connection.wait_for_disconnect()

    async def work() -> None:
        async with wire_server(respond) as server, open_upstream(server.url) as upstream:
            assert await upstream.read() == b"hello"
            await has_sent_all.wait()
            await _receive_pending_data()
            assert await upstream.read() == b"hello"
            assert server.connections == [1, 2]

    run(work())


async def _receive_pending_data() -> None:
    """Make a request to another server; data that was sent before arrives before its response."""
    async with wire_server(HELLO) as server, open_upstream(server.url) as upstream:
        assert await upstream.read() == b"hello"


@loops
def test_idle_connection_is_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "KEEPALIVE_SECONDS", 0.01)

    async def work() -> None:
        async with wire_server(HELLO) as server, open_upstream(server.url) as upstream:
            assert await upstream.read() == b"hello"
            await server.wait_until_idle()
            assert await upstream.read() == b"hello"

    run(work())


@loops
def test_upstream_is_read_only_as_fast_as_the_response_is_consumed(run: Run) -> None:
    sent_count = 0

    async def flood(connection: ServerConnection) -> None:
        nonlocal sent_count
        await connection.send(CHUNKED)
        for _ in range(400):
            await connection.send(encode_chunk(b"x" * 65_536))
            sent_count += 1
        await connection.send(b"0\r\n\r\n")

    async def work() -> None:
        settings = {"max_response_bytes": 1 << 30, "read_seconds": 0.1}
        async with wire_server(flood) as server, open_upstream(server.url, **settings) as upstream:
            response = await upstream.send()
            before = -1
            while sent_count != before:
                before = sent_count
                await asyncio.sleep(0.25)
            assert sent_count < 400
            # The pause was longer than the read timeout, which applies only while we read.
            assert len(await response.read()) == 400 * 65_536

    run(work())


@loops
def test_read_timeout_applies_to_silence_and_not_to_slow_responses(run: Run) -> None:
    async def respond_slowly(connection: ServerConnection) -> None:
        await connection.send(CHUNKED)
        for _ in range(12):
            await connection.send(encode_chunk(b"x"))
            await asyncio.sleep(0.1)
        await connection.send(b"0\r\n\r\n")
        # Do not respond to the next request.
        await connection.wait_for_disconnect()

    async def work() -> None:
        async with wire_server(respond_slowly) as server, open_upstream(server.url, read_seconds=1) as upstream:
            assert await upstream.read() == b"x" * 12
            with pytest.raises(RequestFailed, match=r"silent for 1 s") as raised:
                await upstream.read()
            assert raised.value.status == 504
            await server.wait_until_idle()

    run(work())


@loops
def test_cancelled_request_closes_its_connection(run: Run) -> None:
    async def respond_forever(connection: ServerConnection) -> None:
        await connection.send(CHUNKED, encode_chunk(b"x"))
        await connection.wait_for_disconnect()

    async def work() -> None:
        async with wire_server(respond_forever) as server, open_upstream(server.url) as upstream:
            task = asyncio.ensure_future(upstream.read())
            await wait_until(lambda: server.requests)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.wait_until_idle()

    run(work())


@loops
def test_connection_is_reused_after_the_rest_of_a_response_was_discarded(run: Run) -> None:
    may_end, has_ended = asyncio.Event(), asyncio.Event()

    async def respond(connection: ServerConnection) -> None:
        await connection.send(CHUNKED, encode_chunk(b"x"))
        await may_end.wait()
        await connection.send(encode_chunk(b"more") + b"0\r\n\r\n")
        has_ended.set()
        await connection.reader.readuntil(b"{}")
        await connection.send(HELLO)

    async def work() -> None:
        async with wire_server(respond) as server, open_upstream(server.url) as upstream:
            response = await upstream.send()
            assert await response.read_chunk() == b"x"
            await response.discard_rest()
            await response.close()
            may_end.set()
            await has_ended.wait()
            await _receive_pending_data()
            assert await upstream.read() == b"hello"
            assert server.connections == [1]

    run(work())


@loops
def test_discarded_response_that_does_not_end_is_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "DISCARD_SECONDS", 0.05)

    async def respond(connection: ServerConnection) -> None:
        await connection.send(CHUNKED, encode_chunk(b"x"))
        await connection.wait_for_disconnect()

    async def work() -> None:
        async with wire_server(respond) as server, open_upstream(server.url) as upstream:
            response = await upstream.send()
            assert await response.read_chunk() == b"x"
            await response.discard_rest()
            await server.wait_until_idle()

    run(work())


@loops
def test_client_closes_while_a_response_is_discarded(run: Run) -> None:
    async def respond(connection: ServerConnection) -> None:
        await connection.send(CHUNKED, encode_chunk(b"x"))
        await connection.wait_for_disconnect()

    async def work() -> None:
        async with wire_server(respond) as server:
            async with open_upstream(server.url) as upstream:
                response = await upstream.send()
                assert await response.read_chunk() == b"x"
                await response.discard_rest()
            await server.wait_until_idle()

    run(work())


@loops
@pytest.mark.parametrize("value", ["é", "é".encode().decode("latin-1")], ids=["Latin-1", "UTF-8"])
def test_header_reaches_the_upstream_in_utf8(run: Run, value: str) -> None:
    async def work() -> None:
        async with wire_server(HELLO) as server, open_upstream(server.url) as upstream:
            await upstream.read(headers=[("x-name", value)])
        assert b"x-name: \xc3\xa9\r\n" in server.requests[0][1]

    run(work())


@loops
def test_requests_over_the_connection_limit_wait_until_the_connect_timeout(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "MAX_CONNECTIONS", 1)

    async def stall(connection: ServerConnection) -> None:
        await connection.wait_for_disconnect()

    async def work() -> None:
        async with (
            wire_server(HELLO) as server,
            wire_server(response_with_length(b"other")) as other_server,
            wire_server(stall) as stalled_server,
            open_upstream(server.url) as upstream,
        ):
            assert await upstream.read() == b"hello"
            # The idle connection does not count.
            stalled = asyncio.ensure_future(_with_url(upstream, stalled_server.url).read())
            await wait_until(lambda: stalled_server.requests)
            with pytest.raises(RequestFailed, match=r"within 0\.2 s") as raised:
                await _with_url(upstream, other_server.url, connect_seconds=0.2).read()
            assert raised.value.status == 504
            stalled.cancel()
            await asyncio.gather(stalled, return_exceptions=True)
            assert await _with_url(upstream, other_server.url).read() == b"other"

    run(work())


def _with_url(upstream: UpstreamUnderTest, url: str, connect_seconds: float = 30) -> UpstreamUnderTest:
    """Return another upstream that shares the connections."""
    config = LlmUpstreamConfig("other", url=url, connect_seconds=connect_seconds, retries=0)
    return UpstreamUnderTest(upstream.upstreams, config)


@loops
@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999", "nowhere"])
def test_invalid_upstream_url_is_an_error(run: Run, url: str) -> None:
    async def work() -> None:
        async with open_upstream("http://127.0.0.1:9") as upstream:
            with pytest.raises(RequestFailed, match="address of upstream 'other' cannot be read"):
                await _with_url(upstream, url).send()

    run(work())


@loops
def test_refused_connection_is_an_error(run: Run) -> None:
    async def work() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
            async with open_upstream(url, retries=1) as upstream:
                with pytest.raises(RequestFailed, match="cannot be reached"):
                    await upstream.send()

    run(work())
