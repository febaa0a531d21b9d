"""A client of ours: what it is shown, what it can do, and the way back to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, LOG_LEVEL_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from toolcrib.gateway.mcp.server.session import SessionState, is_single_list_client, log_level_rank
from toolcrib.gateway.mcp.upstream.log_levels import LOG_LEVELS
from toolcrib.gateway.mcp.upstream.sdk import (
    RequestContext,
    get_client_channel,
    get_connection,
    get_stdio_stream,
    strip_connection_keys,
)
from toolcrib.gateway.middleware import ANONYMOUS

_STATE_KEY: Final = "toolcrib"


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """The client that made a request, as long as that is being answered."""

    ctx: RequestContext
    profile: str | None

    @property
    def connection(self) -> Connection:
        """Its connection, which on a handshake outlasts the request."""
        return get_connection(self.ctx)

    @property
    def key(self) -> object:
        """Which client it is."""
        return get_stdio_stream(self.ctx) or self.state.key if self.is_stateless else self.state.key

    @property
    def is_stateless(self) -> bool:
        """Whether it speaks the protocol without a handshake."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def reads_list_once(self) -> bool:
        """Whether it is known to read the list of tools only once."""
        params = self.connection.client_params
        return bool(params and is_single_list_client(params.client_info.name))

    @property
    def lasts(self) -> bool:
        """Whether its connection outlasts the request."""
        return not self.is_stateless and self.connection.client_params is not None

    @property
    def caller(self) -> str:
        """Whose key it came with; nobody's where no keys are asked for."""
        request = self.ctx.request
        state = request.scope.get("state", {}) if isinstance(request, Request) else {}
        principal = state.get("principal", ANONYMOUS)
        return "" if principal is ANONYMOUS else str(principal.name)

    @property
    def state(self) -> SessionState:
        """What it has been shown."""
        return get_session_state(self.connection)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it can do when a server asks it."""
        given = self.connection.client_capabilities
        if given is None:
            return {}
        return given.model_dump(by_alias=True, mode="json", exclude_none=True)

    @property
    def forwarded_meta(self) -> dict[str, Any]:
        """What of the `_meta` of its request goes on to a server.

        Newer servers log only for requests that ask for it. An older client has asked once for all.
        """
        meta = strip_connection_keys((self.ctx.params or {}).get("_meta"))
        return meta if self.is_stateless else {LOG_LEVEL_META_KEY: self.state.min_log_level, **meta}

    async def send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ask it what a server wants to know, on the stream of its request."""
        if self.is_stateless:
            raise MCPError(
                INVALID_REQUEST,
                f"this server asks for {method} in the way of older clients, which this one is not",
            )
        return await get_client_channel(self.ctx).send_raw_request(method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Tell it something, on the stream of its request."""
        if method == "notifications/message" and not self._wants_log_message(params):
            return
        await get_client_channel(self.ctx).notify(method, params)

    def _wants_log_message(self, params: Mapping[str, Any] | None) -> bool:
        if not self.is_stateless:
            return self.state.wants_notification("notifications/message", params)
        # Without a handshake each request says whether it wants to hear anything.
        meta = (self.ctx.params or {}).get("_meta") or {}
        least = meta.get(LOG_LEVEL_META_KEY)
        return least in LOG_LEVELS and log_level_rank(
            (params or {}).get("level")
        ) >= log_level_rank(least)

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Tell it how far its request has come, if it wants to know."""
        await get_client_channel(self.ctx).progress(progress, total, message)


def get_session_state(connection: Connection, initial: SessionState | None = None) -> SessionState:
    """What the client of a connection has been shown; what it was shown `before` there was one."""
    shown: SessionState = connection.state.setdefault(_STATE_KEY, initial or SessionState())
    return shown
