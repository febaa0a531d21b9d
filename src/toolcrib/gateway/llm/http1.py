"""HTTP/1.1 with an upstream: connections that are used again, and answers read as they come.

Of all that happens between an upstream and a client, most is events of a few hundred bytes. So what is
done for each is little: C code reads the framing, the bytes go to whoever waits for them, and clocks
are looked at, but not set.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Literal, cast

import httptools

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.connect import connected
from toolcrib.gateway.llm.http_messages import (
    KEEPALIVE_SECONDS,
    MAX_CONNECTIONS,
    HeaderList,
    Sink,
    UpstreamOrigin,
    UpstreamRequest,
)

# So many bytes may come without one of the body: a head, trailers, the framing of pieces.
MAX_HEAD_BYTES: Final = 64 << 10
# An answer that nobody takes is read so far, and then no further.
MAX_BUFFER_BYTES: Final = 256 << 10
# How long the end of an answer is read that nobody needs any more.
LINGER_SECONDS: Final = 1.0

_PARSER_ERRORS: Final = (httptools.HttpParserError, httptools.HttpParserUpgrade)


class OffersHttp2(Exception):
    """The upstream would rather speak HTTP/2."""


class Http1:
    """Connections to all upstreams; those that nobody uses are kept for a while."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._lines: set[_Line] = set()
        self._is_empty = asyncio.Event()
        self._idle: dict[UpstreamOrigin, list[_Line]] = {}
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)

    async def ask(self, request: UpstreamRequest, *, anew: bool = False) -> Http1Answer:
        """Ask, and wait for the head of the answer; `anew` on a connection that was never used."""
        head = _head(request)
        line = None if anew else self._kept(request.origin)
        if line is None:
            line = await self._new(request)
        answer = Http1Answer(line, request, head)
        try:
            await answer.head()
        except BaseException:
            await answer.close()
            raise
        return answer

    async def close(self) -> None:
        """Break off all connections."""
        self._is_empty.clear()
        for line in list(self._lines):
            line.transport.abort()
        if self._lines:
            await self._is_empty.wait()

    def keep(self, line: _Line) -> None:
        """Take back a connection that can be used again."""
        self._idle.setdefault(line.origin, []).append(line)

    def forget(self, line: _Line) -> None:
        """A connection is gone."""
        if line not in self._lines:
            return
        self._free.release()
        self._lines.discard(line)
        if not self._lines:
            self._is_empty.set()
        lines = self._idle.get(line.origin, [])
        if line in lines:
            lines.remove(line)
        if not lines:
            self._idle.pop(line.origin, None)

    def _kept(self, origin: UpstreamOrigin) -> _Line | None:
        """The connection that was used last: few are kept busy, and the others can go."""
        lines = self._idle.get(origin)
        while lines:
            line = lines.pop()
            if not line.transport.is_closing():
                return line
        return None

    def _make_room(self) -> None:
        """Close the connections that nobody uses."""
        for lines in self._idle.values():
            for line in lines:
                line.transport.close()

    async def _new(self, request: UpstreamRequest) -> _Line:
        try:
            async with asyncio.timeout(request.upstream.connect_seconds):
                if self._free.locked():
                    self._make_room()
                await self._free.acquire()
                try:
                    return await self._connected(request.origin)
                except BaseException:
                    self._free.release()
                    raise
        except TimeoutError:
            raise request.unreachable_in_time() from None
        except ssl.SSLCertVerificationError as fault:
            raise request.untrusted(fault.verify_message) from fault
        except OSError as fault:
            raise request.unreachable() from fault

    async def _connected(self, origin: UpstreamOrigin) -> _Line:
        loop = asyncio.get_running_loop()
        plain = await connected(origin.host, origin.port)
        line = _Line(self, origin)
        await loop.create_connection(
            lambda: line,
            sock=plain,
            ssl=self._context if origin.is_tls else None,
            server_hostname=origin.host if origin.is_tls else None,
        )
        secured = line.transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() == "h2":
            line.transport.abort()
            raise OffersHttp2
        self._lines.add(line)
        return line


