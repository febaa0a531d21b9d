"""How the start of the servers goes, told as it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class ServerStart:
    """A server that has come up or has not, and how many have been heard of so far."""

    server: str
    tools: int
    protocol: str
    error: str
    number: int
    total: int


OnServerStart = Callable[[ServerStart], None]


async def report_server_starts(pool: UpstreamPool, report: OnServerStart) -> None:
    """Tell of each server once, when it has come up or failed; ends when all have been told of."""
    waiting = dict(pool.servers)
    total = len(waiting)
    while waiting:
        for name, upstream in list(waiting.items()):
            if pool.servers.get(name) is not upstream:
                del waiting[name]
            elif has_start_finished(upstream):
                del waiting[name]
                report(_describe_start(pool, upstream, total - len(waiting), total))
        await anyio.sleep(_POLL_SECONDS if waiting else 0)


def has_start_finished(upstream: UpstreamServer) -> bool:
    """Whether it has come up, has failed, or is not to be started yet."""
    return upstream.connection is not None or bool(upstream.failures) or upstream.is_lazy


def _describe_start(
    fleet: UpstreamPool, upstream: UpstreamServer, number: int, total: int
) -> ServerStart:
    shelves = {shelf.server.name: shelf for shelf in fleet.hub.directory.servers}
    shelf = shelves.get(upstream.name)
    return ServerStart(
        upstream.name,
        len(shelf.entries) if shelf else 0,
        upstream.connection.protocol if upstream.connection else "",
        "" if upstream.connection else upstream.error,
        number,
        total,
    )
