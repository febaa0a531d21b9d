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

from toolcrib.config.settings import Key
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.api_errors import either_error
from toolcrib.gateway.llm.gateway import Gateway, OnTreated
from toolcrib.gateway.llm.response_headers import Saved
from toolcrib.gateway.llm.routes import routes as model_routes
from toolcrib.gateway.mcp.admin.api import Api
from toolcrib.gateway.mcp.admin.metrics import Figures
from toolcrib.gateway.mcp.admin.openapi import description
from toolcrib.gateway.mcp.admin.status import reasons
from toolcrib.gateway.mcp.gateway import running
from toolcrib.gateway.mcp.server.http import McpDoor, profile_of
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.gateway.mcp.upstream.startup import OnStarted
from toolcrib.gateway.metrics import CONTENT_TYPE, Metrics
from toolcrib.gateway.middleware import ANYONE, Guard
from toolcrib.hub.hub import Service


def http_app(service: Service, on_started: OnStarted | None = None) -> Guard:
    """The application that `toolcrib serve` runs, and the guard before it."""
    metrics = Metrics()
    app = doors(service, metrics, on_started)
    return Guard(app, service.config.http, _Keys(service), metrics=metrics)


class _Keys:
    """The keys of the moment: they change with the configuration."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def keys(self) -> tuple[Key, ...]:
        """Those that open the gateway."""
        return self._service.config.auth.keys


def doors(service: Service, metrics: Metrics, on_started: OnStarted | None = None) -> ASGIApp:
    """All doors, with no guard before them."""
    return _Owned(_routed(service, metrics, on_started))


class _Owned:
    """Says whose a request is in the way the SDK knows: a session stays with who opened it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        principal = scope.get("state", {}).get("principal")
        if principal is not None and principal is not ANYONE:
            owner = f"{principal.name} {principal.profile or ''}"
            token = AccessToken(token="", client_id=owner, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        await self._app(scope, receive, send)


def _routed(service: Service, metrics: Metrics, on_started: OnStarted | None) -> Starlette:
    fronts: list[Front] = []
    figures = Figures(metrics)
    keys = service.config.auth.keys
    model = Gateway(
        service.config.models,
        switches={key.name: key.tool_search for key in keys if key.tool_search},
        max_body_bytes=service.config.http.max_body_bytes,
        on_treated=_counting(service, metrics),
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with (
            running(service, profile_of, on_started) as front,
            _open(model),
        ):
            door = McpDoor(front, service.config.http)
            fronts.append(front)
            async with door.run():
                app.router.routes.extend(door.routes())
                yield

    async def health(request: Request) -> JSONResponse:
        # Everybody may ask; only who may use the gateway is told about its servers, and only of his.
        principal = request.scope.get("state", {}).get("principal")
        is_guest = service.config.auth.keys and principal in (None, ANYONE)
        view = service.view(getattr(principal, "profile", None))
        why = await anyio.to_thread.run_sync(reasons, fronts[0], view)
        told = [] if is_guest else why
        return JSONResponse({"status": "degraded" if why else "ok", "reasons": told})

    async def prometheus(request: Request) -> Response:
        principal = request.scope.get("state", {}).get("principal")
        if getattr(principal, "profile", None):
            return JSONResponse({"error": "figures of all servers need a key of no profile"}, 403)
        await anyio.to_thread.run_sync(figures.refresh, fronts[0])
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def openapi(request: Request) -> JSONResponse:
        return JSONResponse(description())

    api = Api(lambda: fronts[0])
    routes: list[BaseRoute] = [
        Route("/health", health),
        Route("/metrics", prometheus),
        Route("/openapi.json", openapi),
        *api.routes(),
        *(model_routes(model) if service.config.models.upstreams else ()),
    ]
    handlers = {HTTPException: _refused}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


async def _refused(request: Request, fault: Exception) -> JSONResponse:
    """What is not there, or not to be asked so, is said in the form of the errors of its door."""
    assert isinstance(fault, HTTPException)
    status = fault.status_code
    says = f"{request.method} is not answered here" if status == 405 else "there is nothing here"
    if not request.url.path.startswith("/v1/"):
        told = {"error": f"{says}; /openapi.json tells what there is"}
        return JSONResponse(told, status, fault.headers)
    says += "; /v1/openapi.json tells what there is, if `models` are configured"
    kind = "invalid_request_error" if status == 405 else ""
    return JSONResponse(either_error(RequestFailed(says, status, kind)), status, fault.headers)


def _counting(service: Service, metrics: Metrics) -> OnTreated:
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

    def count(saved: Saved) -> None:
        requests.add(upstream=saved.upstream, treatment=saved.treatment)
        if saved.treatment in ("search", "transparent"):
            tokens.add(saved.tokens, upstream=saved.upstream)
            service.count(model_requests=1, model_tokens_saved=saved.tokens)

    return count


@asynccontextmanager
async def _open(model: Gateway) -> AsyncIterator[None]:
    await model.open()
    try:
        yield
    finally:
        await model.close()
