"""The state of the gateway, for its API, health check and console."""

from __future__ import annotations

from typing import Any

from toolcrib.core.token_count import count_tool_tokens
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.directory import ServerTools
from toolcrib.hub.view import AccessView


def list_server_status(router: McpRouter, view: AccessView) -> list[dict[str, Any]]:
    """Return the state and the tools of each server that the view may see."""
    listed = {tools.server.name: tools for tools in view.directory.servers}
    return [
        _server_status(upstream, listed.get(name) or ServerTools(upstream.config), view)
        for name, upstream in list(router.pool.servers.items())
        if view.can_see_server(name)
    ]


def collect_stats(router: McpRouter, view: AccessView) -> dict[str, Any]:
    """Return the number of servers, tools, tokens and sessions, and the counters."""
    return {
        "servers": sum(map(view.can_see_server, router.pool.servers)),
        "tools": len(view.entries),
        "tokens": view.total_tokens,
        "sessions": router.client_count,
        "counts": router.hub.get_stats(),
        "notices": _list_notices(router, view),
    }


def list_problems(router: McpRouter, view: AccessView) -> list[str]:
    """Return the problems of the gateway that the view may see."""
    problems = [
        f"{name} is not reachable: {error}"
        for name, error in router.pool.unreachable_servers().items()
        if view.can_see_server(name)
    ]
    problems += [
        f"{len(names)} tools of {tools.server.name} wait for `toolcrib approve`"
        for tools in router.hub.directory.servers
        if (names := view.list_quarantined(tools))
    ]
    error = router.hub.embedder_error
    if error and not view.profile.name:
        problems.append(f"the embedder is down, and the built-in encoder replaces it: {error}")
    return [*problems, *_list_notices(router, view)]


def _list_notices(router: McpRouter, view: AccessView) -> list[str]:
    """Return the notices of the gateway, for a view with full access only."""
    if view.profile.name:
        return []
    notices = [router.hub.store.notice, *router.hub.notices.values()]
    return [notice for notice in notices if notice]


def _server_status(
    upstream: UpstreamServer, tools: ServerTools, view: AccessView
) -> dict[str, Any]:
    entries = [entry for entry in tools.entries if entry.name in view.entries]
    # Problems name tools, and a profile with a tool filter must not learn other names.
    may_see_problems = view.profile.tools is None
    return {
        "name": upstream.name,
        "state": upstream.state,
        "transport": upstream.config.transport,
        "protocol": upstream.connection.protocol if upstream.connection else "",
        "tools": len(entries),
        "tokens": sum(count_tool_tokens(entry.tool) for entry in entries),
        "flagged": [entry.name for entry in entries if entry.findings],
        "waiting": view.list_quarantined(tools),
        "faults": list(tools.problems) if may_see_problems else [],
        "altered": list(tools.repaired_tools) if may_see_problems else [],
        "calls": upstream.call_count,
        "trouble": "" if upstream.connection else upstream.error,
    }
