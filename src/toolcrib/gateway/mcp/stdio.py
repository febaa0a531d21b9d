"""The MCP gateway on standard input and output, as the child process of one client."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, BinaryIO, Final, cast

import anyio
from mcp.server.stdio import stdio_server

from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.mcp.gateway import run_and_log_errors, run_gateway
from toolcrib.gateway.mcp.upstream.messages import decode_repaired
from toolcrib.gateway.mcp.upstream.stdio import MAX_LINE_BYTES, kill_all_processes, wait_for_pending_starts
from toolcrib.hub.hub import Hub

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_FIRST_OTHER_DESCRIPTOR: Final = 3

_TOO_LONG: Final = "the client sent a message of more than %d MiB; closing the connection"
_log = logging.getLogger(__name__)
# Spawning a process takes milliseconds; this bounds the wait for one that is being spawned.
_SPAWN_WAIT_SECONDS: Final = 1.0


async def read_pipe(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of standard input until it is closed."""
    try:
        while line := await stream.readline():
            yield decode_repaired(line)
    except ValueError:
        # The rest of the stream cannot be parsed, so the connection ends.
        _log.error(_TOO_LONG, MAX_LINE_BYTES >> 20)


async def read_file(file: BinaryIO) -> AsyncIterator[str]:
    """Yield the lines of standard input where it is not a pipe of the event loop, read in a thread."""
    while line := await anyio.to_thread.run_sync(file.readline, MAX_LINE_BYTES + 1, abandon_on_cancel=True):
        if len(line) > MAX_LINE_BYTES:
            _log.error(_TOO_LONG, MAX_LINE_BYTES >> 20)
            return
        yield decode_repaired(line)


class PipeWriter:
    """Writes text to standard output."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream

    async def write(self, text: str) -> None:
        """Add text to the output buffer."""
        self._stream.write(text.encode())

    async def flush(self) -> None:
        """Wait until the buffer is written."""
        try:
            await self._stream.drain()
        except ConnectionError:
            raise anyio.ClosedResourceError from None


@asynccontextmanager
async def open_standard_pipes() -> AsyncIterator[tuple[AsyncIterator[str], PipeWriter] | None]:
    """Yield a reader and a writer, or None if standard input or output is not a pipe."""
    if sys.platform == "win32" or not (_is_pipe(_STDIN) and _is_pipe(_STDOUT)):
        yield None
        return
    with _divert_standard_streams() as (stdin, stdout):
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader(MAX_LINE_BYTES)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(stdin, "rb", 0)
        )
        writing, flow_control = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(stdout, "wb", 0)
        )
        # With a limit of 0, `drain` returns only when everything is written, so nothing is lost at exit.
        writing.set_write_buffer_limits(0)
        try:
            yield read_pipe(lines), PipeWriter(asyncio.StreamWriter(writing, flow_control, None, loop))
        finally:
            reading.close()
            writing.close()


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def _divert_standard_streams() -> Iterator[tuple[int, int]]:
    """Yield private descriptors of the pipes.

    Meanwhile standard input is empty and prints go to stderr, so that no other code and no child process
    can read or write messages.
    """
    import fcntl

    def duplicate(descriptor: int) -> int:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_OTHER_DESCRIPTOR)

    private = duplicate(_STDIN), duplicate(_STDOUT)
    originals = duplicate(_STDIN), duplicate(_STDOUT)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, _STDIN)
    os.dup2(_STDERR, _STDOUT)
    os.close(empty)
    try:
        yield private
    finally:
        for descriptor, original in zip((_STDIN, _STDOUT), originals, strict=True):
            # The event loop made the pipe non-blocking, also for other processes that have it open.
            os.set_blocking(original, True)
            os.dup2(original, descriptor)
            os.close(original)


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
        stdin, stdout = cast(tuple[Any, Any], pipes or (read_file(sys.stdin.buffer), None))
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
