"""Large and hostile catalogs, and a connection that is lost and comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser import open_context, watch_errors
from tests.console.showcase import tool, write_catalog
from tests.gateway.serving import GatewayProcess, running_gateway, wait_until, write_json

TOOL_COUNT = 5744
SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
HIDDEN = "bidi \u202etxet\u202c zero\u200bwidth \x1b[31mred\x1b[0m"
HOSTILE = [
    tool("script", SCRIPT, **{f"p{SCRIPT}": {"type": "string", "description": SCRIPT, "enum": [SCRIPT]}}),
    tool("hidden", HIDDEN),
    tool("huge", "long words " * 90_000),
    tool("javascript:alert(1)", "A name that looks like an address."),
]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("large")
    many = [tool(f"action_{n:04}", f"Do the action number {n} with the thing.") for n in range(TOOL_COUNT)]
    servers = {"many": write_catalog(folder, "many", many), "hostile": write_catalog(folder, "hostile", HOSTILE)}
    settings = {"safety": {"scan": "flag"}, "overrides": {"hostile___none": {"title": "No tool has this name"}}}
    config = write_json(folder / "toolcrib.json", {"mcpServers": servers, **settings})
    with running_gateway(folder, "--config", str(config)) as gateway:
        wait_until(lambda: gateway.request("/api/stats").json["tools"] == TOOL_COUNT + len(HOSTILE))
        yield gateway


@pytest.fixture
def tab(browser: Browser, large: GatewayProcess) -> Iterator[Page]:
    with open_context(browser, large.url) as context:
        page = context.new_page()
        errors = watch_errors(page)
        yield page
        assert page.evaluate("window.hacked") is None
        assert errors == []


def test_thousands_of_tools_scroll_with_few_rows(tab: Page) -> None:
    tab.goto("/catalog")
    expect(tab.locator("[data-tool-count]")).to_have_text(f"{TOOL_COUNT + len(HOSTILE):,} tools")
    rows = tab.get_by_role("listbox", name="Tools")
    rows.focus()
    tab.keyboard.press("End")
    tab.keyboard.press("ArrowUp")
    expect(rows.get_by_role("option").filter(has_text="hostile___huge")).to_be_visible()
    assert rows.get_by_role("option").count() < 60
    tab.get_by_label("Filter by name").fill("number 4711")
    expect(rows.get_by_role("option")).to_have_count(1)
    rows.get_by_role("option").click()
    expect(tab.get_by_role("heading", name="many___action_4711")).to_be_visible()
    tab.get_by_label("Filter by name").fill("number 9999")
    expect(tab.get_by_text("No tool matches")).to_be_visible()
    tab.get_by_label("Filter by name").fill("")
    expect(tab.get_by_text("No tool matches")).to_have_count(0)


def test_server_with_suspicious_tools_and_problems_is_marked(tab: Page, large: GatewayProcess) -> None:
    count = len(large.servers()["hostile"]["flagged"])
    assert count
    tab.goto("/")
    servers = tab.get_by_role("region", name="Servers")
    expect(servers.get_by_role("listitem").filter(has_text="hostile")).to_contain_text(f", {count} suspicious")
    tab.goto("/servers")
    row = tab.get_by_role("button").filter(has_text="hostile")
    expect(row.locator(".badge").filter(has_text=f"{count} suspicious")).to_be_visible()
    expect(row.locator(".dot")).to_have_attribute("data-kind", "warn")
    expect(row.locator(".badge").filter(has_text="1 problem")).to_be_visible()
    row.click()
    expect(tab.get_by_text("the override of hostile___none matches no tool")).to_be_visible()
    tab.get_by_text("with a suspicious definition:").get_by_role("link").first.click()
    expect(tab).to_have_url(re.compile(r"/catalog\?tool=hostile___"))


@pytest.mark.parametrize("name", ["script", "hidden", "huge", "javascript_alert_1_"])
def test_hostile_definition_is_shown_harmlessly(tab: Page, large: GatewayProcess, name: str) -> None:
    names = [row["name"] for row in large.request("/api/tools?server=hostile&summary=true").json["tools"]]
    found = next(each for each in names if each.startswith(f"hostile___{name[:10]}"))
    tab.goto(f"/catalog?tool={found}")
    detail = tab.get_by_role("region", name="Tool")
    expect(detail.get_by_role("heading", name=found)).to_be_visible()
    if name == "script":
        expect(detail).to_contain_text(SCRIPT)
        assert detail.locator("script, img").count() == 0
    elif name == "hidden":
        expect(detail).to_contain_text("[U+202E]txet[U+202C] zero[U+200B]width [U+001B][31mred")
    elif name == "huge":
        assert len(detail.inner_text()) < 60_000
        detail.get_by_role("button", name="Show all 990,000 characters").first.click()
        expect(detail.locator(".long-text.is-long")).to_have_count(1)
    for width in (380, 2560):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_texts_are_found_harmlessly(tab: Page) -> None:
    tab.goto("/search?q=script+window+hacked&mode=lexical")
    expect(tab.locator(".hit").first).to_contain_text("<script>")
    tab.get_by_role("searchbox").fill("<img src=x onerror=alert(1)>")
    expect(tab.locator(".result, .state").first).to_be_visible()
    tab.set_viewport_size({"width": 380, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 380


def test_lost_connection_is_shown_until_it_comes_back(tab: Page) -> None:
    tab.goto("/servers")
    expect(tab.locator("[data-server=many]")).to_be_visible()
    tab.context.set_offline(True)
    status = tab.locator("[data-connection-text]")
    expect(status).to_have_text("Connection lost")
    # What was loaded stays visible.
    expect(tab.locator("[data-server=many]")).to_be_visible()
    tab.context.set_offline(False)
    expect(status).to_have_text("Connected")
