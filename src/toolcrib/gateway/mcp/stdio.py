"""The gateway on standard input and output: the first answers before anything heavy is loaded."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

import anyio

from toolcrib.gateway.mcp.server.background import tried
from toolcrib.gateway.mcp.server.fast_start import Doorstep
from toolcrib.gateway.mcp.server.handover import Reception
from toolcrib.gateway.mcp.server.pipes import standard_pipes
from toolcrib.gateway.mcp.server.token_savings import Savings
from toolcrib.gateway.mcp.upstream.child_processes import all_started, kill_all
from toolcrib.hub.hub import Service

# What is heavy: the SDK, and all that speaks to servers with it; each after what it needs.
_HEAVY: Final = ("pydantic", "mcp_types", "mcp", "toolcrib.gateway.mcp.gateway")

# How long the start of a process is waited for before we leave: it takes milliseconds.
_START_SECONDS: Final = 1.0


async def serve_stdio(service: Service, profile: str | None) -> None:
    """Serve one client on standard input and output until it leaves."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_when_told, service)
        savings = Savings(service)
        doorstep = Doorstep(service, profile, savings)
        async with standard_pipes() as pipes:
            is_served = False
            if pipes is not None and not _is_traced():
                pipes = await Reception(doorstep, pipes, import_module, _HEAVY).received()
                is_served = pipes is None
            if not is_served:
                from toolcrib.gateway.mcp.gateway import serve_pipes

                await serve_pipes(service, profile, pipes, savings, doorstep.shown)
        await tried(savings.settle)
        tasks.cancel_scope.cancel()


def _is_traced() -> bool:
    """Whether somebody collects traces: of every request, which is the SDK's to tell."""
    return "opentelemetry.sdk.trace" in sys.modules


async def _end_when_told(service: Service) -> None:
    """Clients wait two seconds for us to leave, then send a signal. No server is to be left behind."""
    with (
        # Windows knows no such signals.
        suppress(NotImplementedError),
        anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
    ):
        async for _ in signals:
            kill_all()
            await tried(service.close)
            # Some were being started meanwhile; behind this nothing is awaited, so no other will be.
            await all_started(_START_SECONDS)
            kill_all()
            # Where standard input is no pipe, a thread reads it that nothing can interrupt: only this
            # ends it.
            os._exit(0)
