"""All upstream servers: started and stopped with the gateway, queried together or one by one."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import anyio.abc
from mcp.shared.exceptions import MCPError
from mcp_types import methods as mcp_methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.config.store_paths import resolve_log_folder
from toolcrib.config.watch import diff_configs
from toolcrib.errors import InvalidStore, ServerUnavailable
from toolcrib.gateway.mcp.upstream.instances import ServerInstance, ServerInstances, run_with_lease
from toolcrib.gateway.mcp.upstream.oauth_tokens import find_token_place, rotate_tokens
from toolcrib.gateway.mcp.upstream.subscriptions import Subscriptions
from toolcrib.gateway.mcp.upstream.supervisor import OnNotification, ServerListing, UpstreamServer
from toolcrib.hub.directory import (
    MAX_DISPLAYED_NAME_CHARS,
    describe_tool,
    format_tool_count,
    limit_problems,
    render_definition,
)
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.safety.hidden_text import escape_invisible

MAX_CONCURRENT_STARTS: Final = 4
MAX_RESOURCE_OWNERS: Final = 50_000
COLLECT_TIMEOUT_SECONDS: Final = 10.0
# How long the first tool lists wait for servers whose tools are not known from an earlier run. Some
# clients allow ten seconds for the whole start.
FIRST_LIST_WAIT_SECONDS: Final = 5.0
HALTED_ERROR: Final = "it was stopped in the console; start it there"
_POLL_SECONDS: Final = 0.1
_PROTOCOL_VERSIONS: Final = (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)
_REQUIRED_FIELDS: Final = frozenset({"name", "inputSchema"})

_log = logging.getLogger(__name__)
OnChanged = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServerStart:
    """The outcome of a server's first start, and how many of all servers have started so far."""

    server: str
    tools: int
    protocol: str
    error: str
    number: int
    total: int


OnServerStart = Callable[[ServerStart], None]
ListRemotely = Callable[[str, str, str, str], Awaitable[list[Any]]]


