"""API keys and the principals they identify."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

import anyio

from toolcrib.config.settings import ApiKey, HttpConfig
from toolcrib.errors import InvalidConfig
from toolcrib.gateway.browser_sessions import COOKIE_NAME, CSRF_HEADER, BrowserSession, BrowserSessions
from toolcrib.gateway.hosts import is_loopback, is_wildcard_address

MAX_KEY_CHARS: Final = 4096
LOGIN_PATH: Final = "/api/login"
# Monitoring and the login page need no key.
PUBLIC_PATHS: Final = frozenset({"/health", "/ready", "/login", LOGIN_PATH})
STATIC_PREFIX: Final = "/static/"
# These APIs are for programs. A browser's cookie does not give access to them.
_KEY_ONLY_PREFIXES: Final = ("/mcp", "/v1", "/openai")
# The headers of Anthropic, Azure and Google.
_KEY_HEADERS: Final = frozenset({b"x-api-key", b"api-key", b"x-goog-api-key"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request."""

    name: str
    profile: str | None = None
    key_hash: str = field(default="", repr=False)
    # The id of a browser's session; empty for a request with a key.
    session: str = field(default="", repr=False)


ANONYMOUS: Final = Principal("anyone")


def get_principal(scope: Mapping[str, Any]) -> Principal:
    """Return the sender of a request, which the middleware has authenticated."""
    principal: Principal = scope.get("state", {}).get("principal", ANONYMOUS)
    return principal


class Authenticator:
    """Finds the principal of a request. The keys are read for every request and may change."""

    def __init__(self, get_keys: Callable[[], Collection[ApiKey]], sessions: BrowserSessions | None = None) -> None:
        self.get_keys = get_keys
        self.sessions = sessions
        self._limiter = anyio.CapacityLimiter(1)

    def authenticate(self, scope: MutableMapping[str, Any]) -> Principal | None:
        """Return the principal, or None without a valid key. Remove the key from the headers."""
        keys = self.get_keys()
        if not keys:
            return ANONYMOUS
        principal: Principal | None = None
        secrets: set[bytes] = set()
        for name, value in scope["headers"]:
            secret = _secret_from_header(name, value)
            key = find_key(keys, secret) if secret is not None else None
            if secret is not None and key is not None:
                secrets.add(secret)
                principal = principal or Principal(key.name or f"key {key.hash[:8]}", key.profile, key.hash)
        # Some clients repeat their key in another header.
        scope["headers"] = [
            (name, value) for name, value in scope["headers"] if not any(secret in value for secret in secrets)
        ]
        if principal is None:
            principal = self._find_browser(scope, keys)
        if principal is None and _is_public(scope["path"]):
            return ANONYMOUS
        return principal

    async def load_session(self, scope: MutableMapping[str, Any]) -> None:
        """Read the session of a cookie that another replica may have opened or ended."""
        if self.sessions is None or scope["path"].startswith(_KEY_ONLY_PREFIXES):
            return
        for cookie in _list_session_cookies(scope):
            if self.sessions.needs_check(cookie):
                # One thread, so that invalid cookies do not use all threads.
                await anyio.to_thread.run_sync(self.sessions.load_session, cookie, limiter=self._limiter)

    def is_forged(self, scope: MutableMapping[str, Any], principal: Principal) -> bool:
        """Return whether a page of another site may have sent a request that changes something.

        A request with a key cannot be forged. Browsers send `Origin` with every other request that
        changes something, and only pages of the console know the CSRF token.
        """
        if scope["method"] in _SAFE_METHODS or not scope["path"].startswith("/api/"):
            return False
        headers = {name.lower(): value for name, value in scope["headers"]}
        if not principal.session and (principal.key_hash or b"origin" not in headers):
            return False
        sent, expected = headers.get(CSRF_HEADER.encode(), b""), self.get_csrf_token(principal).encode()
        return not expected or not hmac.compare_digest(sent, expected)

    def get_csrf_token(self, principal: Principal) -> str:
        """Return the token that the pages of a principal send with every change."""
        return self.sessions.get_csrf_token(principal.session) if self.sessions else ""

    def _find_browser(self, scope: MutableMapping[str, Any], keys: Collection[ApiKey]) -> Principal | None:
        """Return the principal of a session cookie. It has the current rights of its key."""
        if self.sessions is None or scope["path"].startswith(_KEY_ONLY_PREFIXES):
            return None
        for cookie in _list_session_cookies(scope):
            session = self.sessions.find_session(cookie)
            if session is not None:
                return _principal_of_session(session, keys)
        return None

    def is_still_valid(self, principal: Principal, path: str) -> bool:
        """Return whether the principal would be accepted again."""
        keys = self.get_keys()
        if principal is ANONYMOUS:
            return not keys or _is_public(path)
        if principal.session:
            session = self.sessions.get_session(principal.session) if self.sessions else None
            return session is not None and _principal_of_session(session, keys) == principal
        return any(key.hash == principal.key_hash and key.profile == principal.profile for key in keys)


def check_keys(keys: Collection[ApiKey]) -> None:
    """Raise an error if a key is empty."""
    if any(key.hash.lower() == _EMPTY_HASH for key in keys):
        raise InvalidConfig("one of the keys is empty and would give everyone access; set its variable")


def check_bind_address(http: HttpConfig, keys: Collection[ApiKey]) -> None:
    """Raise an error if others can reach the gateway and it has no keys."""
    if keys or is_loopback(http.host.strip("[]").lower()):
        return
    is_wildcard = is_wildcard_address(http.host)
    address = "every address of this machine" if is_wildcard else repr(http.host)
    raise InvalidConfig(
        f"listening on {address} without keys would let everyone on the network use your tools; "
        'set "auth": {"keys": ["${TOOLCRIB_KEY}"]}, or listen on 127.0.0.1'
    )


def find_key(keys: Collection[ApiKey], secret: bytes) -> ApiKey | None:
    """Return the key of a secret. The time does not depend on the secret."""
    digest = hashlib.sha256(secret).hexdigest()
    match: ApiKey | None = None
    for key in keys:
        if hmac.compare_digest(digest, key.hash.lower()):
            match = key
    return match


def _is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith(STATIC_PREFIX)


def _principal_of_session(session: BrowserSession, keys: Collection[ApiKey]) -> Principal | None:
    if not session.key_hash:
        return Principal("login link", session=session.id)
    key = next((key for key in keys if key.hash == session.key_hash), None)
    if key is None:
        return None
    return Principal(key.name or f"key {key.hash[:8]}", key.profile, key.hash, session.id)


def _list_session_cookies(scope: MutableMapping[str, Any]) -> list[str]:
    cookies = []
    for name, value in scope["headers"]:
        if name.lower() == b"cookie" and len(value) <= MAX_KEY_CHARS:
            try:
                morsel = SimpleCookie(value.decode("latin-1")).get(COOKIE_NAME)
            except CookieError:
                continue
            if morsel is not None:
                cookies.append(morsel.value)
    return cookies


def _secret_from_header(name: bytes, value: bytes) -> bytes | None:
    if len(value) > MAX_KEY_CHARS:
        return None
    if name.lower() in _KEY_HEADERS:
        return value.strip()
    scheme, _, secret = value.partition(b" ")
    is_bearer = name.lower() == b"authorization" and scheme.lower() == b"bearer"
    return secret.strip() if is_bearer else None
