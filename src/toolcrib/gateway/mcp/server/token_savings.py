"""Count the LLM tokens that clients save, compared with a list of all tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

import anyio

from toolcrib.core import prompts
from toolcrib.core.token_count import count_tool_tokens, estimate_tokens
from toolcrib.errors import UnknownProfile
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView
from toolcrib.profiles.mcproxy import SEARCH_TOOL_NAME

# Responses are counted later in batches, so that clients do not wait for it.
MAX_PENDING_RESPONSES: Final = 1_000
_SEARCH_TOOL_NAMES: Final = frozenset(
    {prompts.SEARCH_NAME, prompts.DESCRIBE_NAME, SEARCH_TOOL_NAME}
)


class TokenSavings:
    """Records the responses sent to clients and adds their tokens to the hub's counters."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._pending_lists: list[tuple[AccessView, list[dict[str, Any]]]] = []
        self._pending_results: list[list[Any]] = []
        self._lock = Lock()

    async def record_response(
        self,
        profile: str | None,
        method: str,
        params: Mapping[str, Any],
        result: Mapping[str, Any],
    ) -> None:
        """Record a response if it contains tools."""
        if method not in ("tools/list", "tools/call"):
            return
        try:
            view = self._hub.get_view(profile)
        except UnknownProfile:
            # A reload has just removed the profile.
            return
        name = params.get("name")
        with self._lock:
            if method == "tools/list":
                self._pending_lists.append((view, result["tools"]))
            elif name in _SEARCH_TOOL_NAMES and name not in view.entries:
                self._pending_results.append(result.get("content") or [])
        if len(self._pending_lists) + len(self._pending_results) >= MAX_PENDING_RESPONSES:
            await anyio.to_thread.run_sync(self.flush)

    def flush(self) -> None:
        """Count the recorded responses and add them to the hub's counters. Thread-safe."""
        with self._lock:
            lists, self._pending_lists = self._pending_lists, []
            results, self._pending_results = self._pending_results, []
        if not lists and not results:
            return
        total = sum(view.total_tokens for view, _ in lists)
        listed = sum(_count_list_tokens(view, tools) for view, tools in lists)
        found = sum(map(_count_json_tokens, results))
        self._hub.add_counts(
            listings=len(lists),
            tokens_of_all=total,
            tokens_listed=listed,
            tokens_found=found,
            tokens_saved=total - listed - found,
        )


def _count_list_tokens(view: AccessView, tools: list[dict[str, Any]]) -> int:
    entries = ((view.entries.get(tool["name"]), tool) for tool in tools)
    return sum(
        count_tool_tokens(entry.tool) if entry else _count_json_tokens(tool)
        for entry, tool in entries
    )


def _count_json_tokens(value: object) -> int:
    return estimate_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
