"""A server that requires a login, from the overview to the first call."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import uvicorn
from playwright.sync_api import Browser, expect

from tests.console.browser import open_context, watch_errors
from tests.gateway.mcp.oauth_server import AuthorizationServer, build_guarded_app
from tests.gateway.serving import running_gateway, wait_until, write_json


@contextmanager
def serve_protected() -> Iterator[str]:
    """Run a server that requires a login in a thread; yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    origin = f"http://127.0.0.1:{port}"
    app = build_guarded_app(AuthorizationServer(), origin)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"{origin}/mcp"
    finally:
        server.should_exit = True
        thread.join()


def test_login_to_a_server_opens_its_page_and_starts_the_server(browser: Browser, tmp_path: Path) -> None:
    with serve_protected() as url:
        document = {"mcpServers": {"safe": {"url": url}}, "store": f"sqlite:///{tmp_path / 'store.db'}"}
        config = write_json(tmp_path / "toolcrib.json", document)
        with (
            running_gateway(tmp_path, "--config", str(config)) as gateway,
            open_context(browser, gateway.url) as context,
        ):
            wait_until(lambda: gateway.servers()["safe"]["trouble"])
            page = context.new_page()
            errors = watch_errors(page)
            page.goto("/")
            page.get_by_role("region", name="Needs attention").get_by_role("link", name="Log in: safe").click()
            detail = page.get_by_role("region", name="Server")
            expect(detail).to_contain_text("requires a login")
            with context.expect_page() as opened:
                detail.get_by_role("button", name="Log in").click()
            expect(opened.value.locator("body")).to_contain_text("close")
            expect(detail.locator(".detail-head")).to_contain_text("running")
            assert gateway.servers()["safe"]["tools"]
            assert errors == []
