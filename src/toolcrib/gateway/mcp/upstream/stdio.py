"""A server that is a child process, spoken to by its standard input and output.

The SDK has such a transport too, but it holds a line of any length in memory, and a server that
never ends its line would take it all. Here a line has a limit, and what a server says on standard
error is kept, so that whoever asks why it failed can be told.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import anyio.abc
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from toolcrib.gateway.mcp.upstream.child_processes import (
    MAX_LINE_BYTES,
    RUNNING_PROCESSES,
    send_signal,
    start_process,
)

MAX_STDERR_LINES: Final = 200
MAX_STDERR_LINE_CHARS: Final = 2_000
# How long a server may take to leave by itself, and then after it was asked to.
EXIT_GRACE_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.02
# Messages between reading and handling: a few, so that the two need not take turns for each.
_BUFFERED_MESSAGES: Final = 16

_PIPE_ERRORS = (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError, OSError)
MessageStreams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class StderrTail:
    """The last lines that a server wrote to standard error, and how it ended."""

    def __init__(self, tell: Callable[[str], None] = lambda line: None) -> None:
        # Each with the moment when it came.
        self._lines: deque[tuple[float, str]] = deque(maxlen=MAX_STDERR_LINES)
        self._on_line = tell
        self._partial_line = ""
        self._received_at = -math.inf
        # What its program ended with, if it did so by itself.
        self.exit_code: int | None = None

    def feed(self, text: str) -> None:
        """Take in what came, be it parts of lines or many."""
        self._received_at = time.monotonic()
        *lines, rest = (self._partial_line + text).split("\n")
        self._partial_line = rest[:MAX_STDERR_LINE_CHARS]
        for line in lines:
            line = line.rstrip()[:MAX_STDERR_LINE_CHARS]
            if line:
                self._lines.append((self._received_at, line))
                self._on_line(line)

    @property
    def lines(self) -> list[str]:
        """What was said, oldest first."""
        return self.lines_since(-math.inf)

    def lines_since(self, moment: float) -> list[str]:
        """What was said since a moment of the monotonic clock, oldest first."""
        rest = [(self._received_at, self._partial_line)] if self._partial_line.strip() else []
        return [line for heard, line in (*self._lines, *rest) if heard >= moment]


@asynccontextmanager
async def run_child_process(
    command: str,
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    stderr_tail: StderrTail,
) -> AsyncIterator[MessageStreams]:
    """Start a server and speak with it; when this ends, so does the server and all it started."""
    stderr_tail.exit_code = None
    opening = anyio.open_process(
        [command, *args],
        # Python servers that join a set into a text would otherwise change with every start.
        env={"PYTHONHASHSEED": "0", **get_default_environment(), **env},
        cwd=cwd,
        start_new_session=sys.platform != "win32",
    )
    process = await start_process(opening)
    # No awaiting from here until the tasks run, or a cancelled start would leave the child behind.
    heard, read = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFERED_MESSAGES)
    write, said = anyio.create_memory_object_stream[SessionMessage](_BUFFERED_MESSAGES)
    left = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read_stdout, process, heard, left)
        tasks.start_soon(_write_stdin, process, said, heard, left)
        tasks.start_soon(_read_stderr, process, stderr_tail)
        try:
            yield read, write
        finally:
            has_left = left.is_set() or process.returncode is not None
            with anyio.CancelScope(shield=True):
                if await _stop_process(process) and has_left:
                    stderr_tail.exit_code = process.returncode
            RUNNING_PROCESSES.pop(process.pid, None)
            for stream in (heard, read, write, said):
                stream.close()
            tasks.cancel_scope.cancel()


async def _read_stdout(
    process: anyio.abc.Process,
    heard: MemoryObjectSendStream[SessionMessage | Exception],
    left: anyio.Event,
) -> None:
    assert process.stdout
    line = bytearray()
    with heard, suppress(*_PIPE_ERRORS):
        async for chunk in process.stdout:
            *whole, rest = chunk.split(b"\n")
            for part in whole:
                line += part
                await heard.send(_parse_message(bytes(line)))
                line.clear()
            line += rest
            if len(line) > MAX_LINE_BYTES:
                # Nothing that follows can be made sense of; the connection ends here.
                return
        left.set()


async def _write_stdin(
    process: anyio.abc.Process,
    said: MemoryObjectReceiveStream[SessionMessage],
    heard: MemoryObjectSendStream[SessionMessage | Exception],
    left: anyio.Event,
) -> None:
    assert process.stdin
    with said:
        try:
            async for message in said:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode() + b"\n")
        except _PIPE_ERRORS:
            left.set()
            # Ends the connection as seen from the other side, so that nobody waits for an answer.
            heard.close()


async def _read_stderr(process: anyio.abc.Process, complaints: StderrTail) -> None:
    assert process.stderr
    with suppress(*_PIPE_ERRORS):
        async for chunk in process.stderr:
            complaints.feed(chunk.decode(errors="replace"))


def _parse_message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as fault:
        return fault


async def _stop_process(process: anyio.abc.Process) -> bool:
    """Close its input, wait; ask it to end, wait; kill it. All it started goes with it.

    Says whether it left before it was asked to.
    """
    assert process.stdin
    with suppress(*_PIPE_ERRORS):
        await process.stdin.aclose()
    leaves = await _wait_for_exit(process)
    if not leaves:
        send_signal(process, "SIGTERM")
        if not await _wait_for_exit(process):
            send_signal(process, "SIGKILL")
            await _wait_for_exit(process)
    # A server that left by itself may have left others behind.
    send_signal(process, "SIGKILL")
    with suppress(*_PIPE_ERRORS):
        await process.aclose()
    return leaves


async def _wait_for_exit(process: anyio.abc.Process) -> bool:
    # Not process.wait(): that waits for the pipes too, which a grandchild may hold open.
    with anyio.move_on_after(EXIT_GRACE_SECONDS):
        while process.returncode is None:
            await anyio.sleep(_POLL_SECONDS)
    return process.returncode is not None
