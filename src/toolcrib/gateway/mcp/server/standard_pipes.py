"""Standard input and output of this process as pipes of the event loop.

The SDK reads and writes them in a worker thread, one line at a time, which takes a third of the CPU time
of a call, and it has no limit for the length of a line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import BinaryIO, Final

import anyio

from toolcrib.gateway.mcp.upstream.messages import decode_repaired
from toolcrib.gateway.mcp.upstream.stdio import MAX_LINE_BYTES

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_FIRST_OTHER_DESCRIPTOR: Final = 3

_TOO_LONG: Final = "the client sent a message of more than %d MiB; closing the connection"
_log = logging.getLogger(__name__)


class PipeReader:
    """Yields the lines of standard input until it is closed."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream

    def __aiter__(self) -> PipeReader:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._stream.readline()
        except ValueError:
            # The rest of the stream cannot be parsed, so the connection ends.
            _log.error(_TOO_LONG, MAX_LINE_BYTES >> 20)
            line = b""
        if not line:
            raise StopAsyncIteration
        return decode_repaired(line)


class FileReader:
    """Yields the lines of standard input where it is not a pipe of the event loop, read in a thread."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __aiter__(self) -> FileReader:
        return self

    async def __anext__(self) -> str:
        line = await anyio.to_thread.run_sync(self._file.readline, MAX_LINE_BYTES + 1, abandon_on_cancel=True)
        if len(line) > MAX_LINE_BYTES:
            _log.error(_TOO_LONG, MAX_LINE_BYTES >> 20)
            line = b""
        if not line:
            raise StopAsyncIteration
        return decode_repaired(line)


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
async def open_standard_pipes() -> AsyncIterator[tuple[PipeReader, PipeWriter] | None]:
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
            yield PipeReader(lines), PipeWriter(asyncio.StreamWriter(writing, flow_control, None, loop))
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
