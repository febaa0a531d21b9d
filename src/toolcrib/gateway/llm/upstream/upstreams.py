"""LLM upstreams: match models to them, build their headers, send requests with retries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from toolcrib.config.llm_models import is_azure_host
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.upstream.http_client import HttpClient, UpstreamConnectionError
from toolcrib.gateway.llm.upstream.http_messages import (
    HOP_BY_HOP_HEADERS,
    HeaderList,
    UpstreamRequest,
    UpstreamResponse,
)

TRANSIENT_STATUSES: Final = frozenset({429, 500, 502, 503, 504, 529})
REDIRECT_STATUSES: Final = frozenset({300, 301, 302, 303, 305, 307, 308})
FIRST_RETRY_DELAY_SECONDS: Final = 0.25
MAX_RETRY_DELAY_SECONDS: Final = 8.0
# An upstream may close several idle connections at the same time.
MAX_STALE_RETRIES: Final = 3
# How long a key is not used after the upstream has refused it. A rate limit may say so itself.
KEY_PAUSES_SECONDS: Final[Mapping[int, float]] = {401: 300.0, 403: 300.0, 429: 10.0}
MAX_KEY_PAUSE_SECONDS: Final = 600.0
CREDENTIAL_HEADERS: Final = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})

# Also what only a browser sends.
_REMOVED_HEADERS: Final = HOP_BY_HOP_HEADERS | {"cookie", "origin", "referer"}
_OWN_PREFIX: Final = "x-toolcrib-"
_API_DESCRIPTIONS: Final[Mapping[LlmApi, str]] = {
    "messages": "Anthropic's API (/v1/messages)",
    "openai": "OpenAI's APIs (/v1/chat/completions, /v1/responses)",
    "chat": "Chat Completions (/v1/chat/completions)",
    "gemini": "Google's API (/v1beta/models)",
}
# The APIs of upstreams that can answer the requests of an API, the best first. Chat Completions answers others by
# translation; OpenAI's own API does so only for a model that an alias names.
SERVING_APIS: Final[Mapping[LlmApi, tuple[LlmApi, ...]]] = {
    "messages": ("messages", "chat"),
    "openai": ("openai", "chat"),
    "chat": ("chat", "openai"),
    "gemini": ("gemini", "chat"),
}


class ModelRoute(NamedTuple):
    """The upstream of a model and the model's name there."""

    upstream: LlmUpstreamConfig
    model: str
    # Whether the alias names further models.
    has_fallback: bool = False


class LlmUpstreams:
    """The configured upstreams and, between `open` and `close`, the connections to them.

    The settings are read for every request and may change.
    """

    def __init__(self, get_settings: Callable[[], LlmGatewayConfig]) -> None:
        self._get_settings = get_settings
        self._client: HttpClient | None = None
        self._key_pauses = _KeyPauses()

    async def open(self) -> None:
        """Create the HTTP client."""
        self._client = HttpClient()

    async def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.close()

    def find_route(self, api: LlmApi, model: str, attempt: int = 0) -> ModelRoute:
        """Return the route of a model name or an alias; `attempt` counts the fallbacks of an alias."""
        settings = self._get_settings()
        if model not in settings.aliases:
            return ModelRoute(self._match_pattern(api, model), model)
        upstreams = {upstream.name: upstream for upstream in settings.upstreams}
        apis = {*SERVING_APIS[api], *(("openai",) if api in ("messages", "gemini") else ())}
        targets = [target for target in settings.aliases[model] if upstreams[target.upstream].api in apis]
        if not targets:
            raise RequestFailed(
                f"the alias {model!r} names no model of an upstream with {_API_DESCRIPTIONS[api]}; "
                f'send the request to the other API, or add an upstream with "api": "{api}" to `models`',
                404,
            )
        target = targets[min(attempt, len(targets) - 1)]
        return ModelRoute(upstreams[target.upstream], target.model, attempt < len(targets) - 1)

    def _match_pattern(self, api: LlmApi, model: str) -> LlmUpstreamConfig:
        """Return the first upstream of an API with a pattern that matches a model name."""
        for serving_api in SERVING_APIS[api]:
            for upstream in self._get_settings().upstreams:
                if upstream.api == serving_api and _has_model(upstream, model):
                    return upstream
        if not model:
            raise RequestFailed("the request names no model; send one as `model`", 400, param="model")
        raise RequestFailed(f"{self._explain_no_match(api, model)} in the configuration", 404)

    def _explain_no_match(self, api: LlmApi, model: str) -> str:
        settings = self._get_settings()
        for upstream in settings.upstreams:
            if _has_model(upstream, model):
                return (
                    f"upstream {upstream.name!r} has the model {model[:200]!r}, but speaks "
                    f"{_API_DESCRIPTIONS[upstream.api]}, not {_API_DESCRIPTIONS[api]}; send the "
                    f'request there, or add an upstream with "api": "{api}" to `models`'
                )
        serving = [upstream for upstream in settings.upstreams if upstream.api in SERVING_APIS[api]]
        names = {*settings.aliases, *(pattern for upstream in serving for pattern in upstream.models)}
        known = f"the models are {', '.join(sorted(names))}" if names else "none has this API"
        return f"no upstream has the model {model[:200]!r}; {known}; add it to `models`"

    async def send_for_client(self, request: UpstreamRequest, *, retry_transient: bool = False) -> UpstreamResponse:
        """Send a client's request with the key of the upstream; try the next key if one is refused."""
        upstream = request.upstream
        keys = self._key_pauses.sort_keys(upstream)
        path = adapt_target(upstream, request.path)
        for number, key in enumerate(keys, start=1):
            headers = build_upstream_headers(upstream, request.headers, key=key)
            response = await self.send(replace(request, path=path, headers=headers), retry_transient=retry_transient)
            if response.status not in KEY_PAUSES_SECONDS or not key:
                break
            seconds = _parse_retry_after(response) if response.status == 429 else None
            self._key_pauses.pause(upstream, key, KEY_PAUSES_SECONDS[response.status] if seconds is None else seconds)
            if number < len(keys):
                await response.close()
        return response

    async def send(self, request: UpstreamRequest, *, retry_transient: bool = False) -> UpstreamResponse:
        """Send a request and return the response; the caller reads its body.

        A connection that fails before a response is retried as often as the upstream's settings
        allow. `retry_transient` also retries error statuses that may pass, for requests that the
        client cannot repeat.
        """
        assert self._client is not None, "open the gateway before sending requests"
        upstream = request.upstream
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


