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
from toolcrib.gateway.mcp.server.client import Client
from toolcrib.gateway.mcp.server.server_requests import Bridge
from toolcrib.gateway.mcp.server.session import Shown
from toolcrib.gateway.mcp.upstream.pool import Fleet
from toolcrib.gateway.mcp.upstream.subscriptions import MAX_FOLLOWED
from toolcrib.gateway.mcp.upstream.supervisor import Upstream
from toolcrib.hub.hub import Service

MAX_PROMPTS: Final = 50_000


class Relay:
    """Hands requests that are not about tools on to the servers they concern."""

    def __init__(self, fleet: Fleet, service: Service, bridge: Bridge) -> None:
        self._fleet = fleet
        self._bridge = bridge
        self._service = service
        # For each profile: whose prompt a public name is, and what it is called there.
        self._prompts: dict[str | None, dict[str, tuple[str, str]]] = {}

    async def prompts_list(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
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
        for gone in self._prompts.keys() - {None, *self._service.config.profiles}:
            del self._prompts[gone]
        self._prompts[client.profile] = owners
        return {"prompts": list(prompts.values())}

    async def prompts_get(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """One prompt, from the server whose it is."""
        upstream, own = await self._prompt(client, str(params["name"]))
        return await self._pass(upstream, "prompts/get", {**params, "name": own}, client)

    async def resources_list(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """The resources of all servers."""
        found = await self._collect("resources/list", "resources", client)
        return {"resources": [entry for _, entry in found]}

    async def templates_list(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """The resource templates of all servers."""
        found = await self._collect("resources/templates/list", "resourceTemplates", client)
        return {"resourceTemplates": [entry for _, entry in found]}

    async def resources_read(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """A resource, from the server that listed it, or from the first that has it."""
        return await self._of_owner(client, "resources/read", params)

    async def subscribe(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have changes of a resource told to this client."""
        shown, uri = client.shown, str(params["uri"])
        if shown.is_session and uri not in shown.followed:
            if len(shown.followed) >= MAX_FOLLOWED:
                raise MCPError(
                    INVALID_PARAMS, f"at most {MAX_FOLLOWED:,} resources can be followed"
                )
            shown.followed[uri] = self._follow(client, uri)
        return {}

    async def unsubscribe(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """Have them told no more."""
        uri = str(params["uri"])
        self._unfollow(uri, client.shown.followed.pop(uri, []))
        return {}

    @contextmanager
    def following(self, client: Client, uris: Iterable[str]) -> Iterator[None]:
        """While this is open, the servers that may have these resources tell of their changes."""
        followed = {uri: self._follow(client, uri) for uri in islice(uris, MAX_FOLLOWED)}
        try:
            yield
        finally:
            for uri, servers in followed.items():
                self._unfollow(uri, servers)

    def arrived(self, shown: Shown) -> None:
        """A client has begun a session. It may say so again."""
        if not shown.is_session:
            shown.is_session = True
            self._fleet.wishes.add_client()

    def left(self, shown: Shown) -> None:
        """It has ended it, and wants nothing any more."""
        if not shown.is_session:
            return
        self._fleet.wishes.remove_client(shown.level)
        for uri, servers in shown.followed.items():
            self._unfollow(uri, servers)
        shown.is_session, shown.followed = False, {}

    def _follow(self, client: Client, uri: str) -> list[str]:
        wishes = self._fleet.wishes
        owners = [upstream.name for upstream in self._owners(client, uri)]
        return [server for server in owners if wishes.follow(server, uri)]

    def _unfollow(self, uri: str, servers: Iterable[str]) -> None:
        for server in servers:
            self._fleet.wishes.unfollow(server, uri)

    async def complete(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """Completions for an argument, from the server whose prompt or resource it is about."""
        ref = params.get("ref")
        if isinstance(ref, Mapping) and ref.get("type") == "ref/prompt":
            upstream, own = await self._prompt(client, str(ref.get("name", "")))
            sent = {**params, "ref": {**ref, "name": own}}
            return await self._pass(upstream, "completion/complete", sent, client)
        return await self._of_owner(client, "completion/complete", params)

    async def set_level(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """From which level on log messages are told to this client. Servers hear of it by and by."""
        shown, level = client.shown, str(params["level"])
        if shown.is_session:
            self._fleet.wishes.want_level(level, instead_of=shown.level)
        shown.level = level
        return {}

    async def _of_owner(
        self, client: Client, method: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        ref = params.get("ref")
        uri = str(ref.get("uri", "") if isinstance(ref, Mapping) else params.get("uri", ""))
        fault: Exception = MCPError(INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
        for upstream in self._owners(client, uri):
            try:
                return await self._pass(upstream, method, params, client)
            except (MCPError, ServerUnavailable) as refused:
                fault = refused
        raise fault if isinstance(fault, MCPError) else MCPError(INVALID_PARAMS, str(fault))

    async def _pass(
        self, upstream: Upstream, method: str, params: Mapping[str, Any], client: Client
    ) -> dict[str, Any]:
        meta = client.meta
        sent = {key: value for key, value in params.items() if key != "_meta"}
        return await self._bridge.answered(
            upstream, method, {**sent, "_meta": meta} if meta else sent, client
        )

    async def _prompt(self, client: Client, name: str) -> tuple[Upstream, str]:
        if name not in self._prompts.get(client.profile, ()):
            await self.prompts_list(client, {})
        server, own = self._prompts[client.profile].get(name, ("", ""))
        upstream = self._fleet.upstreams.get(server)
        if upstream is None or not self._sees(client, server):
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return upstream, own

    async def _collect(
        self, method: str, key: str, client: Client
    ) -> list[tuple[str, dict[str, Any]]]:
        sees = self._service.view(client.profile).sees_server
        return await self._fleet.collect(method, key, sees)

    def _owners(self, client: Client, uri: str) -> list[Upstream]:
        owners = self._fleet.owners(uri, self._service.view(client.profile).sees_server)
        if len(owners) == 1:
            return owners
        return [upstream for upstream in owners if upstream.link or not upstream.is_lazy]

    def _sees(self, client: Client, server: str) -> bool:
        return self._service.view(client.profile).sees_server(server)

    def _public_name(self, server: str, name: str) -> str:
        settings = self._service.config.tool_search
        known = self._service.config.servers.get(server)
        alias = known.alias if known else ""
        prefix = f"{alias or server}{SERVER_SEPARATOR}" if settings.prefix else ""
        return safe_name(f"{prefix}{name}", settings.max_name_chars)
