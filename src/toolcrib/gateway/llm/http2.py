"""HTTP/2, and HTTP through a proxy: what httpx2 speaks for us."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from http.cookiejar import DefaultCookiePolicy
from typing import Final

import httpx2

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.http_messages import (
    KEEPALIVE_SECONDS,
    MAX_CONNECTIONS,
    HeaderList,
    Sink,
    UpstreamRequest,
)

# A pool looks through all its connections for every request, so there are several small ones.
POOL_CONNECTIONS: Final = 32
MAX_POOLS: Final = MAX_CONNECTIONS // POOL_CONNECTIONS
LINGER_SECONDS: Final = 0.1

# Whoever is behind the gateway shares its connections; what an upstream remembers of one is not told to another.
_NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=())


class _Pool:
    """Some connections, and how many requests are on them."""

    __slots__ = ("active", "client")

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.active = 0


class Http2:
    """Pools of connections, made as they are needed."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._pools: list[_Pool] = []

    async def ask(self, request: UpstreamRequest) -> Http2Answer:
        """Ask, and wait for the head of the answer."""
        upstream = request.upstream
        pool = self._pool()
        pool.active += 1
        try:
            sent = pool.client.build_request(
                request.method,
                request.url,
                headers=[
                    (name.encode("latin-1"), value.encode("latin-1"))
                    for name, value in request.sent_headers()
                ],
                content=request.body or None,
                timeout=httpx2.Timeout(
                    upstream.read_seconds,
                    connect=upstream.connect_seconds,
                    pool=upstream.connect_seconds,
                ),
            )
            response = await pool.client.send(sent, stream=True)
        except httpx2.InvalidURL as fault:
            pool.active -= 1
            raise RequestFailed("the path of the request is no address", 400) from fault
        except httpx2.HTTPError as fault:
            pool.active -= 1
            raise _failure(request, fault, begun=False) from fault
        except BaseException:
            pool.active -= 1
            raise
        return Http2Answer(request, response, pool)

    async def close(self) -> None:
        """Close every connection."""
        while self._pools:
            await self._pools.pop().client.aclose()

    def _pool(self) -> _Pool:
        """The first pool with a connection to spare: connections are used again, and few are idle."""
        for pool in self._pools:
            if pool.active < POOL_CONNECTIONS:
                return pool
        if len(self._pools) < MAX_POOLS:
            self._pools.append(self._new_pool())
            return self._pools[-1]
        return min(self._pools, key=lambda pool: pool.active)

    def _new_pool(self) -> _Pool:
        client = httpx2.AsyncClient(
            verify=self._context or False,
            http2=True,
            follow_redirects=False,
            limits=httpx2.Limits(
                max_connections=POOL_CONNECTIONS,
                max_keepalive_connections=POOL_CONNECTIONS,
                keepalive_expiry=KEEPALIVE_SECONDS,
            ),
        )
        client.cookies.jar.set_policy(_NO_COOKIES)
        return _Pool(client)


class Http2Answer:
    """An answer that comes through httpx2."""

    def __init__(self, request: UpstreamRequest, response: httpx2.Response, pool: _Pool) -> None:
        self._request = request
        self._response = response
        self._pool: _Pool | None = pool
        self._pieces: AsyncIterator[bytes] = response.aiter_raw()
        self._left = request.upstream.max_response_bytes
        self.status: int = response.status_code
        self.headers: HeaderList = list(response.headers.multi_items())

    async def piece(self) -> bytes:
        """Some bytes of the body, as they were sent; none at its end."""
        try:
            # Frames may be empty, and only no bytes at all are the end.
            while (piece := await anext(self._pieces, None)) == b"":
                pass
        except httpx2.HTTPError as fault:
            raise _failure(self._request, fault, begun=True) from fault
        if piece is None:
            return b""
        self._left -= len(piece)
        if self._left < 0:
            raise self._request.too_large()
        return piece

    async def pour(self, sink: Sink) -> bool:
        """Hand all bytes to a sink as they come; False as soon as it takes no more for now."""
        while piece := await self.piece():
            if not sink(piece):
                return False
        return True

    async def finish(self) -> None:
        """Read what is left, which is little, so that the connection can be used again."""
        with suppress(RequestFailed, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while await self.piece():
                    pass
        await self.close()

    async def close(self) -> None:
        """Break it off, unless it is at its end."""
        if self._pool is not None:
            self._pool.active -= 1
            self._pool = None
            await self._response.aclose()


def _failure(request: UpstreamRequest, fault: httpx2.HTTPError, *, begun: bool) -> RequestFailed:
    if isinstance(fault, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return request.unreachable_in_time()
    if isinstance(fault, httpx2.TimeoutException):
        return request.silent()
    if isinstance(fault, httpx2.ConnectError | httpx2.ProxyError):
        return request.unreachable()
    return request.broken_off() if begun else request.unanswered(at_once=False)
