"""How the gateway is doing, told for a person or a program to read."""

from __future__ import annotations

from typing import Any

from toolcrib.core.token_count import tool_tokens
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.gateway.mcp.upstream.supervisor import Upstream
from toolcrib.hub.directory import Shelf
from toolcrib.hub.view import View


def servers(front: Front, view: View) -> list[dict[str, Any]]:
    """The servers that a profile may know of, each with its state and its tools."""
    shelves = {shelf.server.name: shelf for shelf in view.directory.shelves}
    return [
        _server(upstream, shelves.get(name) or Shelf(upstream.server), view)
        for name, upstream in list(front.fleet.upstreams.items())
        if view.sees_server(name)
    ]


def stats(front: Front, view: View) -> dict[str, Any]:
    """What there is, what it would cost to show all of it, and what has been done so far."""
    return {
        "servers": sum(map(view.sees_server, front.fleet.upstreams)),
        "tools": len(view.entries),
        "tokens": view.tokens,
        "sessions": front.clients,
        "counts": front.service.stats(),
        "notices": _notices(front, view),
    }


def reasons(front: Front, view: View) -> list[str]:
    """Why not everything is well, as far as a profile may know of it; empty if it is."""
    says = [
        f"{name} is not reachable: {why}"
        for name, why in front.fleet.trouble().items()
        if view.sees_server(name)
    ]
    says += [
        f"{len(held)} tools of {shelf.server.name} wait for `toolcrib approve`"
        for shelf in front.service.directory.shelves
        if (held := view.held(shelf))
    ]
    fault = front.service.embedder_fault
    if fault and not view.profile.name:
        says.append(f"the embedder is down, and ours stands in for it: {fault}")
    return [*says, *_notices(front, view)]


def _notices(front: Front, view: View) -> list[str]:
    """What is to be known of the gateway itself, by whoever may see all of it."""
    if view.profile.name:
        return []
    said = [front.service.store.notice, *front.service.notices.values()]
    return [notice for notice in said if notice]


def _server(upstream: Upstream, shelf: Shelf, view: View) -> dict[str, Any]:
    entries = [entry for entry in shelf.entries if entry.name in view.entries]
    return {
        "name": upstream.name,
        "state": upstream.state,
        "transport": upstream.server.transport,
        "protocol": upstream.link.protocol if upstream.link else "",
        "tools": len(entries),
        "tokens": sum(tool_tokens(entry.tool) for entry in entries),
        "flagged": [entry.name for entry in entries if entry.findings],
        "waiting": view.held(shelf),
        # They name tools, and nobody can tell which of them the profile would let through.
        "faults": list(shelf.faults) if view.profile.tools is None else [],
        "altered": list(shelf.altered) if view.profile.tools is None else [],
        "calls": upstream.calls,
        "trouble": "" if upstream.link else upstream.trouble,
    }
