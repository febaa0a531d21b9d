"""The pages Overview, Activity, Sessions, Access and LLM, as a person uses them."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import open_context, watch_errors
from tests.gateway.serving import GatewayProcess, running_gateway, server_entry, wait_until, write_json
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.llm_usage import LlmUsage

ADMIN, READER = "the-key-of-the-admin", "the-key-of-the-reader"
CONFIG: dict[str, Any] = {
    "mcpServers": {"office": server_entry("echo"), "vault": server_entry("echo", tag="vault")},
    "profiles": {"reader": {"servers": ["office"]}},
    "auth": {"keys": [{"key": ADMIN, "name": "admin"}, {"key": READER, "name": "reader", "profile": "reader"}]},
    "models": {"openai": {"url": "http://127.0.0.1:9", "key": "an-upstream-key"}},
    "toolSearch": {"mode": "search"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traffic")


@pytest.fixture(scope="module")
def busy(folder: Path) -> Iterator[GatewayProcess]:
    config = write_json(folder / "toolcrib.json", CONFIG)
    with running_gateway(folder, "--config", str(config)) as gateway:
        wait_until(lambda: all(server["tools"] for server in gateway.servers(ADMIN).values()))
        yield gateway


@contextmanager
def logged_in(browser: Browser, url: str, key: str = ADMIN) -> Iterator[Page]:
    """Open a tab that is logged in. The test fails if a script fails."""
    with open_context(browser, url, permissions=["clipboard-read", "clipboard-write"]) as context:
        assert context.request.post("/api/login", data={"key": key}).ok
        page = context.new_page()
        errors = watch_errors(page)
        yield page
        assert errors == []


def call_tool(gateway: GatewayProcess, name: str, key: str = ADMIN, client: str = "tester", **arguments: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    assert gateway.request("/mcp", key, body, User_Agent=f"{client}/1.0").status == 200


def figure(page: Page, label: str) -> str:
    return page.locator(".figures .card", has_text=label).locator(".figure-value").inner_text()


def test_overview_changes_while_it_is_open(browser: Browser, busy: GatewayProcess) -> None:
    with logged_in(browser, busy.url) as page:
        page.goto("/")
        expect(page.locator(".figures .card").first).to_be_visible()
        before = int(figure(page, "Calls").replace(",", ""))
        call_tool(busy, "office___echo", text="x")
        page.wait_for_function(
            "before => Number([...document.querySelectorAll('.figures .card')]"
            ".find(card => card.textContent.startsWith('Calls'))"
            ".querySelector('.figure-value').textContent.replace(',', '')) > before",
            arg=before,
        )
        chart = page.get_by_role("img", name="Calls, searches and errors over time")
        expect(chart).to_be_visible()
        page.get_by_role("button", name="30 days").click()
        expect(page.get_by_text("in 30 days").first).to_be_visible()
        page.get_by_role("button", name="Connect a client").click()
        expect(page.get_by_role("dialog", name="Connect a client")).to_contain_text("Bearer YOUR_KEY")


def test_activity_is_live_in_two_tabs_and_can_be_paused(browser: Browser, busy: GatewayProcess) -> None:
    with logged_in(browser, busy.url) as page:
        second = page.context.new_page()
        for tab, path in ((page, "/activity"), (second, "/activity?server=vault")):
            tab.goto(path)
            expect(tab.get_by_role("search", name="Filters")).to_be_visible()
        call_tool(busy, "office___echo", client="first-client", text="x")
        call_tool(busy, "vault___echo", client="second-client", text="x")
        expect(page.locator("tbody tr", has_text="first-client")).to_have_count(1)
        expect(page.locator("tbody tr", has_text="second-client")).to_have_count(1)
        expect(second.locator("tbody tr", has_text="second-client")).to_have_count(1)
        expect(second.locator("tbody tr", has_text="first-client")).to_have_count(0)
        live = page.get_by_role("button", name="Live")
        live.click()
        call_tool(busy, "office___echo", client="while-paused", text="x")
        paused = page.get_by_role("button", name="Paused, 1 new")
        expect(paused).to_be_visible()
        expect(page.locator("tbody tr", has_text="while-paused")).to_have_count(0)
        paused.click()
        expect(page.locator("tbody tr", has_text="while-paused")).to_have_count(1)


def test_entry_of_a_search_shows_hits_and_what_was_called(browser: Browser, busy: GatewayProcess) -> None:
    call_tool(busy, "search_tools", client="searcher", query="echo a <b>text</b>")
    call_tool(busy, "office___echo", client="searcher", text="x")
    call_tool(busy, "office___missing", client="searcher")
    with logged_in(browser, busy.url) as page:
        page.goto("/activity?client=searcher")
        page.get_by_role("button", name="echo a <b>text</b>").first.click()
        dialog = page.get_by_role("dialog", name="Entry")
        expect(dialog.get_by_role("heading", level=3)).to_contain_text(["Found", "Calls after this search"])
        expect(dialog).to_contain_text("office___echo")
        expect(dialog).to_contain_text("refused")
        page.keyboard.press("Escape")
        page.get_by_label("All outcomes").select_option("refused")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page).to_have_url(re.compile("outcome=refused"))
        page.get_by_label("Tool", exact=True).fill("nothing like it")
        expect(page.get_by_text("Nothing matches these filters")).to_be_visible()


def test_entries_start_at_the_same_edge_on_a_phone(browser: Browser, busy: GatewayProcess) -> None:
    call_tool(busy, "office___echo", client="phone", text="x")
    with logged_in(browser, busy.url) as page:
        page.set_viewport_size({"width": 380, "height": 800})
        page.goto("/activity?client=phone")
        cells = page.locator("tbody tr").first.locator("td")
        expect(cells.first).to_be_visible()
        first, what = cells.nth(0).locator("time").bounding_box(), cells.nth(2).bounding_box()
        assert first and what and first["x"] == what["x"]


def test_many_entries_at_once_leave_the_page_small(browser: Browser, busy: GatewayProcess, folder: Path) -> None:
    with logged_in(browser, busy.url) as page:
        page.goto("/activity?tool=flood")
        expect(page.get_by_text("Nothing matches these filters")).to_be_visible()
        store = open_store(f"sqlite:///{folder / 'toolcrib.db'}")
        for batch in range(3):
            now = time.time()
            store.append_audit([AuditRow("call", at=now, tool=f"flood {batch} {number}") for number in range(1_500)])
            expect(page.get_by_text(f"flood {batch} 1499", exact=True)).to_be_visible()
            assert page.locator("tbody tr").count() <= 300
        store.close()


def test_connection_that_is_lost_comes_back_without_a_gap(browser: Browser, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = write_json(tmp_path / "toolcrib.json", {"mcpServers": CONFIG["mcpServers"]})
    options = ("--config", str(config), "--port", str(port))
    with open_context(browser, f"http://127.0.0.1:{port}") as context:
        page = context.new_page()
        with running_gateway(tmp_path, *options) as gateway:
            wait_until(lambda: gateway.servers()["office"]["tools"])
            page.goto("/activity")
            call_tool(gateway, "office___echo", "", client="before", text="x")
            expect(page.locator("tbody tr", has_text="before")).to_have_count(1)
        expect(page.locator("[data-connection=lost]")).to_be_visible()
        # The page still shows what it had.
        expect(page.locator("tbody tr", has_text="before")).to_have_count(1)
        store = open_store(f"sqlite:///{tmp_path / 'toolcrib.db'}")
        store.append_audit([AuditRow("call", at=time.time(), client="meanwhile", tool="office___echo")])
        store.close()
        with running_gateway(tmp_path, *options) as gateway:
            call_tool(gateway, "office___echo", "", client="after", text="x")
            for client in ("before", "meanwhile", "after"):
                expect(page.locator("tbody tr", has_text=client)).to_have_count(1)
            expect(page.locator("[data-connection=lost]")).to_have_count(0)
            page.close()


def test_sessions_show_the_mode_and_what_was_listed(browser: Browser, busy: GatewayProcess) -> None:
    info = {"name": "cursor", "version": "9.9"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    reply = busy.request("/mcp", ADMIN, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    session = {name.lower(): value for name, value in reply.headers.items()}["mcp-session-id"]
    headers = {"Mcp_Session_Id": session, "Mcp_Protocol_Version": "2025-11-25"}
    busy.request("/mcp", ADMIN, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
    busy.request("/mcp", ADMIN, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, **headers)
    with logged_in(browser, busy.url) as page:
        page.goto("/sessions")
        card = page.get_by_role("article", name="cursor")
        expect(card).to_contain_text('the mode is set to "search"')
        expect(card).to_contain_text("instead of")
        card.locator("summary").click()
        expect(card).to_contain_text("search_tools, describe_tool, call_tool")
        card.get_by_role("link", name="Show its activity").click()
        expect(page.locator("tbody tr", has_text="listed (search)").first).to_be_visible()


def test_key_and_profile_are_created_used_and_removed(browser: Browser, busy: GatewayProcess) -> None:
    with logged_in(browser, busy.url) as page:
        page.goto("/access")
        page.get_by_role("button", name="Create an access profile").click()
        page.get_by_label("Name").fill("reader")
        page.get_by_label("vault").check()
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("already an access profile")
        page.get_by_label("Name").fill("vault-only")
        page.get_by_role("dialog").get_by_text("Quotas", exact=True).click()
        page.get_by_label("Calls a minute").fill("60")
        page.get_by_label("Calls at the same time").fill("4")
        page.get_by_role("button", name="Create", exact=True).click()
        card = page.get_by_role("article", name="vault-only")
        expect(card).to_contain_text("1 tool of 1 server")
        expect(card).to_contain_text("60 calls a minute, 4 calls at the same time")
        expect(page.get_by_role("article", name="reader")).to_contain_text("none")
        page.get_by_role("button", name="Create a key").click()
        page.get_by_label("Name").fill("laptop")
        page.get_by_label("Access", exact=True).select_option("vault-only")
        page.get_by_label("LLM tokens a day").fill("2000000")
        page.get_by_role("button", name="Create", exact=True).click()
        dialog = page.get_by_role("dialog", name="Your new key")
        secret = dialog.locator("code").inner_text()
        assert list(busy.servers(secret)) == ["vault"]
        page.keyboard.press("Escape")
        row = page.locator("tbody tr", has_text="laptop")
        expect(row).to_contain_text("vault-only")
        assert secret not in page.content()
        expect(row).to_contain_text("0 of 2M tokens, 0 requests")
        page.get_by_role("button", name="Change the budget of laptop").click()
        page.get_by_label("LLM tokens a day").fill("")
        page.get_by_label("LLM requests a day").fill("0")
        page.get_by_role("button", name="Save").click()
        expect(row).to_contain_text("0 tokens, 0 of 0 requests")
        expect(row).to_contain_text("used up")
        # A profile that is in use stays.
        page.get_by_role("article", name="vault-only").get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("alert")).to_contain_text("revoke them first")
        row.get_by_role("button", name="Revoke").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(row).to_have_count(0)
        assert busy.request("/api/servers", secret).status == 401
        page.get_by_role("article", name="vault-only").get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("article", name="vault-only")).to_have_count(0)


def test_revoked_key_ends_an_open_page(browser: Browser, busy: GatewayProcess) -> None:
    created = busy.request("/api/keys", ADMIN, {"name": "short-lived"}).json
    with logged_in(browser, busy.url, created["key"]) as page:
        page.goto("/activity")
        expect(page.get_by_role("search", name="Filters")).to_be_visible()
        with logged_in(browser, busy.url) as other:
            other.goto("/access")
            other.locator("tbody tr", has_text="short-lived").get_by_role("button", name="Revoke").click()
            other.get_by_role("dialog").get_by_role("button", name="Revoke").click()
            expect(other.locator("tbody tr", has_text="short-lived")).to_have_count(0)
        expect(page).to_have_url(re.compile("/login"))


def test_first_key_closes_the_gateway_and_keeps_its_creator_logged_in(browser: Browser, tmp_path: Path) -> None:
    config = write_json(
        tmp_path / "toolcrib.json", {"mcpServers": {"office": server_entry("echo")}, "profiles": {"guest": {}}}
    )
    with running_gateway(tmp_path, "--config", str(config)) as gateway, open_context(browser, gateway.url) as context:
        page = context.new_page()
        page.goto("/access")
        page.get_by_role("button", name="Create a key").click()
        page.get_by_label("Name").fill("first")
        expect(page.get_by_role("dialog")).to_contain_text("every client needs a key")
        expect(page.get_by_label("Access", exact=True).locator("option")).to_have_text(["Full access"])
        page.get_by_role("button", name="Create", exact=True).click()
        secret = page.get_by_role("dialog", name="Your new key").locator("code").inner_text()
        assert gateway.request("/api/servers").status == 401
        assert gateway.request("/api/servers", secret).status == 200
        page.keyboard.press("Escape")
        expect(page.locator("tbody tr", has_text="first")).to_contain_text("full access")
        expect(page.get_by_role("button", name="Log out")).to_be_visible()


def test_key_with_a_profile_sees_its_own_servers_only(browser: Browser, busy: GatewayProcess) -> None:
    with logged_in(browser, busy.url, READER) as page:
        page.goto("/")
        expect(page.get_by_role("region", name="Servers")).to_contain_text("office")
        expect(page.get_by_role("region", name="Servers")).not_to_contain_text("vault")
        expect(page.get_by_role("region", name="Traffic")).to_have_count(0)
        for path in ("/activity", "/sessions", "/access", "/llm"):
            page.goto(path)
            expect(page.get_by_role("alert")).to_contain_text("full access")


def test_conversation_is_followed_turn_by_turn(browser: Browser, busy: GatewayProcess, folder: Path) -> None:
    store = open_store(f"sqlite:///{folder / 'toolcrib.db'}")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    store.add_llm_usage([LlmUsage(day, "admin", "gpt-x", 3, 12_000, 500, 6_000, 90_000)])
    for sent in (["first"], ["first", "second"]):
        details = {"tools_sent": sent, "tools_added": sent[1:], "tools_total": 300, "tokens_held_back": 45_000}
        row = AuditRow("llm", at=time.time(), server="openai", tool="gpt-x", session="talk", details=details)
        store.append_audit([row])
    store.close()
    with logged_in(browser, busy.url) as page:
        page.goto("/llm")
        assert figure(page, "Tokens saved") == "90K"
        expect(page.get_by_role("region", name="Usage by model")).to_contain_text("gpt-x")
        page.get_by_role("region", name="Conversations").get_by_role("button", name="gpt-x").click()
        turns = page.get_by_role("dialog").locator(".turn")
        expect(turns).to_have_count(2)
        expect(turns.nth(1)).to_contain_text("2 of 300 tools sent")
        expect(turns.nth(1)).to_contain_text("second")


@pytest.mark.parametrize("path", ["/", "/activity", "/sessions", "/access", "/llm"])
def test_page_with_data_fits_and_is_accessible(browser: Browser, busy: GatewayProcess, path: str) -> None:
    call_tool(busy, "office___echo", text="x")
    with logged_in(browser, busy.url) as page:
        page.goto(path)
        expect(page.locator("main [data-state=loading]")).to_have_count(0)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            violations = Axe().run(page).response["violations"]
            serious = [each for each in violations if each["impact"] in ("serious", "critical")]
            assert serious == [], [(each["id"], each["nodes"][0]["html"]) for each in serious]
        for width in (380, 2560):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hidden_tab_closes_its_stream_and_catches_up(browser: Browser, busy: GatewayProcess) -> None:
    def set_hidden(page: Page, is_hidden: bool) -> None:
        page.evaluate(
            "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
            " document.dispatchEvent(new Event('visibilitychange')); }",
            is_hidden,
        )

    with logged_in(browser, busy.url) as page:
        page.goto("/activity")
        call_tool(busy, "office___echo", client="seen-before", text="x")
        expect(page.locator("tbody tr", has_text="seen-before")).to_have_count(1)
        with page.expect_event("requestfailed", lambda request: "/stream" in request.url):
            set_hidden(page, True)
        call_tool(busy, "office___echo", client="while-hidden", text="x")
        expect(page.locator("tbody tr", has_text="while-hidden")).to_have_count(0)
        set_hidden(page, False)
        expect(page.locator("tbody tr", has_text="while-hidden")).to_have_count(1)
