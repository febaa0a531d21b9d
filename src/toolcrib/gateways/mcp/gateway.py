"""The MCP gateway as a whole: its servers, its clients, and what is done in between."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import anyio

from toolcrib.errors import ToolcribError
from toolcrib.gateways.mcp.front import Front, ProfileOf
from toolcrib.gateways.mcp.pipes import standard_streams
from toolcrib.gateways.mcp.process import kill_all
from toolcrib.gateways.mcp.reloading import follow_file
from toolcrib.gateways.mcp.savings import Savings
from toolcrib.gateways.mcp.starting import OnStarted, tell_starts
from toolcrib.service.service import Service

HOUSEKEEPING_SECONDS: Final = 2.0
READ_AT_ONCE: Final = 16
_log = logging.getLogger(__name__)


@asynccontextmanager
async def running(
    service: Service, profile_of: ProfileOf, on_started: OnStarted | None = None
) -> AsyncIterator[Front]:
    """A front whose servers are looked after, and which is kept up to date, until this ends."""
    front = Front(service, profile_of)
    savings = Savings(service, profile_of)
    # Before the front, which answers and hands nothing on.
    front.server.middleware.insert(len(front.server.middleware) - 1, savings)
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


async def serve_stdio(service: Service, profile: str | None) -> None:
    """Serve one client on standard input and output until it leaves."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_when_told, service)
        async with (
            running(service, lambda ctx: profile) as front,
            standard_streams() as (read, write),
        ):
            await front.server.run(read, write, front.server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _end_when_told(service: Service) -> None:
    """Clients wait two seconds for us to leave, then send a signal. No server is to be left behind."""
    with (
        # Windows knows no such signals.
        suppress(NotImplementedError),
        anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
    ):
        async for _ in signals:
            kill_all()
            await _tried(service.close)
            # Where standard input is no pipe, a thread reads it that nothing can interrupt: only this
            # ends it.
            os._exit(0)


async def _keep_house(front: Front, savings: Savings) -> None:
    """Write what was counted, and see whether somebody has approved what was held back."""
    while True:
        await anyio.sleep(HOUSEKEEPING_SECONDS)
        await _tried(savings.settle)
        await _tried(front.service.flush)
        if await _tried(front.service.reread_pins):
            await front.tell_tools_changed()


async def _read_ahead(front: Front) -> None:
    """Read tools that are only sketched yet, a few at a time, so that searches need not."""
    # Not while a client waits for its first answers: those it shall have before.
    await anyio.sleep(HOUSEKEEPING_SECONDS)
    while True:
        engine = front.service.engine
        settle = partial(engine.settle, most=READ_AT_ONCE)
        left = await anyio.to_thread.run_sync(settle) if len(engine.catalog) else 0
        await anyio.sleep(0.05 if left else HOUSEKEEPING_SECONDS)


async def _tried(act: Callable[[], object]) -> bool:
    try:
        return bool(await anyio.to_thread.run_sync(act))
    except ToolcribError as fault:
        _log.warning("%s", fault)
        return False
