"""What clients are spared: the tokens they were sent, against those of all tools at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import anyio
from mcp.server.context import CallNext, HandlerResult

from toolcrib.core import wording
from toolcrib.core.tokens import estimate, tool_tokens
from toolcrib.errors import UnknownProfile
from toolcrib.gateways.mcp.sdk import Context
from toolcrib.profiles.mcproxy import SEARCH_TOOL
from toolcrib.service.service import Service
from toolcrib.service.view import View

# Answers are weighed later, many at once: a client should not wait for our sums.
MAX_UNWEIGHED: Final = 1_000
_FINDING: Final = frozenset({wording.SEARCH_NAME, wording.DESCRIBE_NAME, SEARCH_TOOL})


@dataclass(frozen=True, slots=True)
class _Listing:
    """A list that was sent to a client who might have been sent all tools."""

    view: View
    tools: list[dict[str, Any]]

    @property
    def tokens(self) -> int:
        """What was sent."""
        return sum(map(self._weight, self.tools))

    def _weight(self, listed: Mapping[str, Any]) -> int:
        entry = self.view.entries.get(listed["name"])
        return _weighed(listed) if entry is None else tool_tokens(entry.tool)


class Savings:
    """Sees every answer go by, and counts. A middleware of the SDK's server."""

    def __init__(self, service: Service, profile_of: Callable[[Context], str | None]) -> None:
        self._service = service
        self._profile_of = profile_of
        self._listings: list[_Listing] = []
        self._finds: list[list[Any]] = []
        self._lock = Lock()

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Pass the request on, and note what was answered."""
        result = await call_next(ctx)
        if isinstance(result, dict) and ctx.method in ("tools/list", "tools/call"):
            self._note(ctx, result)
            if len(self._listings) + len(self._finds) >= MAX_UNWEIGHED:
                await anyio.to_thread.run_sync(self.settle)
        return result

    def settle(self) -> None:
        """Weigh what was noted, and add it to the counters. Safe from any thread."""
        with self._lock:
            listings, self._listings = self._listings, []
            finds, self._finds = self._finds, []
        if not listings and not finds:
            return
        everything = sum(one.view.tokens for one in listings)
        listed = sum(one.tokens for one in listings)
        found = sum(_weighed(content) for content in finds)
        self._service.count(
            listings=len(listings),
            tokens_of_all=everything,
            tokens_listed=listed,
            tokens_found=found,
            tokens_saved=everything - listed - found,
        )

    def _note(self, ctx: Context, result: Mapping[str, Any]) -> None:
        try:
            view = self._service.view(self._profile_of(ctx))
        except UnknownProfile:
            return
        name = (ctx.params or {}).get("name")
        with self._lock:
            if ctx.method == "tools/list" and isinstance(result.get("tools"), list):
                self._listings.append(_Listing(view, result["tools"]))
            elif name in _FINDING and name not in view.entries:
                self._finds.append(result.get("content") or [])


def _weighed(value: object) -> int:
    return estimate(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
