"""The MCP gateway on standard input and output, as the child process of one client."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import anyio
from mcp.server.stdio import stdio_server

from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.mcp.gateway import run_and_log_errors, run_gateway
from toolcrib.gateway.mcp.server.standard_pipes import FileReader, open_standard_pipes
from toolcrib.gateway.mcp.upstream.stdio import kill_all_processes, wait_for_pending_starts
from toolcrib.hub.hub import Hub

# Spawning a process takes milliseconds; this bounds the wait for one that is being spawned.
_SPAWN_WAIT_SECONDS: Final = 1.0


async def serve_stdio(hub: Hub, profile: str | None) -> None:
    """Serve one client on standard input and output until it disconnects."""
    # Standard output carries MCP.
    audit = AuditLog(hub, standard_output=sys.stderr)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_exit_on_signal, hub, audit)
        try:
            async with run_gateway(hub, lambda ctx: profile, audit=audit) as router, _open_streams() as (read, write):
                server = router.server
                await server.run(read, write, server.create_initialization_options())
        except* BrokenPipeError:
            # The client closed its end before it read every response.
            pass
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _open_streams() -> AsyncIterator[tuple[Any, Any]]:
    async with open_standard_pipes() as pipes:
        # The SDK uses only the iteration, `write` and `flush` of a file.
        stdin, stdout = cast(tuple[Any, Any], pipes or (FileReader(sys.stdin.buffer), None))
        async with stdio_server(stdin, stdout) as streams:
            yield streams


async def _exit_on_signal(hub: Hub, audit: AuditLog) -> None:
    """Stop all servers and exit when a signal arrives.

    Clients wait about two seconds for their child to exit, then send SIGTERM.
    """
    with (
        # Windows event loops do not support signal handlers.
        suppress(NotImplementedError),
        anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
    ):
        async for _ in signals:
            kill_all_processes()
            await run_and_log_errors(audit.flush)
            await run_and_log_errors(hub.close)
            # Wait for processes that were being spawned. No await follows, so none can be added.
            await wait_for_pending_starts(_SPAWN_WAIT_SECONDS)
            kill_all_processes()
            # Where standard input is not a pipe, a thread blocks on it, and a normal exit would wait for it.
            os._exit(0)
