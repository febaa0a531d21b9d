"""The providers behind the gateway: which one a model is at, and how it is asked."""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
from collections.abc import AsyncIterator, Iterable
from fnmatch import fnmatchcase
from http.cookiejar import DefaultCookiePolicy
from typing import Final

import httpx2

from toolcrib.config.settings import Api, ModelGateway, ModelUpstream
from toolcrib.errors import RequestFailed

# A pool looks through all its connections for every request, so there are several small ones.
POOL_CONNECTIONS: Final = 32
MAX_POOLS: Final = 64
IDLE_SECONDS: Final = 30.0
# An answer that says that asking again may help.
PASSING_STATUSES: Final = frozenset({429, 500, 502, 503, 504, 529})
MAX_WAIT_SECONDS: Final = 8.0

# About this connection alone, or decided anew for the next.
_OWN_TO_A_CONNECTION: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_FROM_BROWSERS: Final = frozenset({"cookie", "origin", "referer"})
KEY_HEADERS: Final = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
# Whoever is behind the gateway shares its connections; what an upstream remembers of one is not told to another.
_NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=())
_OWN_PREFIX: Final = "x-toolcrib-"

Headers = Iterable[tuple[str, str]]


class _Pool:
    """Some connections, and how many requests are on them."""

    __slots__ = ("active", "client")

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.active = 0


class Reply:
    """An upstream's answer whose body has not been read yet. It has to be closed."""

    def __init__(self, upstream: ModelUpstream, response: httpx2.Response, pool: _Pool) -> None:
        self._upstream = upstream
        self._response = response
        self._pool: _Pool | None = pool

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status_code

    @property
    def ok(self) -> bool:
        """Whether this is an answer and not an error."""
        return self._response.is_success

    @property
    def is_events(self) -> bool:
        """Whether the body is a stream of events."""
        return self._header("content-type").startswith("text/event-stream")

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the upstream wants us to wait before we ask again, where it says so."""
        try:
            return max(0.0, float(self._header("retry-after")))
        except ValueError:
            return None

    def headers(self, *, as_sent: bool = False) -> list[tuple[str, str]]:
        """The headers to pass on; `as_sent` with those about the body's encoding."""
        gone = _OWN_TO_A_CONNECTION | {"set-cookie"}
        gone = gone if as_sent else gone | {"content-encoding"}
        return [
            (name, value)
            for name, value in self._response.headers.multi_items()
            if name not in gone
        ]

    async def raw(self) -> AsyncIterator[bytes]:
        """The body as it comes over the wire."""
        async for chunk in self._within_limit(self._response.aiter_raw()):
            yield chunk

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, decoded."""
        async for chunk in self._within_limit(self._response.aiter_bytes()):
            yield chunk

    async def read(self) -> bytes:
        """The whole body, decoded, after which the reply is closed."""
        try:
            return b"".join([chunk async for chunk in self.chunks()])
        finally:
            await self.close()

    async def close(self) -> None:
        """Give the connection back, or break it off if the body was not read to its end."""
        if self._pool is not None:
            self._pool.active -= 1
            self._pool = None
        await self._response.aclose()

    async def _within_limit(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        left = self._upstream.max_response_bytes
        try:
            async for chunk in chunks:
                left -= len(chunk)
                if left < 0:
                    raise RequestFailed(
                        f"the answer of upstream {self._upstream.name!r} is larger than "
                        f"{self._upstream.max_response_bytes:,} bytes; raise maxResponseBytes",
                        502,
                    )
                yield chunk
        except httpx2.HTTPError as fault:
            raise _failure(self._upstream, fault) from fault

    def _header(self, name: str) -> str:
        value: str = self._response.headers.get(name, "")
        return value


class Upstreams:
    """All upstreams over pools of connections, which there are between `open` and `close`."""

    def __init__(self, settings: ModelGateway) -> None:
        self._upstreams = settings.upstreams
        self._pools: list[_Pool] = []
        self._verify: ssl.SSLContext | bool = False

    async def open(self) -> None:
        """Make the first pool of connections."""
        if any(one.url.startswith("https:") for one in self._upstreams):
            # Reading all certificates takes its time, so it is done once, and only if need be.
            self._verify = await asyncio.to_thread(httpx2.create_ssl_context)
        self._pools = [self._new_pool()]

    async def close(self) -> None:
        """Close every connection."""
        while self._pools:
            await self._pools.pop().client.aclose()

    def choose(self, api: Api, model: str) -> ModelUpstream:
        """The first upstream of an API with a pattern that fits a model's name."""
        for upstream in self._upstreams:
            if upstream.api == api and any(fnmatchcase(model, one) for one in upstream.models):
                return upstream
        known = sorted(
            {pattern for one in self._upstreams if one.api == api for pattern in one.models}
        )
        raise RequestFailed(
            f"no upstream here has the model {model[:200]!r}; "
            + (f"those there are have {', '.join(known)}" if known else "none speaks this API")
            + "; add it to `models` in the configuration",
            404,
        )

    async def send(
        self,
        upstream: ModelUpstream,
        method: str,
        path: str,
        headers: Headers,
        body: bytes = b"",
        *,
        patient: bool = False,
    ) -> Reply:
        """Ask an upstream. The reply's body is still to be read.

        While nothing has come back it is asked again, as often as its settings say. `patient` also
        asks again after an error that may pass: for requests that the client cannot repeat.
        """
        tries = upstream.retries
        wait_seconds = 0.25
        while True:
            try:
                reply = await self._send(upstream, method, path, headers, body)
            except httpx2.InvalidURL as fault:
                raise RequestFailed("the path of the request is no address", 400) from fault
            except httpx2.HTTPError as fault:
                if tries <= 0 or isinstance(fault, httpx2.TimeoutException):
                    raise _failure(upstream, fault) from fault
                asked = None
            else:
                if not patient or tries <= 0 or reply.status not in PASSING_STATUSES:
                    return reply
                asked = reply.retry_after_seconds
                await reply.close()
            tries -= 1
            await asyncio.sleep(min(wait_seconds if asked is None else asked, MAX_WAIT_SECONDS))
            wait_seconds *= 2

    async def _send(
        self, upstream: ModelUpstream, method: str, path: str, headers: Headers, body: bytes
    ) -> Reply:
        pool = self._pool()
        request = pool.client.build_request(
            method,
            upstream.url.rstrip("/") + path,
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            content=body or None,
            timeout=httpx2.Timeout(
                upstream.read_seconds,
                connect=upstream.connect_seconds,
                pool=upstream.connect_seconds,
            ),
        )
        pool.active += 1
        try:
            response = await pool.client.send(request, stream=True)
        except BaseException:
            pool.active -= 1
            raise
        return Reply(upstream, response, pool)

    def _pool(self) -> _Pool:
        """The first pool with a connection to spare: connections are used again, and few are idle."""
        assert self._pools, "the gateway has to be opened before it is asked"
        for pool in self._pools:
            if pool.active < POOL_CONNECTIONS:
                return pool
        if len(self._pools) < MAX_POOLS:
            self._pools.append(self._new_pool())
            return self._pools[-1]
        return min(self._pools, key=lambda pool: pool.active)

    def _new_pool(self) -> _Pool:
        client = httpx2.AsyncClient(
            verify=self._verify,
            http2=importlib.util.find_spec("h2") is not None,
            follow_redirects=False,
            limits=httpx2.Limits(
                max_connections=POOL_CONNECTIONS,
                max_keepalive_connections=POOL_CONNECTIONS,
                keepalive_expiry=IDLE_SECONDS,
            ),
        )
        client.cookies.jar.set_policy(_NO_COOKIES)
        return _Pool(client)


