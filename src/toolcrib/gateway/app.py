"""The HTTP application: MCP, the LLM APIs, the admin API, health and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Send

from toolcrib.errors import RequestFailed
from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.auth import ANONYMOUS, Authenticator, get_principal
from toolcrib.gateway.browser_sessions import BrowserSessions
from toolcrib.gateway.http_server import Drain, DrainMiddleware
from toolcrib.gateway.keys import KeyRing
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, MemorySharing
from toolcrib.gateway.llm.endpoint import ResponseHeaders, render_combined_error
from toolcrib.gateway.llm.gateway import LlmGateway, OnRequest
from toolcrib.gateway.llm.routes import build_llm_routes
from toolcrib.gateway.llm.usage import UsageMeter
from toolcrib.gateway.login import LoginApi
from toolcrib.gateway.mcp.admin.access_api import add_access_routes
from toolcrib.gateway.mcp.admin.activity_api import add_activity_routes
from toolcrib.gateway.mcp.admin.api import add_admin_routes, list_problems
from toolcrib.gateway.mcp.admin.api_routes import ApiRoutes
from toolcrib.gateway.mcp.admin.llm_api import add_llm_routes
from toolcrib.gateway.mcp.admin.metrics import GatewayMetrics
from toolcrib.gateway.mcp.admin.overview_api import add_overview_routes
from toolcrib.gateway.mcp.gateway import run_gateway
from toolcrib.gateway.mcp.server.http import McpEndpoint, get_request_profile
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.pool import OnServerStart
from toolcrib.gateway.metrics import CONTENT_TYPE, MetricsRegistry
from toolcrib.gateway.middleware import SecurityMiddleware
from toolcrib.gateway.openapi import load_openapi
from toolcrib.gateway.replicas import ReplicaChannel
from toolcrib.hub.hub import Hub
from toolcrib.storage.llm_usage import LlmUsage
from toolcrib.storage.shared_values import ValueKind

# Paths of requests from clients whose base URL lacks `/v1`.
_LLM_PATHS: Final = ("/chat/completions", "/messages", "/responses", "/embeddings", "/completions", "/models")


def build_http_app(
    hub: Hub,
    on_started: OnServerStart | None = None,
    *,
    pages: Sequence[BaseRoute] = (),
    sessions: BrowserSessions | None = None,
    drain: Drain | None = None,
) -> SecurityMiddleware:
    """Return the application of `toolcrib serve`. Browsers need the `pages` of the console, and `sessions`."""
    metrics = MetricsRegistry()
    services = AppServices(AuditLog(hub), KeyRing(hub), drain or Drain())
    # The keys change with the configuration, and at run time.
    auth = Authenticator(services.keys.get_keys, sessions)
    login = LoginApi(sessions, auth.get_keys, services.audit).routes() if sessions else []
    app = DrainMiddleware(build_unprotected_app(hub, metrics, on_started, [*login, *pages], services), services.drain)
    return SecurityMiddleware(app, hub.config.http, auth, metrics=metrics)


class AppServices(NamedTuple):
    """The audit log, the keys and the shutdown of an application."""

    audit: AuditLog
    keys: KeyRing
    drain: Drain


def build_unprotected_app(
    hub: Hub,
    metrics: MetricsRegistry,
    on_started: OnServerStart | None = None,
    pages: Sequence[BaseRoute] = (),
    services: AppServices | None = None,
) -> ASGIApp:
    """Return the application without authentication and limits."""
    services = services or AppServices(AuditLog(hub), KeyRing(hub), Drain())
    return _PrincipalMiddleware(_build_starlette_app(hub, metrics, on_started, pages, services), services.keys)


class _PrincipalMiddleware:
    """Counts the use of keys, and passes the principal to the MCP SDK, which lets only its owner use a session."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        principal = get_principal(scope)
        if principal is not ANONYMOUS:
            self._keys.count_use(principal)
            owner = f"{principal.name} {principal.profile or ''}"
            token = AccessToken(token="", client_id=owner, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        await self._app(scope, receive, send)


def _build_starlette_app(
    hub: Hub,
    metrics: MetricsRegistry,
    on_started: OnServerStart | None,
    pages: Sequence[BaseRoute],
    services: AppServices,
) -> Starlette:
    audit, keys, drain = services
    audit.before_flush.append(keys.flush)
    # Set once the gateway runs, before the first request.
    routers: list[McpRouter] = []
    meter = UsageMeter(hub.store, _build_token_counter(metrics))
    audit.before_flush.append(meter.flush)
    llm_gateway = LlmGateway(
        lambda: hub.config.llm_gateway,
        get_keys=keys.get_keys,
        on_request=_build_request_counter(hub, metrics),
        meter=meter,
    )
    llm_gateway.on_turn = audit.record_request

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with (
            run_gateway(hub, get_request_profile, on_started, audit) as router,
            _open(llm_gateway),
            _share_memory(hub, llm_gateway, router.replicas),
        ):
            endpoint = McpEndpoint(router, hub.config.http)
            llm_gateway.quotas = (router.tool_handlers.quotas, lambda: hub.profiles)
            routers.append(router)
            drain.on_end_streams.append(router.end_streams)
            async with endpoint.run():
                # First, because a request is compared with one route after the other.
                app.router.routes[:0] = endpoint.routes()
                yield

    api = ApiRoutes(lambda: routers[0])
    add_admin_routes(api)
    add_overview_routes(api)
    add_activity_routes(api)
    add_access_routes(api, hub, keys)
    add_llm_routes(api)
    routes: list[BaseRoute] = [
        *_StatusEndpoints(hub, services, metrics, lambda: routers[0]).routes(),
        *api.routes,
        *build_llm_routes(llm_gateway),
        *pages,
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _render_http_error})