class UpstreamPool:
    """The enabled servers of a configuration, each supervised by its own task."""

    def __init__(self, hub: Hub, on_changed: OnChanged, on_notification: OnNotification) -> None:
        self.hub = hub
        self.servers: dict[str, UpstreamServer] = {}
        # Kept by server name, so that subscriptions survive a change of the server's configuration.
        self.subscriptions = Subscriptions()
        self._open_token = find_token_place(hub.config, hub.store)
        self._on_changed = on_changed
        self._on_notification = on_notification
        self._start_limiter = anyio.CapacityLimiter(MAX_CONCURRENT_STARTS)
        self._scopes: dict[str, anyio.CancelScope] = {}
        self.instances = ServerInstances(self._start_instance)
        self._tasks: anyio.abc.TaskGroup | None = None
        # The id of this replica if there can be others, and the function that lists what servers on other replicas have.
        self.replica = ""
        self.list_remotely: ListRemotely | None = None
        self._first_list_deadline = -math.inf
        # The servers that listed a resource, by URI.
        self._owners: dict[str, list[str]] = {}

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Supervise all servers until cancelled."""
        self._first_list_deadline = anyio.current_time() + FIRST_LIST_WAIT_SECONDS
        async with anyio.create_task_group() as self._tasks:
            await anyio.to_thread.run_sync(self._rotate_tokens)
            for server in self.hub.config.servers.values():
                self._add(server)
            task_status.started()
            await anyio.sleep_forever()

    def _rotate_tokens(self) -> None:
        """Encrypt the tokens of the store with the first key, so that the others can be removed."""
        try:
            if count := rotate_tokens(self.hub.config, self.hub.store):
                _log.info("tokens that are now encrypted with the first key: %d", count)
        except InvalidStore as error:
            _log.warning("%s", error)

    async def reconfigure(self, config: GatewayConfig) -> None:
        """Start the added servers, stop the removed ones, and restart the changed ones."""
        difference = diff_configs(self.hub.config, config)
        await anyio.to_thread.run_sync(self.hub.reconfigure, config)
        for name in (*difference.removed, *(server.name for server in difference.changed)):
            if name in self.servers:
                self._cancel(name)
                self.instances.stop_server(name)
                del self.servers[name]
        for name, server in config.servers.items():
            if name not in self.servers:
                self._add(server)
        await self._on_changed()

    def restart(self, name: str) -> None:
        """Stop a server if it runs, and start it, also if it was halted or starts on demand."""
        self._replace(name, is_halted=False).relist()

    def halt(self, name: str) -> None:
        """Stop a server until `restart`. Its tools stay in the catalog, and calls fail immediately."""
        self._replace(name, is_halted=True)

    def _replace(self, name: str, *, is_halted: bool) -> UpstreamServer:
        """Replace a server by a new one with the same configuration and counts; return it."""
        old = self.servers[name]
        self._cancel(name)
        self.instances.stop_server(name)
        self._add(old.config, is_halted=is_halted)
        new = self.servers[name]
        new.start_count, new.call_count = old.start_count, old.call_count
        return new

    def relist(self, names: Iterable[str]) -> None:
        """Have these servers list their tools again."""
        for upstream in filter(None, map(self.servers.get, names)):
            upstream.relist()

    def run_in_background(self, action: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run an action in the task group of the pool; log its errors."""
        if self._tasks is not None:
            self._tasks.start_soon(_run_and_log_errors, action, *args)

    def unreachable_servers(self) -> dict[str, str]:
        """Return the error of each server that cannot be reached."""
        return {
            name: upstream.public_error
            for name, upstream in list(self.servers.items())
            if upstream.connection is None and upstream.error
        }

    def unlisted_servers(self) -> dict[str, str]:
        """Return the error of each server whose tools are unknown; it is empty while one starts."""
        return {name: upstream.public_error for name, upstream in list(self.servers.items()) if not upstream.is_listed}

    async def wait_until_listed(self, names: Iterable[str]) -> None:
        """Wait until these servers have listed their tools or failed, in the first seconds only."""
        with anyio.CancelScope(deadline=self._first_list_deadline):
            for upstream in filter(None, map(self.servers.get, names)):
                await upstream.wait_until_listed()

    async def report_starts(self, report: OnServerStart) -> None:
        """Report each server once, when it is connected or has failed; return after the last."""
        pending = dict(self.servers)
        total = len(pending)
        while pending:
            for name, upstream in list(pending.items()):
                if self.servers.get(name) is not upstream:
                    del pending[name]
                elif upstream.is_start_finished:
                    del pending[name]
                    report(self._describe_start(upstream, total - len(pending), total))
            await anyio.sleep(_POLL_SECONDS if pending else 0)

    def _describe_start(self, upstream: UpstreamServer, number: int, total: int) -> ServerStart:
        listed = {tools.server.name: tools for tools in self.hub.directory.servers}
        tools = listed.get(upstream.name)
        return ServerStart(
            upstream.name,
            len(tools.entries) if tools else 0,
            upstream.connection.protocol if upstream.connection else "",
            "" if upstream.connection else upstream.error,
            number,
            total,
        )

    async def collect_entries(
        self, method: str, key: str, is_visible: Callable[[str], bool]
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return the entries of a list request to all visible servers, each with its server's name.

        A server that fails or takes too long is left out.
        """
        by_server: dict[str, list[dict[str, Any]]] = {}

        async def request_entries(name: str, upstream: UpstreamServer) -> None:
            with suppress(MCPError, ServerUnavailable):
                entries = await self._request_entries(upstream, method, key)
                by_server[name] = [entry for entry in entries if isinstance(entry, dict)]

        with anyio.move_on_after(COLLECT_TIMEOUT_SECONDS):
            async with anyio.create_task_group() as tasks:
                for name, upstream in self.servers.items():
                    if is_visible(name) and (upstream.connection or not upstream.is_lazy):
                        tasks.start_soon(request_entries, name, upstream)
        collected = [(name, entry) for name in self.servers for entry in by_server.get(name, ())]
        for name, entry in collected:
            if isinstance(uri := entry.get("uri"), str):
                self._record_owner(uri, name)
        return collected

    async def _request_entries(self, upstream: UpstreamServer, method: str, key: str) -> list[Any]:
        if upstream.lease_holder and self.list_remotely:
            return await self.list_remotely(upstream.lease_holder, upstream.name, method, key)
        connection = await upstream.wait_connected()
        if not connection.supports(method.partition("/")[0]):
            return []
        return await connection.request_list(method, key, upstream.config.connect_seconds)

    def find_resource_owners(self, uri: str, is_visible: Callable[[str], bool]) -> list[UpstreamServer]:
        """Return the visible servers that listed a resource, or all visible ones if none did."""
        visible = [name for name in self.servers if is_visible(name)]
        owners = [name for name in self._owners.get(uri, ()) if name in visible]
        return [self.servers[name] for name in owners or visible]

    def _record_owner(self, uri: str, name: str) -> None:
        if uri not in self._owners and len(self._owners) >= MAX_RESOURCE_OWNERS:
            del self._owners[next(iter(self._owners))]
        owners = self._owners.setdefault(uri, [])
        if name not in owners:
            owners.append(name)

    def _cancel(self, name: str) -> None:
        if scope := self._scopes.pop(name, None):
            scope.cancel()

    def _add(self, server: ServerConfig, *, is_halted: bool = False) -> None:
        if not server.enabled or self._tasks is None:
            return
        upstream = UpstreamServer(
            server,
            self._store_listing,
            self._on_notification,
            self._start_limiter,
            self.subscriptions,
            self._open_token,
            resolve_log_folder(self.hub.config),
            self.hub.knows_tools_of(server),
        )
        self.servers[server.name] = upstream
        if is_halted:
            upstream.is_halted, upstream.error, upstream.failures = True, HALTED_ERROR, 1
            return
        scope = self._scopes[server.name] = anyio.CancelScope()

        async def supervise() -> None:
            with scope:
                if server.replicas == "one" and self.replica:
                    await run_with_lease(upstream, self.hub, self.replica)
                else:
                    await upstream.run()

        self._tasks.start_soon(supervise)

    def _start_instance(self, server: ServerConfig) -> ServerInstance:
        """Start an instance of a server. Its list is that of the shared one, and its notifications are private."""
        if self._tasks is None:
            raise ServerUnavailable("the gateway is not running")
        upstream = UpstreamServer(
            replace(server, start="lazy"),
            _ignore,
            _ignore,
            self._start_limiter,
            Subscriptions(),
            self._open_token,
            is_listed=True,
        )
        scope = anyio.CancelScope()

        async def supervise() -> None:
            with scope:
                await upstream.run()

        self._tasks.start_soon(supervise)
        return ServerInstance(upstream, scope)

    async def _store_listing(self, server: ServerConfig, listing: ServerListing) -> None:
        details = {"instructions": listing.instructions, "protocol": listing.protocol, "info": dict(listing.info)}

        def update_hub() -> tuple[bool, int]:
            manifest = build_manifest(server, listing.tools, details)
            tools, repairs = _remove_invalid_fields(manifest.tools)
            manifest = replace(manifest, tools=tools, repaired_tools=repairs)
            return self.hub.update_server(server, manifest), len(manifest.tools)

        is_changed, count = await anyio.to_thread.run_sync(update_hub)
        if is_changed:
            upstream = self.servers.get(server.name)
            if upstream is not None and upstream.connection is not None:
                # The log record of a start already has the number of tools.
                _log.info("%s now has %s", server.name, format_tool_count(count))
            # In the background, so that a slow client does not delay the server.
            self.run_in_background(self._on_changed)


async def _ignore(*args: object) -> None:
    """Ignore the tools of an instance, or a notification that is not part of a call."""


async def _run_and_log_errors(action: Callable[..., Awaitable[None]], *args: Any) -> None:
    try:
        await action(*args)
    except Exception:
        # An exception would end the task group, and with it all servers.
        _log.exception("a background task failed")


def _remove_invalid_fields(tools: tuple[dict[str, Any], ...]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Return the tools without optional fields that violate MCP, and a description of each repair.

    A strict client rejects a whole list because of one invalid field.
    """
    if not _find_invalid_fields([render_definition(tool, "tool") for tool in tools]):
        return tools, ()
    repaired: list[dict[str, Any]] = []
    repairs: list[str] = []
    for number, tool in enumerate(tools, 1):
        invalid = _find_invalid_fields([render_definition(tool, "tool")])
        if not invalid or invalid & _REQUIRED_FIELDS:
            # An invalid name or schema is reported when the definition is parsed.
            repaired.append(tool)
            continue
        repaired.append({key: value for key, value in tool.items() if key not in invalid})
        names = escape_invisible(", ".join(sorted(invalid)), MAX_DISPLAYED_NAME_CHARS)
        repairs.append(f"{describe_tool(tool, number)} is used without its invalid {names}")
    return tuple(repaired), limit_problems(repairs)


def _find_invalid_fields(tools: list[dict[str, Any]]) -> set[str]:
    result = {"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    invalid: set[str] = set()
    for version in _PROTOCOL_VERSIONS:
        try:
            mcp_methods.validate_server_result("tools/list", version, result)
        except ValidationError as error:
            invalid |= {str(item["loc"][2]) for item in error.errors() if len(item["loc"]) > 2}
    return invalid
