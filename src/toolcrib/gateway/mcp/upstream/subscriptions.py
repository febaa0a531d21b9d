"""What clients subscribe to on upstream servers: resource updates and log messages.

Subscriptions are counted. A server receives one subscription per resource, however many clients
have it, again after a reconnect, and it is cancelled with the last client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, get_args

import anyio
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, LoggingLevel

from toolcrib.config.server_settings import ServerConfig
from toolcrib.gateway.mcp.upstream.connection import UpstreamConnection

MAX_SUBSCRIBED_URIS: Final = 1_000
MIN_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
RESOURCE_UPDATED: Final = "notifications/resources/updated"
# Least severe first.
LOG_LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)
# The level of a client that set none, once another client has set one.
DEFAULT_LOG_LEVEL: Final = "info"

Notify = Callable[[str, Mapping[str, Any] | None], Awaitable[None]]


class Subscriptions:
    """Counts the clients per log level, and per resource of each server."""

    def __init__(self) -> None:
        self._levels: Counter[str | None] = Counter()
        self._is_level_set = False
        self._subscribed: dict[str, Counter[str]] = {}
        self._changes: dict[str, anyio.Event] = {}

    @property
    def log_level(self) -> str | None:
        """The lowest log level of all clients; None while no client has set one."""
        if not self._is_level_set or not self._levels.total():
            return None
        return min((level or DEFAULT_LOG_LEVEL for level in +self._levels), key=LOG_LEVELS.index)

    def subscribed_uris(self, server: str) -> frozenset[str]:
        """Return the resources of a server that clients subscribe to."""
        return frozenset(self._subscribed.get(server, ()))

    def subscribe(self, server: str, uri: str) -> bool:
        """Add a client's subscription to a resource; return False if there are too many resources."""
        counts = self._subscribed.setdefault(server, Counter())
        if uri not in counts and len(counts) >= MAX_SUBSCRIBED_URIS:
            return False
        counts[uri] += 1
        if counts[uri] == 1:
            self._signal_change(server)
        return True

    def unsubscribe(self, server: str, uri: str) -> None:
        """Remove a client's subscription to a resource."""
        counts = self._subscribed.get(server, Counter())
        counts[uri] -= 1
        if counts[uri] <= 0:
            del counts[uri]
            self._signal_change(server)

    def change_log_level(self, level: str | None, old_level: str | None) -> None:
        """Replace the log level of a client."""
        self._levels[old_level] -= 1
        self.add_client(level)

    def add_client(self, level: str | None = None) -> None:
        """Add a client that receives log messages."""
        self._is_level_set = self._is_level_set or level is not None
        before = self.log_level
        self._levels[level] += 1
        if self.log_level != before or level is not None:
            self._signal_change(*list(self._changes))

    def remove_client(self, level: str | None) -> None:
        """Remove a client that received log messages."""
        self._levels[level] -= 1
        self._signal_change(*list(self._changes))

    def change_event(self, server: str) -> anyio.Event:
        """Return an event that is set when the subscriptions of a server change."""
        return self._changes.setdefault(server, anyio.Event())

    def _signal_change(self, *servers: str) -> None:
        for server in servers:
            if event := self._changes.pop(server, None):
                event.set()


@dataclass(frozen=True, slots=True)
class SubscriptionSync:
    """Keeps the subscriptions of a server equal to those of the clients, while it is connected."""

    connection: UpstreamConnection
    server: ServerConfig
    subscriptions: Subscriptions
    notify: Notify

    async def run(self) -> None:
        """Apply all changes until cancelled."""
        capabilities = self.connection.capabilities
        is_stateless = self.connection.session.is_stateless
        async with anyio.create_task_group() as tasks:
            # A stateless server receives the log level with each request.
            if "logging" in capabilities and not is_stateless:
                tasks.start_soon(self._sync_log_level)
            if "resources" in capabilities:
                tasks.start_soon(self._sync_by_stream if is_stateless else self._sync_by_request)

    async def _sync_log_level(self) -> None:
        sent: str | None = None
        while True:
            change = self.subscriptions.change_event(self.server.name)
            level = self.subscriptions.log_level
            if level not in (None, sent):
                sent = level
                await self._try_request("logging/setLevel", {"level": level})
            await change.wait()

    async def _sync_by_request(self) -> None:
        current: set[str] = set()
        # These may have changed before this connection, without a notification.
        missed = self.subscriptions.subscribed_uris(self.server.name)
        while True:
            change = self.subscriptions.change_event(self.server.name)
            wanted = self.subscriptions.subscribed_uris(self.server.name)
            for uri in sorted(wanted - current):
                current.add(uri)
                await self._try_request("resources/subscribe", {"uri": uri})
            for uri in sorted(current - wanted):
                current.discard(uri)
                await self._try_request("resources/unsubscribe", {"uri": uri})
            await self._notify_updated(missed & current)
            missed = frozenset()
            await change.wait()

    async def _sync_by_stream(self) -> None:
        missed = self.subscriptions.subscribed_uris(self.server.name)
        previous = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            while True:
                change = self.subscriptions.change_event(self.server.name)
                wanted = self.subscriptions.subscribed_uris(self.server.name)
                scope, opened = anyio.CancelScope(), anyio.Event()
                if wanted:
                    tasks.start_soon(self._forward_stream, wanted, missed, scope, opened)
                    # The previous stream ends after the new one is open, so that no update is lost.
                    with anyio.move_on_after(self.server.connect_seconds):
                        await opened.wait()
                previous.cancel()
                previous, missed = scope, frozenset()
                await change.wait()

    async def _forward_stream(
        self, uris: frozenset[str], missed: frozenset[str], scope: anyio.CancelScope, opened: anyio.Event
    ) -> None:
        """Forward resource updates; reopen a lost stream and report all its resources as updated."""
        session, pause = self.connection.session, MIN_RETRY_SECONDS
        with scope:
            while True:
                try:
                    async with listen(session, resource_subscriptions=sorted(uris)) as updates:
                        opened.set()
                        await self._notify_updated(missed & uris)
                        async for update in updates:
                            pause = MIN_RETRY_SECONDS
                            uri = getattr(update, "uri", None)
                            await self.notify(RESOURCE_UPDATED, {"uri": uri})
                except MCPError as error:
                    if error.error.code == METHOD_NOT_FOUND:
                        opened.set()
                        return
                except SubscriptionLost:
                    pass
                opened.set()
                await anyio.sleep(pause)
                pause = min(pause * 2, MAX_RETRY_SECONDS)
                missed = uris

    async def _notify_updated(self, uris: Iterable[str]) -> None:
        for uri in sorted(uris):
            await self.notify(RESOURCE_UPDATED, {"uri": uri})

    async def _try_request(self, method: str, params: Mapping[str, Any]) -> None:
        # A server without support for the method is asked again after a reconnect.
        with suppress(MCPError):
            timeout = self.server.connect_seconds
            await self.connection.session.raw_request(method, params, timeout=timeout)
