from __future__ import annotations

from toolcrib.gateway.browser_sessions import (
    BROWSER_SESSION_SECONDS,
    LOGIN_LINK_SECONDS,
    MAX_BROWSER_SESSIONS,
    BrowserSessions,
)


class FakeClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_session_and_link_expire() -> None:
    clock = FakeClock()
    sessions = BrowserSessions(clock)
    cookie, link = sessions.open_session("hash"), sessions.create_link_token()
    session = sessions.find_session(cookie)
    assert session and session.key_hash == "hash"
    assert sessions.get_csrf_token(session.id) == session.csrf_token != sessions.anonymous_csrf_token
    clock.now += LOGIN_LINK_SECONDS
    assert not sessions.redeem_link(link)
    clock.now += BROWSER_SESSION_SECONDS
    assert sessions.find_session(cookie) is None
    assert sessions.get_csrf_token(session.id) == sessions.anonymous_csrf_token


def test_oldest_session_ends_at_the_limit() -> None:
    sessions = BrowserSessions()
    first, second = sessions.open_session("a"), sessions.open_session("b")
    for _ in range(MAX_BROWSER_SESSIONS - 1):
        sessions.open_session("c")
    assert sessions.find_session(first) is None and sessions.find_session(second)


def test_link_is_redeemed_once() -> None:
    sessions = BrowserSessions()
    link = sessions.create_link_token()
    assert sessions.redeem_link(link)
    assert not sessions.redeem_link(link) and not sessions.redeem_link("")
