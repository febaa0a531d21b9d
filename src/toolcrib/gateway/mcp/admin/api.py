"""What programs and people ask about the gateway itself, as JSON."""

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
    """Answers `/api`. A caller whose key has a profile sees no more than that profile does."""

    def __init__(self, get_router: Callable[[], McpRouter]) -> None:
        self._get_router = get_router

    def routes(self) -> list[Route]:
        """The paths."""
        answers: dict[str, ApiHandler] = {
            "/api/servers": self._list_servers,
            "/api/tools": self._list_tools,
            "/api/search": self._search_tools,
            "/api/stats": self._get_stats,
        }
        return [Route(path, self._make_endpoint(answer)) for path, answer in answers.items()]

    def _make_endpoint(self, answer: ApiHandler) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            principal = request.scope.get("state", {}).get("principal")
            try:
                view = self._get_router().hub.get_view(getattr(principal, "profile", None))
                # Counting tokens and reading a query take their time, and others are waiting.
                said = await anyio.to_thread.run_sync(answer, request, view)
            except ToolcribError as fault:
                return JSONResponse({"error": str(fault)}, 400)
            # Some servers define tools with numbers that JSON does not have.
            said_in_json = to_json(said, inf_nan_mode="null")
            return Response(said_in_json, media_type="application/json")

        return respond

    def _list_servers(self, request: Request, view: AccessView) -> dict[str, Any]:
        return {"servers": list_server_status(self._get_router(), view)}

    def _get_stats(self, request: Request, view: AccessView) -> dict[str, Any]:
        return collect_stats(self._get_router(), view)

    def _list_tools(self, request: Request, view: AccessView) -> dict[str, Any]:
        server = request.query_params.get("server", "")
        limit, offset = (
            _parse_int(request, "limit", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE),
            _parse_int(request, "offset", 0),
        )
        found = [entry for entry in view.entries.values() if server in ("", entry.server)]
        page = [
            {**entry.wire_definition, "server": entry.server}
            for entry in found[offset : offset + limit]
        ]
        return {"tools": page, "total": len(found)}

    def _resolve_server_id(self, server: str) -> str:
        """What the engine knows a server by: its alias, where it has one."""
        known = self._get_router().hub.config.servers.get(server)
        return known.alias or server if known else server

    def _search_tools(self, request: Request, view: AccessView) -> dict[str, Any]:
        query = request.query_params.get("query", "")
        if not query:
            raise InvalidQuery("say in `query` what is needed")
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
            told: dict[str, Any] = {"score": round(hit.score, 6), "tool": tool}
            if explain:
                told["reasons"] = [asdict(reason) for reason in hit.reasons]
            hits.append(told)
        return {
            "query": query,
            "confident": result.is_confident,
            "hits": hits,
            "more": bool(result.has_more),
            "notes": self._get_router().tool_handlers.render_search_notes(
                view, entries, result.is_confident
            ),
        }


def _parse_int(request: Request, name: str, default: int, most: int = 10**9) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 9 or int(given) > most:
        raise InvalidLimit(f"`{name}` has to be a whole number up to {most:,}")
    return int(given)
