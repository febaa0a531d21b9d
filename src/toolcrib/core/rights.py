"""Which tools a caller may use.

This is the one place that decides. A check denies unless it returns True: one that raises, is async
or returns anything else denies.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Set
from inspect import iscoroutine
from typing import Any, NamedTuple

from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidQuery

ToolPredicate = Callable[[Tool], bool]
# The ids of the tools that a caller may use, or a function that is called with each tool.
AllowedTools = ToolPredicate | Collection[str]


def allow_all(tool: Tool) -> bool:
    """Return True: the caller may use every tool."""
    return True


class ToolRights(NamedTuple):
    """The rights of one caller. `ids` is set if they were given as ids, which is cheaper to check."""

    is_allowed: ToolPredicate
    ids: Set[str] | None = None


def build_rights(allowed: AllowedTools | None) -> ToolRights:
    """Return the rights of a caller; None allows every tool.

    Raises `InvalidQuery` if `allowed` is neither a function nor a collection of ids.
    """
    if allowed is None:
        return ToolRights(allow_all)
    if not isinstance(allowed, Set):
        if callable(allowed):
            return ToolRights(_guard(allowed))
        try:
            allowed = frozenset([allowed] if isinstance(allowed, str) else allowed)
        except TypeError:
            raise InvalidQuery(
                "`allowed` must be the ids of tools, or a function that is called with each tool, "
                f"not {type(allowed).__name__}"
            ) from None
    ids = allowed
    return ToolRights(lambda tool: tool.id in ids, ids)


def _guard(check: Callable[[Tool], Any]) -> ToolPredicate:
    def is_allowed(tool: Tool) -> bool:
        try:
            verdict = check(tool)
        except Exception as error:
            _warn(tool, f"raised {type(error).__name__}: {error}")
            return False
        if verdict is True or verdict is False:
            return verdict
        if iscoroutine(verdict):
            # A coroutine that is neither awaited nor closed causes a warning.
            verdict.close()
        _warn(tool, f"returned {type(verdict).__name__}, not True or False")
        return False

    return is_allowed


def _warn(tool: Tool, problem: str) -> None:
    warnings.warn(
        f"{tool.id} is denied, because the check whether it is allowed {problem}", RuntimeWarning, stacklevel=2
    )
