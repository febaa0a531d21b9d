"""What clients are spared: the tokens they were sent, against those of all tools at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import anyio

from toolcrib.core import prompts
from toolcrib.core.token_count import estimate, tool_tokens
from toolcrib.errors import UnknownProfile
from toolcrib.hub.hub import Service
from toolcrib.hub.view import View
from toolcrib.profiles.mcproxy import SEARCH_TOOL

# Answers are weighed later, many at once: a client should not wait for our sums.
MAX_UNWEIGHED: Final = 1_000
_FINDING: Final = frozenset({prompts.SEARCH_NAME, prompts.DESCRIBE_NAME, SEARCH_TOOL})


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
    """Is told every answer that goes to a client, and counts."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._listings: list[_Listing] = []
        self._finds: list[list[Any]] = []
        self._lock = Lock()

    async def note(
        self,
        profile: str | None,
        method: str,
        params: Mapping[str, Any],
        result: Mapping[str, Any],
    ) -> None:
        """Note what was answered, if it was tools."""
        if method not in ("tools/list", "tools/call"):
            return
        try:
            view = self._service.view(profile)
        except UnknownProfile:
            # It was taken out of the configuration just now.
            return
        name = params.get("name")
        with self._lock:
            if method == "tools/list":
                self._listings.append(_Listing(view, result["tools"]))
            elif name in _FINDING and name not in view.entries:
                self._finds.append(result.get("content") or [])
        if len(self._listings) + len(self._finds) >= MAX_UNWEIGHED:
            await anyio.to_thread.run_sync(self.settle)

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


def _weighed(value: object) -> int:
    return estimate(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
