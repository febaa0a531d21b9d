"""`/v1/models` and `/v1beta/models`: the models of all upstreams, and the aliases.

`toolcrib doctor` lists the models of each upstream too, to check its address and its keys.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.config.checks import ConfigFinding
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import UPSTREAM_HEADER, HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.translation.response import translate_headers
from toolcrib.gateway.llm.upstream.http_messages import UpstreamRequest
from toolcrib.gateway.llm.upstream.upstreams import (
    CREDENTIAL_HEADERS,
    SERVING_APIS,
    LlmUpstreams,
    build_upstream_headers,
)

# An upstream that takes longer is left out of the list of models.
LIST_TIMEOUT_SECONDS: Final = 20.0
MODELS_PATH: Final = "/v1/models"

CHECK_TIMEOUT_SECONDS: Final = 10.0

_LIST_TARGETS: Final[Mapping[LlmApi, str]] = {
    "messages": f"{MODELS_PATH}?limit=1000",
    "gemini": "/v1beta/models?pageSize=1000",
}
_MODELS_PREFIX: Final = re.compile("/v1(?:beta|alpha)?/models")
_JSON: Final = [("content-type", "application/json")]
_log = logging.getLogger(__name__)


async def list_models(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Send the models of all upstreams that serve the client's API, or the details of one model.

    The client's key is sent only to an upstream for which it can be meant: the one with the
    requested model, or the only one without a configured key.
    """
    api, upstreams = find_client_api(exchange), _list_serving_upstreams(gateway, exchange)
    upstream = gateway.find_named_upstream(exchange, upstreams)
    model = _MODELS_PREFIX.sub("", exchange.path).strip("/")
    aliases = _list_aliases(gateway, upstreams)
    if model in aliases:
        await exchange.send_response(200, _JSON, serialize_json(_render_model(api, model)))
        return
    if upstream is None and len(upstreams) == 1 and (model or not aliases):
        upstream = upstreams[0]
    if upstream is None and model:
        upstream = gateway.upstreams.find_route(api, model).upstream
    if upstream is not None and _has_format(upstream, api):
        await gateway.forward(exchange, upstream)
        return
    asked = upstreams if upstream is None else [upstream]
    results = await asyncio.gather(*(_fetch_models(gateway, exchange, each, upstreams) for each in asked))
    lists = [models for models in results if models is not None]
    if not lists and (model or not aliases):
        names = ", ".join(repr(each.name) for each in asked)
        raise RequestFailed(
            f"none of the upstreams {names} listed its models; give each a `key` in the "
            f"configuration, or name one in the header {UPSTREAM_HEADER}",
            502,
        )
    models = {alias: _render_model(api, alias) for alias in aliases}
    models |= {id: entry for models in lists for id, entry in models.items() if id not in aliases}
    if model and model not in models:
        raise RequestFailed(f"no upstream lists the model {model[:200]!r}; ask for the list of models", 404)
    body = models[model] if model else _render_model_list(api, models)
    await exchange.send_response(200, _JSON, serialize_json(body))


def find_client_api(exchange: HttpExchange) -> LlmApi:
    """Return the API whose format a client expects at a path that several APIs have."""
    if exchange.get_header("anthropic-version"):
        return "messages"
    is_gemini = not exchange.path.startswith("/v1/") or exchange.get_header("x-goog-api-client")
    return "gemini" if is_gemini else "openai"


def list_client_upstreams(gateway: LlmGateway, exchange: HttpExchange) -> list[LlmUpstreamConfig]:
    """Return the upstreams of the client's API, or of the first configured one."""
    upstreams = _list_serving_upstreams(gateway, exchange)
    return [each for each in upstreams if _has_format(each, find_client_api(exchange))] or upstreams


