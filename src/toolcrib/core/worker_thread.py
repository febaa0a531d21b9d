"""Run sync code for an async caller.

The only module of the pure packages that uses an event loop. It is imported only if a caller has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from toolcrib.core.callbacks import WAIT_IN_CALLER

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


async def run_in_thread(
    function: Callable[_Params, _Result], *args: _Params.args, **options: _Params.kwargs
) -> _Result:
    """Run a function in a worker thread, where async checks are awaited on the caller's event loop."""
    loop = asyncio.get_running_loop()

    def wait(awaitable: Awaitable[Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(_await(awaitable), loop).result()

    context = copy_context()
    context.run(WAIT_IN_CALLER.set, wait)
    return await loop.run_in_executor(None, partial(context.run, function, *args, **options))


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
