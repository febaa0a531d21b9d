"""What is done beside the answering of clients, and must not end it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from toolcrib.errors import ToolcribError

_log = logging.getLogger(__name__)


async def run_and_log_errors(act: Callable[[], object]) -> bool:
    """Do something in a thread, and give whether it says yes; where it fails, that is logged."""
    try:
        return bool(await anyio.to_thread.run_sync(act))
    except ToolcribError as fault:
        _log.warning("%s", fault)
        return False
