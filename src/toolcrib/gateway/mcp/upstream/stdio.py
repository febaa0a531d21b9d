"""Run a server as a child process and exchange messages on its standard input and output.

The SDK's transport has no limit for the length of a line, so a server that never ends its line would
exhaust the memory. This one limits lines, and keeps the last lines on stderr for error messages.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from toolcrib.core.tool_names import safe_name
from toolcrib.gateway.mcp.upstream.messages import MessageBuffer

# The maximum size of a message. A server with a larger `maxResultBytes` may send larger ones.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
MAX_STDERR_LINES: Final = 200
MAX_STDERR_LINE_CHARS: Final = 2_000
# How long a server may take to exit after its input is closed, and again after SIGTERM.
EXIT_GRACE_SECONDS: Final = 2.0
# Node.js prints its version after the reason of a crash.
_NODE_VERSION: Final = re.compile(r"Node\.js v\d")
_ERROR_LINE: Final = re.compile(r"\w*Error\b")
_POLL_SECONDS: Final = 0.01
_BUFFERED_MESSAGES: Final = 16

# A variable with the process id of the gateway and a token for each start of a server. Helper processes inherit it.
_MARKER_VARIABLE: Final = "TOOLCRIB_SERVER_START"
_MARKERS: Final[dict[int, str]] = {}
_PROC: Final = Path("/proc")
RUNNING_PROCESSES: Final[dict[int, anyio.abc.Process]] = {}
# Starts whose process may be running but is not in `RUNNING_PROCESSES` yet.
_PENDING_STARTS: Final[set[object]] = set()
_PIPE_ERRORS = (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError, OSError)
MessageStreams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
# A file that reaches this size is renamed to `….log.1`, which replaces the previous one.
MAX_LOG_BYTES: Final = 1024 * 1024


class StderrTail:
    """The last lines that a server wrote to stderr, and its exit code."""

    def __init__(self, on_line: Callable[[str], None] = lambda line: None) -> None:
        # Each line with the time of its arrival.
        self._lines: deque[tuple[float, str]] = deque(maxlen=MAX_STDERR_LINES)
        self._on_line = on_line
        self._partial_line = ""
        self._received_at = -math.inf
        # Set if the program ended before it was stopped.
        self.exit_code: int | None = None

    def add_output(self, text: str) -> None:
        """Add output, which may contain many lines or a part of one."""
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
        """All lines, oldest first."""
        return self.lines_since(-math.inf)

    def lines_since(self, moment: float) -> list[str]:
        """Return the lines since a moment of the monotonic clock, oldest first."""
        partial = [(self._received_at, self._partial_line)] if self._partial_line.strip() else []
        return [line for received, line in (*self._lines, *partial) if received >= moment]

    def last_line_since(self, moment: float) -> list[str]:
        """Return the last line since a moment, if there is one; of a crash of Node.js, the line with the error."""
        lines = self.lines_since(moment)
        if lines and _NODE_VERSION.match(lines[-1]):
            lines = [line for line in lines if _ERROR_LINE.match(line)] or lines
        return lines[-1:]


@asynccontextmanager
async def run_child_process(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str | None, max_message_bytes: int, stderr_tail: StderrTail
) -> AsyncIterator[MessageStreams]:
    """Start a server and yield its message streams; stop it and its children at the end."""
    stderr_tail.exit_code = None
    marker = f"{os.getpid()}-{secrets.token_hex(16)}"
    env = {**env, _MARKER_VARIABLE: marker}
    opening = anyio.open_process(command, env=env, cwd=cwd, start_new_session=sys.platform != "win32")
    process = await start_process(opening)
    _MARKERS[process.pid] = marker
    # No await before the tasks start: a cancellation there would leave the child running.
    received, read = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFERED_MESSAGES)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](_BUFFERED_MESSAGES)
    ended = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read_stdout, process, received, ended, MessageBuffer(max_message_bytes))
        tasks.start_soon(_write_stdin, process, outgoing, received, ended)
        tasks.start_soon(_read_stderr, process, stderr_tail)
        try:
            yield read, write
        finally:
            has_ended = ended.is_set() or process.returncode is not None
            with anyio.CancelScope(shield=True):
                if await _stop_process(process) and has_ended:
                    stderr_tail.exit_code = process.returncode
                await anyio.to_thread.run_sync(kill_marked_processes, [marker])
            RUNNING_PROCESSES.pop(process.pid, None)
            _MARKERS.pop(process.pid, None)
            for stream in (received, read, write, outgoing):
                stream.close()
            tasks.cancel_scope.cancel()


async def _read_stdout(
    process: anyio.abc.Process,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    ended: anyio.Event,
    buffer: MessageBuffer,
) -> None:
    assert process.stdout
    with received, suppress(*_PIPE_ERRORS):
        async for chunk in process.stdout:
            *complete, rest = chunk.split(b"\n")
            for part in complete:
                buffer.add(part)
                await received.send(buffer.take_message())
            buffer.add(rest)
        ended.set()


async def _write_stdin(
    process: anyio.abc.Process,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[SessionMessage | Exception],
    ended: anyio.Event,
) -> None:
    assert process.stdin
    with outgoing:
        try:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode() + b"\n")
        except _PIPE_ERRORS:
            ended.set()
            # Ends the session, so that no request waits for a response.
            received.close()


async def _read_stderr(process: anyio.abc.Process, stderr_tail: StderrTail) -> None:
    assert process.stderr
    with suppress(*_PIPE_ERRORS):
        async for chunk in process.stderr:
            stderr_tail.add_output(chunk.decode(errors="replace"))


async def _stop_process(process: anyio.abc.Process) -> bool:
    """Close the input, then send SIGTERM, then SIGKILL, each after a grace period.

    Returns whether the process exited without a signal.
    """
    assert process.stdin
    with suppress(*_PIPE_ERRORS):
        await process.stdin.aclose()
    exited = await _wait_for_exit(process)
    if not exited:
        send_signal(process, "SIGTERM")
        if not await _wait_for_exit(process):
            send_signal(process, "SIGKILL")
            await _wait_for_exit(process)
    # Also kill children that outlive the process.
    send_signal(process, "SIGKILL")
    with suppress(*_PIPE_ERRORS):
        await process.aclose()
    return exited


async def _wait_for_exit(process: anyio.abc.Process) -> bool:
    # `process.wait()` would also wait for the pipes, which a grandchild may keep open.
    with anyio.move_on_after(EXIT_GRACE_SECONDS):
        while process.returncode is None:
            await anyio.sleep(_POLL_SECONDS)
    return process.returncode is not None


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
    kill_marked_processes(list(_MARKERS.values()))


def kill_marked_processes(markers: Collection[str]) -> None:
    """Kill the processes with these markers, on Linux. A helper may have left the process group of its server."""
    if markers:
        _kill_processes(lambda marker, folder: marker in markers)


def kill_orphaned_processes() -> None:
    """Kill the processes that the servers of a killed gateway have left, on Linux, except in containers."""
    own = _PROC / "self/ns/pid"
    _kill_processes(
        lambda marker, folder: not (_PROC / marker.partition("-")[0]).exists() and (folder / "ns/pid").samefile(own)
    )


def _kill_processes(is_wanted: Callable[[str, Path], bool]) -> None:
    for folder in _PROC.iterdir() if _PROC.is_dir() else ():
        with suppress(OSError, ValueError):
            pid, environment = int(folder.name), (folder / "environ").read_bytes()
            marker = environment.partition(f"{_MARKER_VARIABLE}=".encode())[2].partition(b"\0")[0].decode()
            if marker and is_wanted(marker, folder):
                os.kill(pid, signal.SIGKILL)


def send_signal(process: anyio.abc.Process, name: str) -> None:
    """Send a signal to a process and its children."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))


class ServerLogFile:
    """Appends lines to a file that only its owner can read. Errors, such as a full disk, are ignored."""

    def __init__(self, folder: Path, server: str) -> None:
        self.path = folder / f"{safe_name(server)}.log"

    def write_line(self, line: str) -> None:
        """Append a line with the time."""
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size >= MAX_LOG_BYTES:
                self.path.replace(self.path.with_suffix(".log.1"))
            moment = time.strftime("%Y-%m-%d %H:%M:%S")
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(f"{moment} {line}\n")
