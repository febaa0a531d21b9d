"""The running MCP gateway: a router, its upstream servers and its background tasks."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio

from toolcrib.errors import ToolcribError
from toolcrib.gateway.mcp.admin.reload import reload_on_change
from toolcrib.gateway.mcp.server.router import GetProfile, McpRouter
from toolcrib.gateway.mcp.upstream.pool import OnServerStart
from toolcrib.hub.hub import Hub

HOUSEKEEPING_SECONDS: Final = 2.0
MAX_ENCODED_PER_STEP: Final = 16
_log = logging.getLogger(__name__)


@asynccontextmanager
async def run_gateway(
    hub: Hub, get_profile: GetProfile, on_started: OnServerStart | None = None
) -> AsyncIterator[McpRouter]:
    """Run the upstream servers and the background tasks; yield the router that serves clients."""
    router = McpRouter(hub, get_profile)
    async with anyio.create_task_group() as tasks:
        await tasks.start(router.pool.run)
        tasks.start_soon(_run_housekeeping, router)
        tasks.start_soon(_warm_up_engine, router)
        tasks.start_soon(reload_on_change, router)
        if on_started is not None:
            tasks.start_soon(router.pool.report_starts, on_started)
        try:
            yield router
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(router.token_savings.flush)
                await anyio.to_thread.run_sync(hub.flush)


async def run_and_log_errors(function: Callable[[], object]) -> bool:
    """Call a function in a thread and return whether its result is true; log a `ToolcribError`."""
    try:
        return bool(await anyio.to_thread.run_sync(function))
    except ToolcribError as error:
        _log.warning("%s", error)
        return False


async def _run_housekeeping(router: McpRouter) -> None:
    """Write counters, and pick up approvals and forgotten servers from other processes."""
    hub = router.hub
    while True:
        await anyio.sleep(HOUSEKEEPING_SECONDS)
        await run_and_log_errors(router.token_savings.flush)
        await run_and_log_errors(hub.flush)
        if await run_and_log_errors(hub.refresh_pins):
            await router.notify_tools_changed()
        router.pool.relist(sorted(hub.forgotten_servers))


async def _warm_up_engine(router: McpRouter) -> None:
    """Encode new tools in small steps, so that searches do not have to."""
    # The first requests of a client come before the encoding.
    await anyio.sleep(HOUSEKEEPING_SECONDS)
    while True:
        engine = router.hub.engine
        warm_up = partial(engine.warm_up, max_tools=MAX_ENCODED_PER_STEP)
        remaining = await anyio.to_thread.run_sync(warm_up) if len(engine.catalog) else 0
        await anyio.sleep(0.05 if remaining else HOUSEKEEPING_SECONDS)