class _KeyPauses:
    """The times until which keys are not used. The keys of an upstream are used in their order."""

    def __init__(self) -> None:
        self._paused_until: dict[tuple[str, str], float] = {}

    def sort_keys(self, upstream: LlmUpstreamConfig) -> list[str]:
        """Return the keys of an upstream, paused ones last; one empty key if it has none."""
        now = time.monotonic()
        for name, key in [pair for pair, until in self._paused_until.items() if until <= now]:
            del self._paused_until[name, key]
        return sorted(upstream.api_keys, key=lambda key: self._paused_until.get((upstream.name, key), 0.0)) or [""]

    def pause(self, upstream: LlmUpstreamConfig, key: str, seconds: float) -> None:
        """Use a key after the other keys for some time."""
        self._paused_until[upstream.name, key] = time.monotonic() + min(seconds, MAX_KEY_PAUSE_SECONDS)


def adapt_target(upstream: LlmUpstreamConfig, target: str) -> str:
    """Return the path and query for an upstream. Azure has the paths of OpenAI below `/openai`."""
    if upstream.api == "gemini" and upstream.api_keys:
        # Google's clients may have their key in the query, and it is not meant for the upstream.
        path, _, query = target.partition("?")
        kept = "&".join(parameter for parameter in query.split("&") if not parameter.startswith("key="))
        return f"{path}?{kept}" if kept else path
    if target.startswith("/v1/") and upstream.api == "openai" and is_azure_host(upstream.url):
        return f"/openai{target}"
    return target


def build_upstream_headers(
    upstream: LlmUpstreamConfig, headers: Iterable[tuple[str, str]], *, key: str = ""
) -> HeaderList:
    """Return a client's headers as they are sent to an upstream, with `key` in place of the client's key."""
    sent = list(headers)
    # The gateway reads responses, so they must not be compressed.
    own = {"accept-encoding": "identity", **{name.lower(): value for name, value in upstream.headers.items()}}
    removed = _REMOVED_HEADERS | own.keys()
    if key:
        removed |= CREDENTIAL_HEADERS
        own = _build_key_headers(upstream, key, {name for name, _ in sent}) | own
    forwarded = [(name, value) for name, value in sent if name not in removed and not name.startswith(_OWN_PREFIX)]
    return forwarded + list(own.items())


def _build_key_headers(upstream: LlmUpstreamConfig, key: str, sent: set[str]) -> dict[str, str]:
    """Return the upstream's key in the headers in which the client sent its own key."""
    if is_azure_host(upstream.url):
        return {"api-key": key}
    if upstream.api == "gemini":
        return {"x-goog-api-key": key}
    default = "x-api-key" if upstream.api == "messages" else "authorization"
    values = dict.fromkeys(CREDENTIAL_HEADERS, key)
    values["authorization"] = f"Bearer {key}"
    return {name: values[name] for name in sorted(CREDENTIAL_HEADERS & sent) or [default]}


def _has_model(upstream: LlmUpstreamConfig, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in upstream.models)


def _parse_retry_after(response: UpstreamResponse) -> float | None:
    try:
        return max(0.0, float(response.get_header("retry-after")))
    except ValueError:
        return None
