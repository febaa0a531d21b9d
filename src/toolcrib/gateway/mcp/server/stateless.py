"""One request by itself, without a handshake and without a session: what `curl` sends."""

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
    """The way back to a client that waits for one answer: what it is told is kept for that."""

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
        """Where the request came from."""
        return ServerMessageMetadata(request_context=self.request)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """There is no way to ask."""
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Kept for the answer, within bounds."""
        if len(self.notifications) >= MAX_NOTIFICATIONS:
            return
        note: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        self.notifications.append({**note, "params": dict(params)} if params else note)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Nobody is waiting for it."""


async def handle_single_request(
    router: McpRouter, message: Mapping[str, Any], request: Request
) -> list[dict[str, Any]]:
    """The messages that answer one request: what there was to tell, then the result or the error."""
    once = _SingleRequestContext(message.get("id"), request)
    params = message.get("params")
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    try:
        answer["result"] = await serve_one(
            router.server,
            once,
            str(message["method"]),
            params if isinstance(params, Mapping) else None,
            connection=Connection.from_envelope(LATEST_HANDSHAKE_VERSION, None, None),
            lifespan_state=None,
        )
    except Exception as fault:
        error = modern_error_data(fault)
        answer["error"] = error.model_dump(by_alias=True, mode="json", exclude_none=True)
    return [*once.notifications, answer]
