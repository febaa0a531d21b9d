"""The console of a gateway whose PostgreSQL server is away for some time."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.console.browser import open_context, watch_errors
from tests.gateway.serving import running_gateway, server_entry, wait_until, write_json
from tests.support.postgres import PostgresServer


def test_database_that_is_away_is_shown_until_it_is_back(
    browser: Browser, tmp_path: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    document = {"mcpServers": {"office": server_entry("echo")}, "store": "${STORE_URL}"}
    config = write_json(tmp_path / "toolcrib.json", document)
    with (
        running_gateway(tmp_path, "--config", str(config), STORE_URL=postgres_url) as gateway,
        open_context(browser, gateway.url) as context,
    ):
        wait_until(lambda: gateway.servers()["office"]["tools"])
        page = context.new_page()
        errors = watch_errors(page)
        page.goto("/")
        expect(page.get_by_role("region", name="Traffic")).to_be_visible()
        postgres_server.kill()
        try:
            status = page.locator("[data-connection-text]")
            expect(status).to_have_text("Database unavailable")
            banner = page.get_by_text("Searches and calls work")
            expect(banner).to_be_visible()
            # A page that is opened meanwhile shows what does not need the database.
            page.reload()
            expect(page.get_by_role("region", name="Servers")).to_contain_text("office")
            expect(page.get_by_text("The history is unavailable")).to_be_visible()
            expect(banner).to_be_visible()
            page.goto("/search?q=echo")
            expect(page.locator(".hit-name").first).to_have_text("office___echo")
            page.goto("/activity")
            expect(page.get_by_role("search", name="Filters")).to_be_visible()
            expect(page.get_by_text("The history is unavailable")).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)
            page.goto("/servers?server=office")
            server = page.get_by_role("region", name="Server")
            expect(server).to_contain_text("MCP server, a program")
            expect(server).to_contain_text("unknown at the moment")
            expect(server.get_by_role("status")).to_contain_text("database")
        finally:
            postgres_server.start()
        expect(status).to_have_text("Connected")
        expect(banner).to_be_hidden()
        expect(page.get_by_role("region", name="Server")).to_contain_text("none yet")
        page.goto("/activity")
        expect(page.get_by_text("The history is unavailable")).to_have_count(0)
        page.goto("/")
        expect(page.get_by_text("No calls and searches in this time")).to_be_visible()
        assert errors == []
