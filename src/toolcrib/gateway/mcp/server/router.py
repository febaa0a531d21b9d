"""The MCP server of the gateway: routes every client request to its handler.

The SDK handles handshakes, protocol revisions and streams. Requests are taken from it as plain
dicts, because its models drop fields that they do not know.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types import methods as _methods
from pydantic import BaseModel

from toolcrib import __version__
from toolcrib.errors import InvalidStore, QuotaExceeded, RequestFailed, UnknownProfile
from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.mcp.server.activity import ActivityRecorder
from toolcrib.gateway.mcp.server.client import TASKS_EXTENSION, ConnectedClient, SessionState, get_session_state
from toolcrib.gateway.mcp.server.item_search import ItemSearch
from toolcrib.gateway.mcp.server.passthrough import Passthrough
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.server.sessions.session_store import SESSION_TOPIC, SessionStore, StoredSession
from toolcrib.gateway.mcp.server.tool_handlers import ToolHandlers
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.sdk import RequestContext, get_connection
from toolcrib.gateway.quotas import REFUSAL_SECONDS
from toolcrib.gateway.replicas import ReplicaChannel
from toolcrib.hub.hub import Hub
from toolcrib.profiles.mcproxy import SEARCH_TOOL_NAME
from toolcrib.session.session import Session

# Requests whose results describe the gateway.
_DESCRIBING_METHODS: Final = frozenset({"initialize", "server/discover"})
INTERNAL_ERROR_TEXT: Final = "the gateway failed to handle this request; its log says why"
# A client that does not accept a notification within this time no longer reads.
NOTIFY_TIMEOUT_SECONDS: Final = 5.0
MAX_PENDING_NOTIFICATIONS: Final = 16
# The code of JSON-RPC servers for a limit that is exceeded.
QUOTA_EXCEEDED_CODE: Final = -32005
SERVER_INFO: Final = {"name": "toolcrib", "version": __version__}
_LIST_CHANGES: Final[Mapping[str, ServerEvent]] = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
# Result fields that only the stateless revision defines.
_STATELESS_KEYS: Final = ("resultType", "ttlMs", "cacheScope")
# Methods of extensions, which the SDK does not know.
_SKILL_METHODS: Final = frozenset({"skills/list", "skills/get"})
_EXTENSION_METHODS: Final = _SKILL_METHODS | {"tasks/get", "tasks/update", "tasks/cancel"}
SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
_CACHEABLE_METHODS: Final = _SKILL_METHODS | {
    *("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"),
    "server/discover",
}
Handler = Callable[[ConnectedClient, Mapping[str, Any]], Awaitable[dict[str, Any]]]
GetProfile = Callable[[RequestContext], str | None]


_log = logging.getLogger(__name__)


class _SdkServer(Server[Any]):
    """The SDK's server; it always declares that lists can change."""

    def create_initialization_options(self, *args: Any, **kwargs: Any) -> Any:
        # The SDK's HTTP transport calls this without notification options.
        return super().create_initialization_options(NotificationOptions(True, True, True))


