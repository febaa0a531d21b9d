"""A client on two pipes: received on the doorstep, and handed on to the SDK when that is loaded."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio
import anyio.lowlevel

from toolcrib.gateway.mcp.server.fast_start import FastStart
from toolcrib.gateway.mcp.server.pipes import LineReader, StdioPipes

# The SDK is loaded when a client has nothing to ask for a moment, and in any case soon: servers
# wait for it.
IDLE_SECONDS: Final = 0.5
MAX_DELAY_SECONDS: Final = 2.0
MAX_QUEUED_LINES: Final = 100


class StdioHandover:
    """Answers a client until the SDK is loaded, and keeps what only that can answer."""

    def __init__(
        self,
        doorstep: FastStart,
        pipes: StdioPipes,
        load: Callable[[str], object],
        modules: Sequence[str],
    ) -> None:
        self._fast_start = doorstep
        self._pipes = pipes
        self._load = load
        self._modules = modules
        # What is left for the SDK, in the order it came.
        self._queue: deque[bytes] = deque()
        self._reading = anyio.CancelScope()
        self._deadline = math.inf
        self._is_loading = self._is_loaded = False

    async def run(self) -> StdioPipes | None:
        """The pipes as the SDK is to find them; nothing if the client has left and wants no more."""
        self._deadline = anyio.current_time() + MAX_DELAY_SECONDS
        has_left = False
        async with anyio.create_task_group() as tasks:
            while not (self._is_loaded or has_left) and len(self._queue) < MAX_QUEUED_LINES:
                line = await self._read_line()
                has_left = line == b""
                is_time = line is None or anyio.current_time() >= self._deadline
                if line:
                    is_time |= not await self._respond(line)
                if is_time and not (has_left or self._is_loading):
                    self._is_loading = True
                    tasks.start_soon(self._load_modules)
            if has_left and all(map(_is_notification, self._queue)):
                tasks.cancel_scope.cancel()
                return None
        replayed = _ReplayedPipes(self._pipes, self._fast_start.opening_message, self._queue)
        return StdioPipes(replayed, replayed)

    async def _read_line(self) -> bytes | None:
        """The next line; nothing if it is time to load the SDK, or that is done."""
        with anyio.CancelScope() as self._reading:
            if not self._is_loading:
                quiet = anyio.current_time() + IDLE_SECONDS
                self._reading.deadline = min(quiet, self._deadline)
            return await anext(self._pipes.lines, b"")
        return None

    async def _respond(self, line: bytes) -> bool:
        """Whether this needs no more than could be done at once."""
        answers = await self._fast_start.respond(line)
        if answers is None:
            self._queue.append(line)
            return _is_notification(line)
        # A client that no longer listens may still have something to say.
        with suppress(anyio.ClosedResourceError):
            for answer in answers:
                await self._pipes.writer.write(answer)
            await self._pipes.writer.flush()
        # One that has much to ask may not keep others waiting, nor us from ending.
        await anyio.lowlevel.checkpoint()
        return True

    async def _load_modules(self) -> None:
        # One after the other: nothing can stop a thread, and a client may leave at any time.
        for module in self._modules:
            await anyio.to_thread.run_sync(self._load, module)
        self._is_loaded = True
        self._reading.cancel()


class _ReplayedPipes:
    """Pipes to a client that was received already, for an SDK that knows nothing of it.

    It hears how the conversation was opened, and what it says to that stays here.
    """

    def __init__(self, pipes: StdioPipes, opening: bytes, left: deque[bytes]) -> None:
        self._pipes = pipes
        self._opening = opening
        self._queue = left
        self._opened = anyio.Event()
        if not opening:
            self._opened.set()

    def __aiter__(self) -> LineReader:
        return self

    async def __anext__(self) -> bytes:
        if not self._opened.is_set():
            if self._opening:
                line, self._opening = self._opening, b""
                self._id = json.loads(line)["id"]
                return line
            await self._opened.wait()
        return self._queue.popleft() if self._queue else await anext(self._pipes.lines)

    async def write(self, text: str) -> None:
        """Send this, unless the client has it already."""
        if not self._opened.is_set() and self._is_opening_response(text):
            self._opened.set()
        else:
            await self._pipes.writer.write(text)

    async def flush(self) -> None:
        """Wait until it is sent."""
        await self._pipes.writer.flush()

    def _is_opening_response(self, text: str) -> bool:
        message = json.loads(text)
        return "method" not in message and message.get("id") == self._id


def _is_notification(line: bytes) -> bool:
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and "method" in message and "id" not in message
