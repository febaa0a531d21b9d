"""Running a function for either kind of caller, within a time limit.

There is one way to run: on an event loop, and a function that may block in a thread of its own
beside it. A caller without a loop borrows that of a background thread.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, Final

from toolcrib.errors import CallRefused, CallTimeout, ToolFailed
from toolcrib.registry.function import is_async

Work = Callable[[], Any]

MAX_ERROR_CHARS: Final = 2_000


class Executor:
    """Runs functions, at most so many threads at a time."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._free_threads = threading.BoundedSemaphore(max_threads)

    async def run(self, name: str, work: Work, timeout_seconds: float | None) -> Any:
        """What the function returns. Cancelling this cancels the function, if it is async."""
        task = asyncio.ensure_future(self._execute(name, work))
        task.add_done_callback(_retrieve_exception)
        try:
            finished, _ = await asyncio.wait({task}, timeout=timeout_seconds)
        finally:
            task.cancel()
        if not finished:
            raise CallTimeout(
                f"{name} took longer than {timeout_seconds:g} seconds and was given up; "
                "ask for less, or try again later"
            )
        if task.cancelled():
            raise ToolFailed(f"{name} stopped itself; try again, or use another tool")
        return task.result()

    def run_blocking(self, name: str, work: Work, timeout_seconds: float | None) -> Any:
        """The same for a caller without an event loop."""
        return _run_on_background_loop(self.run(name, work, timeout_seconds))

    async def _execute(self, name: str, work: Work) -> Any:
        if is_async(work):
            return await _await_result(name, work)
        value = await asyncio.wrap_future(self._start_thread(name, work))
        # A decorator without async of its own may hide a function that has it.
        return await _await_result(name, lambda: value) if inspect.isawaitable(value) else value

    def _start_thread(self, name: str, work: Work) -> Future[Any]:
        # A thread cannot be stopped: one that was given up keeps its place until it ends.
        if not self._free_threads.acquire(blocking=False):
            raise CallRefused(
                f"{self._max_threads} calls are still running, which is the limit; try again later"
            )
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        context = copy_context()

        def target() -> None:
            try:
                value = context.run(work)
            except BaseException as fault:
                failed = _tool_failed_error(name, fault)
                failed.__cause__ = fault
                future.set_exception(failed)
            else:
                future.set_result(value)
            finally:
                self._free_threads.release()

        threading.Thread(target=target, name="toolcrib-call", daemon=True).start()
        return future


async def _await_result(name: str, work: Work) -> Any:
    try:
        return await work()
    except (Exception, SystemExit) as fault:
        raise _tool_failed_error(name, fault) from fault


def describe_exception(fault: BaseException) -> str:
    """Whatever somebody else's code raises, as a model may be told."""
    text = f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
    return text if len(text) <= MAX_ERROR_CHARS else f"{text[:MAX_ERROR_CHARS]}…"


def _tool_failed_error(name: str, fault: BaseException) -> ToolFailed:
    return ToolFailed(f"{name} was called rightly, and failed: {describe_exception(fault)}")


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Look at the exception of a task nobody waits for any more, so that none is logged as lost."""
    if not task.cancelled():
        task.exception()


# ------------------------------------------------------------------- the loop of those without one

_lock = threading.Lock()
# By process: after a fork the child has the table, but not the thread.
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def _background_loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="toolcrib-loop", daemon=True).start()
        return loop


def _run_on_background_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    loop = _background_loop()
    if asyncio._get_running_loop() is loop:
        coroutine.close()
        raise CallRefused(
            "an async function must not wait for another call without await: it would wait "
            "for itself; use call_async"
        )
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