def _list_serving_upstreams(gateway: LlmGateway, exchange: HttpExchange) -> list[LlmUpstreamConfig]:
    upstreams = list(gateway.settings.upstreams)
    if not upstreams:
        raise RequestFailed("no upstream is configured; add one to `models`", 404)
    serving = {each.api for each in upstreams} & set(SERVING_APIS[find_client_api(exchange)])
    return [each for each in upstreams if each.api in (serving or {upstreams[0].api})]


def _list_aliases(gateway: LlmGateway, upstreams: Iterable[LlmUpstreamConfig]) -> list[str]:
    """Return the aliases of models of some upstreams."""
    names = {upstream.name for upstream in upstreams}
    aliases = gateway.settings.aliases
    return [alias for alias, targets in aliases.items() if any(target.upstream in names for target in targets)]


def _has_format(upstream: LlmUpstreamConfig, api: LlmApi) -> bool:
    """Return whether an upstream describes its models in the format of an API."""
    return upstream.api == api or {upstream.api, api} == {"openai", "chat"}


async def _fetch_models(
    gateway: LlmGateway, exchange: HttpExchange, upstream: LlmUpstreamConfig, upstreams: list[LlmUpstreamConfig]
) -> dict[str, dict[str, Any]] | None:
    """Return the models that are routed to an upstream by name, or None if it does not list them."""
    api, client_headers = find_client_api(exchange), exchange.headers
    if sum(not each.api_keys for each in upstreams) > 1:
        # The client's key could be for any of these upstreams, so none receives it.
        client_headers = [(name, value) for name, value in client_headers if name not in CREDENTIAL_HEADERS]
    if not _has_format(upstream, api):
        client_headers = translate_headers(client_headers)
    target = _LIST_TARGETS.get(upstream.api, MODELS_PATH)
    try:
        async with asyncio.timeout(LIST_TIMEOUT_SECONDS):
            response = await gateway.upstreams.send_for_client(UpstreamRequest(upstream, "GET", target, client_headers))
            body = await response.read()
        if not response.is_success:
            raise RequestFailed(f"status {response.status}", response.status)
        answer = await gateway.parse_upstream_body(body)
    except (RequestFailed, TimeoutError) as error:
        reason = error if isinstance(error, RequestFailed) else "timeout"
        _log.warning("upstream %s did not list its models: %s", upstream.name, reason)
        return None
    listing, field = ("models", "name") if upstream.api == "gemini" else ("data", "id")
    listed = dicts_or_empty(answer.get(listing))
    entries = {str_or_empty(entry.get(field)).removeprefix("models/"): entry for entry in listed}
    return {
        id: entry if _has_format(upstream, api) else _render_model(api, id)
        for id, entry in entries.items()
        if _is_routed_to(gateway, upstream, api, id)
    }


def _is_routed_to(gateway: LlmGateway, upstream: LlmUpstreamConfig, api: LlmApi, model: str) -> bool:
    try:
        return bool(model) and gateway.upstreams.find_route(api, model).upstream is upstream
    except RequestFailed:
        return False


def _render_model(api: LlmApi, name: str) -> dict[str, Any]:
    """Return the description of an alias, or of a model of an upstream with another API."""
    if api == "gemini":
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": ["generateContent"]}
    if api == "messages":
        return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 0, "owned_by": "toolcrib"}


def _render_model_list(api: LlmApi, models: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    ids, entries = list(models), list(models.values())
    if api == "gemini":
        return {"models": entries}
    if api == "messages":
        ends = {"first_id": ids[0], "last_id": ids[-1]} if ids else {"first_id": None, "last_id": None}
        return {"data": entries, "has_more": False, **ends}
    return {"object": "list", "data": entries}


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
    target = _LIST_TARGETS.get(upstream.api, MODELS_PATH)
    client_headers = [("anthropic-version", "2023-06-01")] if upstream.api == "messages" else []
    headers = build_upstream_headers(upstream, client_headers, key=key)
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
            response = await upstreams.send(UpstreamRequest(upstream, "GET", target, headers))
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
