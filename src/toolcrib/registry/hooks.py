"""Hooks around each run of a registry: they may refuse a call, or record it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from toolcrib.core.callbacks import discard_awaitable, is_async, name_callback
from toolcrib.errors import CallRefused, ToolcribError
from toolcrib.registry.execution import Invocation, InvocationOutcome, RegistryRun, describe_exception

BeforeHook = Callable[[Invocation], bool | Awaitable[bool | None] | None]
AfterHook = Callable[[InvocationOutcome], Awaitable[None] | None]

_log = logging.getLogger(__name__)


def refuse_async_hooks(run: RegistryRun, hooks: Iterable[Callable[..., Any]]) -> None:
    """Refuse a sync call if one of the hooks is async."""
    for hook in hooks:
        if is_async(hook):
            raise CallRefused(
                f"{run.name} was not run because the hook {name_callback(hook)} is async and the call is not; "
                "call the tool with execute_async or call_async"
            )


@contextmanager
def refuse_on_error(run: RegistryRun) -> Iterator[None]:
    """Refuse a call if a hook raises an exception."""
    try:
        yield
    except ToolcribError:
        raise
    except Exception as error:
        raise CallRefused(
            f"{run.name} was not run because a check failed: {describe_exception(error)}; "
            "try again, or use another tool"
        ) from error


def check_verdict(run: RegistryRun, verdict: object) -> None:
    """Refuse a call unless a hook before it returned None or True."""
    if verdict is None or verdict is True:
        return
    discard_awaitable(verdict)
    reason = "a check refused it" if verdict is False else f"a check returned {type(verdict).__name__}, not True"
    raise CallRefused(f"{run.name} was not run because {reason}; use another tool")


@contextmanager
def log_errors(run: RegistryRun) -> Iterator[None]:
    """Log an exception of a hook after a call."""
    try:
        yield
    except Exception:
        _log.exception("a hook after %s failed; the result is unaffected", run.entry.tool.id)


def discard_result(value: object) -> None:
    """Raise an error if a hook after a sync call returned an awaitable, as it has not run."""
    if discard_awaitable(value):
        raise TypeError("the hook returned an awaitable, which only execute_async and call_async await")
