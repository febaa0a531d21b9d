"""Servers that require a login: the login, the stored token and its refresh."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull

from tests.gateway.mcp.harness import build_config, call_text, connect_client, gateway, serve_app, wait_until
from tests.gateway.mcp.oauth_server import AuthorizationServer, build_guarded_app
from tests.gateway.serving import environment, write_json
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.config.store_paths import resolve_token_folder
from toolcrib.errors import LoginFailed
from toolcrib.gateway.mcp.admin.doctor import check_servers
from toolcrib.gateway.mcp.upstream import login as logins
from toolcrib.gateway.mcp.upstream import supervisor
from toolcrib.gateway.mcp.upstream.login import login
from toolcrib.gateway.mcp.upstream.oauth_tokens import OAuthGrant, TokenFile

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serve_protected(**given: Any) -> AsyncIterator[tuple[AuthorizationServer, ServerConfig]]:
    """Run a server that requires a login; yield its authorization server and its configuration."""
    authority = AuthorizationServer()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    origin = f"http://127.0.0.1:{port}"
    async with serve_app(build_guarded_app(authority, origin, **given), port=port):
        yield authority, ServerConfig("safe", transport="http", url=f"{origin}/mcp")


async def open_in_browser(address: str) -> str:
    """Open a URL like a browser and return the page."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        return (await browser.get(address)).text


async def log_in(server: ServerConfig, **given: Any) -> OAuthGrant | None:
    """Log in as a user who confirms in the browser."""
    visits: list[asyncio.Task[str]] = []
    try:
        return await login(
            server, lambda address: visits.append(asyncio.create_task(open_in_browser(address))), **given
        )
    finally:
        for one in visits:
            await one


def write_config(tmp_path: Path, server: ServerConfig) -> GatewayConfig:
    return replace(build_config(server), store=f"sqlite:///{tmp_path / 'crib.db'}")


@pytest.fixture(autouse=True)
def shorten_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MIN_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(supervisor, "MAX_RETRY_SECONDS", 0.2)


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_unauthorized_server_names_the_login_and_works_after_it(tmp_path: Path, era: Any) -> None:
    async with serve_protected() as (authority, server):
        server = replace(server, protocol=era)
        config = write_config(tmp_path, server)
        async with gateway(config) as router, connect_client(router) as connected:
            safe = router.pool.servers["safe"]
            assert "run `toolcrib login safe`" in safe.error
            grant = await log_in(server)
            assert grant
            folder = resolve_token_folder(config)
            assert folder
            file = TokenFile(folder, server)
            file.save(grant)
            # The gateway retries without a request.
            await wait_until(lambda: safe.connection, 60)
            assert await call_text(connected, "safe___greet") == "welcome"
            # A rejected token is refreshed during the call.
            authority.access.clear()
            assert await call_text(connected, "safe___greet") == "welcome"
            assert authority.renewals == 1
            renewed = file.load()
            assert renewed and renewed.access_token != grant.access_token
            # An expired token is refreshed before it is used.
            file.save(replace(renewed, expires_at=1.0))
            assert await call_text(connected, "safe___greet") == "welcome"
            assert authority.renewals == 2
            # When the grant is revoked, the login is requested again.
            authority.access.clear()
            authority.refresh.clear()
            assert "not reachable" in await call_text(connected, "safe___greet")
            await wait_until(lambda: "run `toolcrib login safe`" in safe.error, 60)
        if sys.platform != "win32":
            assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
        assert grant.access_token not in repr(grant)


async def test_login_during_a_start_is_sufficient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_protected() as (_, server):
        grant = await log_in(server)
        # Only the first request of the start has no token.
        loads = iter([None])
        monkeypatch.setattr(TokenFile, "load", lambda file: next(loads, grant))
        async with gateway(write_config(tmp_path, server)) as router, connect_client(router) as connected:
            assert router.pool.servers["safe"].failures == 0
            assert await call_text(connected, "safe___greet") == "welcome"


async def test_concurrent_requests_refresh_a_token_once(tmp_path: Path) -> None:
    async with serve_protected() as (authority, server):
        config = write_config(tmp_path, server)
        grant = await log_in(server)
        folder = resolve_token_folder(config)
        assert grant and folder
        TokenFile(folder, server).save(grant)
        async with gateway(config) as router, connect_client(router) as connected:
            authority.access.clear()
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(call_text, connected, "safe___greet")
            assert authority.renewals == 1


async def test_token_is_not_sent_to_another_url(tmp_path: Path) -> None:
    server = ServerConfig("safe", url="https://one.example/mcp")
    file = TokenFile(tmp_path / "tokens", server)
    file.save(OAuthGrant("secret", "https://one.example/token", "client"))
    assert TokenFile(tmp_path / "tokens", server).load()
    other = TokenFile(tmp_path / "tokens", replace(server, url="https://two.example/mcp"))
    assert other.load() is None
    file.path.rename(other.path)
    assert other.load() is None
    other.path.write_text("{ broken", encoding="utf-8")
    assert other.load() is None
    assert other.delete() and not other.delete()


