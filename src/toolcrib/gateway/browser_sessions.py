"""Login sessions of browsers, their CSRF tokens and one-time login links."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

COOKIE_NAME: Final = "toolcrib_session"
CSRF_HEADER: Final = "x-csrf-token"
# Over this number, the oldest session ends.
MAX_BROWSER_SESSIONS: Final = 1_000
BROWSER_SESSION_SECONDS: Final = 12 * 3600
LOGIN_LINK_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that has logged in. The key hash is empty after a login with a link."""

    id: str
    key_hash: str = field(repr=False)
    csrf_token: str = field(repr=False)
    expires_at: float


class BrowserSessions:
    """The sessions of one gateway process. They end with it. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        # By the SHA-256 of the cookie, so that a copy of this table opens no session.
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        self._links: dict[str, float] = {}
        # Protects gateways without keys, whose browsers have no session.
        self.anonymous_csrf_token: Final = secrets.token_urlsafe(32)

    def create_link_token(self) -> str:
        """Return a token that opens one session with full access."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._links[_digest(token)] = self._clock() + LOGIN_LINK_SECONDS
        return token

    def redeem_link(self, token: str) -> bool:
        """Return whether a link token is valid. It is not valid again."""
        with self._lock:
            expires_at = self._links.pop(_digest(token), 0.0)
        return self._clock() < expires_at

    def open_session(self, key_hash: str) -> str:
        """Open a session and return the value of its cookie."""
        cookie = secrets.token_urlsafe(32)
        id = _digest(cookie)
        expires_at = self._clock() + BROWSER_SESSION_SECONDS
        with self._lock:
            self._sessions[id] = BrowserSession(id, key_hash, secrets.token_urlsafe(32), expires_at)
            while len(self._sessions) > MAX_BROWSER_SESSIONS:
                self._sessions.popitem(last=False)
        return cookie

    def find_session(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie, or None if there is none or it has expired."""
        return self.get_session(_digest(cookie))

    def get_session(self, id: str) -> BrowserSession | None:
        """Return the session of an id, or None if there is none or it has expired."""
        with self._lock:
            session = self._sessions.get(id)
            if session and self._clock() >= session.expires_at:
                del self._sessions[id]
                session = None
        return session

    def close_session(self, id: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(id, None)

    def get_csrf_token(self, session_id: str) -> str:
        """Return the CSRF token of a session; without one, the token of anonymous browsers."""
        session = self.get_session(session_id) if session_id else None
        return session.csrf_token if session else self.anonymous_csrf_token


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
