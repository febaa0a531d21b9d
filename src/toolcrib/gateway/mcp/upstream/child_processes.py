"""Track the child processes of the gateway, so that none survives it.

This module must not import the MCP SDK: `toolcrib stdio` needs it before the SDK is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc

# The maximum size of a message on standard input and output.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024

RUNNING_PROCESSES: Final[dict[int, anyio.abc.Process]] = {}
# Starts whose process may be running but is not in `RUNNING_PROCESSES` yet.
_PENDING_STARTS: Final[set[object]] = set()
_POLL_SECONDS: Final = 0.01


async def start_process(open_process: Awaitable[anyio.abc.Process]) -> anyio.abc.Process:
    """Return a started process, which is tracked from the beginning."""
    _PENDING_STARTS.add(open_process)
    try:
        process = await open_process
        RUNNING_PROCESSES[process.pid] = process
        return process
    finally:
        _PENDING_STARTS.discard(open_process)


async def wait_for_pending_starts(timeout_seconds: float) -> None:
    """Wait until no process is being started, up to a timeout."""
    with anyio.move_on_after(timeout_seconds):
        while _PENDING_STARTS:
            await anyio.sleep(_POLL_SECONDS)


def kill_all_processes() -> None:
    """Kill all processes and their children, without a grace period."""
    for process in list(RUNNING_PROCESSES.values()):
        send_signal(process, "SIGKILL")


def send_signal(process: anyio.abc.Process, name: str) -> None:
    """Send a signal to a process and its children."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))
