"""The JSON API with which a browser logs in and out of the console."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

import anyio
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib.config.settings import ApiKey
from toolcrib.errors import InvalidStore
from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.auth import LOGIN_PATH, MAX_KEY_CHARS, find_key, get_principal
from toolcrib.gateway.browser_sessions import BROWSER_SESSION_SECONDS, COOKIE_NAME, BrowserSessions
from toolcrib.storage.audit import AuditOutcome, AuditRow

_log = logging.getLogger(__name__)
_WRONG_KEY: Final = "this key is not valid; check `auth.keys` in toolcrib.json"
_USED_LINK: Final = "this link has expired or was used before; log in with a key, or restart `toolcrib serve`"


class LoginApi:
    """Handles `/api/login`, `/api/logout` and `/api/session`."""

    def __init__(self, sessions: BrowserSessions, get_keys: Callable[[], Collection[ApiKey]], audit: AuditLog) -> None:
        self._sessions = sessions
        self._get_keys = get_keys
        self._audit = audit

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(LOGIN_PATH, self._log_in, methods=["POST"]),
            Route("/api/logout", self._log_out, methods=["POST"]),
            Route("/api/session", self._get_session),
        ]

    async def _log_in(self, request: Request) -> Response:
        body = await _read_object(request)
        link, key = body.get("link"), body.get("key")
        if isinstance(link, str) and link:
            try:
                if not await anyio.to_thread.run_sync(self._sessions.redeem_link, link):
                    return self._refuse(request, _USED_LINK)
            except InvalidStore as error:
                _log.warning("a login link cannot be checked: %s", error)
                return _build_retry_response(
                    "the link cannot be checked at the moment; try again, or log in with a key"
                )
            key_hash, name = "", "login link"
        else:
            secret = key.strip().encode("utf-8", "surrogatepass") if isinstance(key, str) else b""
            found = find_key(self._get_keys(), secret) if 0 < len(secret) <= MAX_KEY_CHARS else None
            if found is None:
                return self._refuse(request, _WRONG_KEY)
            key_hash, name = found.hash, found.name
        row = _build_row(request, "ok", key=name)
        try:
            await anyio.to_thread.run_sync(self._audit.record_change, row)
        except InvalidStore:
            # Written when the store is back, because an operator has to see the console of a gateway without its store.
            self._audit.record(row)
        response = JSONResponse({"loggedIn": True})
        response.set_cookie(
            COOKIE_NAME,
            await anyio.to_thread.run_sync(self._sessions.open_session, key_hash),
            max_age=BROWSER_SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def _refuse(self, request: Request, error: str) -> Response:
        # Buffered, because anyone can send wrong keys, and the disk should not wait for them.
        self._audit.record(_build_row(request, "refused", details={"error": error}))
        return JSONResponse({"error": error}, 401)

    async def _log_out(self, request: Request) -> Response:
        session = get_principal(request.scope).session
        try:
            await anyio.to_thread.run_sync(self._sessions.end_session, session)
        except InvalidStore as error:
            return _build_retry_response(f"you are still logged in; try again: {error}")

        async def forget_session() -> None:
            self._sessions.forget_session(session)

        # Runs after the response, because the middleware cuts off responses of an ended session.
        response = JSONResponse({"loggedIn": False}, background=BackgroundTask(forget_session))
        response.delete_cookie(COOKIE_NAME, httponly=True, samesite="strict")
        return response

    async def _get_session(self, request: Request) -> Response:
        principal = get_principal(request.scope)
        return JSONResponse(
            {
                "name": principal.name,
                "profile": principal.profile,
                "fullAccess": not principal.profile,
                "canLogOut": bool(principal.session),
            }
        )


def _build_row(request: Request, outcome: AuditOutcome, **fields: Any) -> AuditRow:
    request_id = request.scope.get("state", {}).get("request_id", "")
    return AuditRow("login", outcome, client="console", request_id=request_id, **fields)


def _build_retry_response(error: str) -> Response:
    return JSONResponse({"error": error}, 503, {"retry-after": "1"})


async def _read_object(request: Request) -> dict[str, Any]:
    """Return the body if it is a JSON object, or an empty object."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