def headers_to_send(
    upstream: ModelUpstream, headers: Headers, *, as_sent: bool = False
) -> list[tuple[str, str]]:
    """A client's headers as they go to an upstream: with its key, if the settings have one.

    `as_sent` leaves it to the client how the answer is encoded.
    """
    sent = list(headers)
    ours = {name.lower(): value for name, value in upstream.headers.items()}
    gone = _OWN_TO_A_CONNECTION | _FROM_BROWSERS | ours.keys()
    if upstream.key:
        gone |= KEY_HEADERS
        ours = _key(upstream, {name for name, _ in sent}) | ours
    if not as_sent or all(name != "accept-encoding" for name, _ in sent):
        gone |= {"accept-encoding"}
        ours["accept-encoding"] = "identity"
    kept = [
        (name, value)
        for name, value in sent
        if name not in gone and not name.startswith(_OWN_PREFIX)
    ]
    return kept + list(ours.items())


def _key(upstream: ModelUpstream, sent: set[str]) -> dict[str, str]:
    """The key where the client has put its own: not every server looks in both places."""
    usual = "x-api-key" if upstream.api == "messages" else "authorization"
    values = dict.fromkeys(KEY_HEADERS, upstream.key) | {"authorization": f"Bearer {upstream.key}"}
    return {name: values[name] for name in sorted(KEY_HEADERS & sent) or [usual]}


def _failure(upstream: ModelUpstream, fault: httpx2.HTTPError) -> RequestFailed:
    """What to say of a failure; never an address, which may hold a secret."""
    name = repr(upstream.name)
    if isinstance(fault, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        seconds = upstream.connect_seconds
        return RequestFailed(f"upstream {name} could not be reached within {seconds:g} s", 504)
    if isinstance(fault, httpx2.TimeoutException):
        return RequestFailed(f"upstream {name} was silent for {upstream.read_seconds:g} s", 504)
    if isinstance(fault, httpx2.ConnectError):
        return RequestFailed(f"upstream {name} cannot be reached; is it running?", 502)
    return RequestFailed(f"the connection to upstream {name} broke off; try again", 502)
