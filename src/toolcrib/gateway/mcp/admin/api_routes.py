"""Routes of `/api`: the rights, the body and the errors that all of them share."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib import errors
from toolcrib.gateway.auth import get_principal
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.hub.view import AccessView
from toolcrib.storage.audit import AuditAction, AuditRow

RETRY_SECONDS: Final = 5
_log = logging.getLogger(__name__)
HttpMethod = Literal["GET", "POST", "PUT", "DELETE"]


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request: the router, the view of the caller, and what the caller sent."""

    request: Request
    router: McpRouter
    view: AccessView
    body: dict[str, Any]

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter of the path or the query."""
        value: str = self.request.path_params.get(name) or self.request.query_params.get(name, default)
        return value

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the query is `true`."""
        return self.request.query_params.get(name) == "true"

    def integer(self, name: str, default: int, maximum: int = 10**9) -> int:
        """Return an integer parameter of the query, or raise `InvalidLimit`."""
        value = self.request.query_params.get(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) > maximum:
            raise errors.InvalidLimit(f"`{name}` must be an integer up to {maximum:,}")
        return int(value)

    @property
    def caller(self) -> str:
        """The name of the caller's key; empty if the gateway has no keys."""
        principal = get_principal(self.request.scope)
        return principal.name if principal.key_hash or principal.session else ""

    @property
    def client(self) -> str:
        """What sent the request: a page of the console, or a program."""
        # Browsers send this header with every change, and programs do not.
        is_page = self.request.headers.get("sec-fetch-site") == "same-origin"
        return "console" if is_page else "API"

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return str(self.request.scope.get("state", {}).get("request_id", ""))

    def record_change(
        self, action: AuditAction, details: Mapping[str, Any], *, server: str = "", tool: str = ""
    ) -> None:
        """Write a change of the caller to the audit log. Call it in a thread, before the change is acknowledged."""
        row = AuditRow(
            action,
            key=self.caller,
            client=self.client,
            server=server,
            tool=tool,
            request_id=self.request_id,
            details=details,
        )
        self.router.audit.record_change(row)


# A function that does not return an awaitable runs in a thread: it may search or count tokens.
ApiHandler = Callable[[ApiCall], Any]


class ApiRoutes:
    """Builds routes. A caller sees what the access profile of its key allows."""

    def __init__(self, get_router: Callable[[], McpRouter]) -> None:
        self._get_router = get_router
        self.routes: list[Route] = []

    def add(self, method: HttpMethod, path: str, handler: ApiHandler, *, needs_full_access: bool = False) -> None:
        """Add a route. With `needs_full_access`, keys with an access profile are refused."""

        async def respond(request: Request) -> Response:
            try:
                content = await self._handle(request, handler, needs_full_access)
            except errors.RequestFailed as error:
                return _render_error(str(error), error.status)
            except errors.UnknownTool as error:
                return _render_error(str(error), 404)
            except errors.StoreUnavailable as error:
                _log.warning("%s failed: %s", request.url.path, error)
                message = (
                    "the database of the gateway cannot be reached, so the request was not completed; try again later"
                )
                response = _render_error(message, 503)
                response.headers["retry-after"] = str(RETRY_SECONDS)
                return response
            except errors.InvalidStore as error:
                # The error contains the path of the store.
                _log.warning("%s failed: %s", request.url.path, error)
                return _render_error("the store of the gateway cannot be used; its log says why", 503)
            except errors.ToolcribError as error:
                return _render_error(str(error), 400)
            if isinstance(content, Response):
                return content
            # Definitions of some servers contain numbers that JSON does not have.
            body = to_json(content, inf_nan_mode="null")
            return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

        self.routes.append(Route(path, respond, methods=[method]))

    async def _handle(self, request: Request, handler: ApiHandler, needs_full_access: bool) -> Any:
        profile = get_principal(request.scope).profile
        if needs_full_access and profile:
            raise errors.RequestFailed("this needs a key with full access; yours has an access profile", 403)
        router = self._get_router()
        body = {} if request.method == "GET" else await _read_body(request)
        call = ApiCall(request, router, router.hub.get_view(profile), body)
        if inspect.iscoroutinefunction(handler):
            return await handler(call)
        return await anyio.to_thread.run_sync(handler, call)


async def _read_body(request: Request) -> dict[str, Any]:
    raw = await request.body()
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise errors.InvalidQuery("the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise errors.InvalidQuery("the body must be a JSON object")
    return body


def _render_error(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": message}, status, {"cache-control": "no-store"})
