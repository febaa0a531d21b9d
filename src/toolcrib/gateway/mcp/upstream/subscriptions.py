"""What clients want to be told by servers, besides answers: changes of resources, and the log.

Wishes are counted. A server is asked for each once, however many clients have it, again when it was
started anew, and no longer than anybody has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from toolcrib.config.settings import ServerConfig
from toolcrib.gateway.mcp.upstream.connection import UpstreamConnection
from toolcrib.gateway.mcp.upstream.log_levels import LOG_LEVELS

MAX_SUBSCRIBED_URIS: Final = 1_000
MIN_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
RESOURCE_UPDATED: Final = "notifications/resources/updated"
# What a client that has named no level is taken to want where another has.
DEFAULT_LOG_LEVEL: Final = "info"

Notify = Callable[[str, Mapping[str, Any] | None], Awaitable[None]]


class Subscriptions:
    """How many clients want what of which server."""

    def __init__(self) -> None:
        self._levels: Counter[str | None] = Counter()
        self._is_level_set = False
        self._subscribed: dict[str, Counter[str]] = {}
        self._changes: dict[str, anyio.Event] = {}

    @property
    def log_level(self) -> str | None:
        """The lowest level of the log that anybody wants; None while no client has named one."""
        if not self._is_level_set or not self._levels.total():
            return None
        return min((level or DEFAULT_LOG_LEVEL for level in +self._levels), key=LOG_LEVELS.index)

    def subscribed_uris(self, server: str) -> frozenset[str]:
        """The resources of a server that are followed."""
        return frozenset(self._subscribed.get(server, ()))

    def subscribe(self, server: str, uri: str) -> bool:
        """One more wants to know of changes; False where too many are followed already."""
        of_server = self._subscribed.setdefault(server, Counter())
        if uri not in of_server and len(of_server) >= MAX_SUBSCRIBED_URIS:
            return False
        of_server[uri] += 1
        if of_server[uri] == 1:
            self._signal_change(server)
        return True

    def unsubscribe(self, server: str, uri: str) -> None:
        """One fewer does."""
        of_server = self._subscribed.get(server, Counter())
        of_server[uri] -= 1
        if of_server[uri] <= 0:
            del of_server[uri]
            self._signal_change(server)

    def change_log_level(self, level: str | None, old_level: str | None) -> None:
        """A client that wanted one level wants another now."""
        self._levels[old_level] -= 1
        self.add_client(level)

    def add_client(self, level: str | None = None) -> None:
        """One more client may be told of the log."""
        self._is_level_set = self._is_level_set or level is not None
        before = self.log_level
        self._levels[level] += 1
        if self.log_level != before or level is not None:
            self._signal_change(*list(self._changes))

    def remove_client(self, level: str | None) -> None:
        """One fewer does."""
        self._levels[level] -= 1
        self._signal_change(*list(self._changes))

    def change_event(self, server: str) -> anyio.Event:
        """Set when something else is wanted of a server."""
        return self._changes.setdefault(server, anyio.Event())

    def _signal_change(self, *servers: str) -> None:
        for server in servers:
            if event := self._changes.pop(server, None):
                event.set()


async def sync_subscriptions(
    link: UpstreamConnection, server: ServerConfig, wishes: Subscriptions, tell: Notify
) -> None:
    """Have a server tell what is wanted of it, as long as its connection stands."""
    is_modern = link.session.is_stateless
    async with anyio.create_task_group() as tasks:
        if "logging" in link.capabilities and not is_modern:
            # Newer servers are told with each request what is wanted of their logs.
            tasks.start_soon(_sync_log_level, link, server, wishes)
        if "resources" in link.capabilities:
            keep = _sync_by_stream if is_modern else _sync_by_request
            tasks.start_soon(keep, link, server, wishes, tell)


async def _sync_log_level(
    link: UpstreamConnection, server: ServerConfig, wishes: Subscriptions
) -> None:
    sent: str | None = None
    while True:
        change = wishes.change_event(server.name)
        wanted = wishes.log_level
        if wanted not in (None, sent):
            sent = wanted
            await _try_request(link, server, "logging/setLevel", {"level": wanted})
        await change.wait()


async def _sync_by_request(
    link: UpstreamConnection, server: ServerConfig, wishes: Subscriptions, tell: Notify
) -> None:
    asked: set[str] = set()
    # Followed since before this connection: nobody has told what changed in between.
    missed = wishes.subscribed_uris(server.name)
    while True:
        change = wishes.change_event(server.name)
        wanted = wishes.subscribed_uris(server.name)
        for uri in sorted(wanted - asked):
            asked.add(uri)
            await _try_request(link, server, "resources/subscribe", {"uri": uri})
        for uri in sorted(asked - wanted):
            asked.discard(uri)
            await _try_request(link, server, "resources/unsubscribe", {"uri": uri})
        await _notify_updated(missed & asked, tell)
        missed = frozenset()
        await change.wait()


async def _sync_by_stream(
    link: UpstreamConnection, server: ServerConfig, wishes: Subscriptions, tell: Notify
) -> None:
    missed = wishes.subscribed_uris(server.name)
    before = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        while True:
            change = wishes.change_event(server.name)
            wanted = wishes.subscribed_uris(server.name)
            scope, heard = anyio.CancelScope(), anyio.Event()
            if wanted:
                tasks.start_soon(_forward_stream, link, wanted, missed, tell, scope, heard)
                # The earlier stream ends only when there is the next, so that nothing is missed.
                with anyio.move_on_after(server.connect_seconds):
                    await heard.wait()
            before.cancel()
            before, missed = scope, frozenset()
            await change.wait()


async def _forward_stream(
    link: UpstreamConnection,
    uris: frozenset[str],
    missed: frozenset[str],
    tell: Notify,
    scope: anyio.CancelScope,
    heard: anyio.Event,
) -> None:
    """Pass on what changes; a stream that is lost is opened again, and all may have changed."""
    pause = MIN_RETRY_SECONDS
    with scope:
        while True:
            try:
                async with listen(link.session, resource_subscriptions=sorted(uris)) as changes:
                    heard.set()
                    await _notify_updated(missed & uris, tell)
                    async for change in changes:
                        pause = MIN_RETRY_SECONDS
                        await tell(RESOURCE_UPDATED, {"uri": getattr(change, "uri", None)})
            except MCPError as fault:
                if fault.error.code == METHOD_NOT_FOUND:
                    heard.set()
                    return
            except SubscriptionLost:
                pass
            heard.set()
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_RETRY_SECONDS)
            missed = uris


async def _notify_updated(uris: frozenset[str] | set[str], tell: Notify) -> None:
    for uri in sorted(uris):
        await tell(RESOURCE_UPDATED, {"uri": uri})


async def _try_request(
    link: UpstreamConnection, server: ServerConfig, method: str, params: Mapping[str, Any]
) -> None:
    # A server that cannot do it is not asked again until it is started anew.
    with suppress(MCPError):
        await link.session.raw_request(method, params, timeout=server.connect_seconds)
