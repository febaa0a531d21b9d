"""`/api/decisions`: changed or suspicious definitions that wait for a person, and what the person decides."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import anyio

from toolcrib.errors import InvalidQuery, RequestFailed
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.safety.pinning import Pin, render_definition_diff
from toolcrib.safety.scan import scan_definition

MAX_DECISIONS: Final = 200


def add_decision_routes(routes: ApiRoutes) -> None:
    """Add the routes of decisions."""
    routes.add("GET", "/api/decisions", _list_decisions, needs_full_access=True)
    routes.add("POST", "/api/decisions/approve", _approve, needs_full_access=True)
    routes.add("POST", "/api/decisions/reject", _reject, needs_full_access=True)


def _list_decisions(call: ApiCall) -> dict[str, Any]:
    store = call.router.hub.store
    rejections = store.list_rejections()
    quarantined = store.list_quarantined()
    pins = [
        (server, pin)
        for server, by_tool in quarantined.items()
        if server in call.router.hub.config.servers
        for pin in by_tool.values()
    ]
    decisions = [
        {**_render_decision(call, server, pin), "rejected": (server, pin.tool, pin.candidate_fingerprint) in rejections}
        for server, pin in pins[:MAX_DECISIONS]
    ]
    return {"decisions": decisions, "total": len(pins)}


def _render_decision(call: ApiCall, server: str, pin: Pin) -> dict[str, Any]:
    candidate = dict(pin.candidate or {})
    other_names = frozenset(entry.remote_name for entry in call.router.hub.directory if entry.server != server)
    return {
        "server": server,
        "tool": pin.tool,
        "kind": "changed" if pin.fingerprint else "new",
        "fingerprint": pin.candidate_fingerprint,
        "firstSeen": pin.first_seen,
        # With `"changed": "warn"`, models see a changed tool before it is approved.
        "inUse": any((one.server, one.remote_name) == (server, pin.tool) for one in call.router.hub.directory),
        "before": dict(pin.definition) if pin.fingerprint else None,
        "after": candidate,
        "diff": render_definition_diff(pin.definition, candidate),
        "findings": [asdict(finding) for finding in scan_definition(candidate, other_names)],
    }


async def _approve(call: ApiCall) -> dict[str, Any]:
    server, tool, fingerprint = _read_candidate(call)
    if tool and not fingerprint:
        raise InvalidQuery("`fingerprint` is missing; send the one of the definition that you have reviewed")
    store = call.router.hub.store

    def approve() -> list[str]:
        approved = store.approve(server, tool or None, fingerprint=fingerprint or None)
        for name in approved:
            call.record_change("approval", {"change": "approved", "fingerprint": fingerprint}, server=server, tool=name)
        return approved

    approved = await anyio.to_thread.run_sync(approve)
    if tool and not approved:
        raise RequestFailed("the definition has changed again meanwhile; reload the page and review it", 409)
    if await anyio.to_thread.run_sync(call.router.hub.refresh):
        call.router.pool.run_in_background(call.router.notify_tools_changed)
    return {"approved": approved}


def _reject(call: ApiCall) -> dict[str, Any]:
    server, tool, fingerprint = _read_candidate(call)
    if not call.router.hub.store.reject(server, tool, fingerprint):
        raise RequestFailed("the definition has changed again meanwhile; reload the page and review it", 409)
    call.record_change("approval", {"change": "rejected", "fingerprint": fingerprint}, server=server, tool=tool)
    return {"rejected": tool}


def _read_candidate(call: ApiCall) -> tuple[str, str, str]:
    server, tool, fingerprint = (call.body.get(name) or "" for name in ("server", "tool", "fingerprint"))
    if not all(isinstance(text, str) for text in (server, tool, fingerprint)) or not server:
        raise InvalidQuery("`server`, `tool` and `fingerprint` must be text")
    return server, tool, fingerprint
