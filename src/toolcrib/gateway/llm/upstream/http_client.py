"""HTTP client for LLM upstreams: HTTP/1.1 with aiohttp, through the proxies of the environment."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
import httpx2
from yarl import URL

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.upstream.http_messages import UpstreamOrigin, UpstreamRequest, UpstreamResponse

# Requests to all upstreams at the same time; further ones wait for a connection.
MAX_CONNECTIONS: Final = 2048
KEEPALIVE_SECONDS: Final = 30.0
MAX_HEADER_LINE_BYTES: Final = 64 << 10
MAX_HEADERS: Final = 256
# Reading from an upstream pauses while twice as much of its response is unread.
READ_BUFFER_BYTES: Final = 32 << 10

_AUTOMATIC_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

# Whether the connection of the current request was kept from an earlier one, and the connections that were used.
_is_connection_reused: ContextVar[bool] = ContextVar("_is_connection_reused", default=False)
_used_connections: WeakSet[Any] = WeakSet()


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
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS),
            request_class=_CheckedRequest,
            auto_decompress=False,
            # Clients of the gateway share connections; cookies for one client must not reach another.
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTOMATIC_HEADERS,
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=MAX_HEADER_LINE_BYTES,
            max_field_size=MAX_HEADER_LINE_BYTES,
            max_headers=MAX_HEADERS,
        )
        self._proxies: dict[UpstreamOrigin, str | None] = {}
        self._tls_context: asyncio.Task[ssl.SSLContext] | None = None
        self._discard_tasks: set[asyncio.Task[None]] = set()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request and return the response as soon as its headers have arrived."""
        upstream, origin = request.upstream, request.origin
        if origin not in self._proxies:
            self._proxies[origin] = _find_proxy(origin)
        headers = [(name, _utf8_header(value)) for name, value in request.build_headers()]
        tls = await self._get_tls_context() if origin.is_tls else True
        _is_connection_reused.set(False)
        try:
            response = await self._session.request(
                request.method,
                _build_url(origin, request.target),
                headers=headers,
                data=request.body or None,
                allow_redirects=False,
                ssl=tls,
                proxy=self._proxies[origin],
                timeout=_build_timeout(upstream.connect_seconds, upstream.read_seconds),
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _translate_error(request, error, is_stale=_is_connection_reused.get()) from error
        if response.status == 101:
            response.close()
            raise _protocol_error(request, "an upgrade")
        return _AiohttpResponse(request, response, self._discard_tasks)

    async def close(self) -> None:
        """Close every connection."""
        for task in self._discard_tasks:
            task.cancel()
        await asyncio.gather(*self._discard_tasks, return_exceptions=True)
        await self._session.close()

    async def _get_tls_context(self) -> ssl.SSLContext:
        # Loading the certificates takes some time, so it happens once and only if it is needed.
        if self._tls_context is None:
            self._tls_context = asyncio.create_task(asyncio.to_thread(_create_tls_context))
        return await asyncio.shield(self._tls_context)


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


def _create_tls_context() -> ssl.SSLContext:
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _find_proxy(origin: UpstreamOrigin) -> str | None:
    """Return the proxy that the environment names for an origin."""
    proxies = getproxies()
    proxy = proxies.get("https" if origin.is_tls else "http") or proxies.get("all")
    if not proxy or proxy_bypass(origin.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@lru_cache(maxsize=256)
def _build_url(origin: UpstreamOrigin, target: str) -> URL:
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
        case aiohttp.ConnectionTimeoutError():
            seconds = upstream.connect_seconds
            return RequestFailed(f"{name} could not be reached within {seconds:g} s", 504)
        case TimeoutError():
            return RequestFailed(f"{name} was silent for {upstream.read_seconds:g} s", 504)
        case aiohttp.ClientConnectorCertificateError(
            certificate_error=ssl.SSLCertVerificationError(verify_message=problem)
        ):
            return RequestFailed(
                f"the certificate of {name} cannot be trusted ({problem}); correct its "
                "address, or name the authority that signed it in SSL_CERT_FILE",
                502,
            )
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
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
