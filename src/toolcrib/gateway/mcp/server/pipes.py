"""Our own standard input and output as pipes that the event loop waits for.

The SDK reads and writes them as files, each line in a thread of its own and back: that was a third
of what a call cost. Where they are no pipes, but a terminal or a file, they are left to it.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NamedTuple, Protocol

import anyio

from toolcrib.gateway.mcp.upstream.child_processes import MAX_LINE_BYTES

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_FIRST_FREE_DESCRIPTOR: Final = 3


class LineReader(Protocol):
    """Lines that come in, one after the other; no more when the client has left."""

    def __aiter__(self) -> LineReader:
        """Themselves."""

    async def __anext__(self) -> bytes:
        """The next one."""


class LineWriter(Protocol):
    """A file as the SDK writes it."""

    async def write(self, text: str) -> object:
        """Send this."""

    async def flush(self) -> object:
        """Wait until it is sent."""


class StdioPipes(NamedTuple):
    """What comes in and what goes out."""

    lines: LineReader
    writer: LineWriter


@asynccontextmanager
async def open_stdio_pipes() -> AsyncIterator[StdioPipes | None]:
    """Lines from and to whoever started us; nothing where these are no pipes."""
    if sys.platform == "win32" or not (_is_pipe(_STDIN) and _is_pipe(_STDOUT)):
        yield None
        return
    with _claim_stdio() as (heard, said):
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader(MAX_LINE_BYTES)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(heard, "rb", 0)
        )
        writing, flow = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(said, "wb", 0)
        )
        # Nothing is left behind in a buffer when we end.
        writing.set_write_buffer_limits(0)
        writer = asyncio.StreamWriter(writing, flow, None, loop)
        try:
            yield StdioPipes(_PipeReader(lines), _PipeWriter(writer))
        finally:
            reading.close()
            writing.close()


class _PipeReader:
    """The lines that come in, one after the other."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> _PipeReader:
        return self

    async def __anext__(self) -> bytes:
        try:
            line = await self._reader.readline()
        except ValueError:
            # A line without end. Nothing that follows can be made sense of.
            line = b""
        if not line:
            raise StopAsyncIteration
        return line


class _PipeWriter:
    """What goes out."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode())

    async def flush(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError:
            raise anyio.ClosedResourceError from None


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def _claim_stdio() -> Iterator[tuple[int, int]]:
    """Both for us alone: what else is printed goes to standard error, and nothing else reads."""
    import fcntl

    heard, said = (
        fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_DESCRIPTOR) for one in (_STDIN, _STDOUT)
    )
    kept = [
        fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_DESCRIPTOR) for one in (_STDIN, _STDOUT)
    ]
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STDIN)
    os.dup2(_STDERR, _STDOUT)
    os.close(nothing)
    try:
        yield heard, said
    finally:
        for one, original in zip((_STDIN, _STDOUT), kept, strict=True):
            # Whoever has them after us expects to wait for them, as before.
            os.set_blocking(original, True)
            os.dup2(original, one)
            os.close(original)
