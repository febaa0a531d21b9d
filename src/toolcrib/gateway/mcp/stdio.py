"""The gateway on standard input and output: the first answers before anything heavy is loaded."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

import anyio

from toolcrib.gateway.mcp.server.background import run_and_log_errors
from toolcrib.gateway.mcp.server.fast_start import FastStart
from toolcrib.gateway.mcp.server.handover import StdioHandover
from toolcrib.gateway.mcp.server.pipes import open_stdio_pipes
from toolcrib.gateway.mcp.server.token_savings import TokenSavings
from toolcrib.gateway.mcp.upstream.child_processes import (
    kill_all_processes,
    wait_for_pending_starts,
)
from toolcrib.hub.hub import Hub

# What is heavy: the SDK, and all that speaks to servers with it; each after what it needs.
_SLOW_MODULES: Final = ("pydantic", "mcp_types", "mcp", "toolcrib.gateway.mcp.gateway")

# How long the start of a process is waited for before we leave: it takes milliseconds.
_SPAWN_WAIT_SECONDS: Final = 1.0


async def serve_stdio(hub: Hub, profile: str | None) -> None:
    """Serve one client on standard input and output until it leaves."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_exit_on_signal, hub)
        savings = TokenSavings(hub)
        doorstep = FastStart(hub, profile, savings)
        async with open_stdio_pipes() as pipes:
            is_served = False
            if pipes is not None and not _is_tracing():
                pipes = await StdioHandover(doorstep, pipes, import_module, _SLOW_MODULES).run()
                is_served = pipes is None
            if not is_served:
                from toolcrib.gateway.mcp.gateway import serve_pipes

                await serve_pipes(hub, profile, pipes, savings, doorstep.state)
        await run_and_log_errors(savings.flush)
        tasks.cancel_scope.cancel()


def _is_tracing() -> bool:
    """Whether somebody collects traces: of every request, which is the SDK's to tell."""
    return "opentelemetry.sdk.trace" in sys.modules


async def _exit_on_signal(service: Hub) -> None:
    """Clients wait two seconds for us to leave, then send a signal. No server is to be left behind."""
    with (
        # Windows knows no such signals.
        suppress(NotImplementedError),
        anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
    ):
        async for _ in signals:
            kill_all_processes()
            await run_and_log_errors(service.close)
            # Some were being started meanwhile; behind this nothing is awaited, so no other will be.
            await wait_for_pending_starts(_SPAWN_WAIT_SECONDS)
            kill_all_processes()
            # Where standard input is no pipe, a thread reads it that nothing can interrupt: only this
            # ends it.
            os._exit(0)
