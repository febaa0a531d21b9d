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
from toolcrib.gateway.mcp.admin.status import servers, stats
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.hub.view import View
from toolcrib.search.filters import Where
from toolcrib.session.turn import LIMIT, MAX_LIMIT

MAX_PAGE: Final = 1_000
PAGE: Final = 100
Answer = Callable[[Request, View], dict[str, Any]]


class Api:
    """Answers `/api`. A caller whose key has a profile sees no more than that profile does."""

    def __init__(self, front: Callable[[], Front]) -> None:
        self._front = front

    def routes(self) -> list[Route]:
        """The paths."""
        answers: dict[str, Answer] = {
            "/api/servers": self._servers,
            "/api/tools": self._tools,
            "/api/search": self._search,
            "/api/stats": self._stats,
        }
        return [Route(path, self._answering(answer)) for path, answer in answers.items()]

    def _answering(self, answer: Answer) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            principal = request.scope.get("state", {}).get("principal")
            try:
                view = self._front().service.view(getattr(principal, "profile", None))
                # Counting tokens and reading a query take their time, and others are waiting.
                said = await anyio.to_thread.run_sync(answer, request, view)
            except ToolcribError as fault:
                return JSONResponse({"error": str(fault)}, 400)
            # Some servers define tools with numbers that JSON does not have.
            said_in_json = to_json(said, inf_nan_mode="null")
            return Response(said_in_json, media_type="application/json")

        return respond

    def _servers(self, request: Request, view: View) -> dict[str, Any]:
        return {"servers": servers(self._front(), view)}

    def _stats(self, request: Request, view: View) -> dict[str, Any]:
        return stats(self._front(), view)

    def _tools(self, request: Request, view: View) -> dict[str, Any]:
        server = request.query_params.get("server", "")
        limit, offset = _whole(request, "limit", PAGE, MAX_PAGE), _whole(request, "offset", 0)
        found = [entry for entry in view.entries.values() if server in ("", entry.server)]
        page = [
            {**entry.listed, "server": entry.server} for entry in found[offset : offset + limit]
        ]
        return {"tools": page, "total": len(found)}

    def _id_of(self, server: str) -> str:
        """What the engine knows a server by: its alias, where it has one."""
        known = self._front().service.config.servers.get(server)
        return known.alias or server if known else server

    def _search(self, request: Request, view: View) -> dict[str, Any]:
        query = request.query_params.get("query", "")
        if not query:
            raise InvalidQuery("say in `query` what is needed")
        where = Where(
            server=self._id_of(request.query_params.get("server", "")),
            read_only=request.query_params.get("read_only") == "true",
        )
        limit = _whole(request, "limit", LIMIT, MAX_LIMIT)
        result = view.search(query, limit, where)
        explain = request.query_params.get("reasons") == "true"
        entries = [view.entries[hit.tool.id] for hit in result]
        hits = []
        for hit, entry in zip(result, entries, strict=True):
            tool = {**entry.listed, "server": entry.server}
            told: dict[str, Any] = {"score": round(hit.score, 6), "tool": tool}
            if explain:
                told["reasons"] = [asdict(reason) for reason in hit.reasons]
            hits.append(told)
        return {
            "query": query,
            "confident": result.confident,
            "hits": hits,
            "more": bool(result.more),
            "notes": self._front().counter.notes(view, entries, result.confident),
        }


def _whole(request: Request, name: str, default: int, most: int = 10**9) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 9 or int(given) > most:
        raise InvalidLimit(f"`{name}` has to be a whole number up to {most:,}")
    return int(given)
