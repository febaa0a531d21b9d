"""The tools that are the gateway's own: search, describe, call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from toolcrib.core import prompts
from toolcrib.gateway.mcp.server.search_results import DETAILS, named, servers_text
from toolcrib.hub.view import View
from toolcrib.profiles import mcproxy
from toolcrib.session.turn import LIMIT, MAX_LIMIT

_SEARCHES: Final = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
# It may call anything, so it says the worst that anything may do.
_CALLS: Final = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
_TEXT: Final = {"type": "string"}


def search_tool(view: View, unseen: Iterable[str], *, lists_all: bool = False) -> dict[str, Any]:
    """The search tool of a list that does not change; it says what is behind it, and will be.

    `lists_all` says that nothing is behind it yet.
    """
    behind, names, count = [], list(unseen), len(view.entries)
    if count and not lists_all:
        servers = servers_text(view.entries.values())
        behind.append(prompts.GATEWAY_BEHIND.format(count=count, servers=servers))
    if names:
        behind.append(prompts.GATEWAY_COMING.format(servers=named(names)))
    limit = prompts.LIMIT_DESCRIPTION.format(most=MAX_LIMIT, default=LIMIT)
    return {
        "name": prompts.SEARCH_NAME,
        "description": " ".join([prompts.GATEWAY_FIND, *behind, prompts.GATEWAY_SEARCH]),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {**_TEXT, "description": prompts.QUERY_DESCRIPTION},
                "limit": {"type": "integer", "description": limit},
                "detail": {
                    **_TEXT,
                    "enum": list(DETAILS),
                    "description": prompts.GATEWAY_DETAIL,
                },
                "server": {**_TEXT, "description": prompts.GATEWAY_SERVER},
                "read_only": {"type": "boolean", "description": prompts.GATEWAY_READ_ONLY},
            },
            "required": ["query"],
        },
        "annotations": _SEARCHES,
    }


def listed_search_tool(view: View, hidden: int) -> dict[str, Any]:
    """The search tool of a list that searches change; it says how much is hidden."""
    servers = prompts.SERVERS_BEHIND.format(servers=servers_text(view.entries.values()))
    return {
        "name": mcproxy.SEARCH_TOOL,
        "description": f"{mcproxy.SEARCH_DESCRIPTION.format(hidden=hidden)} {servers}",
        "inputSchema": {
            "type": "object",
            "properties": {"query": {**_TEXT, "description": mcproxy.QUERY_DESCRIPTION}},
            "required": ["query"],
        },
        "annotations": _SEARCHES,
    }


CONSTANT_TOOLS: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": prompts.DESCRIBE_NAME,
        "description": prompts.DESCRIBE_DESCRIPTION,
        "inputSchema": {
            "type": "object",
            "properties": {
                "names": {
                    "type": "array",
                    "items": _TEXT,
                    "description": prompts.DESCRIBE_NAMES.format(search=prompts.SEARCH_NAME),
                }
            },
            "required": ["names"],
        },
        "annotations": _SEARCHES,
    },
    {
        "name": prompts.CALL_NAME,
        "description": prompts.CALL_DESCRIPTION.format(search=prompts.SEARCH_NAME),
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {
                    **_TEXT,
                    "description": prompts.CALL_TOOL_NAME.format(search=prompts.SEARCH_NAME),
                },
                "arguments": {"type": "object", "description": prompts.CALL_ARGUMENTS},
            },
            "required": ["name", "arguments"],
        },
        "annotations": _CALLS,
    },
)
