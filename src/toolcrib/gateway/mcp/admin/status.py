"""How the gateway is doing, told for a person or a program to read."""

from __future__ import annotations

from typing import Any

from toolcrib.core.token_count import count_tool_tokens
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.directory import ServerTools
from toolcrib.hub.view import AccessView


def list_server_status(front: McpRouter, view: AccessView) -> list[dict[str, Any]]:
    """The servers that a profile may know of, each with its state and its tools."""
    shelves = {shelf.server.name: shelf for shelf in view.directory.servers}
    return [
        _server_status(upstream, shelves.get(name) or ServerTools(upstream.config), view)
        for name, upstream in list(front.pool.servers.items())
        if view.can_see_server(name)
    ]


def collect_stats(front: McpRouter, view: AccessView) -> dict[str, Any]:
    """What there is, what it would cost to show all of it, and what has been done so far."""
    return {
        "servers": sum(map(view.can_see_server, front.pool.servers)),
        "tools": len(view.entries),
        "tokens": view.total_tokens,
        "sessions": front.client_count,
        "counts": front.hub.get_stats(),
        "notices": _list_notices(front, view),
    }


def list_problems(front: McpRouter, view: AccessView) -> list[str]:
    """Why not everything is well, as far as a profile may know of it; empty if it is."""
    says = [
        f"{name} is not reachable: {why}"
        for name, why in front.pool.unreachable_servers().items()
        if view.can_see_server(name)
    ]
    says += [
        f"{len(held)} tools of {shelf.server.name} wait for `toolcrib approve`"
        for shelf in front.hub.directory.servers
        if (held := view.list_quarantined(shelf))
    ]
    fault = front.hub.embedder_error
    if fault and not view.profile.name:
        says.append(f"the embedder is down, and ours stands in for it: {fault}")
    return [*says, *_list_notices(front, view)]


def _list_notices(front: McpRouter, view: AccessView) -> list[str]:
    """What is to be known of the gateway itself, by whoever may see all of it."""
    if view.profile.name:
        return []
    said = [front.hub.store.notice, *front.hub.notices.values()]
    return [notice for notice in said if notice]


def _server_status(
    upstream: UpstreamServer, shelf: ServerTools, view: AccessView
) -> dict[str, Any]:
    entries = [entry for entry in shelf.entries if entry.name in view.entries]
    return {
        "name": upstream.name,
        "state": upstream.state,
        "transport": upstream.config.transport,
        "protocol": upstream.connection.protocol if upstream.connection else "",
        "tools": len(entries),
        "tokens": sum(count_tool_tokens(entry.tool) for entry in entries),
        "flagged": [entry.name for entry in entries if entry.findings],
        "waiting": view.list_quarantined(shelf),
        # They name tools, and nobody can tell which of them the profile would let through.
        "faults": list(shelf.problems) if view.profile.tools is None else [],
        "altered": list(shelf.repaired_tools) if view.profile.tools is None else [],
        "calls": upstream.call_count,
        "trouble": "" if upstream.connection else upstream.error,
    }
