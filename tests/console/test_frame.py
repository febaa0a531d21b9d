"""Every page: navigation, security headers, keyboard, themes, sizes and accessibility."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.gateway.serving import GatewayProcess
from toolcrib.console.pages import CONTENT_SECURITY_POLICY, PAGES

PATHS = [page.path for page in PAGES]
# Pages with content that a person has opened.
OPEN_PATHS = [
    "/search?q=send+a+message,+then+create+an+issue&compare=lexical",
    "/catalog?tool=calendar___create_event",
    "/servers?server=warehouse",
]
MAX_FIRST_PAINT_BYTES = 100_000


def test_navigation_opens_every_page(page: Page) -> None:
    page.goto("/")
    for each in PAGES:
        page.get_by_role("navigation").locator(f'.nav-link[href="{each.path}"]').click()
        expect(page).to_have_title(f"{each.title} · Toolcrib")
        expect(page.get_by_role("heading", level=1)).to_have_text(each.title)
        current = page.get_by_role("navigation").locator("[aria-current=page]")
        expect(current).to_contain_text(each.title)


@pytest.mark.parametrize("path", PATHS)
def test_page_is_protected_and_not_stored(gateway: GatewayProcess, path: str) -> None:
    reply = gateway.request(path)
    assert reply.status == 200
    headers = {name.lower(): value for name, value in reply.headers.items()}
    assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY and "frame-ancestors 'none'" in CONTENT_SECURITY_POLICY
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff"
    assert "style=" not in reply.text and "onclick" not in reply.text
    # A script of another site can read neither the page nor its CSRF token.
    foreign = gateway.request(path, Origin="http://localhost:9")
    assert foreign.status == 403 and "csrf" not in foreign.text
    # A name of another site that resolves to this machine (DNS rebinding) is refused.
    assert gateway.request(path, Host="example.com").status == 403


def test_static_files_are_cached_for_ever_under_their_digest(gateway: GatewayProcess) -> None:
    page = gateway.request("/").text
    path = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
    reply = gateway.request(path)
    assert reply.status == 200 and "immutable" in reply.headers["cache-control"]
    assert gateway.request("/static/0000000000000000/console.css").status == 404
    assert gateway.request(path.replace("console.css", "../pages.py")).status == 404


@pytest.mark.parametrize("path", [*PATHS, *OPEN_PATHS])
def test_page_fits_and_has_no_accessibility_violations(page: Page, path: str) -> None:
    received: list[int] = []
    page.on("requestfinished", lambda request: received.append(request.sizes()["responseBodySize"]))
    page.goto(path)
    expect(page.locator("main [data-state=loading]")).to_have_count(0)
    if path.startswith("/search?"):
        expect(page.locator(".hit").first).to_be_visible()
    assert sum(received) < MAX_FIRST_PAINT_BYTES
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        violations = Axe().run(page).response["violations"]
        serious = [each for each in violations if each["impact"] in ("serious", "critical")]
        assert serious == [], [(each["id"], each["nodes"][0]["html"]) for each in serious]
    for width in (380, 2560):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_gateway_without_keys_needs_no_login(page: Page) -> None:
    page.goto("/login?next=/catalog")
    expect(page).to_have_title("Catalog · Toolcrib")


def test_phone_opens_the_navigation_on_request(page: Page) -> None:
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto("/search")
    catalog = page.get_by_role("link", name="Catalog", exact=True)
    expect(catalog).to_be_hidden()
    page.get_by_role("button", name="Open the navigation").click()
    catalog.click()
    expect(page).to_have_title("Catalog · Toolcrib")


def test_theme_is_kept_for_the_next_page(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    button = page.get_by_role("button", name="Switch between")
    button.click()
    assert page.evaluate(background) == light
    button.click()
    dark = page.evaluate(background)
    assert dark != light
    page.goto("/search")
    assert page.evaluate(background) == dark


def test_keyboard_shortcuts_are_listed_and_work(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard")
    expect(dialog).to_contain_text("Search on this page")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page).to_have_title("Catalog · Toolcrib")
