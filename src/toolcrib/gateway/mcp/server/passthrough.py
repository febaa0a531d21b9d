"""Prompts, resources, completions and log levels: forwarded to upstream servers unchanged."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.core.tool_names import safe_name
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.server.client import ConnectedClient, SessionState
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.subscriptions import MAX_SUBSCRIBED_URIS
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.directory import build_public_name
from toolcrib.hub.hub import Hub

MAX_PROMPTS: Final = 50_000
MAX_SKILLS: Final = 10_000
_log = logging.getLogger(__name__)


class Passthrough:
    """Forwards requests that do not concern tools to the servers that own their subject."""

    def __init__(self, pool: UpstreamPool, hub: Hub, bridge: ServerRequestBridge) -> None:
        self._pool = pool
        self._bridge = bridge
        self._hub = hub
        # By profile and public prompt name: the server and the prompt's name there.
        self.prompt_owners: dict[str | None, dict[str, tuple[str, str]]] = {}

    async def list_prompts(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the prompts of all servers under public names."""
        prompts: dict[str, dict[str, Any]] = {}
        owners: dict[str, tuple[str, str]] = {}
        view = self._hub.get_view(client.profile)
        for server, entry in await self._pool.collect_entries("prompts/list", "prompts", view.may_use_server):
            remote_name = str(entry.get("name", ""))
            name = self._build_prompt_name(server, remote_name)
            if name in prompts:
                name = safe_name(f"{server}{SERVER_SEPARATOR}{remote_name}")
            if not view.may_use_tool(server, name):
                continue
            if name not in prompts and len(prompts) < MAX_PROMPTS:
                owners[name] = (server, remote_name)
                prompts[name] = {**entry, "name": name}
        for removed in self.prompt_owners.keys() - {None, *self._hub.config.profiles}:
            del self.prompt_owners[removed]
        self.prompt_owners[client.profile] = owners
        return {"prompts": list(prompts.values())}

    async def get_prompt(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a prompt from the server that owns it."""
        server, remote_name = await self._find_prompt(client, str(params["name"]))
        return await self._forward(server, "prompts/get", {**params, "name": remote_name}, client)

    async def list_resources(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the resources of all servers."""
        entries = await self._collect("resources/list", "resources", client)
        return {"resources": [entry for _, entry in entries]}

    async def list_resource_templates(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the resource templates of all servers."""
        entries = await self._collect("resources/templates/list", "resourceTemplates", client)
        return {"resourceTemplates": [entry for _, entry in entries]}

    async def read_resource(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a resource from the server that listed it, or from the first that has it."""
        return await self._forward_to_owner(client, "resources/read", params)

    async def list_skills(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the skills of all servers. If several have the same URI, that of the first server is returned."""
        skills: dict[str, dict[str, Any]] = {}
        owners: dict[str, str] = {}
        for server, entry in await self._collect("skills/list", "skills", client):
            uri = entry.get("uri")
            if not isinstance(uri, str) or len(skills) >= MAX_SKILLS:
                continue
            if owners.setdefault(uri, server) == server:
                skills[uri] = entry
            else:
                _log.warning("%s: the skill %s is left out, because %s has the same URI", server, uri, owners[uri])
        return {"skills": list(skills.values())}

    async def get_skill(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a skill from the first server that has it, listed or not."""
        uri = str(params.get("uri", ""))
        for server in self._find_owners(client.profile, uri):
            if server.connection and server.connection.supports("skills"):
                with suppress(MCPError, ServerUnavailable):
                    return await self._forward(server, "skills/get", params, client)
        raise MCPError(INVALID_PARAMS, f"Skill not found: {uri}", {"uri": uri})

    async def complete(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return completions from the server that owns the prompt or resource."""
        ref = params.get("ref")
        if isinstance(ref, Mapping) and ref.get("type") == "ref/prompt":
            server, remote_name = await self._find_prompt(client, str(ref.get("name", "")))
            params = {**params, "ref": {**ref, "name": remote_name}}
            return await self._forward(server, "completion/complete", params, client)
        return await self._forward_to_owner(client, "completion/complete", params)

    async def set_log_level(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Set the lowest level of log messages for a client; servers are updated later."""
        state, level = client.state, str(params["level"])
        if state.has_handshake:
            self._pool.subscriptions.change_log_level(level, old_level=state.log_level)
        state.log_level = level
        return {}

    async def subscribe(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Subscribe a client to the changes of a resource."""
        state, uri = client.state, str(params["uri"])
        if state.has_handshake and uri not in state.subscriptions:
            if len(state.subscriptions) >= MAX_SUBSCRIBED_URIS:
                raise MCPError(INVALID_PARAMS, f"a client can subscribe to at most {MAX_SUBSCRIBED_URIS:,} resources")
            state.subscriptions[uri] = self._subscribe_owners(client.profile, uri)
        return {}

    async def unsubscribe(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """End a client's subscription to a resource."""
        uri = str(params["uri"])
        self._unsubscribe_owners(uri, client.state.subscriptions.pop(uri, []))
        return {}

    @contextmanager
    def watch_resources(self, client: ConnectedClient, uris: Iterable[str]) -> Iterator[None]:
        """Subscribe to resources for as long as the context is open."""
        watched = {uri: self._subscribe_owners(client.profile, uri) for uri in islice(uris, MAX_SUBSCRIBED_URIS)}
        try:
            yield
        finally:
            for uri, servers in watched.items():
                self._unsubscribe_owners(uri, servers)

    def start_session(self, state: SessionState) -> None:
        """Count a client with a handshake. A repeated handshake has no effect."""
        if not state.has_handshake:
            state.has_handshake = True
            self._pool.subscriptions.add_client()

    def end_session(self, state: SessionState) -> None:
        """End all subscriptions of a client."""
        if not state.has_handshake:
            return
        self._pool.subscriptions.remove_client(state.log_level)
        for uri, servers in state.subscriptions.items():
            self._unsubscribe_owners(uri, servers)
        state.has_handshake, state.subscriptions = False, {}

    def restore_state(self, state: SessionState, log_level: str | None, uris: Iterable[str]) -> None:
        """Set the log level and the subscriptions of a client to those that another replica has stored."""
        if log_level is not None and log_level != state.log_level:
            self._pool.subscriptions.change_log_level(log_level, old_level=state.log_level)
            state.log_level = log_level
        stored = set(islice(uris, MAX_SUBSCRIBED_URIS))
        for uri in state.subscriptions.keys() - stored:
            self._unsubscribe_owners(uri, state.subscriptions.pop(uri))
        for uri in stored - state.subscriptions.keys():
            state.subscriptions[uri] = self._subscribe_owners(state.profile, uri)

    def _subscribe_owners(self, profile: str | None, uri: str) -> list[str]:
        owners = [server.name for server in self._find_owners(profile, uri)]
        return [name for name in owners if self._pool.subscriptions.subscribe(name, uri)]

    def _unsubscribe_owners(self, uri: str, servers: Iterable[str]) -> None:
        for server in servers:
            self._pool.subscriptions.unsubscribe(server, uri)

    async def _forward_to_owner(
        self, client: ConnectedClient, method: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        ref = params.get("ref")
        uri = str(ref.get("uri", "") if isinstance(ref, Mapping) else params.get("uri", ""))
        error = MCPError(INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
        has_answer = False
        for server in self._find_owners(client.profile, uri):
            try:
                return await self._forward(server, method, params, client)
            except MCPError as server_error:
                error, has_answer = server_error, True
            except ServerUnavailable as unavailable:
                # The error of a server that was reached tells more.
                error = error if has_answer else MCPError(INVALID_PARAMS, str(unavailable))
        raise error

    async def _forward(
        self, server: UpstreamServer, method: str, params: Mapping[str, Any], client: ConnectedClient
    ) -> dict[str, Any]:
        return await self._bridge.forward_request(server, method, client.with_meta(params), client)

    async def _find_prompt(self, client: ConnectedClient, name: str) -> tuple[UpstreamServer, str]:
        if name not in self.prompt_owners.get(client.profile, ()):
            await self.list_prompts(client, {})
        server_name, remote_name = self.prompt_owners[client.profile].get(name, ("", ""))
        server = self._pool.servers.get(server_name)
        if server is None or not self._hub.get_view(client.profile).may_use_tool(server_name, name):
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return server, remote_name

    async def _collect(self, method: str, key: str, client: ConnectedClient) -> list[tuple[str, dict[str, Any]]]:
        return await self._pool.collect_entries(method, key, self._hub.get_view(client.profile).may_use_resources)

    def _find_owners(self, profile: str | None, uri: str) -> list[UpstreamServer]:
        owners = self._pool.find_resource_owners(uri, self._hub.get_view(profile).may_use_resources)
        owners = [one for one in owners if not one.connection or one.connection.supports("resources")]
        return [one for one in owners if one.connection or not one.is_lazy or len(owners) == 1]

    def _build_prompt_name(self, server: str, name: str) -> str:
        settings = self._hub.config.tool_search
        config = self._hub.config.servers.get(server)
        return build_public_name(config.id if config else server, settings, name)
