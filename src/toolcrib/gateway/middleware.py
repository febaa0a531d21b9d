"""What stands before every door: names, keys, sizes and numbers of requests are looked at here.

Plain ASGI, so that streams pass through untouched. Whoever is let in is known to the door as
`scope["state"]["principal"]`; the key is taken out of the request, so that no door can pass it on.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from toolcrib.errors import InvalidConfig
from toolcrib.gateway.hosts import (
    is_host_allowed,
    is_loopback,
    is_origin_allowed,
    is_wildcard_address,
)
from toolcrib.gateway.logs import request_id
from toolcrib.gateway.metrics import MetricsRegistry
from toolcrib.gateway.rate_limit import RateLimiter
from toolcrib.safety.hidden_text import escape_invisible

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

# A body has to come within this time in all, and may pause for no longer than that.
BODY_TIMEOUT_SECONDS: Final = 300.0
BODY_IDLE_TIMEOUT_SECONDS: Final = 30.0
MAX_KEY_CHARS: Final = 4096
# Answered without a key, so that whoever watches over the process needs none.
PUBLIC_PATHS: Final = frozenset({"/health"})

_DOORS: Final = re.compile(r"/(?:mcp|v1/\w{1,40}|api|metrics|health)(?=/|$)")
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADER_NAMES: Final = re.compile(rb"[A-Za-z0-9,\s_-]{1,2000}")
_EXPOSED: Final = b"mcp-session-id, mcp-protocol-version, retry-after, x-request-id"
_NOTHING: Final = hashlib.sha256(b"").hexdigest()
_LOG: Final = logging.getLogger("toolcrib.access")


class KeyLike(Protocol):
    """A key, known by the SHA-256 of its secret in hexadecimal."""

    @property
    def hash(self) -> str: ...
    @property
    def profile(self) -> str | None: ...
    @property
    def name(self) -> str: ...


class AuthLike(Protocol):
    """Who may come in. It is asked at every request: keys may come and go."""

    @property
    def keys(self) -> Collection[KeyLike]: ...


class HttpLike(Protocol):
    """Where the gateway listens, and its limits."""

    @property
    def host(self) -> str: ...
    @property
    def allowed_hosts(self) -> Collection[str]: ...
    @property
    def allowed_origins(self) -> Collection[str]: ...
    @property
    def max_body_bytes(self) -> int: ...
    @property
    def requests_per_minute(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a request. Without keys it is everyone who can reach the gateway."""

    name: str
    profile: str | None = None
    # The digest of the key that was shown.
    key_hash: str = field(default="", repr=False)


ANONYMOUS: Final = Principal("anyone")


@dataclass(eq=False, slots=True)
class _RequestRejected(Exception):
    status: int
    type: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def check_bind_address(http: HttpLike, auth: AuthLike) -> None:
    """Refuse to listen where others can reach us, unless they need a key."""
    if auth.keys or is_loopback(http.host.strip("[]").lower()):
        return
    place = "every address of this machine" if is_wildcard_address(http.host) else repr(http.host)
    raise InvalidConfig(
        f"listening on {place} without keys would let everyone on the network use your tools; "
        'set "auth": {"keys": ["${TOOLCRIB_KEY}"]}, or listen on 127.0.0.1'
    )


