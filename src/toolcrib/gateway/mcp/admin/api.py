"""The JSON API of the gateway: servers, tools, search and statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import anyio
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib.errors import InvalidLimit, InvalidQuery, ToolcribError
from toolcrib.gateway.mcp.admin.status import collect_stats, list_server_status
from toolcrib.gateway.mcp.server.router import McpRouter
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
        page = [
            {**entry.wire_definition, "server": entry.server}
            for entry in entries[offset : offset + limit]
        ]
        return {"tools": page, "total": len(entries)}

    def _resolve_server_id(self, server: str) -> str:
        """Return the server id of the search engine: the alias, or the name without one."""
        config = self._get_router().hub.config.servers.get(server)
        return config.alias or server if config else server

    def _search_tools(self, request: Request, view: AccessView) -> dict[str, Any]:
        query = request.query_params.get("query", "")
        if not query:
            raise InvalidQuery("`query` is missing; describe what is needed")
        where = Where(
            server=self._resolve_server_id(request.query_params.get("server", "")),
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
            "notes": self._get_router().tool_handlers.render_search_notes(
                view, entries, result.confident
            ),
        }


def _parse_int(request: Request, name: str, default: int, maximum: int = 10**9) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) > maximum:
        raise InvalidLimit(f"`{name}` must be an integer up to {maximum:,}")
    return int(value)
