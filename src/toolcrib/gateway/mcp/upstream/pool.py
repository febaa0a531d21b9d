"""All servers together: started and stopped with the gateway, asked all at once or one by one."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.abc
from mcp.shared.exceptions import MCPError

from toolcrib.config.settings import GatewayConfig, ServerConfig
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.upstream.definition_repair import remove_invalid_fields
from toolcrib.gateway.mcp.upstream.subscriptions import Subscriptions
from toolcrib.gateway.mcp.upstream.supervisor import OnNotification, ServerListing, UpstreamServer
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.hub.paths import resolve_token_folder

MAX_CONCURRENT_STARTS: Final = 4
MAX_RESOURCE_OWNERS: Final = 50_000
# How long a list of what all servers have waits for the slow ones.
COLLECT_TIMEOUT_SECONDS: Final = 10.0
# How long after the start a list of tools waits for servers that nobody has ever seen. Some clients
# give a server ten seconds for all of its start.
FIRST_LIST_WAIT_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)
OnChanged = Callable[[], Awaitable[None]]


class UpstreamPool:
    """The servers of a configuration, each looked after by a task of its own."""

    def __init__(self, hub: Hub, on_changed: OnChanged, on_news: OnNotification) -> None:
        self.hub = hub
        self.servers: dict[str, UpstreamServer] = {}
        # Of servers by name, so that they outlast the way in which one is reached.
        self.subscriptions = Subscriptions()
        self._on_changed = on_changed
        self._on_notification = on_news
        self._start_limiter = anyio.CapacityLimiter(MAX_CONCURRENT_STARTS)
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._first_list_deadline = -math.inf
        # Whose resource an address is, as far as lists have told.
        self._owners: dict[str, list[str]] = {}

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Look after all servers until cancelled."""
        self._first_list_deadline = anyio.current_time() + FIRST_LIST_WAIT_SECONDS
        async with anyio.create_task_group() as self._tasks:
            for server in self.hub.config.servers.values():
                self._add(server)
            task_status.started()
            await anyio.sleep_forever()

    async def reconfigure(self, config: GatewayConfig) -> None:
        """Start what is new, stop what is gone, and start anew what is reached in another way."""
        before = {name: upstream.config for name, upstream in self.servers.items()}
        await anyio.to_thread.run_sync(self.hub.reconfigure, config)
        for name, server in before.items():
            if config.servers.get(name) != server:
                self._remove(name)
        for name, server in config.servers.items():
            if name not in self.servers:
                self._add(server)
        await self._on_changed()

    def relist(self, names: Iterable[str]) -> None:
        """Have these say again what they have."""
        for upstream in filter(None, map(self.servers.get, names)):
            upstream.relist()

    def run_in_background(self, act: Callable[..., Awaitable[None]], *given: Any) -> None:
        """Do something that goes on as long as it takes, or until the servers are left."""
        if self._tasks is not None:
            self._tasks.start_soon(_run_and_log_errors, act, *given)

    def unreachable_servers(self) -> dict[str, str]:
        """The servers that cannot be reached, and why."""
        return {
            name: upstream.error
            for name, upstream in list(self.servers.items())
            if upstream.connection is None and upstream.error
        }

    def unlisted_servers(self) -> dict[str, str]:
        """The servers whose tools nobody has seen yet, and why; no reason while they start."""
        return {
            name: upstream.error
            for name, upstream in list(self.servers.items())
            if not upstream.is_listed
        }

    async def wait_until_listed(self, names: Iterable[str]) -> None:
        """Wait until these have told their tools or have failed; only in the first seconds."""
        with anyio.CancelScope(deadline=self._first_list_deadline):
            for upstream in filter(None, map(self.servers.get, names)):
                await upstream.wait_until_listed()

    async def collect_entries(
        self, method: str, key: str, is_visible: Callable[[str], bool]
    ) -> list[tuple[str, dict[str, Any]]]:
        """The entries that all servers together have of something, with whose each is.

        A server that cannot say is passed over: the others are not to suffer for it.
        """
        kind = method.partition("/")[0]
        told: dict[str, list[dict[str, Any]]] = {}

        async def ask(name: str, upstream: UpstreamServer) -> None:
            with suppress(MCPError, ServerUnavailable):
                link = await upstream.wait_connected()
                if kind in link.capabilities:
                    pages = await link.request_list(method, key, upstream.config.connect_seconds)
                    told[name] = [entry for entry in pages if isinstance(entry, dict)]

        with anyio.move_on_after(COLLECT_TIMEOUT_SECONDS):
            async with anyio.create_task_group() as tasks:
                for name, upstream in self.servers.items():
                    if is_visible(name) and (upstream.connection or not upstream.is_lazy):
                        tasks.start_soon(ask, name, upstream)
        found = [(name, entry) for name in self.servers for entry in told.get(name, ())]
        for name, entry in found:
            if isinstance(uri := entry.get("uri"), str):
                self._record_owner(uri, name)
        return found

    def find_resource_owners(
        self, uri: str, is_visible: Callable[[str], bool]
    ) -> list[UpstreamServer]:
        """Who may have the resource of this address: those that listed it, or else all."""
        seen = [name for name in self.servers if is_visible(name)]
        listed = [name for name in self._owners.get(uri, ()) if name in seen]
        return [self.servers[name] for name in listed or seen]

    def _record_owner(self, uri: str, name: str) -> None:
        if uri not in self._owners and len(self._owners) >= MAX_RESOURCE_OWNERS:
            del self._owners[next(iter(self._owners))]
        of_uri = self._owners.setdefault(uri, [])
        if name not in of_uri:
            of_uri.append(name)

    def _add(self, server: ServerConfig) -> None:
        if not server.enabled or self._tasks is None:
            return
        upstream = UpstreamServer(
            server,
            self._store_listing,
            self._on_notification,
            self._start_limiter,
            self.subscriptions,
            resolve_token_folder(self.hub.config),
            self.hub.knows_tools_of(server),
        )
        self.servers[server.name] = upstream
        scope = self._scopes[server.name] = anyio.CancelScope()

        async def look_after() -> None:
            with scope:
                await upstream.run()

        self._tasks.start_soon(look_after)

    def _remove(self, name: str) -> None:
        del self.servers[name]
        self._scopes.pop(name).cancel()

    async def _store_listing(self, server: ServerConfig, listing: ServerListing) -> None:
        said: Mapping[str, Any] = {
            "instructions": listing.instructions,
            "protocol": listing.protocol,
            "info": dict(listing.info),
        }

        def learn() -> tuple[bool, int]:
            manifest = build_manifest(server, listing.tools, said)
            tools, altered = remove_invalid_fields(manifest.tools)
            manifest = replace(manifest, tools=tools, repaired_tools=altered)
            return self.hub.update_server(server, manifest), len(manifest.tools)

        changed, count = await anyio.to_thread.run_sync(learn)
        if changed:
            _log.info("%s has %d tools", server.name, count)
            # A client that is slow to hear of it does not hold up the server.
            self.run_in_background(self._on_changed)


async def _run_and_log_errors(act: Callable[..., Awaitable[None]], *given: Any) -> None:
    try:
        await act(*given)
    except Exception:
        # It is beside the point of everything else that goes on here, and must not end that.
        _log.exception("something done in the background failed")
