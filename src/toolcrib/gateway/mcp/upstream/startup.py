"""How the start of the servers goes, told as it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from toolcrib.gateway.mcp.upstream.pool import Fleet
from toolcrib.gateway.mcp.upstream.supervisor import Upstream

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Started:
    """A server that has come up or has not, and how many have been heard of so far."""

    server: str
    tools: int
    protocol: str
    trouble: str
    number: int
    total: int


OnStarted = Callable[[Started], None]


async def tell_starts(fleet: Fleet, tell: OnStarted) -> None:
    """Tell of each server once, when it has come up or failed; ends when all have been told of."""
    waiting = dict(fleet.upstreams)
    total = len(waiting)
    while waiting:
        for name, upstream in list(waiting.items()):
            if fleet.upstreams.get(name) is not upstream:
                del waiting[name]
            elif is_settled(upstream):
                del waiting[name]
                tell(_started(fleet, upstream, total - len(waiting), total))
        await anyio.sleep(_POLL_SECONDS if waiting else 0)


def is_settled(upstream: Upstream) -> bool:
    """Whether it has come up, has failed, or is not to be started yet."""
    return upstream.link is not None or bool(upstream.failures) or upstream.is_lazy


def _started(fleet: Fleet, upstream: Upstream, number: int, total: int) -> Started:
    shelves = {shelf.server.name: shelf for shelf in fleet.service.directory.shelves}
    shelf = shelves.get(upstream.name)
    return Started(
        upstream.name,
        len(shelf.entries) if shelf else 0,
        upstream.link.protocol if upstream.link else "",
        "" if upstream.link else upstream.trouble,
        number,
        total,
    )
