"""The providers behind the gateway: which one a model is at, and how it is asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final
from urllib.request import getproxies, proxy_bypass

import httpx2

from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.http1 import Http1, OffersHttp2
from toolcrib.gateway.llm.http2 import Http2
from toolcrib.gateway.llm.http_messages import (
    Sink,
    UpstreamConnectionError,
    UpstreamOrigin,
    UpstreamRequest,
    WireResponse,
    parse_origin,
)
from toolcrib.gateway.llm.inflate import Inflater

# An answer that says that asking again may help.
TRANSIENT_STATUSES: Final = frozenset({429, 500, 502, 503, 504, 529})
MAX_RETRY_DELAY_SECONDS: Final = 8.0

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
# About whoever answers: to a client that is us.
_OF_ONE_WHO_ANSWERS: Final = frozenset({"date", "server", "set-cookie"})
_FROM_BROWSERS: Final = frozenset({"cookie", "origin", "referer"})
CREDENTIAL_HEADERS: Final = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
_OWN_PREFIX: Final = "x-toolcrib-"

_SPOKEN: Final[Mapping[LlmApi, str]] = {
    "messages": "Anthropic's API (/v1/messages)",
    "openai": "OpenAI's APIs (/v1/chat/completions, /v1/responses)",
}

Headers = Iterable[tuple[str, str]]


class UpstreamResponse:
    """An upstream's answer whose body has not been read yet. It has to be closed."""

    def __init__(self, request: UpstreamRequest, answer: WireResponse) -> None:
        self._request = request
        self._answer = answer
        # Of what was encoded; as it came over the wire it has been counted already.
        self._left = request.upstream.max_response_bytes
        self._inflater: Inflater | None = None
        self._encoding = self._header("content-encoding").strip().lower()
        if self._encoding in Inflater.KNOWN:
            self._inflater = Inflater(self._encoding)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._answer.status

    @property
    def is_success(self) -> bool:
        """Whether this is an answer and not an error."""
        return 200 <= self._answer.status < 300

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self._header("content-type").startswith("text/event-stream")

    @property
    def is_decodable(self) -> bool:
        """Whether the body has no encoding, or one that can be taken off."""
        return self._inflater is not None or self._encoding in ("", "identity")

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the upstream wants us to wait before we ask again, where it says so."""
        try:
            return max(0.0, float(self._header("retry-after")))
        except ValueError:
            return None

    def forwarded_headers(self, *, keep_encoding: bool = False) -> list[tuple[str, str]]:
        """The headers to pass on; `as_sent` with those about the body's encoding."""
        gone = _OWN_TO_A_CONNECTION | _OF_ONE_WHO_ANSWERS
        gone = gone if keep_encoding else gone | {"content-encoding"}
        return [(name, value) for name, value in self._answer.headers if name not in gone]

    async def read_raw_chunk(self) -> bytes:
        """The next bytes of the body as they come over the wire; none at its end."""
        return await self._answer.piece()

    async def read_chunk(self) -> bytes:
        """The next bytes of the body, decoded; none at its end."""
        if self._inflater is None:
            self._check_encoding()
            return await self._answer.piece()
        return await self._inflated(self._inflater)

    async def stream_to(self, sink: Sink) -> bool:
        """Hand the body, decoded, to a sink as it comes; False as soon as it takes no more for now."""
        if self._inflater is None:
            self._check_encoding()
            return await self._answer.pour(sink)
        while chunk := await self._inflated(self._inflater):
            if not sink(chunk):
                return False
        return True

    async def read(self) -> bytes:
        """The whole body, decoded, after which the reply is closed."""
        try:
            pieces = []
            while piece := await self.read_chunk():
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            await self.close()

    async def discard_rest(self) -> None:
        """Nothing more of it is wanted, and its end is near: the connection can be used again."""
        await self._answer.finish()

    async def close(self) -> None:
        """Give the connection back, or break it off if the body was not read to its end."""
        await self._answer.close()

    async def _inflated(self, inflater: Inflater) -> bytes:
        while True:
            piece = b"" if inflater.has_more else await self._answer.piece()
            if not piece and not inflater.has_more:
                return b""
            whole = inflater.feed(piece)
            self._left -= len(whole)
            if self._left < 0:
                raise self._request.too_large()
            if whole:
                return whole

    def _check_encoding(self) -> None:
        if not self.is_decodable:
            raise RequestFailed(
                f"upstream {self._request.upstream.name!r} sent an encoding that nobody asked for "
                f"({self._encoding[:40]!r})",
                502,
            )

    def _header(self, name: str) -> str:
        return next((value for one, value in self._answer.headers if one == name), "")


