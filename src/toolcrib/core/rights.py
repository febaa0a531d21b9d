"""Which tools a caller may use.

This is the one place that decides. A check denies unless it returns True: one that raises or returns
anything else denies. An async check is awaited if the caller is async, and an error if it is not.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from inspect import isawaitable
from itertools import islice
from typing import Any, NamedTuple

from toolcrib.core.callbacks import WAIT_IN_CALLER, discard_awaitable, is_async
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig, InvalidQuery

ToolPredicate = Callable[[Tool], bool]
AsyncToolPredicate = Callable[[Tool], Awaitable[bool]]
# The ids of the tools that a caller may use, or a function that is called with each tool.
AllowedTools = ToolPredicate | AsyncToolPredicate | Collection[str]


def allow_all(tool: Tool) -> bool:
    """Return True: the caller may use every tool."""
    return True


class ToolRights(NamedTuple):
    """The rights of one caller. `ids` is set if they were given as ids, which is cheaper to check."""

    is_allowed: ToolPredicate
    ids: Set[str] | None = None


def build_rights(allowed: AllowedTools | None) -> ToolRights:
    """Return the rights of a caller; None allows every tool.

    Raises `InvalidQuery` if `allowed` is neither a function nor a collection of ids, and
    `InvalidConfig` if it is async and the caller is not.
    """
    if allowed is None:
        return ToolRights(allow_all)
    if not isinstance(allowed, Set):
        if callable(allowed):
            return ToolRights(_guard(allowed))
        discard_awaitable(allowed)
        try:
            if isinstance(allowed, Mapping) and any(isinstance(value, bool) for value in allowed.values()):
                # Its keys are not the allowed ids: some of them may have the value False.
                raise TypeError
            allowed = frozenset([allowed] if isinstance(allowed, str) else allowed)
        except TypeError:
            raise InvalidQuery(
                "`allowed` must be the ids of tools, or a function that is called with each tool, "
                f"not {type(allowed).__name__}"
            ) from None
    ids = allowed
    # Only one is checked, because a gateway passes the ids of thousands of tools to every search.
    for id in islice(ids, 1):
        if not isinstance(id, str):
            raise InvalidQuery(
                f"`allowed` has a {type(id).__name__} in place of the id of a tool; write {{tool.id for tool in tools}}"
            )
    return ToolRights(lambda tool: tool.id in ids, ids)


def check_callback_result(allowed: AllowedTools | Awaitable[AllowedTools | None] | None) -> AllowedTools:
    """Return the rights that a callback has returned.

    Raises `InvalidConfig` for None, which a function without `return` returns by mistake, and for an
    awaitable, which only an async caller can await.
    """
    if isawaitable(allowed):
        discard_awaitable(allowed)
        raise InvalidConfig("`allowed` is async and the agent is run by a sync call; use its async methods")
    if allowed is None:
        raise InvalidConfig(
            "`allowed` returned None; return the names of the tools that the run may use, or "
            "toolcrib.allow_all if it may use every tool"
        )
    return allowed


async def resolve_callback_result(
    result: AllowedTools | Awaitable[AllowedTools | None] | None, tools: Iterable[Tool]
) -> AllowedTools:
    """Do the same as `check_callback_result` for an async caller: await the result and its checks."""
    allowed = check_callback_result(await result if isawaitable(result) else result)
    if not callable(allowed) or not is_async(allowed):
        return allowed
    ids = []
    for tool in tools:
        verdict: object = allowed(tool)
        try:
            verdict = await verdict if isawaitable(verdict) else verdict
        except Exception as error:
            _warn_denied(tool, f"raised {type(error).__name__}: {error}")
        else:
            ids += [tool.id] if _judge(tool, verdict) else []
    return frozenset(ids)


def _guard(check: Callable[[Tool], Any]) -> ToolPredicate:
    needs_event_loop = is_async(check)

    def is_allowed(tool: Tool) -> bool:
        wait = WAIT_IN_CALLER.get()
        if needs_event_loop and wait is None:
            raise _async_check_error()
        try:
            verdict = check(tool)
            if wait is not None and isawaitable(verdict):
                verdict = wait(verdict)
        except Exception as error:
            _warn_denied(tool, f"raised {type(error).__name__}: {error}")
            return False
        return _judge(tool, verdict)

    if needs_event_loop and WAIT_IN_CALLER.get() is None:
        raise _async_check_error()
    return is_allowed


def _judge(tool: Tool, verdict: object) -> bool:
    if verdict is True or verdict is False:
        return verdict
    discard_awaitable(verdict)
    _warn_denied(tool, f"returned {type(verdict).__name__}, not True or False")
    return False


def _async_check_error() -> InvalidConfig:
    return InvalidConfig(
        "`allowed` is an async function, which only an async caller can await; use `async_search` of an "
        "engine, `tools_async` and `handle_async` of a session, or a function without async"
    )


def _warn_denied(tool: Tool, problem: str) -> None:
    warnings.warn(
        f"{tool.id} is denied, because the check whether it is allowed {problem}", RuntimeWarning, stacklevel=2
    )
