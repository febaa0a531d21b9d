"""Every HTTP door in one application: MCP, the model APIs, and what tells how it is doing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Send

from toolcrib.config.settings import ApiKey
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import ResponseHeaders, render_combined_error
from toolcrib.gateway.llm.gateway import LlmGateway, OnRequest
from toolcrib.gateway.llm.routes import build_llm_routes as model_routes
from toolcrib.gateway.mcp.admin.api import AdminApi
from toolcrib.gateway.mcp.admin.metrics import GatewayMetrics
from toolcrib.gateway.mcp.admin.status import list_problems
from toolcrib.gateway.mcp.gateway import run_gateway
from toolcrib.gateway.mcp.server.http import McpEndpoint, get_request_profile
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.pool import OnServerStart
from toolcrib.gateway.metrics import CONTENT_TYPE, MetricsRegistry
from toolcrib.gateway.middleware import ANONYMOUS, SecurityMiddleware
from toolcrib.gateway.openapi import load_openapi
from toolcrib.hub.hub import Hub


def build_http_app(service: Hub, on_started: OnServerStart | None = None) -> SecurityMiddleware:
    """The application that `toolcrib serve` runs, and the guard before it."""
    metrics = MetricsRegistry()
    app = build_unprotected_app(service, metrics, on_started)
    return SecurityMiddleware(app, service.config.http, _ConfiguredKeys(service), metrics=metrics)


class _ConfiguredKeys:
    """The keys of the moment: they change with the configuration."""

    def __init__(self, service: Hub) -> None:
        self._service = service

    @property
    def keys(self) -> tuple[ApiKey, ...]:
        """Those that open the gateway."""
        return self._service.config.auth.keys


def build_unprotected_app(
    service: Hub, metrics: MetricsRegistry, on_started: OnServerStart | None = None
) -> ASGIApp:
    """All doors, with no guard before them."""
    return _SessionOwnerMiddleware(_build_starlette_app(service, metrics, on_started))


class _SessionOwnerMiddleware:
    """Says whose a request is in the way the SDK knows: a session stays with who opened it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        principal = scope.get("state", {}).get("principal")
        if principal is not None and principal is not ANONYMOUS:
            owner = f"{principal.name} {principal.profile or ''}"
            token = AccessToken(token="", client_id=owner, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        await self._app(scope, receive, send)


def _build_starlette_app(
    service: Hub, metrics: MetricsRegistry, on_started: OnServerStart | None
) -> Starlette:
    fronts: list[McpRouter] = []
    figures = GatewayMetrics(metrics)
    keys = service.config.auth.keys
    model = LlmGateway(
        service.config.llm_gateway,
        switches={key.name: key.tool_search for key in keys if key.tool_search},
        max_body_bytes=service.config.http.max_body_bytes,
        on_request=_build_request_counter(service, metrics),
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with (
            run_gateway(service, get_request_profile, on_started) as front,
            _open(model),
        ):
            door = McpEndpoint(front, service.config.http)
            fronts.append(front)
            async with door.run():
                app.router.routes.extend(door.routes())
                yield

    async def health(request: Request) -> JSONResponse:
        # Everybody may ask; only who may use the gateway is told about its servers, and only of his.
        principal = request.scope.get("state", {}).get("principal")
        is_guest = service.config.auth.keys and principal in (None, ANONYMOUS)
        view = service.get_view(getattr(principal, "profile", None))
        why = await anyio.to_thread.run_sync(list_problems, fronts[0], view)
        told = [] if is_guest else why
        return JSONResponse({"status": "degraded" if why else "ok", "reasons": told})

    async def prometheus(request: Request) -> Response:
        principal = request.scope.get("state", {}).get("principal")
        if getattr(principal, "profile", None):
            return JSONResponse({"error": "figures of all servers need a key of no profile"}, 403)
        await anyio.to_thread.run_sync(figures.refresh, fronts[0])
        return Response(metrics.render(), headers={"content-type": CONTENT_TYPE})

    async def openapi(request: Request) -> JSONResponse:
        return JSONResponse(load_openapi("admin"))

    api = AdminApi(lambda: fronts[0])
    routes: list[BaseRoute] = [
        Route("/health", health),
        Route("/metrics", prometheus),
        Route("/openapi.json", openapi),
        *api.routes(),
        *(model_routes(model) if service.config.llm_gateway.upstreams else ()),
    ]
    handlers = {HTTPException: _render_http_error}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


async def _render_http_error(request: Request, fault: Exception) -> JSONResponse:
    """What is not there, or not to be asked so, is said in the form of the errors of its door."""
    assert isinstance(fault, HTTPException)
    status = fault.status_code
    says = f"{request.method} is not answered here" if status == 405 else "there is nothing here"
    if not request.url.path.startswith("/v1/"):
        told = {"error": f"{says}; /openapi.json tells what there is"}
        return JSONResponse(told, status, fault.headers)
    says += "; /v1/openapi.json tells what there is, if `models` are configured"
    kind = "invalid_request_error" if status == 405 else ""
    return JSONResponse(
        render_combined_error(RequestFailed(says, status, kind)), status, fault.headers
    )


def _build_request_counter(service: Hub, metrics: MetricsRegistry) -> OnRequest:
    """Counts what the model gateway does: by upstream for Prometheus, in all for the store."""
    requests = metrics.counter(
        "toolcrib_model_requests_total",
        "Requests to models by upstream and treatment.",
        "upstream",
        "treatment",
    )
    tokens = metrics.counter(
        "toolcrib_model_tokens_saved_total", "Tokens models were not sent, about.", "upstream"
    )

    def count(saved: ResponseHeaders) -> None:
        requests.add(upstream=saved.upstream, treatment=saved.treatment)
        if saved.treatment in ("search", "transparent"):
            tokens.add(saved.saved_tokens, upstream=saved.upstream)
            service.add_counts(model_requests=1, model_tokens_saved=saved.saved_tokens)

    return count


@asynccontextmanager
async def _open(model: LlmGateway) -> AsyncIterator[None]:
    await model.open()
    try:
        yield
    finally:
        await model.close()
