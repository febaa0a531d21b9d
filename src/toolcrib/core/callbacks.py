"""Call functions of the user that may be async."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

# Set in a worker thread of an async caller: waits for an awaitable on the caller's event loop.
WAIT_IN_CALLER: ContextVar[Callable[[Awaitable[Any]], Any] | None] = ContextVar("wait_in_caller", default=None)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling a function returns an awaitable."""
    if isinstance(function, partial):
        return is_async(function.func)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  the method itself is needed here
    )


def discard_awaitable(value: object) -> bool:
    """Close a coroutine that will not be awaited; return whether the value is an awaitable.

    Python warns about a coroutine that is neither awaited nor closed.
    """
    if inspect.iscoroutine(value):
        value.close()
    return inspect.isawaitable(value)


def name_callback(function: Callable[..., Any]) -> str:
    """Return the name of a function for error messages."""
    return getattr(function, "__name__", "") or type(function).__name__


def returns_true(check: Callable[..., Any], *arguments: object) -> bool:
    """Return whether a check returns True; one that raises, is async or returns anything else denies."""
    try:
        verdict = check(*arguments)
    except Exception:
        return False
    discard_awaitable(verdict)
    return verdict is True
