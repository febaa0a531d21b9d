"""MCP over streamable HTTP at `/mcp`, and at `/mcp/p/<profile>` for one access profile.

A single request without a handshake or a session, such as `curl` sends, is handled here. All other
requests go to the SDK's session manager.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import modern_error_data, serve_one
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from toolcrib.config.settings import HttpConfig
from toolcrib.gateway.auth import get_principal
from toolcrib.gateway.mcp.server.router import QUOTA_EXCEEDED_CODE, McpRouter
from toolcrib.gateway.mcp.server.sessions.session_manager import SESSION_HEADER, ReplicaSessionManager, replay_body
from toolcrib.gateway.mcp.upstream.sdk import RequestContext

PROFILE_SCOPE_KEY: Final = "toolcrib.profile"
MAX_NOTIFICATIONS: Final = 100
# A handshake is stored with its session.
MAX_HANDSHAKE_BYTES: Final = 64 << 10
STORE_SESSIONS_SECONDS: Final = 5.0
_EVENT_STREAM: Final = "text/event-stream"


class McpEndpoint:
    """The ASGI application of the MCP gateway."""

    def __init__(self, router: McpRouter, http: HttpConfig) -> None:
        self._router = router
        self._manager = ReplicaSessionManager(router.server, router.sessions, http, router.restore_connection)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run the session manager; the routes work only inside this context."""
        if self._router.replicas.is_shared:
            await self._router.sessions.load_copies()
        async with self._manager.run(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._store_sessions)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _store_sessions(self) -> None:
        while True:
            await anyio.sleep(STORE_SESSIONS_SECONDS)
            await self._router.sessions.flush(self._manager.take_used_sessions())

    def routes(self) -> list[Route]:
        """Return the routes of this endpoint."""
        return [Route("/mcp", self), Route("/mcp/p/{profile}", self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        request = Request(scope, receive)
        profile, refusal = _select_profile(scope)
        if refusal:
            await JSONResponse({"error": refusal}, 403)(scope, receive, send)
            return
        scope[PROFILE_SCOPE_KEY] = profile
        if request.method == "POST" and not request.headers.get(SESSION_HEADER):
            body = await request.body()
            if len(body) > MAX_HANDSHAKE_BYTES and _is_handshake(body):
                refusal = f"the handshake has more than {MAX_HANDSHAKE_BYTES:,} bytes; send fewer capabilities"
                await JSONResponse({"error": refusal}, 413)(scope, receive, send)
                return
            message = _parse_single_request(body, request)
            if message is not None:
                messages = await _handle_single_request(self._router, message, request)
                await _build_response(messages, request)(scope, receive, send)
                return
            receive = replay_body(body, receive)
        await self._manager.handle_request(scope, receive, send)


def get_request_profile(ctx: RequestContext) -> str | None:
    """Return the access profile of the HTTP request that carried an MCP request."""
    return ctx.request.scope.get(PROFILE_SCOPE_KEY) if isinstance(ctx.request, Request) else None


def _select_profile(scope: Scope) -> tuple[str | None, str]:
    """Return the profile of the URL or the API key, or why the request is refused.

    A key that has a profile gives access to no other.
    """
    from_url = scope.get("path_params", {}).get("profile")
    from_key = get_principal(scope).profile
    if from_url and from_key and from_url != from_key:
        return None, "this key does not give access to this profile; use the key's own profile"
    return from_key or from_url, ""


def _parse_single_request(body: bytes, request: Request) -> Mapping[str, Any] | None:
    """Return the JSON-RPC request in a body, or None if the SDK has to handle it.

    Handshakes, notifications and requests with a protocol version header go to the SDK.
    """
    if request.headers.get("mcp-protocol-version"):
        return None
    try:
        # Stricter than `json.loads`: NaN and infinity could not be forwarded as JSON.
        message: Any = from_json(body, allow_inf_nan=False)
    except ValueError:
        return None
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return None
    is_request = isinstance(message.get("id"), str | int) and message["method"] != "initialize"
    return message if is_request else None


def _is_handshake(body: bytes) -> bool:
    try:
        message: Any = from_json(body)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get("method") == "initialize"


@dataclass
class _SingleRequestContext:
    """The channel back to the client of a single request; it collects the notifications."""

    request_id: str | int | None
    request: Request
    notifications: list[dict[str, Any]] = field(default_factory=list)
    transport: TransportContext = field(default_factory=lambda: TransportContext(kind="http", can_send_request=False))
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)
    can_send_request: bool = False

    @property
    def message_metadata(self) -> ServerMessageMetadata:
        return ServerMessageMetadata(request_context=self.request)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if len(self.notifications) >= MAX_NOTIFICATIONS:
            return
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        self.notifications.append({**message, "params": dict(params)} if params else message)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Ignore progress: the client reads only the final response."""


async def _handle_single_request(
    router: McpRouter, message: Mapping[str, Any], request: Request
) -> list[dict[str, Any]]:
    """Handle one request; return its notifications, then its response."""
    context = _SingleRequestContext(message.get("id"), request)
    params = message.get("params")
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    try:
        response["result"] = await serve_one(
            router.server,
            context,
            str(message["method"]),
            params if isinstance(params, Mapping) else None,
            connection=Connection.from_envelope(LATEST_HANDSHAKE_VERSION, None, None),
            lifespan_state=None,
        )
    except Exception as exception:
        error = modern_error_data(exception)
        response["error"] = error.model_dump(by_alias=True, mode="json", exclude_none=True)
    return [*context.notifications, response]


def _build_response(messages: list[dict[str, Any]], request: Request) -> Response:
    error = messages[-1].get("error")
    if error and error["code"] == QUOTA_EXCEEDED_CODE:
        headers = {"retry-after": str(error["data"]["retryAfterSeconds"])}
        return Response(_encode_json(messages[-1]), 429, headers, "application/json")
    if len(messages) == 1 or _EVENT_STREAM not in request.headers.get("accept", ""):
        return Response(_encode_json(messages[-1]), media_type="application/json")
    events = b"".join(b"data: %b\n\n" % _encode_json(message) for message in messages)
    return Response(events, media_type=_EVENT_STREAM)


def _encode_json(message: Mapping[str, Any]) -> bytes:
    # Some servers return NaN or infinity, which JSON does not have.
    return to_json(message, inf_nan_mode="null")
