"""What several passes of a model have used, put together as the API does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# The API meters no searches for tools; the object appears when any server tool has run.
SERVER_TOOLS: Final = {"web_search_requests": 0, "web_fetch_requests": 0}


class MessagesUsage:
    """The sum over the passes of one response."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}

    def add_round(self, *reports: object) -> None:
        """One pass; where it reports several times, the later report stands."""
        used: dict[str, Any] = {}
        for report in reports:
            if isinstance(report, Mapping):
                used |= {key: value for key, value in report.items() if value is not None}
        self._whole = _sum(self._whole, used)

    def render(self, *, searched: bool) -> dict[str, Any]:
        """The usage of the response."""
        return {**({"server_tool_use": dict(SERVER_TOOLS)} if searched else {}), **self._whole}


def _sum(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    total = dict(left)
    for key, value in right.items():
        known = total.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            total[key] = _sum(known, value)
        elif _add_up(known, value):
            total[key] = known + value
        else:
            total[key] = value
    return total


def _add_up(left: object, right: object) -> bool:
    if isinstance(left, list):
        return isinstance(right, list)
    return _is_number(left) and _is_number(right)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