class SecurityMiddleware:
    """An ASGI application that lets only those requests through to another that it should."""

    def __init__(
        self,
        app: App,
        http: HttpLike,
        auth: AuthLike,
        *,
        metrics: MetricsRegistry | None = None,
        body_seconds: float = BODY_TIMEOUT_SECONDS,
        body_pause_seconds: float = BODY_IDLE_TIMEOUT_SECONDS,
    ) -> None:
        check_bind_address(http, auth)
        self._app = app
        self._http = http
        self._auth = auth
        if any(key.hash.lower() == _NOTHING for key in auth.keys):
            raise InvalidConfig(
                "one of the keys is empty and would let everyone in; set the variable it is from"
            )
        self._buckets = RateLimiter(http.requests_per_minute) if http.requests_per_minute else None
        self._body_seconds = body_seconds
        self._body_pause_seconds = body_pause_seconds
        metrics = metrics or MetricsRegistry()
        self._requests = metrics.counter(
            "toolcrib_http_requests_total", "Requests by door and status.", "door", "status"
        )
        self._seconds = metrics.histogram(
            "toolcrib_http_seconds", "Time until a request was answered.", "door"
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._handle_request(scope, receive, send)

    async def _handle_request(self, scope: Message, receive: Receive, send: Send) -> None:
        id = _get_request_id(scope)
        token = request_id.set(id)
        reply = _ResponseSender(send, [(b"x-request-id", id.encode())])
        start = time.perf_counter()
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = id
        # White space around a value is no part of it, but not every HTTP server takes it away.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        try:
            try:
                if not await self._is_preflight(scope, reply):
                    state["principal"] = principal = self._authorize(scope)
                    reply.may_go_on = lambda: self._is_still_authorized(principal, scope["path"])
                    await self._forward(scope, receive, reply)
            except _RequestRejected as refusal:
                await reply.refuse(refusal)
        finally:
            self._record(scope, reply.status, time.perf_counter() - start)
            request_id.reset(token)

    async def _is_preflight(self, scope: Message, reply: _ResponseSender) -> bool:
        """Look at Host and Origin, and answer a browser that asks whether a page may call us."""
        hosts = _header_values(scope, b"host")
        host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        if not is_host_allowed(host, self._http.host, self._http.allowed_hosts):
            raise _RequestRejected(
                403,
                "forbidden",
                f"this gateway is not to be called by the name {escape_invisible(host, 100)!r}; "
                'if it is right, add it to "http": {"allowedHosts": […]}',
            )
        origins = _header_values(scope, b"origin")
        if not origins:
            return False
        origin = origins[0].decode("latin-1")
        if len(origins) > 1 or not is_origin_allowed(origin, host, self._http.allowed_origins):
            raise _RequestRejected(
                403,
                "forbidden",
                f"pages of {escape_invisible(origin, 100)!r} may not call this gateway; "
                'if they should, add it to "http": {"allowedOrigins": […]}',
            )
        reply.headers += [
            (b"access-control-allow-origin", origins[0]),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        ]
        if scope["method"] != "OPTIONS" or not _header_values(
            scope, b"access-control-request-method"
        ):
            return False
        wanted = b",".join(_header_values(scope, b"access-control-request-headers"))
        reply.headers += [
            (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
            (b"access-control-max-age", b"600"),
        ]
        if _HEADER_NAMES.fullmatch(wanted):
            reply.headers.append((b"access-control-allow-headers", wanted))
        await reply.send({"type": "http.response.start", "status": 204, "headers": []})
        await reply.send({"type": "http.response.body", "body": b""})
        return True

    def _authorize(self, scope: Message) -> Principal:
        """Who asks; refuses those without a key, and those who ask too often."""
        client = scope.get("client")
        address = f"address {client[0]}" if client else "unknown address"
        principal = self._find_principal(scope)
        if self._buckets:
            is_known = principal is not None and principal is not ANONYMOUS
            name = f"principal {principal.name}" if principal and is_known else address
            wait = self._buckets.take_token(name, time.monotonic())
            if wait:
                seconds = math.ceil(wait)
                raise _RequestRejected(
                    429,
                    "rate_limit_error",
                    f"more than {self._http.requests_per_minute} requests a minute; "
                    f"try again in {seconds} s",
                    ((b"retry-after", str(seconds).encode()),),
                )
        if principal is None:
            raise _RequestRejected(
                401,
                "authentication_error",
                "no valid key; send one as `Authorization: Bearer …` or as `x-api-key: …`",
                ((b"www-authenticate", b'Bearer realm="toolcrib"'),),
            )
        return principal

    def _is_still_authorized(self, principal: Principal, path: str) -> bool:
        """Whether who was let in still would be."""
        if principal is ANONYMOUS:
            return not self._auth.keys or path in PUBLIC_PATHS
        return any(
            key.hash == principal.key_hash and key.profile == principal.profile
            for key in self._auth.keys
        )

    def _find_principal(self, scope: Message) -> Principal | None:
        if not self._auth.keys:
            return ANONYMOUS
        found: Principal | None = None
        kept: Headers = []
        for name, value in scope["headers"]:
            key = self._find_key(_secret_from_header(name, value))
            if key is None:
                kept.append((name, value))
            else:
                name = key.name or f"key {key.hash[:8]}"
                found = found or Principal(name, key.profile, key.hash)
        scope["headers"] = kept
        return found or (ANONYMOUS if scope["path"] in PUBLIC_PATHS else None)

    def _find_key(self, secret: bytes | None) -> KeyLike | None:
        """The key that a secret opens with; as long for every wrong one."""
        if secret is None:
            return None
        digest = hashlib.sha256(secret).hexdigest()
        found: KeyLike | None = None
        for key in self._auth.keys:
            if hmac.compare_digest(digest, key.hash.lower()):
                found = key
        return found

    async def _forward(self, scope: Message, receive: Receive, reply: _ResponseSender) -> None:
        most = self._http.max_body_bytes
        too_large = _RequestRejected(
            413, "request_too_large", f"the body is larger than {most:,} bytes, which is the limit"
        )
        lengths = _header_values(scope, b"content-length")
        if any(not length.isdigit() or int(length[:20]) > most for length in lengths):
            raise too_large
        body = _BodyReceiver(receive, most, self._body_seconds, self._body_pause_seconds)
        try:
            await self._app(scope, body.receive, reply.send_unless(body))
        except Exception:
            # What the door makes of a body that broke off is not what went wrong.
            if not body.fault:
                raise
        if body.fault == "large":
            raise too_large
        if body.fault == "slow":
            raise _RequestRejected(
                408, "timeout_error", "the body took too long to come; send it faster"
            )

    def _record(self, scope: Message, status: int, seconds: float) -> None:
        door = _DOORS.match(scope["path"])
        name = door[0] if door else "other"
        self._requests.add(door=name, status=str(status))
        self._seconds.observe(seconds, door=name)
        principal = scope["state"].get("principal")
        _LOG.info(
            "%s %s %s",
            scope["method"],
            escape_invisible(scope["path"], 200),
            status or "no answer",
            extra={
                "seconds": round(seconds, 4),
                "principal": principal.name if principal else "",
            },
        )


class _ResponseSender:
    """The way back: adds our headers, and knows what was said."""

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self.headers = headers
        self.status = 0
        self.may_go_on: Callable[[], bool] = lambda: True
        self._is_cut_off = False

    async def send(self, message: Message) -> None:
        if self._is_cut_off:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
        elif not self.may_go_on():
            # The key is no longer good, and so is no stream that was opened with it.
            self._is_cut_off = True
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def send_unless(self, body: _BodyReceiver) -> Send:
        """Send what the door says, unless its request broke off before it began to answer."""

        async def send(message: Message) -> None:
            if not body.fault or self.status:
                await self.send(message)

        return send

    async def refuse(self, refusal: _RequestRejected) -> None:
        """Say no, in a form that clients of both model APIs read, unless an answer has begun."""
        if self.status:
            return
        error = {"type": refusal.type, "message": refusal.message, "code": refusal.type}
        content = json.dumps({"type": "error", "error": error}).encode()
        headers: Iterable[tuple[bytes, bytes]] = (
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            # What is left of the body is not waited for.
            (b"connection", b"close"),
            *refusal.headers,
        )
        await self.send(
            {"type": "http.response.start", "status": refusal.status, "headers": [*headers]}
        )
        await self.send({"type": "http.response.body", "body": content})


class _BodyReceiver:
    """The way in: a body that is too large or too slow looks to the door like a client gone."""

    def __init__(self, receive: Receive, most: int, seconds: float, pause_seconds: float) -> None:
        self._receive = receive
        self._left = most
        self._until = time.monotonic() + seconds
        self._pause_seconds = pause_seconds
        self._is_whole = False
        self.fault = ""

    async def receive(self) -> Message:
        if self.fault:
            return {"type": "http.disconnect"}
        if self._is_whole:
            return await self._receive()
        try:
            left = self._until - time.monotonic()
            async with asyncio.timeout(min(left, self._pause_seconds)):
                message = await self._receive()
        except TimeoutError:
            return self._broken_off("slow")
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._left < 0:
                return self._broken_off("large")
        return message

    def _broken_off(self, fault: str) -> Message:
        self.fault = fault
        return {"type": "http.disconnect"}


def _header_values(scope: Message, name: bytes) -> list[bytes]:
    return [value for header, value in scope["headers"] if header.lower() == name]


def _secret_from_header(name: bytes, value: bytes) -> bytes | None:
    """The secret in a header that may carry one."""
    if len(value) > MAX_KEY_CHARS:
        return None
    if name.lower() == b"x-api-key":
        return value.strip()
    scheme, _, secret = value.partition(b" ")
    is_bearer = name.lower() == b"authorization" and scheme.lower() == b"bearer"
    return secret.strip() if is_bearer else None


def _get_request_id(scope: Message) -> str:
    """The id the client gave the request, if it is one, or a new one."""
    given = _header_values(scope, b"x-request-id")
    if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]):
        return given[0].decode()
    return secrets.token_hex(8)
