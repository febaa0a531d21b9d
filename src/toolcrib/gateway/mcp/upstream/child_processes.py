"""The processes we have started, so that none is left behind when we end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc

# What a client or a server says in one line.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024

RUNNING_PROCESSES: Final[dict[int, anyio.abc.Process]] = {}
# Those that are being started: they may run already, and nobody knows them yet.
_PENDING_STARTS: Final[set[object]] = set()
_POLL_SECONDS: Final = 0.01


async def start_process(open_process: Awaitable[anyio.abc.Process]) -> anyio.abc.Process:
    """A process that is known from its very start on."""
    _PENDING_STARTS.add(open_process)
    try:
        process = await open_process
        RUNNING_PROCESSES[process.pid] = process
        return process
    finally:
        _PENDING_STARTS.discard(open_process)


async def wait_for_pending_starts(seconds: float) -> None:
    """Wait until no process is being started, for so long at most."""
    with anyio.move_on_after(seconds):
        while _PENDING_STARTS:
            await anyio.sleep(_POLL_SECONDS)


def kill_all_processes() -> None:
    """End all servers and all they started, at once: for when there is no time to ask them."""
    for process in list(RUNNING_PROCESSES.values()):
        send_signal(process, "SIGKILL")


def send_signal(process: anyio.abc.Process, name: str) -> None:
    """Send a signal to a process and all it started."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))
