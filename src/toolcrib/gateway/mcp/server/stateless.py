"""Single requests without a handshake or a session, such as those that `curl` sends."""

from __future__ import annotations

from collections.abc import Mapping
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
from starlette.requests import Request

from toolcrib.gateway.mcp.server.router import McpRouter

MAX_NOTIFICATIONS: Final = 100


@dataclass
class _SingleRequestContext:
    """The channel back to the client of a single request; it collects the notifications."""

    request_id: str | int | None
    request: Request
    notifications: list[dict[str, Any]] = field(default_factory=list)
    transport: TransportContext = field(
        default_factory=lambda: TransportContext(kind="http", can_send_request=False)
    )
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)
    can_send_request: bool = False

    @property
    def message_metadata(self) -> ServerMessageMetadata:
        return ServerMessageMetadata(request_context=self.request)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        if len(self.notifications) >= MAX_NOTIFICATIONS:
            return
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        self.notifications.append({**message, "params": dict(params)} if params else message)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Ignore progress: the client reads only the final response."""


async def handle_single_request(
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
