"""HTTP/1.1 with upstreams that are right, odd, wrong, slow and gone."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from typing import Any

import pytest

from tests.gateway.llm.wire_server import (
    CHUNKED,
    Run,
    ServerConnection,
    encode_chunk,
    loops,
    open_upstream,
    response_with_length,
    wait_until,
    wire_server,
)
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm import http1

FRAMED = [
    (response_with_length(b"hello"), b"hello"),
    (response_with_length(b"hello", head=b"X-Odd:   a  \r\n"), b"hello"),
    (response_with_length(b""), b""),
    (CHUNKED + encode_chunk(b"hel") + encode_chunk(b"lo") + b"0\r\n\r\n", b"hello"),
    (CHUNKED + b"5;extension=1\r\nhello\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n", b"hello"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + response_with_length(b"hello"), b"hello"),
    (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + response_with_length(b"hello"), b"hello"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
]


@loops
@pytest.mark.parametrize("in_pieces", [False, True])
def test_however_an_answer_is_framed_it_is_read_and_the_connection_used_again(
    run: Run, in_pieces: bool
) -> None:
    async def work() -> None:
        for sent, body in FRAMED:
            pieces = [sent[at : at + 1] for at in range(len(sent))] if in_pieces else [sent]
            async with wire_server(pieces) as server, open_upstream(server.url) as ask:
                assert [await ask.read(), await ask.read()] == [body, body]
                assert server.connections == [1, 1]

    run(work())


@loops
@pytest.mark.parametrize(
    ("answer", "method", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "POST", b"hello"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "POST", b"hello"),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", "POST", b"hello"),
        (response_with_length(b"hello", head=b"Connection: close\r\n"), "POST", b"hello"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", b""),
    ],
)
def test_a_connection_that_is_over_after_its_answer_is_not_used_again(
    run: Run, answer: bytes, method: str, body: bytes
) -> None:
    async def once(peer: ServerConnection) -> None:
        await peer.send(answer)

    async def work() -> None:
        async with wire_server(once) as server, open_upstream(server.url) as ask:
            assert await ask.read(method=method) == body
            assert await ask.read(method=method) == body
            assert server.connections == [1, 2]

    run(work())


@loops
def test_what_is_sent_is_what_was_asked(run: Run) -> None:
    async def work() -> None:
        async with (
            wire_server(response_with_length(b"")) as server,
            open_upstream(f"{server.url}/base/") as ask,
        ):
            await ask.read("/a/../b%2F%20?q=1&r=\xe9 #", headers=[("x-one", "1"), ("x-one", "2")])
            await ask.read("/c", method="GET", body=b"")
        host = server.url.removeprefix("http://").encode()
        first, second = (said for _, said in server.requests)
        assert first == (
            b"POST /base/a/../b%2F%20?q=1&r=%E9%20# HTTP/1.1\r\nhost: " + host + b"\r\n"
            b"x-one: 1\r\nx-one: 2\r\ncontent-length: 2\r\n\r\n{}"
        )
        assert second == b"GET /base/c HTTP/1.1\r\nhost: " + host + b"\r\na: b\r\n\r\n"

    run(work())


@loops
def test_a_name_and_password_in_the_address_are_sent_as_such(run: Run) -> None:
    async def work() -> None:
        async with wire_server(response_with_length(b"")) as server:
            url = server.url.replace("://", "://me:p%40ss@")
            async with open_upstream(url) as ask:
                await ask.read(headers=[("authorization", "Bearer theirs")])
        said = server.requests[0][1]
        assert b"authorization: Basic bWU6cEBzcw==\r\n" in said and b"theirs" not in said

    run(work())


@loops
@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0", "→"])
def test_a_header_cannot_become_two(run: Run, value: str) -> None:
    async def work() -> None:
        async with (
            wire_server(response_with_length(b"")) as server,
            open_upstream(server.url) as ask,
        ):
            with pytest.raises(RequestFailed, match="header"):
                await ask.send(headers=[("x", value)])
            assert not server.requests

    run(work())


@loops
@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + b"x" * 99,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (http1.MAX_HEAD_BYTES * 4),
        b"HTTP/1.1 100 Continue\r\n\r\n" * (http1.MAX_HEAD_BYTES // 5),
        CHUNKED + b"zz\r\nhello\r\n",
        CHUNKED + encode_chunk(b"hello") + b"0\r\n" + b"Trailer: x\r\n" * http1.MAX_HEAD_BYTES,
        CHUNKED + b"5;" + b"x" * (http1.MAX_HEAD_BYTES * 4),
    ],
)
def test_what_is_not_http_is_a_bad_gateway(run: Run, nonsense: bytes) -> None:
    async def work() -> None:
        async def say(peer: ServerConnection) -> None:
            await peer.send(nonsense)
            await peer.wait_for_disconnect()

        async with wire_server(say) as server, open_upstream(server.url, retries=2) as ask:
            with pytest.raises(RequestFailed, match="does not speak HTTP") as raised:
                await ask.read()
            assert raised.value.status == 502 and server.connections == [1]
            await server.wait_until_idle()

    run(work())


@loops
@pytest.mark.parametrize(
    "half",
    [
        b"HTTP/1.1 200",
        response_with_length(b"hello")[:-1],
        CHUNKED + encode_chunk(b"hello"),
        CHUNKED + b"5\r\nhe",
    ],
)
def test_an_answer_that_breaks_off_is_not_asked_for_again(run: Run, half: bytes) -> None:
    async def say(peer: ServerConnection) -> None:
        await peer.send(half)

    async def work() -> None:
        async with wire_server(say) as server, open_upstream(server.url, retries=3) as ask:
            with pytest.raises(RequestFailed, match="broke off") as raised:
                await ask.read()
            assert raised.value.status == 502 and server.connections == [1]

    run(work())


@loops
def test_a_connection_that_was_given_up_meanwhile_is_replaced_at_once(run: Run) -> None:
    async def once(peer: ServerConnection) -> None:
        await peer.send(response_with_length(b"hello"))
        if peer.number > 1:
            await peer.wait_for_disconnect()
            return
        # It takes the next request, and hangs up on it.
        await peer.reader.readuntil(b"{}")

    async def work() -> None:
        async with wire_server(once) as server, open_upstream(server.url, retries=0) as ask:
            assert [await ask.read(), await ask.read()] == [b"hello", b"hello"]
            assert server.connections == [1, 2]

    run(work())


@loops
def test_a_connection_on_which_something_came_unasked_is_not_used(run: Run) -> None:
    async def twice(peer: ServerConnection) -> None:
        await peer.send(
            response_with_length(b"hello")
            + (response_with_length(b"forged") if peer.number == 1 else b"")
        )
        await peer.wait_for_disconnect()

    async def later(peer: ServerConnection) -> None:
        await peer.send(response_with_length(b"hello"))
        if peer.number == 1:
            await peer.send(response_with_length(b"forged"))
        await peer.wait_for_disconnect()

    async def work() -> None:
        for stage in (twice, later):
            async with wire_server(stage) as server, open_upstream(server.url) as ask:
                assert await ask.read() == b"hello"
                await server.wait_until_idle()
                assert await ask.read() == b"hello"
                assert server.connections == [1, 2]

    run(work())


@loops
def test_an_idle_connection_is_closed_after_a_while(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "KEEPALIVE_SECONDS", 0.01)

    async def work() -> None:
        async with (
            wire_server(response_with_length(b"hello")) as server,
            open_upstream(server.url) as ask,
        ):
            assert await ask.read() == b"hello"
            await server.wait_until_idle()
            assert await ask.read() == b"hello"

    run(work())


@loops
def test_an_upstream_is_not_read_faster_than_its_answer_is_taken(run: Run) -> None:
    sent = 0

    async def flood(peer: ServerConnection) -> None:
        nonlocal sent
        await peer.send(CHUNKED)
        for _ in range(400):
            await peer.send(encode_chunk(b"x" * 65_536))
            sent += 1
        await peer.send(b"0\r\n\r\n")

    async def work() -> None:
        async with (
            wire_server(flood) as server,
            open_upstream(server.url, max_response_bytes=1 << 30, read_seconds=0.1) as ask,
        ):
            reply = await ask.send()
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.25)
            assert sent < 400
            # That took longer than an upstream may be silent; but it was not the one to wait for.
            assert len(await reply.read()) == 400 * 65_536

    run(work())


@loops
def test_a_silent_upstream_is_given_up_and_a_slow_one_is_not(run: Run) -> None:
    async def slow(peer: ServerConnection) -> None:
        await peer.send(CHUNKED)
        for _ in range(12):
            await peer.send(encode_chunk(b"x"))
            await asyncio.sleep(0.1)
        await peer.send(b"0\r\n\r\n")
        # What it is asked next it does not answer.
        await peer.wait_for_disconnect()

    async def work() -> None:
        async with wire_server(slow) as server, open_upstream(server.url, read_seconds=1) as ask:
            assert await ask.read() == b"x" * 12
            with pytest.raises(RequestFailed, match=r"silent for 1 s") as raised:
                await ask.read()
            assert raised.value.status == 504
            await server.wait_until_idle()

    run(work())


@loops
def test_whoever_goes_takes_the_connection_along(run: Run) -> None:
    async def endless(peer: ServerConnection) -> None:
        await peer.send(CHUNKED, encode_chunk(b"x"))
        await peer.wait_for_disconnect()

    async def work() -> None:
        async with wire_server(endless) as server, open_upstream(server.url) as ask:
            asked = asyncio.ensure_future(ask.read())
            await wait_until(lambda: server.requests)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await server.wait_until_idle()

    run(work())


@loops
def test_the_end_of_an_answer_that_nobody_needs_is_waited_for_by_nobody(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "LINGER_SECONDS", 0.2)
    ends = asyncio.Event()

    async def slow_end(peer: ServerConnection) -> None:
        for turn in range(2):
            await peer.send(CHUNKED, encode_chunk(b"x"))
            await ends.wait() if turn == 0 else await peer.wait_for_disconnect()
            await peer.send(encode_chunk(b"more") + b"0\r\n\r\n")
            await peer.reader.readuntil(b"{}")

    async def work() -> None:
        async with wire_server(slow_end) as server, open_upstream(server.url) as ask:
            reply = await ask.send()
            assert await reply.read_chunk() == b"x"
            await reply.discard_rest()
            await reply.close()
            ends.set()
            http: Any = ask.upstreams._http1
            await wait_until(lambda: http._idle)
            reply = await ask.send()
            assert await reply.read_chunk() == b"x"
            await reply.discard_rest()
            # This one does not come to its end.
            await server.wait_until_idle()

    run(work())


@loops
def test_a_sink_that_takes_no_more_gets_the_rest_later(run: Run) -> None:
    async def work() -> None:
        pieces = [CHUNKED, *(encode_chunk(b"%d" % number) for number in range(10)), b"0\r\n\r\n"]
        async with wire_server(pieces) as server, open_upstream(server.url) as ask:
            reply = await ask.send()
            taken: list[bytes] = []

            def take(piece: bytes) -> bool:
                taken.append(piece)
                return len(taken) % 2 == 0

            while not await reply.stream_to(take):
                await asyncio.sleep(0.01)
            assert b"".join(taken) == b"0123456789"

            def fail(piece: bytes) -> bool:
                raise RequestFailed("it is too much", 502)

            reply = await ask.send()
            with pytest.raises(RequestFailed, match="too much"):
                await reply.stream_to(fail)
            await reply.close()

    run(work())


@loops
def test_more_at_once_than_there_may_be_wait_for_their_turn(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "MAX_CONNECTIONS", 1)

    async def work() -> None:
        async with (
            wire_server(response_with_length(b"hello")) as server,
            wire_server(response_with_length(b"other")) as second,
            open_upstream(server.url, connect_seconds=0.2) as ask,
        ):
            first = await ask.send()
            assert await first.read() == b"hello"
            # The one that is kept makes room for another place.
            ask.upstream = type(ask.upstream)("other", url=second.url, retries=0)
            assert await ask.read() == b"other"
            ask.upstream = type(ask.upstream)(
                "there", url=server.url, connect_seconds=0.2, retries=0
            )

            async def stalls(peer: ServerConnection) -> None:
                await peer.wait_for_disconnect()

            async with wire_server(stalls) as third:
                ask.upstream = type(ask.upstream)("third", url=third.url, retries=0)
                waiting = asyncio.ensure_future(ask.read())
                await wait_until(lambda: third.requests)
                ask.upstream = type(ask.upstream)(
                    "there", url=server.url, connect_seconds=0.2, retries=0
                )
                with pytest.raises(RequestFailed, match=r"within 0\.2 s") as raised:
                    await ask.read()
                assert raised.value.status == 504
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                assert await ask.read() == b"hello"

    run(work())


@loops
def test_an_encoding_is_taken_off_within_limits(run: Run) -> None:
    text = b"hello " * 1_000
    raw = zlib.compressobj(wbits=-15)
    encoded = {
        b"gzip": gzip.compress(text),
        b"deflate": zlib.compress(text),
        b"Deflate": raw.compress(text) + raw.flush(),
        b"identity": text,
    }

    async def work() -> None:
        for name, data in encoded.items():
            answer = response_with_length(data, head=b"Content-Encoding: " + name + b"\r\n")
            async with wire_server(answer) as server, open_upstream(server.url) as ask:
                assert await ask.read() == text
                reply, taken = await ask.send(), b""
                while piece := await reply.read_raw_chunk():
                    taken += piece
                assert taken == data
        bomb = response_with_length(
            gzip.compress(bytes(8 << 20)), head=b"Content-Encoding: gzip\r\n"
        )
        async with (
            wire_server(bomb) as server,
            open_upstream(server.url, max_response_bytes=2 << 20) as ask,
        ):
            with pytest.raises(RequestFailed, match="maxResponseBytes"):
                await ask.read()
        for name, data, why in (
            (b"br", b"x", "nobody asked for"),
            (b"gzip", b"x" * 99, "cannot be read"),
        ):
            answer = response_with_length(data, head=b"Content-Encoding: " + name + b"\r\n")
            async with wire_server(answer) as server, open_upstream(server.url) as ask:
                with pytest.raises(RequestFailed, match=why):
                    await ask.read()

    run(work())


@loops
def test_an_answer_over_the_limit_is_none_however_it_comes(run: Run) -> None:
    large = b"x" * 5_000

    async def work() -> None:
        for answer in (response_with_length(large), CHUNKED + encode_chunk(large) + b"0\r\n\r\n"):
            async with (
                wire_server(answer) as server,
                open_upstream(server.url, max_response_bytes=1_024, retries=2) as ask,
            ):
                with pytest.raises(RequestFailed, match="maxResponseBytes"):
                    await ask.read()
                with pytest.raises(RequestFailed, match="maxResponseBytes"):
                    await (await ask.send()).stream_to(lambda piece: True)
                await server.wait_until_idle()

    run(work())


@loops
@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999", "nowhere"])
def test_an_address_that_is_none_is_said_so(run: Run, url: str) -> None:
    async def work() -> None:
        async with open_upstream("http://127.0.0.1:9") as ask:
            ask.upstream = type(ask.upstream)("odd", url=url)
            with pytest.raises(RequestFailed, match="address of upstream 'odd' cannot be read"):
                await ask.send()

    run(work())


@loops
def test_nobody_there_is_said_so(run: Run) -> None:
    async def work() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            async with open_upstream(
                f"http://127.0.0.1:{closed.getsockname()[1]}", retries=1
            ) as ask:
                with pytest.raises(RequestFailed, match="cannot be reached"):
                    await ask.send()

    run(work())
