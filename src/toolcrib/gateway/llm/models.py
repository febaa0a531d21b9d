"""`/v1/models`: the models of all upstreams, and the aliases; and the check of upstreams for `toolcrib doctor`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.config.checks import ConfigFinding
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import UPSTREAM_HEADER, HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.upstream.upstreams import (
    CREDENTIAL_HEADERS,
    ClientRequest,
    LlmUpstreams,
    build_upstream_headers,
)

# An upstream that takes longer is left out of the list of models.
LIST_TIMEOUT_SECONDS: Final = 20.0
MODELS_PATH: Final = "/v1/models"

CHECK_TIMEOUT_SECONDS: Final = 10.0

_JSON: Final = [("content-type", "application/json")]
_log = logging.getLogger(__name__)


async def list_models(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Send the models of all upstreams of the client's API, or the details of one model.

    The client's key is sent only to an upstream for which it can be meant: the one with the
    requested model, or the only one without a configured key.
    """
    upstreams = list_client_upstreams(gateway, exchange)
    api = upstreams[0].api
    upstream = gateway.find_named_upstream(exchange, upstreams)
    model = exchange.path.removeprefix(MODELS_PATH).strip("/")
    aliases = _list_aliases(gateway, upstreams)
    if model in aliases:
        await exchange.send_response(200, _JSON, serialize_json(_render_alias(api, model)))
        return
    if upstream is None and len(upstreams) == 1 and (model or not aliases):
        upstream = upstreams[0]
    if upstream is None and model:
        upstream = gateway.upstreams.find_route(api, model).upstream
    if upstream is not None:
        await gateway.forward(exchange, upstream)
        return
    results = await asyncio.gather(*(_fetch_models(gateway, exchange, each, upstreams) for each in upstreams))
    lists = [models for models in results if models is not None]
    if not lists and not aliases:
        names = ", ".join(repr(each.name) for each in upstreams)
        raise RequestFailed(
            f"none of the upstreams {names} listed its models; give each a `key` in the "
            f"configuration, or name one in the header {UPSTREAM_HEADER}",
            502,
        )
    models = [_render_alias(api, alias) for alias in aliases]
    models += [model for models in lists for model in models if model.get("id") not in aliases]
    await exchange.send_response(200, _JSON, serialize_json(_render_model_list(api, models)))


def list_client_upstreams(gateway: LlmGateway, exchange: HttpExchange) -> list[LlmUpstreamConfig]:
    """Return the upstreams of the client's API, or of the first configured one."""
    api: LlmApi = "messages" if exchange.get_header("anthropic-version") else "openai"
    upstreams = list(gateway.settings.upstreams)
    if not upstreams:
        raise RequestFailed("no upstream is configured; add one to `models`", 404)
    apis: set[LlmApi] = {api, "chat"} if api == "openai" else {api}
    if all(upstream.api not in apis for upstream in upstreams):
        apis = {upstreams[0].api}
    return [upstream for upstream in upstreams if upstream.api in apis]


def _list_aliases(gateway: LlmGateway, upstreams: Iterable[LlmUpstreamConfig]) -> list[str]:
    """Return the aliases of models of some upstreams."""
    names = {upstream.name for upstream in upstreams}
    aliases = gateway.settings.aliases
    return [alias for alias, targets in aliases.items() if any(target.upstream in names for target in targets)]


async def _fetch_models(
    gateway: LlmGateway, exchange: HttpExchange, upstream: LlmUpstreamConfig, upstreams: list[LlmUpstreamConfig]
) -> list[dict[str, Any]] | None:
    """Return the models that are routed to an upstream, or None if it does not list them."""
    client_headers = exchange.headers
    if sum(not each.api_keys for each in upstreams) > 1:
        # The client's key could be for any of these upstreams, so none receives it.
        client_headers = [(name, value) for name, value in client_headers if name not in CREDENTIAL_HEADERS]
    target = f"{MODELS_PATH}?limit=1000" if upstream.api == "messages" else MODELS_PATH
    try:
        async with asyncio.timeout(LIST_TIMEOUT_SECONDS):
            response = await gateway.upstreams.send_for_client(upstream, ClientRequest("GET", target, client_headers))
            body = await response.read()
        if not response.is_success:
            raise RequestFailed(f"status {response.status}", response.status)
        models = dicts_or_empty((await gateway.parse_upstream_body(body)).get("data"))
    except (RequestFailed, TimeoutError) as error:
        reason = error if isinstance(error, RequestFailed) else "timeout"
        _log.warning("upstream %s did not list its models: %s", upstream.name, reason)
        return None
    return [model for model in models if _is_routed_to(gateway, upstream, model)]


def _is_routed_to(gateway: LlmGateway, upstream: LlmUpstreamConfig, model: dict[str, Any]) -> bool:
    name = str_or_empty(model.get("id"))
    try:
        return bool(name) and gateway.upstreams.find_route(upstream.api, name).upstream is upstream
    except RequestFailed:
        return False


def _render_alias(api: LlmApi, alias: str) -> dict[str, Any]:
    if api != "messages":
        return {"id": alias, "object": "model", "created": 0, "owned_by": "toolcrib"}
    return {"type": "model", "id": alias, "display_name": alias, "created_at": "1970-01-01T00:00:00Z"}


def _render_model_list(api: LlmApi, models: list[dict[str, Any]]) -> dict[str, Any]:
    if api != "messages":
        return {"object": "list", "data": models}
    ids = [model["id"] for model in models]
    return {"data": models, "has_more": False, "first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}


async def check_upstreams(settings: LlmGatewayConfig) -> list[ConfigFinding]:
    """Ask every upstream for its models, with each of its keys, and return the problems."""
    upstreams = LlmUpstreams(lambda: settings)
    await upstreams.open()
    try:
        checks = (
            _check_upstream(upstreams, upstream, key)
            for upstream in settings.upstreams
            for key in upstream.api_keys or ("",)
        )
        findings = await asyncio.gather(*checks)
    finally:
        await upstreams.close()
    return [finding for finding in findings if finding]


async def _check_upstream(upstreams: LlmUpstreams, upstream: LlmUpstreamConfig, key: str) -> ConfigFinding | None:
    target = "/v1beta/models" if upstream.api == "gemini" else MODELS_PATH
    client_headers = [("anthropic-version", "2023-06-01")] if upstream.api == "messages" else []
    headers = build_upstream_headers(upstream, client_headers, key=key)
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
            response = await upstreams.send(upstream, "GET", target, headers)
            await response.read()
    except (RequestFailed, TimeoutError) as error:
        problem = str(error) or f"upstream {upstream.name!r} did not answer within {CHECK_TIMEOUT_SECONDS:g} s"
        return ConfigFinding("error", problem, "check its `url`, and whether it is running", upstream.name)
    if response.status in (401, 403) and key:
        position = f" {upstream.api_keys.index(key) + 1}" if len(upstream.api_keys) > 1 else ""
        problem = f"it refuses its key{position} with status {response.status}"
        return ConfigFinding("error", problem, "renew the key, or correct its variable", upstream.name)
    if response.status >= 500:
        problem = f"it answered with status {response.status}"
        return ConfigFinding("warning", problem, "the upstream itself fails; try again later", upstream.name)
    if response.is_success and "html" in response.get_header("content-type"):
        return ConfigFinding("error", "a web page answers, not an LLM API", "correct its `url`", upstream.name)
    return None
