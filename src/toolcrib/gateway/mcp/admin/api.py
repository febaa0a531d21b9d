"""The JSON API of the gateway, and the state of the gateway that it and the health check report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import anyio
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib.core.token_count import count_tool_tokens
from toolcrib.errors import InvalidLimit, InvalidQuery, ToolcribError
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.directory import ServerTools
from toolcrib.hub.view import AccessView
from toolcrib.search.filters import Where
from toolcrib.session.turn import DEFAULT_LIMIT, MAX_LIMIT

MAX_PAGE_SIZE: Final = 1_000
DEFAULT_PAGE_SIZE: Final = 100
ApiHandler = Callable[[Request, AccessView], dict[str, Any]]


class AdminApi:
    """Handles `/api`. A caller sees what the access profile of its key allows."""

    def __init__(self, get_router: Callable[[], McpRouter]) -> None:
        self._get_router = get_router

    def routes(self) -> list[Route]:
        """Return the routes."""
        handlers: dict[str, ApiHandler] = {
            "/api/servers": self._list_servers,
            "/api/tools": self._list_tools,
            "/api/search": self._search_tools,
            "/api/stats": self._get_stats,
        }
        return [Route(path, self._make_endpoint(handler)) for path, handler in handlers.items()]

    def _make_endpoint(self, handler: ApiHandler) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            principal = request.scope.get("state", {}).get("principal")
            try:
                view = self._get_router().hub.get_view(getattr(principal, "profile", None))
                # In a thread, because counting tokens and searching would block other requests.
                content = await anyio.to_thread.run_sync(handler, request, view)
            except ToolcribError as error:
                return JSONResponse({"error": str(error)}, 400)
            # Definitions of some servers contain numbers that JSON does not have.
            body = to_json(content, inf_nan_mode="null")
            return Response(body, media_type="application/json")

        return respond

    def _list_servers(self, request: Request, view: AccessView) -> dict[str, Any]:
        return {"servers": list_server_status(self._get_router(), view)}

    def _get_stats(self, request: Request, view: AccessView) -> dict[str, Any]:
        return collect_stats(self._get_router(), view)

    def _list_tools(self, request: Request, view: AccessView) -> dict[str, Any]:
        server = request.query_params.get("server", "")
        limit = _parse_int(request, "limit", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        offset = _parse_int(request, "offset", 0)
        entries = [entry for entry in view.entries.values() if server in ("", entry.server)]
        page = [{**entry.wire_definition, "server": entry.server} for entry in entries[offset : offset + limit]]
        return {"tools": page, "total": len(entries)}

    def _search_tools(self, request: Request, view: AccessView) -> dict[str, Any]:
        tool_handlers = self._get_router().tool_handlers
        query = request.query_params.get("query", "")
        if not query:
            raise InvalidQuery("`query` is missing; describe what is needed")
        where = Where(
            server=tool_handlers.resolve_server_id(request.query_params.get("server", "")),
            read_only=request.query_params.get("read_only") == "true",
        )
        limit = _parse_int(request, "limit", DEFAULT_LIMIT, MAX_LIMIT)
        result = view.search(query, limit, where)
        explain = request.query_params.get("reasons") == "true"
        if explain:
            result = view.engine.with_reasons(result)
        entries = [view.entries[hit.tool.id] for hit in result]
        hits = []
        for hit, entry in zip(result, entries, strict=True):
            tool = {**entry.wire_definition, "server": entry.server}
            rendered: dict[str, Any] = {"score": round(hit.score, 6), "tool": tool}
            if explain:
                rendered["reasons"] = [asdict(reason) for reason in hit.reasons]
            hits.append(rendered)
        return {
            "query": query,
            "confident": result.confident,
            "hits": hits,
            "more": bool(result.has_more),
            "notes": tool_handlers.render_search_notes(view, entries, result.confident),
        }


def _parse_int(request: Request, name: str, default: int, maximum: int = 10**9) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) > maximum:
        raise InvalidLimit(f"`{name}` must be an integer up to {maximum:,}")
    return int(value)


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


def _server_status(upstream: UpstreamServer, tools: ServerTools, view: AccessView) -> dict[str, Any]:
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
