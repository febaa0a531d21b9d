"""HTTP client for LLM upstreams.

HTTP/1.1 goes through aiohttp, which needs a third of the CPU time of httpx2 for a streamed event.
HTTP/2 and proxies go through httpx2.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final, NamedTuple
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
import httpx2
from yarl import URL

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.upstream.http2_reset import reset_closed_streams
from toolcrib.gateway.llm.upstream.http_messages import UpstreamOrigin, UpstreamRequest, UpstreamResponse

# Requests to all upstreams at the same time; further ones wait for a connection.
MAX_CONNECTIONS: Final = 2048
KEEPALIVE_SECONDS: Final = 30.0
MAX_HEADER_LINE_BYTES: Final = 64 << 10
MAX_HEADERS: Final = 256
# Reading from an upstream pauses while twice as much of its response is unread.
READ_BUFFER_BYTES: Final = 32 << 10
# httpx2 opens one HTTP/2 connection per client and origin, and servers limit the requests on
# one connection. Several clients with a few requests each avoid that limit.
HTTPX_CLIENT_REQUESTS: Final = 32
MAX_HTTPX_CLIENTS: Final = MAX_CONNECTIONS // HTTPX_CLIENT_REQUESTS

_AUTOMATIC_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
# Clients of the gateway share connections; cookies for one client must not reach another.
_NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=())

# Whether the connection of the current request was kept from an earlier one, and the connections that were used.
_is_connection_reused: ContextVar[bool] = ContextVar("_is_connection_reused", default=False)
_used_connections: WeakSet[Any] = WeakSet()

reset_closed_streams()


class UpstreamConnectionError(RequestFailed):
    """The connection failed before a response began, so the request can be sent again.

    `is_stale` is true if the connection was kept from an earlier request.
    """

    def __init__(self, message: str, *, is_stale: bool = False) -> None:
        super().__init__(message, 502)
        self.is_stale = is_stale


class HttpClient:
    """Connections to all upstreams."""

    def __init__(self) -> None:
        self._aiohttp = _AiohttpClient()
        self._httpx = _HttpxClients()
        self._aiohttp_origins: dict[UpstreamOrigin, bool] = {}
        self._tls_contexts: asyncio.Task[_TlsContexts] | None = None

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request and return the response as soon as its headers have arrived."""
        origin = request.origin
        if origin not in self._aiohttp_origins:
            self._aiohttp_origins[origin] = not origin.is_tls and not _has_proxy(origin)
        if self._aiohttp_origins[origin]:
            tls = (await self._get_tls_contexts()).http1 if origin.is_tls else None
            return await self._aiohttp.send(request, tls)
        response = await self._httpx.send(request, (await self._get_tls_contexts()).http2)
        if response.is_http1 and not _has_proxy(origin):
            # The upstream does not offer HTTP/2.
            self._aiohttp_origins[origin] = True
        return response

    async def close(self) -> None:
        """Close every connection."""
        await self._aiohttp.close()
        await self._httpx.close()

    async def _get_tls_contexts(self) -> _TlsContexts:
        # Loading the certificates takes some time, so it happens once and only if it is needed.
        if self._tls_contexts is None:
            self._tls_contexts = asyncio.create_task(asyncio.to_thread(_create_tls_contexts))
        return await asyncio.shield(self._tls_contexts)


class _TlsContexts(NamedTuple):
    """The contexts for HTTP/1.1 and HTTP/2, which offer different protocols."""

    http1: ssl.SSLContext
    http2: ssl.SSLContext


def _create_tls_contexts() -> _TlsContexts:
    contexts = _TlsContexts(httpx2.create_ssl_context(), httpx2.create_ssl_context())
    contexts.http1.set_alpn_protocols(["http/1.1"])
    return contexts


