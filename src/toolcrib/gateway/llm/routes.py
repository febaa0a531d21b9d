"""Routes of the LLM gateway, and the list of models over all upstreams."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.config.settings import LlmApi, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic import endpoint as messages
from toolcrib.gateway.llm.endpoint import (
    UPSTREAM_HEADER,
    ErrorRenderer,
    Handler,
    HttpExchange,
    LlmEndpoint,
    ResponseHeaders,
    render_messages_error,
    render_openai_error,
)
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.openai_chat.endpoint import create_completion
from toolcrib.gateway.llm.openai_responses.endpoint import ResponsesEndpoint
from toolcrib.gateway.llm.upstreams import CREDENTIAL_HEADERS, build_upstream_headers
from toolcrib.gateway.openapi import load_openapi

# An upstream that takes longer is left out of the list of models.
LIST_TIMEOUT_SECONDS: Final = 20.0
MODELS_PATH: Final = "/v1/models"
OPENAPI_PATH: Final = "/v1/openapi.json"

_log = logging.getLogger(__name__)


def build_llm_routes(gateway: LlmGateway) -> list[Route]:
    """Return the routes of all LLM APIs. `gateway` must be open while they are used."""
    limit = gateway.max_body_bytes
    responses = ResponsesEndpoint(gateway)
    handlers: dict[str, tuple[Handler, ErrorRenderer]] = {
        "/v1/messages": (partial(messages.create_message, gateway), render_messages_error),
        "/v1/messages/count_tokens": (partial(messages.count_tokens, gateway), render_messages_error),
        "/v1/chat/completions": (partial(create_completion, gateway), render_openai_error),
        "/v1/responses": (responses.create_response, render_openai_error),
    }
    stored_responses = LlmEndpoint(responses.handle_stored, render_openai_error, limit)
    uses_openai = bool(gateway.settings.upstreams) and gateway.settings.upstreams[0].api == "openai"
    models = LlmEndpoint(
        partial(list_models, gateway), render_openai_error if uses_openai else render_messages_error, limit
    )
    return [
        *(
            Route(path, LlmEndpoint(handler, render_error, limit), methods=["POST"])
            for path, (handler, render_error) in handlers.items()
        ),
        Route("/v1/responses/{rest:path}", stored_responses, methods=["GET", "POST", "DELETE"]),
        Route(OPENAPI_PATH, _serve_openapi, methods=["GET"]),
        Route(MODELS_PATH, models, methods=["GET"]),
        Route(f"{MODELS_PATH}/{{model:path}}", models, methods=["GET"]),
    ]


async def _serve_openapi(request: Request) -> JSONResponse:
    return JSONResponse(load_openapi("llm"))


async def list_models(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Send the models of all upstreams of the client's API, or the details of one model.

    The client's key is sent only to an upstream for which it can be meant: the one with the
    requested model, or the only one without a configured key.
    """
    upstreams = _upstreams_of_client_api(gateway, exchange)
    upstream = gateway.find_named_upstream(exchange, upstreams)
    model = exchange.path.removeprefix(MODELS_PATH).strip("/")
    if upstream is None and len(upstreams) == 1:
        upstream = upstreams[0]
    if upstream is None and model:
        upstream = gateway.upstreams.match_model(upstreams[0].api, model)
    if upstream is not None:
        await gateway.forward(exchange, upstream, ResponseHeaders(upstream.name, "off"))
        return
    results = await asyncio.gather(*(_fetch_models(gateway, exchange, each, upstreams) for each in upstreams))
    lists = [models for models in results if models is not None]
    if not lists:
        names = ", ".join(repr(each.name) for each in upstreams)
        raise RequestFailed(
            f"none of the upstreams {names} listed its models; give each a `key` in the "
            f"configuration, or name one in the header {UPSTREAM_HEADER}",
            502,
        )
    models = [model for models in lists for model in models]
    body = serialize_json(_render_model_list(upstreams[0].api, models))
    await exchange.send_response(200, [("content-type", "application/json")], body)


def _upstreams_of_client_api(gateway: LlmGateway, exchange: HttpExchange) -> list[LlmUpstreamConfig]:
    """Return the upstreams of the client's API, or of the first configured one."""
    api: LlmApi = "messages" if exchange.get_header("anthropic-version") else "openai"
    upstreams = list(gateway.settings.upstreams)
    if not upstreams:
        raise RequestFailed("no upstream is configured; add one to `models`", 404)
    if all(upstream.api != api for upstream in upstreams):
        api = upstreams[0].api
    return [upstream for upstream in upstreams if upstream.api == api]


async def _fetch_models(
    gateway: LlmGateway, exchange: HttpExchange, upstream: LlmUpstreamConfig, upstreams: list[LlmUpstreamConfig]
) -> list[dict[str, Any]] | None:
    """Return the models that are routed to an upstream, or None if it does not list them."""
    client_headers = exchange.headers
    if sum(not each.key for each in upstreams) > 1:
        # The client's key could be for any of these upstreams, so none receives it.
        client_headers = [(name, value) for name, value in client_headers if name not in CREDENTIAL_HEADERS]
    target = f"{MODELS_PATH}?limit=1000" if upstream.api == "messages" else MODELS_PATH
    try:
        async with asyncio.timeout(LIST_TIMEOUT_SECONDS):
            headers = build_upstream_headers(upstream, client_headers)
            response = await gateway.upstreams.send(upstream, "GET", target, headers)
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
        return bool(name) and gateway.upstreams.match_model(upstream.api, name) is upstream
    except RequestFailed:
        return False


def _render_model_list(api: LlmApi, models: list[dict[str, Any]]) -> dict[str, Any]:
    if api == "openai":
        return {"object": "list", "data": models}
    ids = [model["id"] for model in models]
    return {"data": models, "has_more": False, "first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
