"""Who gets into the console of a gateway with keys, and how."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.cookies import SimpleCookie

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.console.browser import open_context, watch_errors
from tests.gateway.serving import GatewayProcess, running_gateway, server_entry, write_json

ADMIN, READER = "the-key-of-the-admin", "the-key-of-the-reader"
CONFIG = {
    "mcpServers": {"office": server_entry("echo"), "vault": server_entry("echo", tag="vault")},
    "profiles": {"reader": {"servers": ["office"]}},
    "auth": {"keys": [{"key": ADMIN, "name": "admin"}, {"key": READER, "name": "reader", "profile": "reader"}]},
}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("locked")
    config = write_json(folder / "toolcrib.json", CONFIG)
    with running_gateway(folder, "--config", str(config)) as gateway:
        yield gateway


def test_login_with_a_key_and_logout(browser: Browser, locked: GatewayProcess) -> None:
    with open_context(browser, locked.url) as context:
        page = context.new_page()
        errors = watch_errors(page)
        page.goto("/servers")
        expect(page).to_have_title("Log in · Toolcrib")
        violations = Axe().run(page).response["violations"]
        assert [each["id"] for each in violations if each["impact"] in ("serious", "critical")] == []
        page.set_viewport_size({"width": 380, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_label("API key").fill("a-wrong-key")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("This key is not valid")
        page.get_by_label("API key").fill(ADMIN)
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_title("Servers · Toolcrib")
        (cookie,) = context.cookies()
        assert cookie.get("httpOnly") and cookie.get("sameSite") == "Strict"
        # A second tab is logged in as well, and a logout ends both.
        second = context.new_page()
        second.goto("/catalog")
        expect(second.get_by_role("heading", level=1)).to_have_text("Catalog")
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_title("Log in · Toolcrib")
        second.reload()
        expect(second).to_have_title("Log in · Toolcrib")
        context.add_cookies([cookie])  # type: ignore[list-item]
        second.goto("/catalog")
        expect(second).to_have_title("Log in · Toolcrib")
        assert errors == []


def test_login_link_works_once(browser: Browser, locked: GatewayProcess) -> None:
    found = re.search(r"Console: (\S+/login#\S+)\n", locked.stdout)
    assert found
    for expected in ("Overview · Toolcrib", "Log in · Toolcrib"):
        with open_context(browser, locked.url) as context:
            page = context.new_page()
            page.goto(found[1])
            expect(page).to_have_title(expected)
            if expected.startswith("Log in"):
                expect(page.get_by_role("alert")).to_contain_text("used before")
                # The token does not stay in the history.
                assert "#" not in page.url


def test_login_does_not_lead_to_another_site(browser: Browser, locked: GatewayProcess) -> None:
    with open_context(browser, locked.url) as context:
        page = context.new_page()
        page.goto("/login?next=//example.com/")
        page.get_by_label("API key").fill(ADMIN)
        page.keyboard.press("Enter")
        expect(page).to_have_title("Overview · Toolcrib")
        assert page.url.startswith(locked.url)


def _log_in(gateway: GatewayProcess, key: str) -> tuple[str, str]:
    """Return the cookie and the CSRF token of a new session."""
    login_page = gateway.request("/login").text
    token = _read_csrf_token(login_page)
    reply = gateway.request("/api/login", body={"key": key}, Origin=gateway.url, X_CSRF_Token=token)
    assert reply.status == 200
    morsel = SimpleCookie({k.lower(): v for k, v in reply.headers.items()}["set-cookie"])["toolcrib_session"]
    cookie = f"toolcrib_session={morsel.value}"
    return cookie, _read_csrf_token(gateway.request("/", Cookie=cookie).text)


def _read_csrf_token(page: str) -> str:
    return page.partition('name="csrf-token" content="')[2].partition('"')[0]


def test_session_has_the_rights_of_its_key(locked: GatewayProcess) -> None:
    cookie, _ = _log_in(locked, READER)
    servers = locked.request("/api/servers", Cookie=cookie).json["servers"]
    assert [server["name"] for server in servers] == ["office"]
    assert locked.request("/api/session", Cookie=cookie).json["profile"] == "reader"
    admin, _ = _log_in(locked, ADMIN)
    assert len(locked.request("/api/servers", Cookie=admin).json["servers"]) == 2


def test_cookie_opens_neither_mcp_nor_a_change_without_the_token(locked: GatewayProcess) -> None:
    cookie, token = _log_in(locked, ADMIN)
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert locked.request("/mcp", body=body, Cookie=cookie).status == 401
    assert locked.request("/v1/messages", body={}, Cookie=cookie).status == 401
    forged = locked.request("/api/logout", body={}, Cookie=cookie, Origin=locked.url)
    assert forged.status == 403 and "reload the page" in forged.text
    assert locked.request("/api/logout", body={}, Cookie=cookie, X_CSRF_Token=token + "x").status == 403
    assert locked.request("/api/logout", body={}, Cookie=cookie, X_CSRF_Token=token).status == 200
    assert locked.request("/api/session", Cookie=cookie).status == 401


def test_login_needs_the_token_of_its_page(locked: GatewayProcess) -> None:
    assert locked.request("/api/login", body={"key": ADMIN}, Origin=locked.url).status == 403
    bodies: list[object] = [{}, {"key": 1}, {"key": ""}, {"link": "x"}, {"key": "x" * 10_000}, []]
    for body in bodies:
        assert locked.request("/api/login", body=body).status == 401


def test_wrong_cookies_are_ignored(locked: GatewayProcess) -> None:
    for cookie in ("toolcrib_session=x", "toolcrib_session=", ";;;=", "a" * 9000, 'toolcrib_session="\\'):
        assert locked.request("/api/servers", Cookie=cookie).status == 401
        assert locked.request("/api/servers", ADMIN, Cookie=cookie).status == 200