class _Line(asyncio.Protocol):
    """A connection; its own protocol while nobody uses it."""

    def __init__(self, pool: Http1, origin: UpstreamOrigin) -> None:
        self.pool = pool
        self.origin = origin
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.is_used = False
        self._expiry: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        # Nobody has asked for anything.
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_waiting()
        self.pool.forget(self)

    def wait(self) -> None:
        """Be kept for the next request, for a while."""
        self.is_used = True
        self.transport.set_protocol(self)
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(KEEPALIVE_SECONDS, self.transport.close)
        self.pool.keep(self)

    def stop_waiting(self) -> None:
        """Be used, or gone."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


class Http1Answer(asyncio.Protocol):
    """The answer to one request: the protocol of its connection until it is complete.

    It is the callbacks' object of its parser too, whose names are `on_…`.
    """

    def __init__(self, line: _Line, request: UpstreamRequest, head: bytes) -> None:
        self.status = 0
        self.headers: HeaderList = []
        self._line = line
        self._transport = line.transport
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._size = 0
        self._without_body = 0
        self._waiter: asyncio.Future[None] | None = None
        self._fault: RequestFailed | None = None
        self._heard_anything = False
        self._has_head = False
        self._is_complete = False
        self._is_paused = False
        self._is_left = False
        self._ends_by_closing = True
        self._may_stay = False
        self._wait_seconds = request.upstream.read_seconds
        self._until = self._loop.time() + self._wait_seconds
        self._alarm = self._loop.call_later(self._wait_seconds, self._look)
        self._unsent = 0
        self._left = request.upstream.max_response_bytes
        self._sink: Sink | None = None
        # Why pouring has stopped: the sink takes no more, or has failed.
        self._refusal: Exception | Literal[False] | None = None
        line.stop_waiting()
        self._transport.set_protocol(self)
        self._transport.write(head)
        if request.body:
            self._transport.write(request.body)

    # ---------------------------------------------------------------------- what others want of it

    async def head(self) -> None:
        """Wait for the head."""
        while not self._has_head:
            await self._more()

    async def piece(self) -> bytes:
        """Some bytes of the body, as they were sent; none at its end."""
        while not self._pieces:
            if self._is_complete:
                return b""
            await self._more()
        pieces = self._pieces
        self._pieces = []
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self._until = self._loop.time() + self._wait_seconds
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def pour(self, sink: Sink) -> bool:
        """Hand all bytes to a sink as they come; False as soon as it takes no more for now.

        The sink is called while the bytes are received, so that no task has to be woken for them.
        """
        while True:
            while self._pieces:
                if not sink(await self.piece()):
                    return False
            if self._is_complete:
                return True
            self._sink, self._refusal = sink, None
            try:
                await self._more()
            finally:
                self._sink = None
            if isinstance(self._refusal, Exception):
                raise self._refusal
            if self._refusal is False:
                return False

    async def finish(self) -> None:
        """Read what is left without anybody waiting for it, so that the connection can be used again."""
        if self._is_complete or self._fault or self._is_left:
            return
        self._is_left = True
        self._wait_seconds = LINGER_SECONDS
        self._until = self._loop.time() + LINGER_SECONDS
        self._alarm.cancel()
        self._alarm = self._loop.call_later(LINGER_SECONDS, self._look)
        self._pieces = []
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    async def close(self) -> None:
        """Break it off, unless it is at its end."""
        if not self._is_complete and not self._is_left:
            self._give_up(self._request.broken_off())

    async def _more(self) -> None:
        if self._fault is not None:
            raise self._fault
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # ------------------------------------------------------------------------ what the connection says

    def data_received(self, data: bytes) -> None:
        self._heard_anything = True
        self._until = self._loop.time() + self._wait_seconds
        self._without_body += len(data)
        try:
            self._parser.feed_data(data)
        except _PARSER_ERRORS as fault:
            if not self._is_complete:
                self._give_up(self._request.nonsense(str(fault) or "an upgrade"))
                return
            self._may_stay = False
        if self._left < 0:
            self._is_complete, self._pieces = False, []
            self._give_up(self._request.too_large())
            return
        if self._sink is not None and self._pieces:
            pieces = self._pieces
            self._pieces = []
            self._size = 0
            try:
                if not self._sink(pieces[0] if len(pieces) == 1 else b"".join(pieces)):
                    self._sink, self._refusal = None, False
            except Exception as fault:
                # Whoever waits for the end is to know of it, and not the event loop.
                self._sink, self._refusal = None, fault
        if self._is_complete:
            self._leave()
        elif self._without_body > MAX_HEAD_BYTES:
            self._give_up(self._request.nonsense(f"a head of more than {MAX_HEAD_BYTES:,} bytes"))
        elif self._size > MAX_BUFFER_BYTES and not self._is_paused:
            if self._is_left:
                self._give_up(self._request.broken_off())
            else:
                self._is_paused = True
                self._transport.pause_reading()
        if self._sink is None or self._is_complete:
            self._wake()

    def eof_received(self) -> None:
        if self._has_head and self._ends_by_closing:
            self._is_complete = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._line.connection_lost(exc)
        self._alarm.cancel()
        if not self._is_complete and self._fault is None:
            if self._heard_anything:
                self._fault = self._request.broken_off()
            else:
                self._fault = self._request.unanswered(at_once=self._line.is_used)
        self._wake()

    # ----------------------------------------------------------------------------- what the parser says

    def on_message_begin(self) -> None:
        # Another answer, for which nobody has asked.
        self._may_stay = self._may_stay and not self._is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return
        lower = name.decode("latin-1").lower()
        self.headers.append((lower, value.decode("latin-1").strip()))
        if lower == "content-length" or (
            lower == "transfer-encoding" and value.strip().lower().endswith(b"chunked")
        ):
            self._ends_by_closing = False

    def on_headers_complete(self) -> None:
        if self._has_head:
            return
        status = self._parser.get_status_code()
        if status < 200:
            # Only that an answer will follow.
            self.headers = []
            self._ends_by_closing = True
            return
        self.status = status
        self._has_head = True
        if self._request.method == "HEAD":
            self._is_complete = True

    def on_body(self, body: bytes) -> None:
        if self._is_complete:
            return
        self._without_body = 0
        self._size += len(body)
        self._left -= len(body)
        if not self._is_left:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._has_head and not self._is_complete:
            self._is_complete = True
            self._may_stay = self._parser.should_keep_alive()

    # ------------------------------------------------------------------------------------------ the rest

    def _leave(self) -> None:
        """The answer is complete: the connection is free for the next one, or of no more use."""
        self._alarm.cancel()
        transport = self._transport
        if (
            self._may_stay
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
            and not self._is_paused
        ):
            self._line.wait()
        else:
            self._may_stay = False
            transport.abort()

    def _give_up(self, fault: RequestFailed) -> None:
        if self._fault is None:
            self._fault = fault
        self._alarm.cancel()
        self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look(self) -> None:
        """Whether the upstream has been silent too long; looked at now and then."""
        now = self._loop.time()
        unsent = self._transport.get_write_buffer_size()
        is_busy = self._waiter is None and not self._is_left
        if is_busy or unsent != self._unsent:
            # We are the ones who are slow, or it still takes what we send.
            self._unsent = unsent
            self._until = now + self._wait_seconds
        if now < self._until:
            self._alarm = self._loop.call_later(self._until - now, self._look)
        else:
            self._give_up(self._request.silent())


def _head(request: UpstreamRequest) -> bytes:
    """The head of a request as it is sent."""
    lines = [
        f"{request.method} {request.target} HTTP/1.1",
        f"host: {request.origin.name}",
        *(f"{name}: {value}" for name, value in request.sent_headers()),
    ]
    if request.body or request.method not in ("GET", "HEAD"):
        lines.append(f"content-length: {len(request.body)}")
    head = "\r\n".join(lines)
    # What a header says must not become another one.
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
        raise RequestFailed("a header of the request has a line break or a null in it", 400)
    try:
        return f"{head}\r\n\r\n".encode("latin-1")
    except UnicodeEncodeError:
        raise RequestFailed("a header of the request has letters that no header can have") from None
