"""The server we are: every request of a client is answered here, in plain dicts.

What the SDK knows how to do (handshakes, versions, streams) is left to it. The requests themselves
are taken before it would read them into its models, which drop what they do not know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server import NotificationOptions, Server
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

from toolcrib.errors import RequestFailed, UnknownProfile
from toolcrib.gateway.mcp.server.client import ConnectedClient, get_session_state
from toolcrib.gateway.mcp.server.passthrough import Passthrough
from toolcrib.gateway.mcp.server.protocol import SERVER_INFO, stamp_result
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.server.session import SessionState
from toolcrib.gateway.mcp.server.token_savings import TokenSavings
from toolcrib.gateway.mcp.server.tool_calls import ToolCalls
from toolcrib.gateway.mcp.server.tool_handlers import ToolHandlers
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.sdk import RequestContext, get_connection
from toolcrib.hub.hub import Hub

# A client that takes longer to be told something has stopped listening.
NOTIFY_TIMEOUT_SECONDS: Final = 5.0
MAX_PENDING_NOTIFICATIONS: Final = 16
_LIST_CHANGES: Final[Mapping[str, ServerEvent]] = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
Handler = Callable[[ConnectedClient, Mapping[str, Any]], Awaitable[dict[str, Any]]]
GetProfile = Callable[[RequestContext], str | None]


class _SdkServer(Server[Any]):
    """The SDK's server, which says that lists may change also where it forgets to."""

    def create_initialization_options(self, *args: Any, **given: Any) -> Any:
        changes = NotificationOptions(True, True, True)
        return super().create_initialization_options(changes)


