"""What is passed through as it is: prompts, resources, completions and log levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.core.tool_names import safe_name
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.server.session import SessionState
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.subscriptions import MAX_SUBSCRIBED_URIS
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.hub import Hub

MAX_PROMPTS: Final = 50_000


class Passthrough:
    """Hands requests that are not about tools on to the servers they concern."""

    def __init__(self, fleet: UpstreamPool, service: Hub, bridge: ServerRequestBridge) -> None:
        self._pool = fleet
        self._bridge = bridge
        self._hub = service
        # For each profile: whose prompt a public name is, and what it is called there.
        self._prompts: dict[str | None, dict[str, tuple[str, str]]] = {}

    async def list_prompts(
        self, client: ConnectedClient, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The prompts of all servers, under public names."""
        prompts: dict[str, dict[str, Any]] = {}
        owners: dict[str, tuple[str, str]] = {}
        for server, entry in await self._collect("prompts/list", "prompts", client):
            own = str(entry.get("name", ""))
            name = self._public_name(server, own)
            if name in prompts:
                name = safe_name(f"{server}{SERVER_SEPARATOR}{own}")
            if name not in prompts and len(prompts) < MAX_PROMPTS:
                owners[name] = (server, own)
                prompts[name] = {**entry, "name": name}
        for gone in self._prompts.keys() - {None, *self._hub.config.profiles}:
            del self._prompts[gone]
        self._prompts[client.profile] = owners
        return {"prompts": list(prompts.values())}

    async def get_prompt(
        self, client: ConnectedClient, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """One prompt, from the server whose it is."""
        upstream, own = await self._find_prompt(client, str(params["name"]))
        return await self._forward(upstream, "prompts/get", {**params, "name": own}, client)

    async def list_resources(
        self, client: ConnectedClient, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The resources of all servers."""
        found = await self._collect("resources/list", "resources", client)
        return {"resources": [entry for _, entry in found]}

    async def list_resource_templates(
        self, client: ConnectedClient, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The resource templates of all servers."""
        found = await self._collect("resources/templates/list", "resourceTemplates", client)
        return {"resourceTemplates": [entry for _, entry in found]}

    async def read_resource(
        self, client: ConnectedClient, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A resource, from the server that listed it, or from the first that has it."""
        return await self._forward_to_owner(client, "resources/read", params)

    async def subscribe(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have changes of a resource told to this client."""
        shown, uri = client.state, str(params["uri"])
        if shown.has_handshake and uri not in shown.subscriptions:
            if len(shown.subscriptions) >= MAX_SUBSCRIBED_URIS:
                raise MCPError(
                    INVALID_PARAMS, f"at most {MAX_SUBSCRIBED_URIS:,} resources can be followed"
                )
            shown.subscriptions[uri] = self._subscribe_owners(client, uri)
        return {}

    async def unsubscribe(
        self, client: ConnectedClient, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Have them told no more."""
        uri = str(params["uri"])
        self._unsubscribe_owners(uri, client.state.subscriptions.pop(uri, []))
        return {}

    @contextmanager
    def watch_resources(self, client: ConnectedClient, uris: Iterable[str]) -> Iterator[None]:
        """While this is open, the servers that may have these resources tell of their changes."""
        followed = {
            uri: self._subscribe_owners(client, uri) for uri in islice(uris, MAX_SUBSCRIBED_URIS)
        }
        try:
            yield
        finally:
            for uri, servers in followed.items():
                self._unsubscribe_owners(uri, servers)

    def start_session(self, shown: SessionState) -> None:
        """A client has begun a session. It may say so again."""
        if not shown.has_handshake:
            shown.has_handshake = True
            self._pool.subscriptions.add_client()

    def end_session(self, shown: SessionState) -> None:
        """It has ended it, and wants nothing any more."""
        if not shown.has_handshake:
            return
        self._pool.subscriptions.remove_client(shown.log_level)
        for uri, servers in shown.subscriptions.items():
            self._unsubscribe_owners(uri, servers)
        shown.has_handshake, shown.subscriptions = False, {}

    def _subscribe_owners(self, client: ConnectedClient, uri: str) -> list[str]:
        wishes = self._pool.subscriptions
        owners = [upstream.name for upstream in self._find_owners(client, uri)]
        return [server for server in owners if wishes.subscribe(server, uri)]

    def _unsubscribe_owners(self, uri: str, servers: Iterable[str]) -> None:
        for server in servers:
            self._pool.subscriptions.unsubscribe(server, uri)

    async def complete(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Completions for an argument, from the server whose prompt or resource it is about."""
        ref = params.get("ref")
        if isinstance(ref, Mapping) and ref.get("type") == "ref/prompt":
            upstream, own = await self._find_prompt(client, str(ref.get("name", "")))
            sent = {**params, "ref": {**ref, "name": own}}
            return await self._forward(upstream, "completion/complete", sent, client)
        return await self._forward_to_owner(client, "completion/complete", params)

    async def set_log_level(
        self, client: ConnectedClient, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """From which level on log messages are told to this client. Servers hear of it by and by."""
        shown, level = client.state, str(params["level"])
        if shown.has_handshake:
            self._pool.subscriptions.change_log_level(level, old_level=shown.log_level)
        shown.log_level = level
        return {}

    async def _forward_to_owner(
        self, client: ConnectedClient, method: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        ref = params.get("ref")
        uri = str(ref.get("uri", "") if isinstance(ref, Mapping) else params.get("uri", ""))
        fault: Exception = MCPError(INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
        for upstream in self._find_owners(client, uri):
            try:
                return await self._forward(upstream, method, params, client)
            except (MCPError, ServerUnavailable) as refused:
                fault = refused
        raise fault if isinstance(fault, MCPError) else MCPError(INVALID_PARAMS, str(fault))

    async def _forward(
        self,
        upstream: UpstreamServer,
        method: str,
        params: Mapping[str, Any],
        client: ConnectedClient,
    ) -> dict[str, Any]:
        meta = client.forwarded_meta
        sent = {key: value for key, value in params.items() if key != "_meta"}
        return await self._bridge.forward_request(
            upstream, method, {**sent, "_meta": meta} if meta else sent, client
        )

    async def _find_prompt(self, client: ConnectedClient, name: str) -> tuple[UpstreamServer, str]:
        if name not in self._prompts.get(client.profile, ()):
            await self.list_prompts(client, {})
        server, own = self._prompts[client.profile].get(name, ("", ""))
        upstream = self._pool.servers.get(server)
        if upstream is None or not self._can_see_server(client, server):
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return upstream, own

    async def _collect(
        self, method: str, key: str, client: ConnectedClient
    ) -> list[tuple[str, dict[str, Any]]]:
        sees = self._hub.get_view(client.profile).can_see_server
        return await self._pool.collect_entries(method, key, sees)

    def _find_owners(self, client: ConnectedClient, uri: str) -> list[UpstreamServer]:
        owners = self._pool.find_resource_owners(
            uri, self._hub.get_view(client.profile).can_see_server
        )
        if len(owners) == 1:
            return owners
        return [upstream for upstream in owners if upstream.connection or not upstream.is_lazy]

    def _can_see_server(self, client: ConnectedClient, server: str) -> bool:
        return self._hub.get_view(client.profile).can_see_server(server)

    def _public_name(self, server: str, name: str) -> str:
        settings = self._hub.config.tool_search
        known = self._hub.config.servers.get(server)
        alias = known.alias if known else ""
        prefix = f"{alias or server}{SERVER_SEPARATOR}" if settings.prefix else ""
        return safe_name(f"{prefix}{name}", settings.max_name_chars)
