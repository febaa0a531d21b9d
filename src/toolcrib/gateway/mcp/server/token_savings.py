"""What clients are spared: the tokens they were sent, against those of all tools at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import anyio

from toolcrib.core import prompts
from toolcrib.core.token_count import count_tool_tokens, estimate_tokens
from toolcrib.errors import UnknownProfile
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView
from toolcrib.profiles.mcproxy import SEARCH_TOOL_NAME

# Answers are weighed later, many at once: a client should not wait for our sums.
MAX_PENDING_RESPONSES: Final = 1_000
_SEARCH_TOOL_NAMES: Final = frozenset(
    {prompts.SEARCH_NAME, prompts.DESCRIBE_NAME, SEARCH_TOOL_NAME}
)


@dataclass(frozen=True, slots=True)
class _SentToolList:
    """A list that was sent to a client who might have been sent all tools."""

    view: AccessView
    tools: list[dict[str, Any]]

    @property
    def tokens(self) -> int:
        """What was sent."""
        return sum(map(self._count_tokens, self.tools))

    def _count_tokens(self, listed: Mapping[str, Any]) -> int:
        entry = self.view.entries.get(listed["name"])
        return _count_json_tokens(listed) if entry is None else count_tool_tokens(entry.tool)


class TokenSavings:
    """Is told every answer that goes to a client, and counts."""

    def __init__(self, service: Hub) -> None:
        self._hub = service
        self._pending_lists: list[_SentToolList] = []
        self._pending_results: list[list[Any]] = []
        self._lock = Lock()

    async def record_response(
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
            view = self._hub.get_view(profile)
        except UnknownProfile:
            # It was taken out of the configuration just now.
            return
        name = params.get("name")
        with self._lock:
            if method == "tools/list":
                self._pending_lists.append(_SentToolList(view, result["tools"]))
            elif name in _SEARCH_TOOL_NAMES and name not in view.entries:
                self._pending_results.append(result.get("content") or [])
        if len(self._pending_lists) + len(self._pending_results) >= MAX_PENDING_RESPONSES:
            await anyio.to_thread.run_sync(self.flush)

    def flush(self) -> None:
        """Weigh what was noted, and add it to the counters. Safe from any thread."""
        with self._lock:
            listings, self._pending_lists = self._pending_lists, []
            finds, self._pending_results = self._pending_results, []
        if not listings and not finds:
            return
        everything = sum(one.view.total_tokens for one in listings)
        listed = sum(one.tokens for one in listings)
        found = sum(_count_json_tokens(content) for content in finds)
        self._hub.add_counts(
            listings=len(listings),
            tokens_of_all=everything,
            tokens_listed=listed,
            tokens_found=found,
            tokens_saved=everything - listed - found,
        )


def _count_json_tokens(value: object) -> int:
    return estimate_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
