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

from toolcrib.gateway.mcp.server.fast_start import Doorstep
from toolcrib.gateway.mcp.server.pipes import Lines, Pipes

# The SDK is loaded when a client has nothing to ask for a moment, and in any case soon: servers
# wait for it.
QUIET_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 2.0
MAX_LEFT: Final = 100


class Reception:
    """Answers a client until the SDK is loaded, and keeps what only that can answer."""

    def __init__(
        self,
        doorstep: Doorstep,
        pipes: Pipes,
        load: Callable[[str], object],
        modules: Sequence[str],
    ) -> None:
        self._doorstep = doorstep
        self._pipes = pipes
        self._load = load
        self._modules = modules
        # What is left for the SDK, in the order it came.
        self._left: deque[bytes] = deque()
        self._reading = anyio.CancelScope()
        self._latest = math.inf
        self._is_loading = self._is_loaded = False

    async def received(self) -> Pipes | None:
        """The pipes as the SDK is to find them; nothing if the client has left and wants no more."""
        self._latest = anyio.current_time() + LONGEST_SECONDS
        has_left = False
        async with anyio.create_task_group() as tasks:
            while not (self._is_loaded or has_left) and len(self._left) < MAX_LEFT:
                line = await self._next()
                has_left = line == b""
                is_time = line is None or anyio.current_time() >= self._latest
                if line:
                    is_time |= not await self._is_done(line)
                if is_time and not (has_left or self._is_loading):
                    self._is_loading = True
                    tasks.start_soon(self._loaded)
            if has_left and all(map(_is_notification, self._left)):
                tasks.cancel_scope.cancel()
                return None
        replayed = _Replayed(self._pipes, self._doorstep.opening, self._left)
        return Pipes(replayed, replayed)

    async def _next(self) -> bytes | None:
        """The next line; nothing if it is time to load the SDK, or that is done."""
        with anyio.CancelScope() as self._reading:
            if not self._is_loading:
                quiet = anyio.current_time() + QUIET_SECONDS
                self._reading.deadline = min(quiet, self._latest)
            return await anext(self._pipes.lines, b"")
        return None

    async def _is_done(self, line: bytes) -> bool:
        """Whether this needs no more than could be done at once."""
        answers = await self._doorstep.answers(line)
        if answers is None:
            self._left.append(line)
            return _is_notification(line)
        # A client that no longer listens may still have something to say.
        with suppress(anyio.ClosedResourceError):
            for answer in answers:
                await self._pipes.writer.write(answer)
            await self._pipes.writer.flush()
        # One that has much to ask may not keep others waiting, nor us from ending.
        await anyio.lowlevel.checkpoint()
        return True

    async def _loaded(self) -> None:
        # One after the other: nothing can stop a thread, and a client may leave at any time.
        for module in self._modules:
            await anyio.to_thread.run_sync(self._load, module)
        self._is_loaded = True
        self._reading.cancel()


class _Replayed:
    """Pipes to a client that was received already, for an SDK that knows nothing of it.

    It hears how the conversation was opened, and what it says to that stays here.
    """

    def __init__(self, pipes: Pipes, opening: bytes, left: deque[bytes]) -> None:
        self._pipes = pipes
        self._opening = opening
        self._left = left
        self._opened = anyio.Event()
        if not opening:
            self._opened.set()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> bytes:
        if not self._opened.is_set():
            if self._opening:
                line, self._opening = self._opening, b""
                self._id = json.loads(line)["id"]
                return line
            await self._opened.wait()
        return self._left.popleft() if self._left else await anext(self._pipes.lines)

    async def write(self, text: str) -> None:
        """Send this, unless the client has it already."""
        if not self._opened.is_set() and self._is_known(text):
            self._opened.set()
        else:
            await self._pipes.writer.write(text)

    async def flush(self) -> None:
        """Wait until it is sent."""
        await self._pipes.writer.flush()

    def _is_known(self, text: str) -> bool:
        message = json.loads(text)
        return "method" not in message and message.get("id") == self._id


def _is_notification(line: bytes) -> bool:
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and "method" in message and "id" not in message
