"""The JSON API of the gateway, and the state of the gateway that it and the health check report."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from toolcrib.core.token_count import count_tool_tokens
from toolcrib.errors import InvalidStore
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.gateway.mcp.admin.catalog_api import add_catalog_routes
from toolcrib.gateway.mcp.admin.config_api import add_config_routes
from toolcrib.gateway.mcp.admin.decisions_api import add_decision_routes
from toolcrib.gateway.mcp.admin.overrides_api import add_override_routes
from toolcrib.gateway.mcp.admin.search_api import add_eval_routes, add_search_routes
from toolcrib.gateway.mcp.admin.servers_api import add_server_routes
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.directory import ServerTools, format_tool_count
from toolcrib.hub.view import AccessView


def add_admin_routes(routes: ApiRoutes) -> None:
    """Add the routes of servers, tools, searches, decisions and the configuration."""
    routes.add("GET", "/api/servers", _list_servers)
    routes.add("GET", "/api/stats", lambda call: collect_stats(call.router, call.view))
    add_search_routes(routes)
    add_catalog_routes(routes)
    add_eval_routes(routes)
    add_server_routes(routes)
    add_config_routes(routes)
    add_decision_routes(routes)
    add_override_routes(routes)


def _list_servers(call: ApiCall) -> dict[str, Any]:
    configured = call.router.hub.config.servers.values()
    disabled = [server.name for server in configured if not server.enabled and not call.view.profile.name]
    return {"servers": list_server_status(call.router, call.view), "disabled": disabled}


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
        "llm_today": {} if view.profile.name else _sum_llm_usage(router),
        "notices": _list_notices(router, view),
    }


def _sum_llm_usage(router: McpRouter) -> dict[str, int]:
    """Return the requests and tokens of all LLM requests of today, in UTC."""
    try:
        router.audit.flush()
        usage = router.hub.store.list_llm_usage(datetime.now(UTC).strftime("%Y-%m-%d"))
    except InvalidStore:
        # The notices name the reason.
        return {}
    names = ("requests", "input_tokens", "output_tokens", "cached_tokens", "saved_tokens")
    return {name: sum(getattr(each, name) for each in usage) for name in names}


def list_problems(router: McpRouter, view: AccessView) -> list[str]:
    """Return the problems of the gateway that the view may see."""
    problems = [
        f"{name} is not reachable: {error}"
        for name, error in router.pool.unreachable_servers().items()
        if view.can_see_server(name)
    ]
    problems += [
        f"{format_tool_count(len(names))} of {tools.server.name} cannot be used without `toolcrib approve`"
        for tools in router.hub.directory.servers
        if (names := view.list_quarantined(tools))
    ]
    changed = Counter(entry.server for entry in view.entries.values() if entry.is_changed)
    problems += [
        f"{format_tool_count(count)} of {server} changed since the last approval; see `toolcrib approve`"
        for server, count in changed.items()
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


def _server_status(upstream: UpstreamServer, tools: ServerTools, view: AccessView) -> dict[str, Any]:
    entries = [entry for entry in tools.entries if entry.name in view.entries]
    # Problems name tools, and a profile with a tool filter must not learn other names.
    may_see_problems = view.profile.tools is None
    return {
        "name": upstream.name,
        "state": "stopped" if upstream.is_halted else upstream.state,
        "transport": upstream.config.transport,
        "protocol": upstream.connection.protocol if upstream.connection else "",
        "tools": len(entries),
        "tokens": sum(count_tool_tokens(entry.tool) for entry in entries),
        "flagged": [entry.name for entry in entries if entry.findings],
        "waiting": view.list_quarantined(tools),
        "changed": [entry.name for entry in entries if entry.is_changed],
        "faults": [*tools.problems, *tools.override_problems] if may_see_problems else [],
        "altered": list(tools.repaired_tools) if may_see_problems else [],
        "calls": upstream.call_count,
        "trouble": "" if upstream.connection else upstream.public_error if view.profile.name else upstream.error,
    }
