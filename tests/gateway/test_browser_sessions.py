from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.ports import find_free_ports
from tests.support.postgres import PostgresServer
from tests.support.replica_load import ADMIN, ReplicaProcess, build_replica_config
from tests.support.tcp_proxy import run_proxy
from toolcrib.errors import InvalidStore
from toolcrib.gateway.browser_sessions import (
    BROWSER_SESSION_SECONDS,
    CHECK_SESSION_SECONDS,
    LOGIN_LINK_SECONDS,
    MAX_BROWSER_SESSIONS,
    BrowserSessions,
)
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditFilter
from toolcrib.storage.store import Store


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


def test_link_is_redeemed_on_one_replica(store: Store) -> None:
    clock = FakeClock()
    here, there = BrowserSessions(clock, store), BrowserSessions(clock, store)
    links = [here.create_link_token() for _ in range(9)]
    late = here.create_link_token()
    with ThreadPoolExecutor(8) as threads:
        for link in links:
            redeemed = threads.map(lambda sessions, link=link: sessions.redeem_link(link), [here, there] * 4)
            assert sorted(redeemed) == [False] * 7 + [True]
    clock.now += LOGIN_LINK_SECONDS
    assert not there.redeem_link(late)


def test_replicas_share_sessions_until_they_end(store: Store) -> None:
    clock = FakeClock()
    here, there = BrowserSessions(clock, store), BrowserSessions(clock, store)
    assert here.anonymous_csrf_token == there.anonymous_csrf_token
    cookie = here.open_session("hash")
    assert not here.needs_check(cookie) and there.needs_check(cookie)
    there.load_session(cookie)
    session = there.find_session(cookie)
    assert session and session == here.find_session(cookie) and not there.needs_check(cookie)
    there.end_session(session.id)
    there.forget_session(session.id)
    clock.now += CHECK_SESSION_SECONDS
    assert here.needs_check(cookie)
    here.load_session(cookie)
    assert here.find_session(cookie) is None and there.find_session(cookie) is None


def test_a_session_expires_on_all_replicas_at_the_same_time(store: Store) -> None:
    clock = FakeClock()
    here, there = BrowserSessions(clock, store), BrowserSessions(clock, store)
    cookie = here.open_session("hash")
    clock.now += BROWSER_SESSION_SECONDS - 1
    there.load_session(cookie)
    assert there.find_session(cookie)
    clock.now += 1
    assert there.find_session(cookie) is None
    there.load_session(cookie)
    assert there.find_session(cookie) is None


@pytest.mark.anyio
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux")
async def test_a_login_on_one_replica_is_valid_on_the_other(postgres_url: str, tmp_path: Path) -> None:
    config = build_replica_config(postgres_url, "http://127.0.0.1:1")
    replicas = [ReplicaProcess(tmp_path / str(port), port, config) for port in find_free_ports(2)]
    try:
        for replica in replicas:
            await replica.start()
        first, second = (replica.url for replica in replicas)
        async with httpx2.AsyncClient(timeout=60) as http:
            page = (await http.get(f"{first}/login", headers={"accept": "text/html"})).text
            headers = {"origin": second, "x-csrf-token": read_csrf_token(page)}
            link = {"link": replicas[0].read_log().partition("/login#")[2].partition("\n")[0]}
            for url, status in ((second, 200), (first, 401)):
                reply = await http.post(f"{url}/api/login", json=link, headers={**headers, "origin": url})
                assert reply.status_code == status, reply.text
                http.cookies.clear()
            opened = await http.post(f"{second}/api/login", json={"key": ADMIN}, headers=headers)
            assert opened.status_code == 200, opened.text
            cookie = {"cookie": opened.headers["set-cookie"].partition(";")[0]}
            assert (await http.get(f"{first}/api/session", headers=cookie)).json()["name"] == "admin"
            page = (await http.get(f"{first}/", headers={**cookie, "accept": "text/html"})).text
            headers = {**cookie, "origin": second, "x-csrf-token": read_csrf_token(page)}
            assert (await http.post(f"{second}/api/logout", headers=headers)).status_code == 200
            assert (await http.get(f"{second}/api/session", headers=cookie)).status_code == 401
            # The other replica looks after some seconds.
            while (await http.get(f"{first}/api/session", headers=cookie)).status_code == 200:
                await anyio.sleep(0.1)
    finally:
        for replica in replicas:
            await replica.stop()


@pytest.mark.anyio
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux")
async def test_while_postgresql_is_away_keys_log_in_and_links_wait(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.create_database()
    replica = ReplicaProcess(tmp_path / "one", find_free_ports(1)[0], build_replica_config(url, "http://127.0.0.1:1"))
    try:
        await replica.start()
        async with httpx2.AsyncClient(timeout=60) as http:
            page = (await http.get(f"{replica.url}/login", headers={"accept": "text/html"})).text
            headers = {"origin": replica.url, "x-csrf-token": read_csrf_token(page)}
            link = {"link": replica.read_log().partition("/login#")[2].partition("\n")[0]}

            async def log_in(body: dict[str, str]) -> httpx2.Response:
                reply = await http.post(f"{replica.url}/api/login", json=body, headers=headers)
                http.cookies.clear()
                return reply

            await anyio.to_thread.run_sync(postgres_server.stop)
            try:
                refused = await log_in(link)
                assert (refused.status_code, "log in with a key" in refused.text) == (503, True)
                # An unknown visitor does not learn where the database is.
                assert str(postgres_server.port) not in refused.text
                assert (await log_in({"key": ADMIN})).status_code == 200
            finally:
                await anyio.to_thread.run_sync(postgres_server.start)
            # The gateway connects again within moments.
            while (accepted := await log_in(link)).status_code == 503:
                await anyio.sleep(0.05)
            assert accepted.status_code == 200
            store = open_store(url)
            while len(store.list_audit(AuditFilter(action="login", outcome="ok"), 10)) < 2:
                await anyio.sleep(0.05)
            store.close()
    finally:
        await replica.stop()


def read_csrf_token(page: str) -> str:
    return page.partition('name="csrf-token" content="')[2].partition('"')[0]


def test_while_the_store_is_away_known_sessions_stay_and_logins_are_local(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    with run_proxy(postgres_server.port) as cut:
        store = open_store(url.replace(f":{postgres_server.port}/", f":{cut.port}/"))
        clock = FakeClock()
        sessions = BrowserSessions(clock, store)
        known = sessions.open_session("hash")
        link = sessions.create_link_token()
        cut.on_data = lambda data: (False, True)
        local = sessions.open_session("hash")
        clock.now += CHECK_SESSION_SECONDS
        sessions.load_session(known)
        assert sessions.find_session(known) and sessions.find_session(local)
        with pytest.raises(InvalidStore):
            sessions.end_session("any")
        with pytest.raises(InvalidStore):
            sessions.redeem_link(link)
        cut.on_data = lambda data: (True, False)
        store.close()