async def test_doctor_suggests_the_login_command(tmp_path: Path) -> None:
    async with serve_protected() as (_, server):
        (report,) = await check_servers(write_config(tmp_path, server), {}, lambda started: None)
    assert [one.fix for one in report.findings if "toolcrib login safe" in one.fix]


async def test_open_server_needs_no_login() -> None:
    async with serve_protected() as (_, server):
        open_one = replace(server, url=server.url.removesuffix("/mcp"))
        assert await log_in(open_one) is None


async def test_configured_oauth_client_id_is_used(tmp_path: Path) -> None:
    async with serve_protected(registers=False) as (authority, server):
        with pytest.raises(LoginFailed, match="set its `oauthClientId`"):
            await log_in(server)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        back: Any = [f"http://127.0.0.1:{port}/callback"]
        authority.clients["ours"] = OAuthClientInformationFull(
            client_id="ours",
            client_secret="of the client",
            token_endpoint_auth_method="client_secret_post",
            redirect_uris=back,
        )
        known = replace(server, oauth_client_id="ours", oauth_client_secret="of the client")
        grant = await log_in(known, port=port)
        assert grant and grant.client_secret == "of the client"
        # The client secret is also sent with a refresh.
        config = write_config(tmp_path, known)
        folder = resolve_token_folder(config)
        assert folder
        TokenFile(folder, known).save(replace(grant, expires_at=1.0))
        async with gateway(config) as router, connect_client(router) as connected:
            assert await call_text(connected, "safe___greet") == "welcome"
        assert authority.renewals == 1


async def test_failed_login_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_protected() as (authority, server):
        authority.denies = True
        with pytest.raises(LoginFailed, match="The user denied access"):
            await log_in(server)
        monkeypatch.setattr(logins, "LOGIN_TIMEOUT_SECONDS", 1.0)
        with pytest.raises(LoginFailed, match="no login to safe"):
            await login(server, lambda address: None)
    with pytest.raises(LoginFailed, match="could not be reached"):
        await login(server, lambda address: None)


async def test_callback_with_wrong_state_is_rejected() -> None:
    async with serve_protected() as (_, server), anyio.create_task_group() as tasks:

        async def browse(address: str) -> None:
            back = re.findall(r"redirect_uri=([^&]+)", address)[0]
            callback = str(httpx2.QueryParams(f"u={back}")["u"])
            for wrong in ("?code=stolen&state=guessed", "?code=stolen", ""):
                assert "nothing here" in await open_in_browser(callback + wrong)
            assert "nothing here" in await open_in_browser(callback.replace("callback", "other"))
            assert "You are logged in" in await open_in_browser(address)

        def show(address: str) -> None:
            tasks.start_soon(browse, address)

        assert await login(server, show)


@pytest.mark.skipif(sys.platform == "win32", reason="the browser is a shell script")
async def test_login_works_with_a_browser_that_blocks(tmp_path: Path) -> None:
    code = "import sys, time, urllib.request; urllib.request.urlopen(sys.argv[1]).read(); time.sleep(600)"
    browser = tmp_path / "browser"
    start = f"exec {sys.executable} -I -c '{code}' \"$1\" >/dev/null 2>&1"
    browser.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{start}\n")
    browser.chmod(0o755)
    async with serve_protected() as (_, server):
        write_json(tmp_path / "toolcrib.json", {"mcpServers": {"safe": {"url": server.url}}})
        command = [sys.executable, "-m", "toolcrib", "login", "safe"]
        with anyio.fail_after(120):
            done = await anyio.run_process(command, cwd=tmp_path, env=environment(BROWSER=f"{browser} %s"))
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert b"Logged in to safe" in done.stdout


async def test_login_command_logs_in_and_logs_out(tmp_path: Path) -> None:
    async with serve_protected() as (_, server):
        write_json(tmp_path / "toolcrib.json", {"mcpServers": {"safe": {"url": server.url}}})

        async def run(*arguments: str, said: Callable[[str], Any] | None = None) -> str:
            command = [sys.executable, "-m", "toolcrib", "login", *arguments]
            heard = ""
            async with await anyio.open_process(
                command, cwd=tmp_path, env=environment(), stderr=None if said is None else -1
            ) as process:
                if said and process.stderr:
                    while not (found := re.search(r"http://\S+authorize\S+\n", heard)):
                        heard += (await process.stderr.receive()).decode()
                    await said(found[0].strip())
                assert process.stdout
                out = b"".join([chunk async for chunk in process.stdout])
            return out.decode()

        assert "Logged in to safe" in await run("safe", "--no-browser", said=open_in_browser)
        (kept,) = (tmp_path / "toolcrib.tokens").glob("*.json")
        assert json.loads(kept.read_text())["url"] == server.url
        assert "Deleted the token of safe" in await run("safe", "--forget")
        assert "safe has no token" in await run("safe", "--forget")
        assert not kept.exists()
