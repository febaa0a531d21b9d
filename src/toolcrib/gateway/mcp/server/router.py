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
from toolcrib.gateway.mcp.server.client import Client, shown_to
from toolcrib.gateway.mcp.server.passthrough import Relay
from toolcrib.gateway.mcp.server.protocol import INFO, stamped
from toolcrib.gateway.mcp.server.server_requests import Bridge
from toolcrib.gateway.mcp.server.session import Shown
from toolcrib.gateway.mcp.server.token_savings import Savings
from toolcrib.gateway.mcp.server.tool_calls import Calls
from toolcrib.gateway.mcp.server.tool_handlers import Counter
from toolcrib.gateway.mcp.upstream.pool import Fleet
from toolcrib.gateway.mcp.upstream.sdk import Context, connection_of
from toolcrib.hub.hub import Service

# A client that takes longer to be told something has stopped listening.
TELL_SECONDS: Final = 5.0
MAX_TELLING: Final = 16
_LIST_CHANGES: Final[Mapping[str, ServerEvent]] = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
Handler = Callable[[Client, Mapping[str, Any]], Awaitable[dict[str, Any]]]
ProfileOf = Callable[[Context], str | None]


class _Sdk(Server[Any]):
    """The SDK's server, which says that lists may change also where it forgets to."""

    def create_initialization_options(self, *args: Any, **given: Any) -> Any:
        changes = NotificationOptions(True, True, True)
        return super().create_initialization_options(changes)


class Front:
    """Answers the clients of all transports from one service and one fleet of servers."""

    def __init__(
        self,
        service: Service,
        savings: Savings,
        profile_of: ProfileOf = lambda ctx: None,
        shown: Shown | None = None,
    ) -> None:
        self.service = service
        self._savings = savings
        # Of the client whose first requests were answered before there was a front.
        self._shown = shown
        self.fleet = Fleet(service, self.tell_tools_changed, self._news)
        self._profile_of = profile_of
        # For clients without a handshake. One for each profile: none hears of another's servers.
        self._buses: dict[str | None, InMemorySubscriptionBus] = {}
        self._listeners: dict[str | None, ListenHandler] = {}
        self._connections: dict[int, Connection] = {}
        bridge = Bridge(self.fleet)
        self.counter = counter = Counter(service, self.fleet)
        calls = Calls(service, counter, self.fleet, bridge)
        self._relay = relay = Relay(self.fleet, service, bridge)
        self._handlers: dict[str, Handler] = {
            "tools/list": self._tools_list,
            "tools/call": calls.tools_call,
            "prompts/list": relay.prompts_list,
            "prompts/get": relay.prompts_get,
            "resources/list": relay.resources_list,
            "resources/templates/list": relay.templates_list,
            "resources/read": relay.resources_read,
            "resources/subscribe": relay.subscribe,
            "resources/unsubscribe": relay.unsubscribe,
            "completion/complete": relay.complete,
            "logging/setLevel": relay.set_level,
        }
        self.server = self._made(counter)

    @property
    def clients(self) -> int:
        """How many clients are connected by a handshake."""
        return len(self._connections)

    def _made(self, counter: Counter) -> Server[Any]:
        server = _Sdk(
            INFO["name"],
            version=INFO["version"],
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=counter.input_schema,
        )
        for method in self._handlers:
            # Registered so that the SDK says we can do it, and checks what comes before a handshake.
            server.add_request_handler(method, types.RequestParams, _never)
        server.middleware.append(self._answer)
        return server

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        handler = self._handlers.get(ctx.method)
        connection = connection_of(ctx)
        if ctx.request_id is None or handler is None or not connection.initialize_accepted:
            result = await call_next(ctx)
            if ctx.method == "initialize":
                self._remember(connection, self._profile_of(ctx))
            return result
        self._check(ctx)
        params = ctx.params or {}
        try:
            profile = self._profile_of(ctx)
            if id(connection) in self._connections and shown_to(connection).profile != profile:
                raise MCPError(INVALID_PARAMS, "this session is another profile's; begin a new one")
            client = Client(ctx, profile)
            answer = await handler(client, params)
        except (UnknownProfile, RequestFailed) as fault:
            raise MCPError(INVALID_PARAMS, str(fault)) from None
        result = stamped(ctx.method, answer, is_modern=client.is_modern)
        await self._savings.note(profile, ctx.method, params, result)
        return result

    def _check(self, ctx: Context) -> None:
        try:
            _methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
        except KeyError:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method) from None

    async def _tools_list(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        await self.fleet.seen(self.counter.awaited(client))
        return await self.counter.tools_list(client, params)

    def _remember(self, connection: Connection, profile: str | None) -> None:
        shown = shown_to(connection, self._shown)
        shown.profile = profile
        self._shown = None
        self._connections[id(connection)] = connection
        connection.exit_stack.callback(self._connections.pop, id(connection), None)
        self._relay.arrived(shown)
        connection.exit_stack.callback(self._relay.left, shown)

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell a client without a handshake of changes, as long as it listens."""
        profile = self._profile_of(ctx)
        client = Client(ctx, profile)
        try:
            self.service.view(profile)
        except UnknownProfile as fault:
            raise MCPError(INVALID_PARAMS, str(fault)) from None
        if profile not in self._listeners:
            bus = self._buses[profile] = InMemorySubscriptionBus()
            self._listeners[profile] = ListenHandler(bus)
        with self._relay.following(client, params.notifications.resource_subscriptions or ()):
            return await self._listeners[profile](ctx, params)

    async def tell_tools_changed(self) -> None:
        """Tell every client that the list of tools may be another one now."""
        await self._tell("notifications/tools/list_changed", None, lambda profile: True)

    async def _news(self, server: str, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass on what a server has to say to all that may use it."""

        def may_hear(profile: str | None) -> bool:
            try:
                return self.service.view(profile).sees_server(server)
            except UnknownProfile:
                return False

        await self._tell(method, params, may_hear)

    async def _tell(
        self, method: str, params: Mapping[str, Any] | None, may_hear: Callable[[str | None], bool]
    ) -> None:
        """Tell all clients that may hear it, at once: one that does not listen delays nobody."""
        event = _event(method, params)
        for profile, bus in list(self._buses.items()):
            if event is not None and may_hear(profile):
                await bus.publish(event)
        async with anyio.create_task_group() as tasks:
            for connection in list(self._connections.values()):
                shown = shown_to(connection)
                if may_hear(shown.profile) and shown.wants(method, params):
                    tasks.start_soon(_tell_one, connection, method, params)


async def _tell_one(connection: Connection, method: str, params: Mapping[str, Any] | None) -> None:
    shown = shown_to(connection)
    if shown.telling >= MAX_TELLING:
        return
    shown.telling += 1
    try:
        with anyio.move_on_after(TELL_SECONDS):
            await connection.notify(method, params)
    finally:
        shown.telling -= 1


def _event(method: str, params: Mapping[str, Any] | None) -> ServerEvent | None:
    """The same for clients without a handshake."""
    if method == "notifications/resources/updated":
        return ResourceUpdated(uri=str((params or {}).get("uri", "")))
    return _LIST_CHANGES.get(method)


async def _never(ctx: Context, params: Any) -> dict[str, Any]:
    raise AssertionError("requests are answered before they get here")