class LlmUpstreams:
    """All upstreams, and the connections to them, which there are between `open` and `close`."""

    def __init__(self, settings: LlmGatewayConfig) -> None:
        self._upstreams = settings.upstreams
        self._http1: Http1 | None = None
        self._http2 = Http2()
        # Those who speak HTTP/2, or are behind a proxy.
        self._by_http2: set[UpstreamOrigin] = set()

    async def open(self) -> None:
        """Be ready to connect."""
        context: ssl.SSLContext | None = None
        if any(one.url.startswith("https:") for one in self._upstreams):
            # Reading all certificates takes its time, so it is done once, and only if need be.
            context = await asyncio.to_thread(httpx2.create_ssl_context)
            offered = ["h2", "http/1.1"]
            context.set_alpn_protocols(offered)
        self._http1, self._http2 = Http1(context), Http2(context)
        self._by_http2 = {one for one in map(parse_origin, self._upstreams) if _is_by_proxy(one)}

    async def close(self) -> None:
        """Close every connection."""
        if self._http1 is not None:
            await self._http1.close()
        await self._http2.close()

    def match_model(self, api: LlmApi, model: str) -> LlmUpstreamConfig:
        """The first upstream of an API with a pattern that fits a model's name."""
        for upstream in self._upstreams:
            if upstream.api == api and any(fnmatchcase(model, one) for one in upstream.models):
                return upstream
        raise RequestFailed(f"{self._why_none(api, model)} in the configuration", 404)

    def _why_none(self, api: LlmApi, model: str) -> str:
        """Why no upstream of an API has a model, and what can be done about it."""
        for upstream in self._upstreams:
            if any(fnmatchcase(model, one) for one in upstream.models):
                theirs, ours = _SPOKEN[upstream.api], _SPOKEN[api]
                return (
                    f"upstream {upstream.name!r} has the model {model[:200]!r}, but speaks {theirs}, "
                    f'not {ours}; ask it there, or add one with "api": "{api}" to `models`'
                )
        known = sorted(
            {pattern for one in self._upstreams if one.api == api for pattern in one.models}
        )
        there = f"those there are have {', '.join(known)}" if known else "none speaks this API"
        return f"no upstream here has the model {model[:200]!r}; {there}; add it to `models`"

    async def send(
        self,
        upstream: LlmUpstreamConfig,
        method: str,
        path: str,
        headers: Headers,
        body: bytes = b"",
        *,
        retry_transient: bool = False,
    ) -> UpstreamResponse:
        """Ask an upstream. The reply's body is still to be read.

        While nothing has come back it is asked again, as often as its settings say. `patient` also
        asks again after an error that may pass: for requests that the client cannot repeat.
        """
        request = UpstreamRequest(upstream, method, path, list(headers), body)
        tries = upstream.retries
        wait_seconds = 0.25
        anew = False
        while True:
            try:
                reply = UpstreamResponse(request, await self._ask(request, anew=anew))
            except UpstreamConnectionError as fault:
                if fault.is_stale_connection and not anew:
                    # The others that were kept may be just as old.
                    anew = True
                    continue
                if tries <= 0:
                    raise
                asked = None
            else:
                if not retry_transient or tries <= 0 or reply.status not in TRANSIENT_STATUSES:
                    return reply
                asked = reply.retry_after_seconds
                await reply.close()
            tries -= 1
            await asyncio.sleep(
                min(wait_seconds if asked is None else asked, MAX_RETRY_DELAY_SECONDS)
            )
            wait_seconds *= 2

    async def _ask(self, request: UpstreamRequest, *, anew: bool) -> WireResponse:
        assert self._http1 is not None, "the gateway has to be opened before it is asked"
        if request.origin not in self._by_http2:
            try:
                return await self._http1.ask(request, anew=anew)
            except OffersHttp2:
                self._by_http2.add(request.origin)
        return await self._http2.ask(request)


def build_upstream_headers(
    upstream: LlmUpstreamConfig, headers: Headers, *, keep_encoding: bool = False
) -> list[tuple[str, str]]:
    """A client's headers as they go to an upstream: with its key, if the settings have one.

    `as_sent` leaves it to the client how the answer is encoded.
    """
    sent = list(headers)
    ours = {name.lower(): value for name, value in upstream.headers.items()}
    gone = _OWN_TO_A_CONNECTION | _FROM_BROWSERS | ours.keys()
    if upstream.key:
        gone |= CREDENTIAL_HEADERS
        ours = _key(upstream, {name for name, _ in sent}) | ours
    if not keep_encoding or all(name != "accept-encoding" for name, _ in sent):
        gone |= {"accept-encoding"}
        ours["accept-encoding"] = "identity"
    kept = [
        (name, value)
        for name, value in sent
        if name not in gone and not name.startswith(_OWN_PREFIX)
    ]
    return kept + list(ours.items())


def _key(upstream: LlmUpstreamConfig, sent: set[str]) -> dict[str, str]:
    """The key where the client has put its own: not every server looks in both places."""
    usual = "x-api-key" if upstream.api == "messages" else "authorization"
    values = dict.fromkeys(CREDENTIAL_HEADERS, upstream.key) | {
        "authorization": f"Bearer {upstream.key}"
    }
    return {name: values[name] for name in sorted(CREDENTIAL_HEADERS & sent) or [usual]}


def _is_by_proxy(origin: UpstreamOrigin) -> bool:
    """Whether the environment names a proxy for it."""
    named = getproxies()
    kinds = {"https" if origin.is_tls else "http", "all"}
    return bool(kinds & named.keys()) and not proxy_bypass(origin.host)