class _StatusEndpoints:
    """The state of the gateway for load balancers and monitoring."""

    def __init__(
        self, hub: Hub, services: AppServices, metrics: MetricsRegistry, get_router: Callable[[], McpRouter]
    ) -> None:
        self._hub, self._services, self._get_router = hub, services, get_router
        self._registry, self._metrics = metrics, GatewayMetrics(metrics)

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
        ]

    async def health(self, request: Request) -> JSONResponse:
        """Return whether a server has a problem."""
        # Anonymous clients of a gateway with keys see the status but not the reasons.
        principal = get_principal(request.scope)
        is_restricted = self._services.keys.get_keys() and principal is ANONYMOUS
        view = self._hub.get_view(principal.profile)
        problems = await anyio.to_thread.run_sync(list_problems, self._get_router(), view)
        return JSONResponse({"status": "degraded" if problems else "ok", "reasons": [] if is_restricted else problems})

    async def ready(self, request: Request) -> JSONResponse:
        """Return whether the gateway takes requests."""
        starting = [name for name, error in self._get_router().pool.unlisted_servers().items() if not error]
        status = "draining" if self._services.drain.is_started else "starting" if starting else "ready"
        # Without its database a gateway still searches and calls, so it stays ready.
        store = "ok" if self._hub.store.is_available else "unavailable"
        return JSONResponse({"status": status, "store": store}, 200 if status == "ready" else 503)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in the format of Prometheus."""
        if get_principal(request.scope).profile:
            message = "metrics cover all servers and need a key without a profile"
            return JSONResponse({"error": message}, 403)
        await anyio.to_thread.run_sync(self._metrics.refresh, self._get_router())
        return Response(self._registry.render(), headers={"content-type": CONTENT_TYPE})

    async def openapi(self, request: Request) -> JSONResponse:
        """Return the description of the API."""
        return JSONResponse(load_openapi("admin"))


async def _render_http_error(request: Request, error: Exception) -> JSONResponse:
    """Return an unknown path or method as an error in the format of its API."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    message = f"{request.method} is not allowed here" if status == 405 else "unknown path"
    if request.url.path.startswith(_LLM_PATHS):
        message += "; the LLM APIs are below /v1, so add /v1 to the base URL of your client"
        body = render_combined_error(RequestFailed(message, status))
    elif not request.url.path.startswith("/v1/"):
        body = {"error": f"{message}; see /openapi.json"}
    else:
        message += "; see /v1/openapi.json"
        error_type = "invalid_request_error" if status == 405 else ""
        body = render_combined_error(RequestFailed(message, status, error_type))
    return JSONResponse(body, status, error.headers)


def _build_request_counter(hub: Hub, metrics: MetricsRegistry) -> OnRequest:
    """Return a function that counts LLM requests in the metrics and in the store."""
    requests = metrics.counter(
        "toolcrib_model_requests_total", "Requests to LLMs by upstream and treatment.", "upstream", "treatment"
    )
    tokens = metrics.counter("toolcrib_model_tokens_saved_total", "Estimated tokens not sent to LLMs.", "upstream")

    def count(headers: ResponseHeaders) -> None:
        requests.add(upstream=headers.upstream, treatment=headers.treatment)
        if headers.treatment in ("search", "transparent"):
            tokens.add(headers.saved_tokens, upstream=headers.upstream)
            hub.add_counts(model_requests=1, model_tokens_saved=headers.saved_tokens)

    return count


def _build_token_counter(metrics: MetricsRegistry) -> Callable[[LlmUsage], None]:
    """Return a function that counts the tokens of LLM requests in the metrics."""
    requests = metrics.counter("toolcrib_llm_requests_total", "Requests to LLMs by key and model.", "key", "model")
    tokens = metrics.counter("toolcrib_llm_tokens_total", "Tokens by key, model and kind.", "key", "model", "kind")

    def count(usage: LlmUsage) -> None:
        requests.add(key=usage.key, model=usage.model)
        for kind in ("input", "output", "cached", "saved"):
            tokens.add(getattr(usage, f"{kind}_tokens"), kind=kind, key=usage.key, model=usage.model)

    return count


@asynccontextmanager
async def _share_memory(hub: Hub, llm_gateway: LlmGateway, replicas: ReplicaChannel) -> AsyncIterator[None]:
    """Share the conversation memory with other replicas."""
    memories: dict[ValueKind, ConversationMemory] = {
        "conversation": llm_gateway.memory,
        "response": llm_gateway.response_ids,
    }
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(MemorySharing(hub.store, replicas, memories).run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _open(llm_gateway: LlmGateway) -> AsyncIterator[None]:
    await llm_gateway.open()
    try:
        yield
    finally:
        await llm_gateway.close()
