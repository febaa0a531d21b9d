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

from toolcrib.gateway.mcp.server.session import Shown, is_frozen, rank
from toolcrib.gateway.mcp.upstream.log_levels import LEVELS
from toolcrib.gateway.mcp.upstream.sdk import (
    Context,
    channel_of,
    connection_of,
    stream_of,
    without_connection_keys,
)
from toolcrib.gateway.middleware import ANYONE

_STATE: Final = "toolcrib"


@dataclass(frozen=True, slots=True)
class Client:
    """The client that made a request, as long as that is being answered."""

    ctx: Context
    profile: str | None

    @property
    def connection(self) -> Connection:
        """Its connection, which on a handshake outlasts the request."""
        return connection_of(self.ctx)

    @property
    def key(self) -> object:
        """Which client it is."""
        return stream_of(self.ctx) or self.shown.key if self.is_modern else self.shown.key

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the protocol without a handshake."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def list_is_frozen(self) -> bool:
        """Whether it is known to read the list of tools only once."""
        params = self.connection.client_params
        return bool(params and is_frozen(params.client_info.name))

    @property
    def lasts(self) -> bool:
        """Whether its connection outlasts the request."""
        return not self.is_modern and self.connection.client_params is not None

    @property
    def caller(self) -> str:
        """Whose key it came with; nobody's where no keys are asked for."""
        request = self.ctx.request
        state = request.scope.get("state", {}) if isinstance(request, Request) else {}
        principal = state.get("principal", ANYONE)
        return "" if principal is ANYONE else str(principal.name)

    @property
    def shown(self) -> Shown:
        """What it has been shown."""
        return shown_to(self.connection)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it can do when a server asks it."""
        given = self.connection.client_capabilities
        if given is None:
            return {}
        return given.model_dump(by_alias=True, mode="json", exclude_none=True)

    @property
    def meta(self) -> dict[str, Any]:
        """What of the `_meta` of its request goes on to a server.

        Newer servers log only for requests that ask for it. An older client has asked once for all.
        """
        meta = without_connection_keys((self.ctx.params or {}).get("_meta"))
        return meta if self.is_modern else {LOG_LEVEL_META_KEY: self.shown.least, **meta}

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ask it what a server wants to know, on the stream of its request."""
        if self.is_modern:
            raise MCPError(
                INVALID_REQUEST,
                f"this server asks for {method} in the way of older clients, which this one is not",
            )
        return await channel_of(self.ctx).send_raw_request(method, params)

    async def tell(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Tell it something, on the stream of its request."""
        if method == "notifications/message" and not self._wants_message(params):
            return
        await channel_of(self.ctx).notify(method, params)

    def _wants_message(self, params: Mapping[str, Any] | None) -> bool:
        if not self.is_modern:
            return self.shown.wants("notifications/message", params)
        # Without a handshake each request says whether it wants to hear anything.
        meta = (self.ctx.params or {}).get("_meta") or {}
        least = meta.get(LOG_LEVEL_META_KEY)
        return least in LEVELS and rank((params or {}).get("level")) >= rank(least)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Tell it how far its request has come, if it wants to know."""
        await channel_of(self.ctx).progress(progress, total, message)


def shown_to(connection: Connection, before: Shown | None = None) -> Shown:
    """What the client of a connection has been shown; what it was shown `before` there was one."""
    shown: Shown = connection.state.setdefault(_STATE, before or Shown())
    return shown