class McpRouter:
    """Answers the clients of all transports from one service and one fleet of servers."""

    def __init__(
        self,
        hub: Hub,
        token_savings: TokenSavings,
        get_profile: GetProfile = lambda ctx: None,
        initial_state: SessionState | None = None,
    ) -> None:
        self.hub = hub
        self._token_savings = token_savings
        # Of the client whose first requests were answered before there was a front.
        self._initial_state = initial_state
        self.pool = UpstreamPool(hub, self.notify_tools_changed, self._forward_notification)
        self._get_profile = get_profile
        # For clients without a handshake. One for each profile: none hears of another's servers.
        self._buses: dict[str | None, InMemorySubscriptionBus] = {}
        self._listeners: dict[str | None, ListenHandler] = {}
        self._connections: dict[int, Connection] = {}
        bridge = ServerRequestBridge(self.pool)
        self.tool_handlers = counter = ToolHandlers(hub, self.pool)
        calls = ToolCalls(hub, counter, self.pool, bridge)
        self._passthrough = relay = Passthrough(self.pool, hub, bridge)
        self._handlers: dict[str, Handler] = {
            "tools/list": self._list_tools,
            "tools/call": calls.call_tool,
            "prompts/list": relay.list_prompts,
            "prompts/get": relay.get_prompt,
            "resources/list": relay.list_resources,
            "resources/templates/list": relay.list_resource_templates,
            "resources/read": relay.read_resource,
            "resources/subscribe": relay.subscribe,
            "resources/unsubscribe": relay.unsubscribe,
            "completion/complete": relay.complete,
            "logging/setLevel": relay.set_log_level,
        }
        self.server = self._build_server(counter)

    @property
    def client_count(self) -> int:
        """How many clients are connected by a handshake."""
        return len(self._connections)

    def _build_server(self, counter: ToolHandlers) -> Server[Any]:
        server = _SdkServer(
            SERVER_INFO["name"],
            version=SERVER_INFO["version"],
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=counter.get_input_schema,
        )
        for method in self._handlers:
            # Registered so that the SDK says we can do it, and checks what comes before a handshake.
            server.add_request_handler(method, types.RequestParams, _unreachable_handler)
        server.middleware.append(self._handle_request)
        return server

    async def _handle_request(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        handler = self._handlers.get(ctx.method)
        connection = get_connection(ctx)
        if ctx.request_id is None or handler is None or not connection.initialize_accepted:
            result = await call_next(ctx)
            if ctx.method == "initialize":
                self._register_connection(connection, self._get_profile(ctx))
            return result
        self._validate_request(ctx)
        params = ctx.params or {}
        try:
            profile = self._get_profile(ctx)
            if (
                id(connection) in self._connections
                and get_session_state(connection).profile != profile
            ):
                raise MCPError(INVALID_PARAMS, "this session is another profile's; begin a new one")
            client = ConnectedClient(ctx, profile)
            answer = await handler(client, params)
        except (UnknownProfile, RequestFailed) as fault:
            raise MCPError(INVALID_PARAMS, str(fault)) from None
        result = stamp_result(ctx.method, answer, is_stateless=client.is_stateless)
        await self._token_savings.record_response(profile, ctx.method, params, result)
        return result

    def _validate_request(self, ctx: RequestContext) -> None:
        try:
            _methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
        except KeyError:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method) from None

    async def _list_tools(
        self, client: ConnectedClient, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        await self.pool.wait_until_listed(self.tool_handlers.find_unlisted_servers(client))
        return await self.tool_handlers.list_tools(client, params)

    def _register_connection(self, connection: Connection, profile: str | None) -> None:
        shown = get_session_state(connection, self._initial_state)
        shown.profile = profile
        self._initial_state = None
        self._connections[id(connection)] = connection
        connection.exit_stack.callback(self._connections.pop, id(connection), None)
        self._passthrough.start_session(shown)
        connection.exit_stack.callback(self._passthrough.end_session, shown)

    async def _listen(
        self, ctx: RequestContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell a client without a handshake of changes, as long as it listens."""
        profile = self._get_profile(ctx)
        client = ConnectedClient(ctx, profile)
        try:
            self.hub.get_view(profile)
        except UnknownProfile as fault:
            raise MCPError(INVALID_PARAMS, str(fault)) from None
        if profile not in self._listeners:
            bus = self._buses[profile] = InMemorySubscriptionBus()
            self._listeners[profile] = ListenHandler(bus)
        with self._passthrough.watch_resources(
            client, params.notifications.resource_subscriptions or ()
        ):
            return await self._listeners[profile](ctx, params)

    async def notify_tools_changed(self) -> None:
        """Tell every client that the list of tools may be another one now."""
        await self._notify_clients("notifications/tools/list_changed", None, lambda profile: True)

    async def _forward_notification(
        self, server: str, method: str, params: Mapping[str, Any] | None
    ) -> None:
        """Pass on what a server has to say to all that may use it."""

        def may_hear(profile: str | None) -> bool:
            try:
                return self.hub.get_view(profile).can_see_server(server)
            except UnknownProfile:
                return False

        await self._notify_clients(method, params, may_hear)

    async def _notify_clients(
        self, method: str, params: Mapping[str, Any] | None, may_hear: Callable[[str | None], bool]
    ) -> None:
        """Tell all clients that may hear it, at once: one that does not listen delays nobody."""
        event = _event_from_notification(method, params)
        for profile, bus in list(self._buses.items()):
            if event is not None and may_hear(profile):
                await bus.publish(event)
        async with anyio.create_task_group() as tasks:
            for connection in list(self._connections.values()):
                shown = get_session_state(connection)
                if may_hear(shown.profile) and shown.wants_notification(method, params):
                    tasks.start_soon(_notify_connection, connection, method, params)


async def _notify_connection(
    connection: Connection, method: str, params: Mapping[str, Any] | None
) -> None:
    shown = get_session_state(connection)
    if shown.pending_notifications >= MAX_PENDING_NOTIFICATIONS:
        return
    shown.pending_notifications += 1
    try:
        with anyio.move_on_after(NOTIFY_TIMEOUT_SECONDS):
            await connection.notify(method, params)
    finally:
        shown.pending_notifications -= 1


def _event_from_notification(method: str, params: Mapping[str, Any] | None) -> ServerEvent | None:
    """The same for clients without a handshake."""
    if method == "notifications/resources/updated":
        return ResourceUpdated(uri=str((params or {}).get("uri", "")))
    return _LIST_CHANGES.get(method)


async def _unreachable_handler(ctx: RequestContext, params: Any) -> dict[str, Any]:
    raise AssertionError("requests are answered before they get here")
