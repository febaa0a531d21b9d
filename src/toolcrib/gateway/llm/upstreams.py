"""LLM upstreams: match models to them, build their headers, send requests with retries."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import httpx2

from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.http_client import HttpClient, UpstreamConnectionError
from toolcrib.gateway.llm.http_messages import HOP_BY_HOP_HEADERS, HeaderList, UpstreamRequest, UpstreamResponse

TRANSIENT_STATUSES: Final = frozenset({429, 500, 502, 503, 504, 529})
REDIRECT_STATUSES: Final = frozenset({300, 301, 302, 303, 305, 307, 308})
FIRST_RETRY_DELAY_SECONDS: Final = 0.25
MAX_RETRY_DELAY_SECONDS: Final = 8.0
# An upstream may close several idle connections at the same time.
MAX_STALE_RETRIES: Final = 3
CREDENTIAL_HEADERS: Final = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})

_BROWSER_HEADERS: Final = frozenset({"cookie", "origin", "referer"})
_OWN_PREFIX: Final = "x-toolcrib-"
_API_DESCRIPTIONS: Final[Mapping[LlmApi, str]] = {
    "messages": "Anthropic's API (/v1/messages)",
    "openai": "OpenAI's APIs (/v1/chat/completions, /v1/responses)",
}


class LlmUpstreams:
    """The configured upstreams and, between `open` and `close`, the connections to them."""

    def __init__(self, settings: LlmGatewayConfig) -> None:
        self._upstreams = settings.upstreams
        self._client: HttpClient | None = None

    async def open(self) -> None:
        """Create the HTTP client."""
        contexts: tuple[ssl.SSLContext | None, ssl.SSLContext | None] = (None, None)
        if any(upstream.url.startswith("https:") for upstream in self._upstreams):
            # Loading the certificates takes some time.
            contexts = await asyncio.to_thread(_create_tls_contexts)
        self._client = HttpClient(*contexts)

    async def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.close()

    def match_model(self, api: LlmApi, model: str) -> LlmUpstreamConfig:
        """Return the first upstream of an API with a pattern that matches a model name."""
        for upstream in self._upstreams:
            if upstream.api == api and _has_model(upstream, model):
                return upstream
        raise RequestFailed(f"{self._explain_no_match(api, model)} in the configuration", 404)

    def _explain_no_match(self, api: LlmApi, model: str) -> str:
        for upstream in self._upstreams:
            if _has_model(upstream, model):
                return (
                    f"upstream {upstream.name!r} has the model {model[:200]!r}, but speaks "
                    f"{_API_DESCRIPTIONS[upstream.api]}, not {_API_DESCRIPTIONS[api]}; send the "
                    f'request there, or add an upstream with "api": "{api}" to `models`'
                )
        patterns = sorted(
            {pattern for upstream in self._upstreams if upstream.api == api for pattern in upstream.models}
        )
        known = f"the upstreams have {', '.join(patterns)}" if patterns else "none has this API"
        return f"no upstream has the model {model[:200]!r}; {known}; add it to `models`"

    async def send(
        self,
        upstream: LlmUpstreamConfig,
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]],
        body: bytes = b"",
        *,
        retry_transient: bool = False,
    ) -> UpstreamResponse:
        """Send a request and return the response; the caller reads its body.

        A connection that fails before a response is retried as often as the upstream's settings
        allow. `retry_transient` also retries error statuses that may pass, for requests that the
        client cannot repeat.
        """
        assert self._client is not None, "open the gateway before sending requests"
        request = UpstreamRequest(upstream, method, path, list(headers), body)
        retries, stale_retries = upstream.retries, MAX_STALE_RETRIES
        delay_seconds = FIRST_RETRY_DELAY_SECONDS
        while True:
            retry_after: float | None = None
            try:
                response = await self._client.send(request)
            except UpstreamConnectionError as error:
                if error.is_stale and stale_retries > 0:
                    stale_retries -= 1
                    continue
                if retries <= 0:
                    raise
            else:
                if response.status in REDIRECT_STATUSES:
                    await response.close()
                    # A client that gets the redirect would follow it and send its key there.
                    raise RequestFailed(
                        f"upstream {upstream.name!r} answered with a redirect (status {response.status}), which the "
                        "gateway does not follow; correct its `url`, for example https:// in place of http://",
                        502,
                    )
                is_final = not retry_transient or response.status not in TRANSIENT_STATUSES
                if is_final or retries <= 0:
                    return response
                retry_after = _parse_retry_after(response)
                await response.close()
            retries -= 1
            wait_seconds = delay_seconds if retry_after is None else retry_after
            await asyncio.sleep(min(wait_seconds, MAX_RETRY_DELAY_SECONDS))
            delay_seconds *= 2


def build_upstream_headers(
    upstream: LlmUpstreamConfig, headers: Iterable[tuple[str, str]], *, keep_encoding: bool = False
) -> HeaderList:
    """Return a client's headers as they are sent to an upstream, with its configured key.

    `keep_encoding` lets the client choose the encoding of the response.
    """
    sent = list(headers)
    own = {name.lower(): value for name, value in upstream.headers.items()}
    removed = HOP_BY_HOP_HEADERS | _BROWSER_HEADERS | own.keys()
    if upstream.key:
        removed |= CREDENTIAL_HEADERS
        own = _build_key_headers(upstream, {name for name, _ in sent}) | own
    if not keep_encoding or all(name != "accept-encoding" for name, _ in sent):
        removed |= {"accept-encoding"}
        own["accept-encoding"] = "identity"
    forwarded = [(name, value) for name, value in sent if name not in removed and not name.startswith(_OWN_PREFIX)]
    return forwarded + list(own.items())


def _build_key_headers(upstream: LlmUpstreamConfig, sent: set[str]) -> dict[str, str]:
    """Return the upstream's key in the headers in which the client sent its own key."""
    default = "x-api-key" if upstream.api == "messages" else "authorization"
    values = dict.fromkeys(CREDENTIAL_HEADERS, upstream.key)
    values["authorization"] = f"Bearer {upstream.key}"
    return {name: values[name] for name in sorted(CREDENTIAL_HEADERS & sent) or [default]}


def _has_model(upstream: LlmUpstreamConfig, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in upstream.models)


def _parse_retry_after(response: UpstreamResponse) -> float | None:
    try:
        return max(0.0, float(response.get_header("retry-after")))
    except ValueError:
        return None


def _create_tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts for HTTP/1.1 and HTTP/2, which offer different protocols."""
    http1, http2 = httpx2.create_ssl_context(), httpx2.create_ssl_context()
    http1.set_alpn_protocols(["http/1.1"])
    return http1, http2
