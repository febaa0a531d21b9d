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

from toolcrib.config.settings import Config, Server
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.upstream.definition_repair import readable
from toolcrib.gateway.mcp.upstream.subscriptions import Wishes
from toolcrib.gateway.mcp.upstream.supervisor import Listing, OnNews, Upstream
from toolcrib.hub.hub import Service, manifest_of
from toolcrib.hub.paths import tokens_folder

STARTING_AT_ONCE: Final = 4
MAX_OWNED: Final = 50_000
# How long a list of what all servers have waits for the slow ones.
COLLECT_SECONDS: Final = 10.0
# How long after the start a list of tools waits for servers that nobody has ever seen. Some clients
# give a server ten seconds for all of its start.
FIRST_LIST_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)
OnChanged = Callable[[], Awaitable[None]]


class Fleet:
    """The servers of a configuration, each looked after by a task of its own."""

    def __init__(self, service: Service, on_changed: OnChanged, on_news: OnNews) -> None:
        self.service = service
        self.upstreams: dict[str, Upstream] = {}
        # Of servers by name, so that they outlast the way in which one is reached.
        self.wishes = Wishes()
        self._on_changed = on_changed
        self._on_news = on_news
        self._starting = anyio.CapacityLimiter(STARTING_AT_ONCE)
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._patient_until = -math.inf
        # Whose resource an address is, as far as lists have told.
        self._owners: dict[str, list[str]] = {}

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Look after all servers until cancelled."""
        self._patient_until = anyio.current_time() + FIRST_LIST_SECONDS
        async with anyio.create_task_group() as self._tasks:
            for server in self.service.config.servers.values():
                self._add(server)
            task_status.started()
            await anyio.sleep_forever()

    async def reconfigure(self, config: Config) -> None:
        """Start what is new, stop what is gone, and start anew what is reached in another way."""
        before = {name: upstream.server for name, upstream in self.upstreams.items()}
        await anyio.to_thread.run_sync(self.service.reconfigure, config)
        for name, server in before.items():
            if config.servers.get(name) != server:
                self._remove(name)
        for name, server in config.servers.items():
            if name not in self.upstreams:
                self._add(server)
        await self._on_changed()

    def list_anew(self, names: Iterable[str]) -> None:
        """Have these say again what they have."""
        for upstream in filter(None, map(self.upstreams.get, names)):
            upstream.list_anew()

    def start_soon(self, act: Callable[..., Awaitable[None]], *given: Any) -> None:
        """Do something that goes on as long as it takes, or until the servers are left."""
        if self._tasks is not None:
            self._tasks.start_soon(_awaited, act, *given)

    def trouble(self) -> dict[str, str]:
        """The servers that cannot be reached, and why."""
        return {
            name: upstream.trouble
            for name, upstream in list(self.upstreams.items())
            if upstream.link is None and upstream.trouble
        }

    def unseen(self) -> dict[str, str]:
        """The servers whose tools nobody has seen yet, and why; no reason while they start."""
        return {
            name: upstream.trouble
            for name, upstream in list(self.upstreams.items())
            if not upstream.known
        }

    async def seen(self, names: Iterable[str]) -> None:
        """Wait until these have told their tools or have failed; only in the first seconds."""
        with anyio.CancelScope(deadline=self._patient_until):
            for upstream in filter(None, map(self.upstreams.get, names)):
                await upstream.seen()

    async def collect(
        self, method: str, key: str, servers: Callable[[str], bool]
    ) -> list[tuple[str, dict[str, Any]]]:
        """The entries that all servers together have of something, with whose each is.

        A server that cannot say is passed over: the others are not to suffer for it.
        """
        kind = method.partition("/")[0]
        told: dict[str, list[dict[str, Any]]] = {}

        async def ask(name: str, upstream: Upstream) -> None:
            with suppress(MCPError, ServerUnavailable):
                link = await upstream.linked()
                if kind in link.capabilities:
                    pages = await link.pages(method, key, upstream.server.connect_seconds)
                    told[name] = [entry for entry in pages if isinstance(entry, dict)]

        with anyio.move_on_after(COLLECT_SECONDS):
            async with anyio.create_task_group() as tasks:
                for name, upstream in self.upstreams.items():
                    if servers(name) and (upstream.link or not upstream.is_lazy):
                        tasks.start_soon(ask, name, upstream)
        found = [(name, entry) for name in self.upstreams for entry in told.get(name, ())]
        for name, entry in found:
            if isinstance(uri := entry.get("uri"), str):
                self._own(uri, name)
        return found

    def owners(self, uri: str, servers: Callable[[str], bool]) -> list[Upstream]:
        """Who may have the resource of this address: those that listed it, or else all."""
        seen = [name for name in self.upstreams if servers(name)]
        listed = [name for name in self._owners.get(uri, ()) if name in seen]
        return [self.upstreams[name] for name in listed or seen]

    def _own(self, uri: str, name: str) -> None:
        if uri not in self._owners and len(self._owners) >= MAX_OWNED:
            del self._owners[next(iter(self._owners))]
        of_uri = self._owners.setdefault(uri, [])
        if name not in of_uri:
            of_uri.append(name)

    def _add(self, server: Server) -> None:
        if not server.enabled or self._tasks is None:
            return
        upstream = Upstream(
            server,
            self._listed,
            self._on_news,
            self._starting,
            self.wishes,
            tokens_folder(self.service.config),
            self.service.knows(server),
        )
        self.upstreams[server.name] = upstream
        scope = self._scopes[server.name] = anyio.CancelScope()

        async def look_after() -> None:
            with scope:
                await upstream.run()

        self._tasks.start_soon(look_after)

    def _remove(self, name: str) -> None:
        del self.upstreams[name]
        self._scopes.pop(name).cancel()

    async def _listed(self, server: Server, listing: Listing) -> None:
        said: Mapping[str, Any] = {
            "instructions": listing.instructions,
            "protocol": listing.protocol,
            "info": dict(listing.info),
        }

        def learn() -> tuple[bool, int]:
            manifest = manifest_of(server, listing.tools, said)
            tools, altered = readable(manifest.tools)
            manifest = replace(manifest, tools=tools, altered=altered)
            return self.service.learn(server, manifest), len(manifest.tools)

        changed, count = await anyio.to_thread.run_sync(learn)
        if changed:
            _log.info("%s has %d tools", server.name, count)
            # A client that is slow to hear of it does not hold up the server.
            self.start_soon(self._on_changed)


async def _awaited(act: Callable[..., Awaitable[None]], *given: Any) -> None:
    try:
        await act(*given)
    except Exception:
        # It is beside the point of everything else that goes on here, and must not end that.
        _log.exception("something done in the background failed")
