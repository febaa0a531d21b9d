"""The MCP gateway as a whole: its servers, its clients, and what is done in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
from mcp.server.stdio import stdio_server

from toolcrib.gateway.mcp.admin.reload import reload_on_change
from toolcrib.gateway.mcp.server.background import run_and_log_errors
from toolcrib.gateway.mcp.server.pipes import StdioPipes
from toolcrib.gateway.mcp.server.router import GetProfile, McpRouter
from toolcrib.gateway.mcp.server.session import SessionState
from toolcrib.gateway.mcp.server.token_savings import TokenSavings
from toolcrib.gateway.mcp.upstream.startup import OnServerStart, report_server_starts
from toolcrib.hub.hub import Hub

HOUSEKEEPING_SECONDS: Final = 2.0
MAX_ENCODED_PER_STEP: Final = 16


@asynccontextmanager
async def run_gateway(
    hub: Hub,
    get_profile: GetProfile,
    on_started: OnServerStart | None = None,
    *,
    token_savings: TokenSavings | None = None,
    session_state: SessionState | None = None,
) -> AsyncIterator[McpRouter]:
    """A front whose servers are looked after, and which is kept up to date, until this ends.

    `savings` and `shown` are of a client whose first requests were answered already.
    """
    token_savings = token_savings or TokenSavings(hub)
    front = McpRouter(hub, token_savings, get_profile, session_state)
    async with anyio.create_task_group() as tasks:
        await tasks.start(front.pool.run)
        tasks.start_soon(_run_housekeeping, front, token_savings)
        tasks.start_soon(_warm_up_engine, front)
        tasks.start_soon(reload_on_change, front)
        if on_started is not None:
            tasks.start_soon(report_server_starts, front.pool, on_started)
        try:
            yield front
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(token_savings.flush)
                await anyio.to_thread.run_sync(hub.flush)


async def serve_pipes(
    hub: Hub,
    profile: str | None,
    pipes: StdioPipes | None,
    token_savings: TokenSavings,
    session_state: SessionState,
) -> None:
    """Serve one client on these, or on standard input and output, until it leaves."""
    given: Any = pipes or ()
    async with (
        run_gateway(
            hub, lambda ctx: profile, token_savings=token_savings, session_state=session_state
        ) as front,
        stdio_server(*given) as (read, write),
    ):
        await front.server.run(read, write, front.server.create_initialization_options())


async def _run_housekeeping(front: McpRouter, savings: TokenSavings) -> None:
    """Write what was counted, and see whether somebody has approved what was held back, or has
    forgotten a server, which then is listed anew."""
    while True:
        await anyio.sleep(HOUSEKEEPING_SECONDS)
        await run_and_log_errors(savings.flush)
        await run_and_log_errors(front.hub.flush)
        if await run_and_log_errors(front.hub.refresh_pins):
            await front.notify_tools_changed()
        front.pool.relist(sorted(front.hub.forgotten_servers))


async def _warm_up_engine(front: McpRouter) -> None:
    """Read tools that are only sketched yet, a few at a time, so that searches need not."""
    # Not while a client waits for its first answers: those it shall have before.
    await anyio.sleep(HOUSEKEEPING_SECONDS)
    while True:
        engine = front.hub.engine
        settle = partial(engine.warm_up, max_tools=MAX_ENCODED_PER_STEP)
        left = await anyio.to_thread.run_sync(settle) if len(engine.catalog) else 0
        await anyio.sleep(0.05 if left else HOUSEKEEPING_SECONDS)
