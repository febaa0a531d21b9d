"""Login sessions of browsers, their CSRF tokens and one-time login links."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from toolcrib.errors import InvalidStore
from toolcrib.storage.shared_values import SharedValue
from toolcrib.storage.store import Store

COOKIE_NAME: Final = "toolcrib_session"
CSRF_HEADER: Final = "x-csrf-token"
# Over this number, the oldest session ends.
MAX_BROWSER_SESSIONS: Final = 1_000
BROWSER_SESSION_SECONDS: Final = 12 * 3600
LOGIN_LINK_SECONDS: Final = 3600
# Replicas look this often whether a session has ended on another one.
CHECK_SESSION_SECONDS: Final = 5.0
_KEEP_TOKEN_SECONDS: Final = 10 * 365 * 86_400
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that has logged in. The key hash is empty after a login with a link."""

    id: str
    key_hash: str = field(repr=False)
    csrf_token: str = field(repr=False)
    expires_at: float


class BrowserSessions:
    """The sessions of one gateway process, which end with it, or of all replicas that share a store. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.time, store: Store | None = None) -> None:
        self._clock = clock
        self._store = store
        self._lock = Lock()
        # By the SHA-256 of the cookie, so that a copy of this table opens no session.
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        # When a session was last written to the store or read from it.
        self._checked_at: dict[str, float] = {}
        self._links: dict[str, float] = {}
        # Protects logins, and gateways without keys, whose browsers have no session. Replicas share the first one.
        self.anonymous_csrf_token = secrets.token_urlsafe(32)
        if store is not None:
            holder = store.take_lease("anonymous CSRF token", self.anonymous_csrf_token, clock(), _KEEP_TOKEN_SECONDS)
            self.anonymous_csrf_token = holder

    def create_link_token(self) -> str:
        """Return a token that opens one session with full access."""
        token, now = secrets.token_urlsafe(32), self._clock()
        if self._store is None:
            self._links[_digest(token)] = now + LOGIN_LINK_SECONDS
        else:
            self._store.put_values([SharedValue("link", _digest(token), "", now + LOGIN_LINK_SECONDS)], now=now)
        return token

    def redeem_link(self, token: str) -> bool:
        """Return whether a link token is valid, and invalidate it. Raise `InvalidStore` if the store is unavailable."""
        if self._store is None:
            return self._clock() < self._links.pop(_digest(token), 0.0)
        return self._store.take_value("link", _digest(token), self._clock()) is not None

    def open_session(self, key_hash: str) -> str:
        """Open a session and return the value of its cookie.

        While the store is unavailable, only this process knows the session.
        """
        cookie = secrets.token_urlsafe(32)
        now = self._clock()
        session = BrowserSession(_digest(cookie), key_hash, secrets.token_urlsafe(32), now + BROWSER_SESSION_SECONDS)
        self._keep(session)
        if self._store is not None:
            body = json.dumps([session.key_hash, session.csrf_token, session.expires_at])
            try:
                self._store.put_values([SharedValue("login", session.id, body, session.expires_at)], now=now)
            except InvalidStore as error:
                _log.warning("a login is not valid on other replicas: %s", error)
        return cookie

    def needs_check(self, cookie: str) -> bool:
        """Return whether `load_session` has to be called before a cookie is used."""
        checked_at = self._checked_at.get(_digest(cookie), 0.0)
        return self._store is not None and self._clock() - checked_at >= CHECK_SESSION_SECONDS

    def load_session(self, cookie: str) -> None:
        """Read a session that another replica may have opened or ended; do nothing if the store is unavailable."""
        id, now = _digest(cookie), self._clock()
        assert self._store is not None
        try:
            found = self._store.get_values("login", [id], now)
        except InvalidStore as error:
            _log.warning("logins on other replicas are not known: %s", error)
            return
        if id not in found:
            self.forget_session(id)
            return
        self._keep(BrowserSession(id, *json.loads(found[id])))

    def _keep(self, session: BrowserSession) -> None:
        with self._lock:
            self._sessions[session.id] = session
            self._checked_at[session.id] = self._clock()
            while len(self._sessions) > MAX_BROWSER_SESSIONS:
                id, _ = self._sessions.popitem(last=False)
                self._checked_at.pop(id, None)

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

    def end_session(self, id: str) -> None:
        """End a session in the store, and soon on other replicas. Raise `InvalidStore` if the store is unavailable."""
        if self._store is not None:
            self._store.take_value("login", id, self._clock())

    def forget_session(self, id: str) -> None:
        """End a session of this process."""
        with self._lock:
            self._sessions.pop(id, None)
            self._checked_at.pop(id, None)

    def get_csrf_token(self, session_id: str) -> str:
        """Return the CSRF token of a session; without one, the token of anonymous browsers."""
        session = self.get_session(session_id) if session_id else None
        return session.csrf_token if session else self.anonymous_csrf_token


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
