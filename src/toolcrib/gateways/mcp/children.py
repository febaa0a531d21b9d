"""The processes we have started, so that none is left behind when we end."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Final

import anyio.abc

# What a client or a server says in one line.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024

RUNNING: Final[dict[int, anyio.abc.Process]] = {}


def kill_all() -> None:
    """End all servers and all they started, at once: for when there is no time to ask them."""
    for process in list(RUNNING.values()):
        send_signal(process, "SIGKILL")


def send_signal(process: anyio.abc.Process, name: str) -> None:
    """Send a signal to a process and all it started."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))