class _AiohttpClient:
    """HTTP/1.1 without proxies."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS),
            request_class=_CheckedRequest,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTOMATIC_HEADERS,
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=MAX_HEADER_LINE_BYTES,
            max_field_size=MAX_HEADER_LINE_BYTES,
            max_headers=MAX_HEADERS,
        )
        self._discard_tasks: set[asyncio.Task[None]] = set()

    async def send(self, request: UpstreamRequest, tls: ssl.SSLContext | None) -> UpstreamResponse:
        upstream = request.upstream
        _is_connection_reused.set(False)
        try:
            response = await self._session.request(
                request.method,
                _build_url(request),
                headers=[(name, _utf8_header(value)) for name, value in request.build_headers()],
                data=request.body or None,
                allow_redirects=False,
                ssl=tls or True,
                timeout=_build_timeout(upstream.connect_seconds, upstream.read_seconds),
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _translate_error(request, error, is_stale=_is_connection_reused.get()) from error
        if response.status == 101:
            response.close()
            raise _protocol_error(request, "an upgrade")
        return _AiohttpResponse(request, response, self._discard_tasks)

    async def close(self) -> None:
        for task in self._discard_tasks:
            task.cancel()
        await asyncio.gather(*self._discard_tasks, return_exceptions=True)
        await self._session.close()


class _CheckedRequest(aiohttp.ClientRequest):
    """A request that is not sent on a connection with an unread message.

    aiohttp would take a message that arrived on an idle connection for the next response.
    """

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        # The caller is the same task, so it reads this value after an error.
        _is_connection_reused.set(conn.protocol in _used_connections)
        _used_connections.add(conn.protocol)
        if conn.protocol.should_close:
            raise aiohttp.ServerDisconnectedError("unexpected data on an idle connection")
        return await super().send(conn)


class _AiohttpResponse(UpstreamResponse):
    def __init__(
        self, request: UpstreamRequest, response: aiohttp.ClientResponse, discard_tasks: set[asyncio.Task[None]]
    ) -> None:
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.raw_headers]
        super().__init__(request, response.status, headers)
        self._response = response
        self._discard_tasks = discard_tasks
        self._is_discarded = False

    async def discard_rest(self) -> None:
        """Skip the rest of the body in the background."""
        self._is_discarded = True
        task = asyncio.create_task(self._skip_body())
        self._discard_tasks.add(task)
        task.add_done_callback(self._discard_tasks.discard)
        # Also called for a task that is cancelled before it starts.
        task.add_done_callback(lambda _: self._response.close())

    async def close(self) -> None:
        if not self._is_discarded:
            self._response.close()

    async def read_raw_chunk(self) -> bytes:
        try:
            return self._count_raw(await self._response.content.readany())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _translate_error(self._request, error, has_response=True) from error


@dataclass(slots=True)
class _HttpxClient:
    http: httpx2.AsyncClient
    open_requests: int = 0


class _HttpxClients:
    """HTTP/2, and all requests through proxies."""

    def __init__(self) -> None:
        self._clients: list[_HttpxClient] = []

    async def send(self, request: UpstreamRequest, tls: ssl.SSLContext) -> _HttpxResponse:
        client = self._choose_client(tls)
        client.open_requests += 1
        try:
            sent = _build_httpx_request(client.http, request)
            async with asyncio.timeout(request.upstream.connect_seconds + request.upstream.read_seconds):
                response = await client.http.send(sent, stream=True)
        except BaseException as error:
            client.open_requests -= 1
            if isinstance(error, httpx2.InvalidURL):
                raise RequestFailed("the path of the request is not valid", 400) from error
            if isinstance(error, httpx2.HTTPError | TimeoutError):
                raise _translate_error(request, error) from error
            raise
        return _HttpxResponse(request, response, client)

    async def close(self) -> None:
        while self._clients:
            await self._clients.pop().http.aclose()

    def _choose_client(self, tls: ssl.SSLContext) -> _HttpxClient:
        for client in self._clients:
            if client.open_requests < HTTPX_CLIENT_REQUESTS:
                return client
        if len(self._clients) < MAX_HTTPX_CLIENTS:
            self._clients.append(_HttpxClient(_create_httpx_client(tls)))
            return self._clients[-1]
        return min(self._clients, key=lambda client: client.open_requests)


class _HttpxResponse(UpstreamResponse):
    def __init__(self, request: UpstreamRequest, response: httpx2.Response, client: _HttpxClient) -> None:
        super().__init__(request, response.status_code, list(response.headers.multi_items()))
        self.is_http1 = response.http_version != "HTTP/2"
        self._response = response
        self._client: _HttpxClient | None = client
        self._chunks: AsyncIterator[bytes] = response.aiter_raw()

    async def discard_rest(self) -> None:
        """Skip the rest of the body."""
        await self._skip_body()
        await self.close()

    async def close(self) -> None:
        if self._client is not None:
            self._client.open_requests -= 1
            self._client = None
            await self._response.aclose()

    async def read_raw_chunk(self) -> bytes:
        try:
            async with asyncio.timeout(self._request.upstream.read_seconds):
                # Frames in the middle of a body may be empty.
                while (chunk := await anext(self._chunks, None)) == b"":
                    pass
        except (httpx2.HTTPError, TimeoutError) as error:
            raise _translate_error(self._request, error, has_response=True) from error
        return self._count_raw(chunk or b"")


def _has_proxy(origin: UpstreamOrigin) -> bool:
    """Return whether the environment names a proxy for an origin."""
    schemes = {"https" if origin.is_tls else "http", "all"}
    return bool(schemes & getproxies().keys()) and not proxy_bypass(origin.host)


def _build_url(request: UpstreamRequest) -> URL:
    return _join_url(request.origin, request.target)


@lru_cache(maxsize=256)
def _join_url(origin: UpstreamOrigin, target: str) -> URL:
    path, _, query = target.partition("?")
    return URL.build(
        scheme="https" if origin.is_tls else "http",
        authority=origin.authority,
        path=path,
        query_string=query,
        encoded=True,
    )


def _utf8_header(value: str) -> str:
    """Return a header value, read as Latin-1, as the text that aiohttp encodes to the same bytes."""
    if value.isascii():
        return value
    with suppress(UnicodeDecodeError):
        return value.encode("latin-1").decode()
    return value


def _build_httpx_request(client: httpx2.AsyncClient, request: UpstreamRequest) -> httpx2.Request:
    upstream = request.upstream
    return client.build_request(
        request.method,
        str(_build_url(request)),
        headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.build_headers()],
        content=request.body or None,
        # A read timeout of httpx2 would break all requests on an HTTP/2 connection, so the caller limits the time.
        timeout=httpx2.Timeout(
            connect=upstream.connect_seconds, read=None, write=upstream.read_seconds, pool=upstream.connect_seconds
        ),
    )


def _create_httpx_client(tls: ssl.SSLContext) -> httpx2.AsyncClient:
    http = httpx2.AsyncClient(
        verify=tls,
        http2=True,
        follow_redirects=False,
        limits=httpx2.Limits(
            max_connections=HTTPX_CLIENT_REQUESTS,
            max_keepalive_connections=HTTPX_CLIENT_REQUESTS,
            keepalive_expiry=KEEPALIVE_SECONDS,
        ),
    )
    http.cookies.jar.set_policy(_NO_COOKIES)
    return http


@lru_cache(maxsize=64)
def _build_timeout(connect_seconds: float, read_seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(connect=connect_seconds, sock_read=read_seconds)


def _translate_error(
    request: UpstreamRequest, error: Exception, *, has_response: bool = False, is_stale: bool = False
) -> RequestFailed:
    """Return the error for the client. It never contains the URL, which may include a secret."""
    upstream = request.upstream
    name = f"upstream {upstream.name!r}"
    match error:
        case aiohttp.ConnectionTimeoutError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            seconds = upstream.connect_seconds
            return RequestFailed(f"{name} could not be reached within {seconds:g} s", 504)
        case TimeoutError() | httpx2.TimeoutException():
            return RequestFailed(f"{name} was silent for {upstream.read_seconds:g} s", 504)
        case aiohttp.ClientConnectorError() | httpx2.ConnectError() | httpx2.ProxyError():
            if problem := _find_certificate_problem(error):
                return RequestFailed(
                    f"the certificate of {name} cannot be trusted ({problem}); correct its "
                    "address, or name the authority that signed it in SSL_CERT_FILE",
                    502,
                )
            return UpstreamConnectionError(f"{name} cannot be reached; is it running?")
        case aiohttp.ClientResponseError():
            return _protocol_error(request, error.message)
    message = f"the connection to {name} broke off; try again"
    if has_response:
        return RequestFailed(message, 502)
    return UpstreamConnectionError(message, is_stale=is_stale)


def _protocol_error(request: UpstreamRequest, reason: str) -> RequestFailed:
    return RequestFailed(
        f"upstream {request.upstream.name!r} does not speak HTTP as it should ({reason}); is its address right?", 502
    )


def _find_certificate_problem(error: BaseException | None) -> str:
    while error is not None:
        # That of aiohttp is one too, but the message is in its cause.
        if isinstance(error, ssl.SSLCertVerificationError) and not isinstance(error, aiohttp.ClientError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return ""
