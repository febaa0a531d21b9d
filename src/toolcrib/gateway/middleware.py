"""Middleware before all routes: checks hosts, origins, keys, rate limits and body sizes.

It is plain ASGI, so streams pass through unchanged. The principal of a request is
`scope["state"]["principal"]`; the key is removed from the request, so that no route forwards it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote

from starlette.requests import ClientDisconnect

from toolcrib.config.settings import HttpConfig
from toolcrib.errors import QuotaExceeded
from toolcrib.gateway.auth import ANONYMOUS, PUBLIC_PATHS, Authenticator, Principal, check_bind_address, check_keys
from toolcrib.gateway.hosts import is_host_allowed, is_origin_allowed
from toolcrib.gateway.logs import request_id
from toolcrib.gateway.metrics import MetricsRegistry
from toolcrib.gateway.quotas import FairQueue, RateLimiter
from toolcrib.safety.hidden_text import escape_invisible

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

# The time for a whole body, and for the next part of it.
BODY_TIMEOUT_SECONDS: Final = 300.0
BODY_IDLE_TIMEOUT_SECONDS: Final = 30.0

_ROUTE_PREFIX: Final = re.compile(r"/(?:mcp|v1/\w{1,40}|api|metrics|health|ready)(?=/|$)")
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADER_NAMES: Final = re.compile(rb"[A-Za-z0-9,\s_-]{1,2000}")
_EXPOSED_HEADERS: Final = b"mcp-session-id, mcp-protocol-version, retry-after, x-request-id"
_LOG: Final = logging.getLogger("toolcrib.access")


@dataclass(eq=False, slots=True)
class _RequestRejected(Exception):
    status: int
    type: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_INVALID_KEY: Final = _RequestRejected(
    401,
    "authentication_error",
    "no valid key; send one in the header `Authorization: Bearer …`, `x-api-key` or `x-goog-api-key`; a key in the URL, "
    "such as `?key=…`, is not read",
    ((b"www-authenticate", b'Bearer realm="toolcrib"'),),
)


class SecurityMiddleware:
    """An ASGI application that forwards only permitted requests to another one."""

    def __init__(
        self,
        app: App,
        http: HttpConfig,
        auth: Authenticator,
        *,
        metrics: MetricsRegistry | None = None,
        body_timeout_seconds: float = BODY_TIMEOUT_SECONDS,
        body_idle_timeout_seconds: float = BODY_IDLE_TIMEOUT_SECONDS,
    ) -> None:
        check_bind_address(http, auth.get_keys())
        check_keys(auth.get_keys())
        self._app = app
        self._http = http
        self._auth = auth
        self._rate_limiter = RateLimiter(http.requests_per_minute) if http.requests_per_minute else None
        self._queue = FairQueue()
        self._body_timeout_seconds = body_timeout_seconds
        self._body_idle_timeout_seconds = body_idle_timeout_seconds
        metrics = metrics or MetricsRegistry()
        self._requests = metrics.counter(
            "toolcrib_http_requests_total", "Requests by route and status.", "route", "status"
        )
        self._seconds = metrics.histogram("toolcrib_http_seconds", "Duration of requests in seconds.", "route")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._handle_request(scope, receive, send)

    async def _handle_request(self, scope: Message, receive: Receive, send: Send) -> None:
        id = _get_request_id(scope)
        token = request_id.set(id)
        response = _ResponseSender(send, [(b"x-request-id", id.encode())])
        start = time.perf_counter()
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = id
        # Not every HTTP server removes the whitespace around a value.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        try:
            try:
                self._check_host(scope)
                response.headers += self._check_origin(scope)
                if _is_preflight(scope):
                    await _send_preflight_response(scope, response)
                else:
                    await self._auth.load_session(scope)
                    state["principal"] = principal = self._authorize(scope)
                    state["csrf_token"] = self._auth.get_csrf_token(principal)
                    response.is_allowed = lambda: self._auth.is_still_valid(principal, scope["path"])
                    await self._take_turn(scope, receive, response)
            except _RequestRejected as rejection:
                await response.reject(rejection)
        finally:
            self._record(scope, response.status, time.perf_counter() - start)
            request_id.reset(token)

    def _check_host(self, scope: Message) -> None:
        host = _get_host(scope)
        if not is_host_allowed(host, self._http.host, self._http.allowed_hosts):
            raise _RequestRejected(
                403,
                "forbidden",
                f"this gateway does not serve the host {escape_invisible(host, 100)!r}; "
                'if it is right, add it to "http": {"allowedHosts": […]}',
            )

    def _check_origin(self, scope: Message) -> Headers:
        """Return the CORS headers for an allowed origin, or none without an origin."""
        origins = _header_values(scope, b"origin")
        if not origins:
            return []
        origin = origins[0].decode("latin-1")
        host = _get_host(scope)
        if len(origins) > 1 or not is_origin_allowed(origin, host, self._http.allowed_origins):
            raise _RequestRejected(
                403,
                "forbidden",
                f"pages of {escape_invisible(origin, 100)!r} may not call this gateway; "
                'if they should, add it to "http": {"allowedOrigins": […]}',
            )
        return [
            (b"access-control-allow-origin", origins[0]),
            (b"access-control-expose-headers", _EXPOSED_HEADERS),
            (b"vary", b"origin"),
        ]

    def _authorize(self, scope: Message) -> Principal:
        """Return the principal. Reject requests without a valid key or over the rate limit."""
        principal = self._auth.authenticate(scope)
        if self._rate_limiter:
            if principal is None or principal is ANONYMOUS:
                client = scope.get("client")
                name = f"address {client[0]}" if client else "unknown address"
            else:
                name = f"principal {principal.name}"
            self._check_rate(self._rate_limiter, name)
        if principal is None:
            if self._auth.sessions and _is_page_request(scope):
                location = f"/login?next={quote(scope['path'], safe='/')}".encode()
                raise _RequestRejected(303, "authentication_error", "log in first", ((b"location", location),))
            raise _INVALID_KEY
        if self._auth.is_forged(scope, principal):
            raise _RequestRejected(
                403, "forbidden", "the request does not come from a page of the console; reload the page, or send a key"
            )
        return principal

    def _check_rate(self, limiter: RateLimiter, name: str) -> None:
        wait_seconds = math.ceil(limiter.take_token(name, time.monotonic()))
        if wait_seconds:
            raise _RequestRejected(
                429,
                "rate_limit_error",
                f"more than {self._http.requests_per_minute} requests a minute; try again in {wait_seconds} s",
                ((b"retry-after", str(wait_seconds).encode()),),
            )

    async def _take_turn(self, scope: Message, receive: Receive, response: _ResponseSender) -> None:
        """Forward a request when it is the turn of its tenant: an access profile, or a key without one."""
        principal: Principal = scope["state"]["principal"]
        if scope["path"] in PUBLIC_PATHS:
            await self._forward(scope, receive, response)
            return
        try:
            turn = await self._queue.enter(f"profile {principal.profile}" if principal.profile else principal.name)
        except QuotaExceeded as error:
            headers = ((b"retry-after", str(error.retry_after_seconds).encode()),)
            raise _RequestRejected(429, "rate_limit_error", str(error), headers) from None
        try:
            # The key may have been removed while the request waited.
            if turn.has_waited and not response.is_allowed():
                raise _INVALID_KEY
            await self._forward(scope, receive, response)
        finally:
            self._queue.leave(turn)

    async def _forward(self, scope: Message, receive: Receive, response: _ResponseSender) -> None:
        limit = self._http.max_body_bytes
        too_large = _RequestRejected(
            413,
            "request_too_large",
            f"the body is larger than the limit of {limit:,} bytes; send less, or raise "
            '"http": {"maxBodyBytes": …} of the gateway',
        )
        lengths = _header_values(scope, b"content-length")
        if any(not length.isdigit() or int(length[:20]) > limit for length in lengths):
            raise too_large
        body = _BodyReceiver(receive, limit, self._body_timeout_seconds, self._body_idle_timeout_seconds)
        try:
            await self._app(scope, body.receive, response.send_unless_failed(body))
        except Exception as error:
            # The application failed because the body was cut off.
            if not (body.failure or isinstance(error, ClientDisconnect)):
                raise
        if body.failure == "large":
            raise too_large
        if body.failure == "slow":
            raise _RequestRejected(408, "timeout_error", "the body took too long to come; send it faster")

    def _record(self, scope: Message, status: int, seconds: float) -> None:
        match = _ROUTE_PREFIX.match(scope["path"])
        route = match[0] if match else "other"
        self._requests.add(route=route, status=str(status))
        self._seconds.observe(seconds, route=route)
        principal = scope["state"].get("principal")
        _LOG.info(
            "%s %s %s",
            scope["method"],
            escape_invisible(scope["path"], 200),
            status or "no response",
            extra={"seconds": round(seconds, 4), "principal": principal.name if principal else ""},
        )


class _ResponseSender:
    """Adds headers to a response and remembers its status."""

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self.headers = headers
        self.status = 0
        self.is_allowed: Callable[[], bool] = lambda: True
        self._has_ended = False
        self._is_stream = False

    async def send(self, message: Message) -> None:
        # The SDK sends a second response to a notification that arrives while its session ends.
        if self._has_ended:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
        elif (self._is_stream or message.get("more_body")) and not self.is_allowed():
            # The key was removed while the response was streamed. A response in one piece may be that of the
            # request that removed its own key, or that created the first key of the gateway.
            message = {"type": "http.response.body", "body": b""}
        self._is_stream = self._is_stream or bool(message.get("more_body"))
        self._has_ended = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    def send_unless_failed(self, body: _BodyReceiver) -> Send:
        """Return a function that drops a response that starts after the body failed."""

        async def send(message: Message) -> None:
            if not body.failure or self.status:
                await self.send(message)

        return send

    async def reject(self, rejection: _RequestRejected) -> None:
        """Send an error that clients of both LLM APIs can read, unless a response has started."""
        if self.status:
            return
        error = {"type": rejection.type, "message": rejection.message, "code": rejection.type}
        content = json.dumps({"type": "error", "error": error, "request_id": request_id.get() or None}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"request-id", request_id.get().encode()),
            (b"content-length", str(len(content)).encode()),
            # The rest of the request body is not read.
            (b"connection", b"close"),
            *rejection.headers,
        ]
        await self.send({"type": "http.response.start", "status": rejection.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content})


class _BodyReceiver:
    """Receives a body; one that is too large or too slow ends with a disconnect."""

    def __init__(self, receive: Receive, max_bytes: int, timeout_seconds: float, idle_timeout_seconds: float) -> None:
        self._receive = receive
        self._bytes_left = max_bytes
        self._deadline = time.monotonic() + timeout_seconds
        self._idle_timeout_seconds = idle_timeout_seconds
        self._is_complete = False
        self.failure: Literal["", "large", "slow"] = ""

    async def receive(self) -> Message:
        if self.failure:
            return {"type": "http.disconnect"}
        if self._is_complete:
            return await self._receive()
        try:
            seconds_left = self._deadline - time.monotonic()
            async with asyncio.timeout(min(seconds_left, self._idle_timeout_seconds)):
                message = await self._receive()
        except TimeoutError:
            return self._fail("slow")
        if message["type"] == "http.request":
            self._bytes_left -= len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
            if self._bytes_left < 0:
                return self._fail("large")
        return message

    def _fail(self, failure: Literal["large", "slow"]) -> Message:
        self.failure = failure
        return {"type": "http.disconnect"}


def _is_preflight(scope: Message) -> bool:
    """Return whether a browser asks for permission for a cross-origin request."""
    return bool(
        scope["method"] == "OPTIONS"
        and _header_values(scope, b"origin")
        and _header_values(scope, b"access-control-request-method")
    )


def _is_page_request(scope: Message) -> bool:
    """Return whether a browser navigates to a page."""
    return scope["method"] == "GET" and any(b"text/html" in value for value in _header_values(scope, b"accept"))


async def _send_preflight_response(scope: Message, response: _ResponseSender) -> None:
    names = b",".join(_header_values(scope, b"access-control-request-headers"))
    response.headers += [
        (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
        (b"access-control-max-age", b"600"),
    ]
    if _HEADER_NAMES.fullmatch(names):
        response.headers.append((b"access-control-allow-headers", names))
    await response.send({"type": "http.response.start", "status": 204, "headers": []})
    await response.send({"type": "http.response.body", "body": b""})


def _header_values(scope: Message, name: bytes) -> list[bytes]:
    return [value for header, value in scope["headers"] if header.lower() == name]


def _get_host(scope: Message) -> str:
    """Return the `Host` header, or an empty string if there is not exactly one."""
    hosts = _header_values(scope, b"host")
    return hosts[0].decode("latin-1") if len(hosts) == 1 else ""


def _get_request_id(scope: Message) -> str:
    """Return the request id of the client if it is valid, or a new one."""
    ids = _header_values(scope, b"x-request-id")
    if len(ids) == 1 and _REQUEST_ID.fullmatch(ids[0]):
        return ids[0].decode()
    return secrets.token_hex(8)
