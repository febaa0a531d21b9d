"""Connected clients: their session state and the channel back to them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, LOG_LEVEL_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolcrib.config.server_settings import Instances
from toolcrib.gateway.auth import Principal, get_principal
from toolcrib.gateway.mcp.upstream.sdk import (
    RequestContext,
    get_client_channel,
    get_connection,
    get_stdio_stream,
    strip_connection_keys,
)
from toolcrib.gateway.mcp.upstream.subscriptions import LOG_LEVELS
from toolcrib.session.session import Session

# Prefixes of the names of clients that read the tool list once and ignore change notifications.
SINGLE_LIST_CLIENTS: Final = ("claude-code", "cursor", "windsurf", "codex")
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
# The error code for a client that lacks a required capability.
MISSING_CAPABILITY: Final = -32021
_STATE_KEY: Final = "toolcrib"


@dataclass
class SessionState:
    """What the gateway remembers of a client for as long as its connection lasts."""

    # Tools that searches have revealed in dynamic mode; None before the first search.
    tool_session: Session | None = None
    # Subscribed resource URIs, each with the servers that may own it.
    subscriptions: dict[str, list[str]] = field(default_factory=dict)
    # Without a level the client receives every log message.
    log_level: str | None = None
    profile: str | None = None
    has_handshake: bool = False
    # The name of the session in the audit log. A stateless request has no session.
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    has_session: bool = False
    # Identifies the client, also in tables that outlive its connection.
    key: object = field(default_factory=object)
    pending_notifications: int = 0

    @property
    def min_log_level(self) -> str:
        """The lowest level of log messages that this client receives."""
        return self.log_level or LOG_LEVELS[0]

    @property
    def shared_part(self) -> tuple[object, ...]:
        """What the replicas share of the state; it is another value after a change."""
        return (self.tool_session, self.log_level, frozenset(self.subscriptions))

    def to_dict(self) -> dict[str, Any]:
        """Return what the replicas share, as JSON."""
        return {
            "id": self.id,
            "profile": self.profile,
            "log_level": self.log_level,
            "subscriptions": sorted(self.subscriptions),
            "tools": None if self.tool_session is None else self.tool_session.to_dict(),
        }

    def wants_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Return whether the client has subscribed to this notification."""
        content = params or {}
        if method == "notifications/resources/updated":
            return content.get("uri") in self.subscriptions
        if method == "notifications/message":
            return _rank_log_level(content.get("level")) >= _rank_log_level(self.min_log_level)
        return True


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """The client that sent a request, for as long as the request is handled."""

    ctx: RequestContext
    profile: str | None
    # Whether the gateway handles tasks for the client; None leaves them to the client.
    handles_tasks: bool | None = None

    @property
    def connection(self) -> Connection:
        """The client's connection. After a handshake it outlives the request."""
        return get_connection(self.ctx)

    @property
    def state(self) -> SessionState:
        """The session state of the client's connection."""
        return get_session_state(self.connection)

    @property
    def key(self) -> object:
        """A value that identifies the client."""
        return (get_stdio_stream(self.ctx) if self.is_stateless else None) or self.state.key

    @property
    def name(self) -> str:
        """The name that the client's program has declared, in lower case."""
        params = self.connection.client_params
        return params.client_info.name.lower() if params else ""

    @property
    def principal(self) -> Principal:
        """The sender of the client's request."""
        return get_principal(getattr(self.ctx.request, "scope", None) or {})

    @property
    def owner(self) -> str:
        """Identifies the caller in the store: its access profile and its API key, if it has them."""
        return f"{self.profile or ''}/{self.principal.key_hash}"

    @property
    def is_stateless(self) -> bool:
        """Whether the client uses the stateless protocol revision."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def reads_list_once(self) -> bool:
        """Whether the client is known to read the tool list only once."""
        return self.name.startswith(SINGLE_LIST_CLIENTS)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client has declared."""
        capabilities = self.connection.client_capabilities
        declared: dict[str, Any] = {}
        if capabilities is not None:
            declared = capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
        extensions = dict(declared.get("extensions", {}))
        if self.handles_tasks:
            extensions[TASKS_EXTENSION] = {}
        elif self.handles_tasks is False or not self.is_stateless:
            # Older revisions have no tasks, and scripts need results.
            extensions.pop(TASKS_EXTENSION, None)
        return {**declared, "extensions": extensions} if extensions or "extensions" in declared else declared

    @property
    def supports_tasks(self) -> bool:
        """Whether the client accepts a task in place of a result."""
        return TASKS_EXTENSION in self.capabilities.get("extensions", {})

    def require_tasks(self) -> None:
        """Raise the error that MCP defines unless the client supports tasks."""
        if not self.supports_tasks:
            required: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
            raise MCPError(MISSING_CAPABILITY, "Missing required client capability", required)

    def get_instance_key(self, instances: Instances) -> object:
        """Return what identifies the client's instance of a server.

        A stateless client on HTTP has no session, so its user identifies it.
        """
        if instances == "session":
            return self.state.key if self.state.has_session else get_stdio_stream(self.ctx) or self.owner
        return self.owner

    def with_meta(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return request parameters with the `_meta` that is forwarded to an upstream server.

        Stateless servers only log for requests that ask for it in `_meta`. A client with a
        handshake sets its level once, so the level is added to each of its requests.
        """
        meta = strip_connection_keys((self.ctx.params or {}).get("_meta"))
        if not self.is_stateless:
            meta = {LOG_LEVEL_META_KEY: self.state.min_log_level, **meta}
        forwarded = {key: value for key, value in params.items() if key != "_meta"}
        return {**forwarded, "_meta": meta} if meta else forwarded

    async def send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request of a server to the client and return the client's result."""
        if self.is_stateless:
            raise MCPError(
                INVALID_REQUEST, f"the server sent {method} as a request, which stateless clients do not support"
            )
        return await get_client_channel(self.ctx).send_raw_request(method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Send a notification on the stream of the client's request."""
        if method == "notifications/message" and not self._wants_log_message(params):
            return
        await get_client_channel(self.ctx).notify(method, params)

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report the progress of the client's request, if the client asked for it."""
        await get_client_channel(self.ctx).progress(progress, total, message)

    def _wants_log_message(self, params: Mapping[str, Any] | None) -> bool:
        if not self.is_stateless:
            return self.state.wants_notification("notifications/message", params)
        # A stateless client asks for log messages in each request.
        meta = (self.ctx.params or {}).get("_meta") or {}
        level = meta.get(LOG_LEVEL_META_KEY)
        if level not in LOG_LEVELS:
            return False
        return _rank_log_level((params or {}).get("level")) >= _rank_log_level(level)


def get_session_state(connection: Connection) -> SessionState:
    """Return the session state of a connection, creating it on first use."""
    state: SessionState | None = connection.state.get(_STATE_KEY)
    return connection.state.setdefault(_STATE_KEY, SessionState()) if state is None else state


def _rank_log_level(level: object) -> int:
    return LOG_LEVELS.index(level) if level in LOG_LEVELS else len(LOG_LEVELS)