class McpRouter:
    """Serves the clients of all transports from one hub and one pool of upstream servers."""

    def __init__(self, hub: Hub, get_profile: GetProfile = lambda ctx: None, audit: AuditLog | None = None) -> None:
        self.hub = hub
        self.audit = audit or AuditLog(hub)
        self.activity = ActivityRecorder(hub, self.audit)
        self.audit.before_flush += [self.activity.flush, hub.flush]
        self.replicas = ReplicaChannel(hub)
        self.sessions = SessionStore(hub, self.replicas)
        self.replicas.add_handler(SESSION_TOPIC, self._receive_changed_session)
        self.pool = UpstreamPool(hub, self.notify_tools_changed, self.forward_notification)
        self._get_profile = get_profile
        # Change streams of stateless clients, one bus per profile so that none sees the servers
        # of another.
        self._buses: dict[str | None, InMemorySubscriptionBus] = {}
        self._listeners: dict[str | None, ListenHandler] = {}
        # Connections with a handshake, by id.
        self.connections: dict[int, Connection] = {}
        self.pool.replica = self.replicas.id if self.replicas.is_shared else ""
        self.replicas.add_handler("notification", lambda body: self._notify_users(**body))
        self.bridge = ServerRequestBridge(self.pool, self.replicas)
        self.passthrough = passthrough = Passthrough(self.pool, hub, self.bridge)
        items = ItemSearch(hub, self.pool, passthrough)
        self.tool_handlers = ToolHandlers(hub, self.pool, self.bridge, self.activity.record_response, items)
        self._handlers: dict[str, Handler] = {
            "tools/list": self.tool_handlers.list_tools,
            "tools/call": self.tool_handlers.call_tool,
            "prompts/list": passthrough.list_prompts,
            "prompts/get": passthrough.get_prompt,
            "resources/list": passthrough.list_resources,
            "resources/templates/list": passthrough.list_resource_templates,
            "resources/read": passthrough.read_resource,
            "resources/subscribe": passthrough.subscribe,
            "resources/unsubscribe": passthrough.unsubscribe,
            "skills/list": passthrough.list_skills,
            "skills/get": passthrough.get_skill,
            "tasks/get": self.tool_handlers.tasks.get,
            "tasks/update": self.tool_handlers.tasks.update,
            "tasks/cancel": self.tool_handlers.tasks.cancel,
            "completion/complete": passthrough.complete,
            "logging/setLevel": passthrough.set_log_level,
        }
        self.server = self._build_server()

    @property
    def client_count(self) -> int:
        """The number of clients that are connected by a handshake."""
        return len(self.connections)

    def end_streams(self) -> None:
        """End the change streams of stateless clients. They listen again, at another replica if there is one."""
        for listener in self._listeners.values():
            listener.close()

    async def notify_tools_changed(self) -> None:
        """Notify every client that its tool list may have changed."""
        await self._notify_clients("notifications/tools/list_changed", None, lambda profile: True)

    async def forward_notification(self, server: str, method: str, params: Mapping[str, Any] | None) -> None:
        """Forward a server's notification to all clients that may use the server."""
        config = self.hub.config.servers.get(server)
        if config is not None and config.replicas == "one":
            # The other replicas have clients of the server, but not the server.
            await self.replicas.send("notification", {"server": server, "method": method, "params": params})
        await self._notify_users(server, method, params)

    async def _notify_users(self, server: str, method: str, params: Mapping[str, Any] | None) -> None:
        if method in _LIST_CHANGES:
            self.tool_handlers.items.forget()

        def may_receive(profile: str | None) -> bool:
            try:
                view = self.hub.get_view(profile)
            except UnknownProfile:
                return False
            is_resource = method.startswith("notifications/resources/")
            return view.may_use_resources(server) if is_resource else view.can_see_server(server)

        await self._notify_clients(method, params, may_receive)

    def _build_server(self) -> Server[Any]:
        server = _SdkServer(
            SERVER_INFO["name"],
            version=SERVER_INFO["version"],
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=self.tool_handlers.get_input_schema,
        )
        for method in self._handlers:
            # Registered so that the SDK declares the capability and rejects early requests.
            server.add_request_handler(method, types.RequestParams, _unreachable_handler)
        server.extensions = {SKILLS_EXTENSION: {}, TASKS_EXTENSION: {}}
        server.middleware.append(self._handle_request)
        return server

    async def _handle_request(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        handler = self._handlers.get(ctx.method)
        connection = get_connection(ctx)
        if ctx.request_id is None or handler is None or not connection.initialize_accepted:
            result = await call_next(ctx)
            if ctx.method == "initialize":
                profile = self._get_profile(ctx)
                state = self._register_connection(connection, profile)
                self.activity.add_client(ConnectedClient(ctx, profile))
                if connection.session_id and isinstance(result, Mapping):
                    protocol, owner = str(result.get("protocolVersion")), get_session_owner(ctx)
                    stored = StoredSession(ctx.params or {}, protocol, owner, state.to_dict())
                    await self.sessions.save(connection.session_id, stored)
            return self._add_instructions(ctx, result) if ctx.method in _DESCRIBING_METHODS else result
        try:
            if ctx.method not in _EXTENSION_METHODS:
                _methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
        except KeyError:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method) from None
        params = ctx.params or {}
        try:
            profile = self._get_profile(ctx)
            is_session = id(connection) in self.connections
            if is_session and get_session_state(connection).profile != profile:
                raise MCPError(INVALID_PARAMS, "this session belongs to another profile; start a new session")
            client = ConnectedClient(ctx, profile)
            started = time.perf_counter()
            shared_part = await self._load_state(client, params) if is_session else None
            handler_result = await handler(client, params)
            if is_session and connection.session_id and shared_part != client.state.shared_part:
                await self.sessions.save_state(connection.session_id, client.state)
        except QuotaExceeded as error:
            self.activity.record_refusal(client, params, error)
            await anyio.sleep(REFUSAL_SECONDS)
            data = {"retryAfterSeconds": error.retry_after_seconds}
            raise MCPError(QUOTA_EXCEEDED_CODE, str(error), data) from None
        except (UnknownProfile, RequestFailed) as error:
            if ctx.method == "tools/call":
                self.activity.record_refusal(ConnectedClient(ctx, profile), params, error)
            raise MCPError(INVALID_PARAMS, str(error)) from None
        except MCPError:
            raise
        except Exception:
            # The SDK would send the text of the exception, which may contain paths, to some clients.
            _log.exception("%s failed", ctx.method)
            raise MCPError(types.INTERNAL_ERROR, INTERNAL_ERROR_TEXT) from None
        stamped = _stamp_result(ctx.method, handler_result, is_stateless=client.is_stateless)
        await self.activity.record_response(client, ctx.method, params, stamped, started)
        return stamped

    def _add_instructions(self, ctx: RequestContext, result: HandlerResult) -> HandlerResult:
        """Return the response to a handshake with instructions for the model."""
        try:
            instructions = self.tool_handlers.render_instructions(ConnectedClient(ctx, self._get_profile(ctx)))
        except UnknownProfile:
            # The next request reports the error.
            return result
        if not instructions:
            return result
        if isinstance(result, BaseModel):
            return result.model_copy(update={"instructions": instructions})
        return {**result, "instructions": instructions} if isinstance(result, Mapping) else result

    def restore_connection(self, connection: Connection, stored: StoredSession) -> None:
        """Continue a session that another replica has opened."""
        state = self._register_connection(connection, stored.state["profile"])
        state.id = stored.state["id"]
        self._apply_state(state, stored)

    async def _load_state(self, client: ConnectedClient, params: Mapping[str, Any]) -> tuple[object, ...]:
        """Return the shared part of a client's state; read it first if the request depends on it."""
        session = client.connection.session_id
        is_search = client.ctx.method == "tools/call" and params.get("name") == SEARCH_TOOL_NAME
        if session and self.replicas.is_shared and (client.ctx.method == "tools/list" or is_search):
            await self._refresh_state(session, client.state)
        return client.state.shared_part

    async def _receive_changed_session(self, body: Mapping[str, Any]) -> None:
        """Apply the state of a session that another replica has changed."""
        for connection in list(self.connections.values()):
            if connection.session_id in body["sessions"]:
                await self._refresh_state(str(connection.session_id), get_session_state(connection))

    async def _refresh_state(self, session: str, state: SessionState) -> None:
        """Apply the stored state of a session; while the store is unavailable, the state is kept."""
        try:
            stored = await self.sessions.load(session)
        except InvalidStore as error:
            _log.warning("the state of a session may be old: %s", error)
            return
        if stored is not None:
            self._apply_state(state, stored)

    def _apply_state(self, state: SessionState, stored: StoredSession) -> None:
        tools = stored.state["tools"]
        if tools is not None and (state.tool_session is None or state.tool_session.to_dict() != tools):
            state.tool_session = Session.from_dict(tools)
        self.passthrough.restore_state(state, stored.state["log_level"], stored.state["subscriptions"])

    def _register_connection(self, connection: Connection, profile: str | None) -> SessionState:
        state = get_session_state(connection)
        state.profile = profile
        state.has_session = True
        self.connections[id(connection)] = connection
        connection.exit_stack.callback(self.connections.pop, id(connection), None)
        self.passthrough.start_session(state)
        connection.exit_stack.callback(self.passthrough.end_session, state)
        connection.exit_stack.callback(self.pool.instances.stop_session, state.key)
        return state

    async def _listen(
        self, ctx: RequestContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Stream change notifications to a stateless client for as long as it listens."""
        profile = self._get_profile(ctx)
        try:
            self.hub.get_view(profile)
        except UnknownProfile as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        if profile not in self._listeners:
            bus = self._buses[profile] = InMemorySubscriptionBus()
            self._listeners[profile] = ListenHandler(bus)
        client = ConnectedClient(ctx, profile)
        task_ids = (params.notifications.model_extra or {}).get("taskIds")
        if task_ids:
            client.require_tasks()
        uris = params.notifications.resource_subscriptions or ()
        with self.passthrough.watch_resources(client, uris):
            async with self.tool_handlers.tasks.watch(client, task_ids) as watching:
                return await self._listeners[profile](watching, params)

    async def _notify_clients(
        self, method: str, params: Mapping[str, Any] | None, is_recipient: Callable[[str | None], bool]
    ) -> None:
        """Notify the clients of the matching profiles in parallel: a slow client delays no other."""
        event = _event_from_notification(method, params)
        for profile, bus in list(self._buses.items()):
            if event is not None and is_recipient(profile):
                await bus.publish(event)
        async with anyio.create_task_group() as tasks:
            for connection in list(self.connections.values()):
                state = get_session_state(connection)
                if is_recipient(state.profile) and state.wants_notification(method, params):
                    tasks.start_soon(_notify_connection, connection, method, params)


def get_session_owner(ctx: RequestContext) -> str:
    """Return who opened a session; empty for a gateway without keys."""
    user = getattr(ctx.request, "scope", {}).get("user")
    return user.access_token.client_id if isinstance(user, AuthenticatedUser) else ""


async def _notify_connection(connection: Connection, method: str, params: Mapping[str, Any] | None) -> None:
    state = get_session_state(connection)
    if state.pending_notifications >= MAX_PENDING_NOTIFICATIONS:
        return
    state.pending_notifications += 1
    try:
        with anyio.move_on_after(NOTIFY_TIMEOUT_SECONDS):
            await connection.notify(method, params)
    finally:
        state.pending_notifications -= 1


def _event_from_notification(method: str, params: Mapping[str, Any] | None) -> ServerEvent | None:
    if method == "notifications/resources/updated":
        return ResourceUpdated(uri=str((params or {}).get("uri", "")))
    return _LIST_CHANGES.get(method)


def _stamp_result(method: str, result: Mapping[str, Any], *, is_stateless: bool) -> dict[str, Any]:
    """Return a result with the fields that the client's protocol revision requires, and no others."""
    stamped = {key: value for key, value in result.items() if key not in _STATELESS_KEYS}
    if not is_stateless:
        if not isinstance(stamped.get("structuredContent", {}), Mapping):
            # Earlier revisions only have objects.
            stamped["structuredContent"] = {"result": stamped["structuredContent"]}
        return stamped
    if "taskId" in result and "ttlMs" in result:
        # In the result of a task, this is how long the task is kept, not how long the result may be cached.
        stamped["ttlMs"] = result["ttlMs"]
    stamped["resultType"] = result.get("resultType") or "complete"
    if method in _CACHEABLE_METHODS:
        stamped["ttlMs"] = result.get("ttlMs", 0)
        stamped["cacheScope"] = "private"
    meta = result.get("_meta")
    meta = meta if isinstance(meta, Mapping) else {}
    stamped["_meta"] = {**meta, types.SERVER_INFO_META_KEY: dict(SERVER_INFO)}
    return stamped


async def _unreachable_handler(ctx: RequestContext, params: Any) -> dict[str, Any]:
    raise AssertionError("the middleware handles all requests")
