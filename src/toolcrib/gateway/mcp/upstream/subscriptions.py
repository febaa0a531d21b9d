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

from toolcrib.config.settings import Server
from toolcrib.gateway.mcp.upstream.connection import Link
from toolcrib.gateway.mcp.upstream.log_levels import LEVELS

MAX_FOLLOWED: Final = 1_000
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
UPDATED: Final = "notifications/resources/updated"
# What a client that has named no level is taken to want where another has.
UNSAID: Final = "info"

Tell = Callable[[str, Mapping[str, Any] | None], Awaitable[None]]


class Wishes:
    """How many clients want what of which server."""

    def __init__(self) -> None:
        self._levels: Counter[str | None] = Counter()
        self._was_level_named = False
        self._followed: dict[str, Counter[str]] = {}
        self._changes: dict[str, anyio.Event] = {}

    @property
    def level(self) -> str | None:
        """The lowest level of the log that anybody wants; None while no client has named one."""
        if not self._was_level_named or not self._levels.total():
            return None
        return min((level or UNSAID for level in +self._levels), key=LEVELS.index)

    def uris(self, server: str) -> frozenset[str]:
        """The resources of a server that are followed."""
        return frozenset(self._followed.get(server, ()))

    def follow(self, server: str, uri: str) -> bool:
        """One more wants to know of changes; False where too many are followed already."""
        of_server = self._followed.setdefault(server, Counter())
        if uri not in of_server and len(of_server) >= MAX_FOLLOWED:
            return False
        of_server[uri] += 1
        if of_server[uri] == 1:
            self._wake(server)
        return True

    def unfollow(self, server: str, uri: str) -> None:
        """One fewer does."""
        of_server = self._followed.get(server, Counter())
        of_server[uri] -= 1
        if of_server[uri] <= 0:
            del of_server[uri]
            self._wake(server)

    def want_level(self, level: str | None, instead_of: str | None) -> None:
        """A client that wanted one level wants another now."""
        self._levels[instead_of] -= 1
        self.add_client(level)

    def add_client(self, level: str | None = None) -> None:
        """One more client may be told of the log."""
        self._was_level_named = self._was_level_named or level is not None
        before = self.level
        self._levels[level] += 1
        if self.level != before or level is not None:
            self._wake(*list(self._changes))

    def remove_client(self, level: str | None) -> None:
        """One fewer does."""
        self._levels[level] -= 1
        self._wake(*list(self._changes))

    def change(self, server: str) -> anyio.Event:
        """Set when something else is wanted of a server."""
        return self._changes.setdefault(server, anyio.Event())

    def _wake(self, *servers: str) -> None:
        for server in servers:
            if event := self._changes.pop(server, None):
                event.set()


async def keep_asking(link: Link, server: Server, wishes: Wishes, tell: Tell) -> None:
    """Have a server tell what is wanted of it, as long as its connection stands."""
    is_modern = link.session.is_modern
    async with anyio.create_task_group() as tasks:
        if "logging" in link.capabilities and not is_modern:
            # Newer servers are told with each request what is wanted of their logs.
            tasks.start_soon(_keep_level, link, server, wishes)
        if "resources" in link.capabilities:
            keep = _keep_streaming if is_modern else _keep_subscribed
            tasks.start_soon(keep, link, server, wishes, tell)


async def _keep_level(link: Link, server: Server, wishes: Wishes) -> None:
    sent: str | None = None
    while True:
        change = wishes.change(server.name)
        wanted = wishes.level
        if wanted not in (None, sent):
            sent = wanted
            await _asked(link, server, "logging/setLevel", {"level": wanted})
        await change.wait()


async def _keep_subscribed(link: Link, server: Server, wishes: Wishes, tell: Tell) -> None:
    asked: set[str] = set()
    # Followed since before this connection: nobody has told what changed in between.
    missed = wishes.uris(server.name)
    while True:
        change = wishes.change(server.name)
        wanted = wishes.uris(server.name)
        for uri in sorted(wanted - asked):
            asked.add(uri)
            await _asked(link, server, "resources/subscribe", {"uri": uri})
        for uri in sorted(asked - wanted):
            asked.discard(uri)
            await _asked(link, server, "resources/unsubscribe", {"uri": uri})
        await _tell_updated(missed & asked, tell)
        missed = frozenset()
        await change.wait()


async def _keep_streaming(link: Link, server: Server, wishes: Wishes, tell: Tell) -> None:
    missed = wishes.uris(server.name)
    before = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        while True:
            change = wishes.change(server.name)
            wanted = wishes.uris(server.name)
            scope, heard = anyio.CancelScope(), anyio.Event()
            if wanted:
                tasks.start_soon(_hear, link, wanted, missed, tell, scope, heard)
                # The earlier stream ends only when there is the next, so that nothing is missed.
                with anyio.move_on_after(server.connect_seconds):
                    await heard.wait()
            before.cancel()
            before, missed = scope, frozenset()
            await change.wait()


async def _hear(
    link: Link,
    uris: frozenset[str],
    missed: frozenset[str],
    tell: Tell,
    scope: anyio.CancelScope,
    heard: anyio.Event,
) -> None:
    """Pass on what changes; a stream that is lost is opened again, and all may have changed."""
    pause = FIRST_PAUSE
    with scope:
        while True:
            try:
                async with listen(link.session, resource_subscriptions=sorted(uris)) as changes:
                    heard.set()
                    await _tell_updated(missed & uris, tell)
                    async for change in changes:
                        pause = FIRST_PAUSE
                        await tell(UPDATED, {"uri": getattr(change, "uri", None)})
            except MCPError as fault:
                if fault.error.code == METHOD_NOT_FOUND:
                    heard.set()
                    return
            except SubscriptionLost:
                pass
            heard.set()
            await anyio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            missed = uris


async def _tell_updated(uris: frozenset[str] | set[str], tell: Tell) -> None:
    for uri in sorted(uris):
        await tell(UPDATED, {"uri": uri})


async def _asked(link: Link, server: Server, method: str, params: Mapping[str, Any]) -> None:
    # A server that cannot do it is not asked again until it is started anew.
    with suppress(MCPError):
        await link.session.raw_request(method, params, timeout=server.connect_seconds)
