"""The MCP gateway as a whole: its servers, its clients, and what is done in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
from mcp.server.stdio import stdio_server

from toolcrib.gateway.mcp.admin.reload import follow_file
from toolcrib.gateway.mcp.server.background import tried
from toolcrib.gateway.mcp.server.pipes import Pipes
from toolcrib.gateway.mcp.server.router import Front, ProfileOf
from toolcrib.gateway.mcp.server.session import Shown
from toolcrib.gateway.mcp.server.token_savings import Savings
from toolcrib.gateway.mcp.upstream.startup import OnStarted, tell_starts
from toolcrib.hub.hub import Service

HOUSEKEEPING_SECONDS: Final = 2.0
READ_AT_ONCE: Final = 16


@asynccontextmanager
async def running(
    service: Service,
    profile_of: ProfileOf,
    on_started: OnStarted | None = None,
    *,
    savings: Savings | None = None,
    shown: Shown | None = None,
) -> AsyncIterator[Front]:
    """A front whose servers are looked after, and which is kept up to date, until this ends.

    `savings` and `shown` are of a client whose first requests were answered already.
    """
    savings = savings or Savings(service)
    front = Front(service, savings, profile_of, shown)
    async with anyio.create_task_group() as tasks:
        await tasks.start(front.fleet.run)
        tasks.start_soon(_keep_house, front, savings)
        tasks.start_soon(_read_ahead, front)
        tasks.start_soon(follow_file, front)
        if on_started is not None:
            tasks.start_soon(tell_starts, front.fleet, on_started)
        try:
            yield front
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(savings.settle)
                await anyio.to_thread.run_sync(service.flush)


async def serve_pipes(
    service: Service, profile: str | None, pipes: Pipes | None, savings: Savings, shown: Shown
) -> None:
    """Serve one client on these, or on standard input and output, until it leaves."""
    given: Any = pipes or ()
    async with (
        running(service, lambda ctx: profile, savings=savings, shown=shown) as front,
        stdio_server(*given) as (read, write),
    ):
        await front.server.run(read, write, front.server.create_initialization_options())


async def _keep_house(front: Front, savings: Savings) -> None:
    """Write what was counted, and see whether somebody has approved what was held back, or has
    forgotten a server, which then is listed anew."""
    while True:
        await anyio.sleep(HOUSEKEEPING_SECONDS)
        await tried(savings.settle)
        await tried(front.service.flush)
        if await tried(front.service.reread_pins):
            await front.tell_tools_changed()
        front.fleet.list_anew(sorted(front.service.forgotten))


async def _read_ahead(front: Front) -> None:
    """Read tools that are only sketched yet, a few at a time, so that searches need not."""
    # Not while a client waits for its first answers: those it shall have before.
    await anyio.sleep(HOUSEKEEPING_SECONDS)
    while True:
        engine = front.service.engine
        settle = partial(engine.settle, most=READ_AT_ONCE)
        left = await anyio.to_thread.run_sync(settle) if len(engine.catalog) else 0
        await anyio.sleep(0.05 if left else HOUSEKEEPING_SECONDS)
