"""Definitions of the gateway's own tools: search, describe and call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from toolcrib.core import prompts
from toolcrib.gateway.mcp.server.search_results import (
    DETAILS,
    join_server_names,
    render_server_counts,
)
from toolcrib.hub.view import AccessView
from toolcrib.profiles import mcproxy
from toolcrib.session.turn import DEFAULT_LIMIT, MAX_LIMIT

_SEARCH_ANNOTATIONS: Final = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
# `call_tool` may run any tool, so its hints cover the most dangerous one.
_CALL_ANNOTATIONS: Final = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
_STRING: Final = {"type": "string"}


def build_search_tool(
    view: AccessView, unlisted: Iterable[str], *, lists_all: bool = False
) -> dict[str, Any]:
    """Return the search tool for direct and search mode; its description names the servers.

    `lists_all` means that the list already contains every known tool.
    """
    contents, names, count = [], list(unlisted), len(view.entries)
    if count and not lists_all:
        servers = render_server_counts(view.entries.values())
        contents.append(prompts.GATEWAY_TOOL_COUNT.format(count=count, servers=servers))
    if names:
        contents.append(prompts.GATEWAY_PENDING_SERVERS.format(servers=join_server_names(names)))
    limit = prompts.LIMIT_DESCRIPTION.format(most=MAX_LIMIT, default=DEFAULT_LIMIT)
    return {
        "name": prompts.SEARCH_NAME,
        "description": " ".join([prompts.GATEWAY_FIND, *contents, prompts.GATEWAY_SEARCH]),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {**_STRING, "description": prompts.QUERY_DESCRIPTION},
                "limit": {"type": "integer", "description": limit},
                "detail": {
                    **_STRING,
                    "enum": list(DETAILS),
                    "description": prompts.GATEWAY_DETAIL,
                },
                "server": {**_STRING, "description": prompts.GATEWAY_SERVER},
                "read_only": {"type": "boolean", "description": prompts.GATEWAY_READ_ONLY},
            },
            "required": ["query"],
        },
        "annotations": _SEARCH_ANNOTATIONS,
    }


def build_dynamic_search_tool(view: AccessView, hidden: int) -> dict[str, Any]:
    """Return MCProxy's search tool for dynamic mode; its description counts the hidden tools."""
    servers = prompts.SERVER_LIST.format(servers=render_server_counts(view.entries.values()))
    return {
        "name": mcproxy.SEARCH_TOOL_NAME,
        "description": f"{mcproxy.SEARCH_DESCRIPTION.format(hidden=hidden)} {servers}",
        "inputSchema": {
            "type": "object",
            "properties": {"query": {**_STRING, "description": mcproxy.QUERY_DESCRIPTION}},
            "required": ["query"],
        },
        "annotations": _SEARCH_ANNOTATIONS,
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
                    "items": _STRING,
                    "description": prompts.DESCRIBE_NAMES.format(search=prompts.SEARCH_NAME),
                }
            },
            "required": ["names"],
        },
        "annotations": _SEARCH_ANNOTATIONS,
    },
    {
        "name": prompts.CALL_NAME,
        "description": prompts.CALL_DESCRIPTION.format(search=prompts.SEARCH_NAME),
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {
                    **_STRING,
                    "description": prompts.CALL_TOOL_NAME.format(search=prompts.SEARCH_NAME),
                },
                "arguments": {"type": "object", "description": prompts.CALL_ARGUMENTS},
            },
            "required": ["name", "arguments"],
        },
        "annotations": _CALL_ANNOTATIONS,
    },
)
