"""The API of LLM traffic: upstreams, usage, and conversations turn by turn."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlsplit

from toolcrib.errors import RequestFailed
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.storage.audit import AuditFilter, AuditRow
from toolcrib.storage.llm_usage import LlmUsage

USAGE_DAYS: Final = 30
# Conversations are found in the newest requests.
MAX_SCANNED_REQUESTS: Final = 2_000
MAX_CONVERSATIONS: Final = 100
MAX_TURNS: Final = 500
_AMOUNTS: Final = ("requests", "input_tokens", "output_tokens", "cached_tokens", "saved_tokens")


def add_llm_routes(routes: ApiRoutes) -> None:
    """Add the routes of LLM traffic."""
    routes.add("GET", "/api/llm", _get_llm, needs_full_access=True)
    routes.add("GET", "/api/llm/conversations", _list_conversations, needs_full_access=True)
    routes.add("GET", "/api/llm/conversations/{id}", _get_conversation, needs_full_access=True)


def _get_llm(call: ApiCall) -> dict[str, Any]:
    hub = call.router.hub
    since = datetime.fromtimestamp(time.time() - (USAGE_DAYS - 1) * 86_400, UTC).strftime("%Y-%m-%d")
    usage = hub.store.list_llm_usage(since)
    call.router.audit.flush()
    recent = hub.store.list_audit(AuditFilter(action="llm"), MAX_SCANNED_REQUESTS)
    errors = Counter(row.server for row in recent if row.outcome != "ok")
    requests = Counter(row.server for row in recent)
    return {
        "upstreams": [
            {
                "name": upstream.name,
                "api": upstream.api,
                "host": urlsplit(upstream.url).hostname or "",
                "models": list(upstream.models),
                "tool_search": upstream.tool_search,
                "requests": requests[upstream.name],
                "errors": errors[upstream.name],
            }
            for upstream in hub.config.llm_gateway.upstreams
        ],
        "models": _sum_usage(usage, "model", lambda each: each.model),
        "keys": _sum_usage(usage, "key", lambda each: each.key),
        "days": _sum_usage(usage, "day", lambda each: each.day),
        "total": {name: sum(getattr(each, name) for each in usage) for name in _AMOUNTS},
        "errors": errors.total(),
        "prefix": _sum_prefixes(_group_turns(recent).values()),
    }


def _group_turns(rows: Iterable[AuditRow]) -> dict[str, list[AuditRow]]:
    """Return the requests of each conversation."""
    turns: dict[str, list[AuditRow]] = {}
    for row in rows:
        if row.session:
            turns.setdefault(row.session, []).append(row)
    return turns


def _sum_prefixes(conversations: Iterable[list[AuditRow]]) -> dict[str, int]:
    """Return how many later turns had the same tools as the turn before; tools are the start of a prompt."""
    pairs = [pair for rows in conversations for pair in pairwise(rows)]
    return {"turns": len(pairs), "kept": sum(_has_same_tools(*pair) for pair in pairs)}


def _has_same_tools(left: AuditRow, right: AuditRow) -> bool:
    return all(left.details.get(name) == right.details.get(name) for name in ("tools_count", "tools_sent"))


def _sum_usage(usage: Iterable[LlmUsage], name: str, get_group: Callable[[LlmUsage], str]) -> list[dict[str, Any]]:
    sums: dict[str, dict[str, Any]] = {}
    for each in usage:
        group = get_group(each)
        total = sums.setdefault(group, {name: group, **dict.fromkeys(_AMOUNTS, 0)})
        for amount in _AMOUNTS:
            total[amount] += getattr(each, amount)
    return list(sums.values())


def _list_conversations(call: ApiCall) -> dict[str, Any]:
    """Return the conversations of the newest requests, the newest first."""
    call.router.audit.flush()
    rows = call.router.hub.store.list_audit(AuditFilter(action="llm"), MAX_SCANNED_REQUESTS)
    conversations = [_describe_conversation(id, found) for id, found in _group_turns(rows).items()]
    return {"conversations": conversations[:MAX_CONVERSATIONS]}


def _describe_conversation(id: str, rows: list[AuditRow]) -> dict[str, Any]:
    newest = rows[0]
    return {
        "id": id,
        "upstream": newest.server,
        "model": newest.tool,
        "client": newest.client,
        "key": newest.key,
        "turns": len(rows),
        "first": rows[-1].at,
        "last": newest.at,
        "errors": sum(row.outcome != "ok" for row in rows),
        "prefix": _sum_prefixes([rows]),
        "tokens_held_back": sum(int(row.details.get("tokens_held_back", 0)) for row in rows),
    }


def _get_conversation(call: ApiCall) -> dict[str, Any]:
    """Return the turns of a conversation in their order, each with the tools that went upstream."""
    call.router.audit.flush()
    where = AuditFilter(action="llm", session=call.text("id"), after=0)
    rows = call.router.hub.store.list_audit(where, MAX_TURNS)
    if not rows:
        raise RequestFailed("there is no such conversation; it may have been deleted because of its age", 404)
    turns: list[dict[str, Any]] = []
    before: set[str] = set()
    for number, row in enumerate(rows):
        turn = row.to_json()
        known = {*row.details.get("tools_sent", ()), *row.details.get("tools_found", ())}
        # What the model could use in this turn and not in the turn before.
        turn["details"]["tools_added"] = sorted(known - before) if turns else []
        turn["details"]["tools_kept"] = number > 0 and _has_same_tools(rows[number - 1], row)
        turns.append(turn)
        before = known
    return {"id": call.text("id"), "turns": turns}
