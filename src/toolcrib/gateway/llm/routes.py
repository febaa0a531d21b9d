"""Routes of the LLM gateway. Paths without an own handler are forwarded unchanged."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic import endpoint as messages
from toolcrib.gateway.llm.endpoint import (
    ErrorRenderer,
    Handler,
    HttpExchange,
    LlmEndpoint,
    check_profile_rights,
    render_combined_error,
    render_gemini_error,
    render_messages_error,
    render_openai_error,
)
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.gemini.endpoint import handle_gemini
from toolcrib.gateway.llm.json_body import parse_request_body, serialize_json
from toolcrib.gateway.llm.models import MODELS_PATH, list_client_upstreams, list_models
from toolcrib.gateway.llm.openai_chat.endpoint import create_completion
from toolcrib.gateway.llm.openai_responses.endpoint import ResponsesEndpoint
from toolcrib.gateway.openapi import load_openapi

OPENAPI_PATH: Final = "/v1/openapi.json"

# Azure has the deployment in the path, and OpenAI's paths below `/openai`.
_AZURE_PATH: Final = re.compile(r"/openai(?:/v1)?(?:/deployments/([^/]+))?/(.+)")
_FORWARDED_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


def build_llm_routes(gateway: LlmGateway) -> list[BaseRoute]:
    """Return the routes of all LLM APIs. `gateway` must be open while they are used."""
    responses = ResponsesEndpoint(gateway)
    handlers: dict[str, tuple[Handler, ErrorRenderer]] = {
        "/v1/messages": (partial(messages.create_message, gateway), render_messages_error),
        "/v1/messages/count_tokens": (partial(messages.count_tokens, gateway), render_messages_error),
        "/v1/chat/completions": (partial(create_completion, gateway), render_openai_error),
        "/v1/responses": (responses.create_response, render_openai_error),
    }
    stored_responses = LlmEndpoint(responses.handle_stored, render_openai_error)
    models = LlmEndpoint(partial(list_models, gateway), render_combined_error)
    other = LlmEndpoint(partial(forward_other, gateway, handlers), render_combined_error)
    gemini = LlmEndpoint(partial(handle_gemini, gateway), render_gemini_error)
    routes: list[BaseRoute] = [
        *(
            Route(path, LlmEndpoint(handler, render_error), methods=["POST"])
            for path, (handler, render_error) in handlers.items()
        ),
        Route("/v1/responses/{rest:path}", stored_responses, methods=["GET", "POST", "DELETE"]),
        Route(OPENAPI_PATH, _serve_openapi, methods=["GET"]),
        Route(MODELS_PATH, models, methods=["GET"]),
        Route(f"{MODELS_PATH}/{{model:path}}", models, methods=["GET"]),
        # Google's client uses version `v1` or `v1beta`.
        Route(f"{MODELS_PATH}/{{model:path}}", gemini, methods=["POST"]),
        Route("/v1/{rest:path}", other, methods=list(_FORWARDED_METHODS)),
    ]
    azure = Route("/openai/{rest:path}", _AzurePaths(Router(routes)), methods=list(_FORWARDED_METHODS))
    return [*routes, Route("/v1beta/{rest:path}", gemini, methods=list(_FORWARDED_METHODS)), azure]


async def _serve_openapi(request: Request) -> JSONResponse:
    return JSONResponse(load_openapi("llm"))


class _AzurePaths:
    """Serves the paths of Azure OpenAI as those of OpenAI."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        match = _AZURE_PATH.fullmatch(raw_path.decode("latin-1"))
        if match is not None:
            deployment, rest = match.groups()
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            query = [(name, value) for name, value in query if name != "api-version"]
            scope = {
                **scope,
                "path": unquote(f"/v1/{rest}"),
                "raw_path": f"/v1/{rest}".encode("latin-1"),
                "query_string": urlencode(query).encode(),
                "state": {**scope.get("state", {}), "model": unquote(deployment or "")},
            }
        await self._router(scope, receive, send)


async def forward_other(gateway: LlmGateway, own_paths: Collection[str], exchange: HttpExchange) -> None:
    """Forward a request to a path that the gateway does not change, such as `/v1/embeddings`."""
    if exchange.path in own_paths:
        raise RequestFailed(f"{exchange.method} is not allowed here; send a POST request", 405, "invalid_request_error")
    upstreams = list_client_upstreams(gateway, exchange)
    model = "" if exchange.path.startswith(MODELS_PATH) else _find_model(exchange)
    upstream = gateway.find_named_upstream(exchange, upstreams)
    if model and upstream is None:
        upstream, sent_model, _ = gateway.upstreams.find_route(upstreams[0].api, model)
        if sent_model != model or exchange.model:
            exchange.body = serialize_json({**parse_request_body(exchange.body), "model": sent_model})
    upstream = upstream or gateway.choose_upstream(exchange, upstreams)
    check_profile_rights(exchange, upstream)
    await gateway.forward(exchange, upstream)


def _find_model(exchange: HttpExchange) -> str:
    """Return the model that a request names in its JSON body, or an empty string."""
    if exchange.model or not exchange.get_header("content-type").startswith("application/json"):
        return exchange.model
    body: Mapping[str, Any] = parse_request_body(exchange.body) if exchange.body else {}
    return str_or_empty(body.get("model"))
