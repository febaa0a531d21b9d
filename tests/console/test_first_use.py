"""The way of a first-time user: start, search, call a tool, connect a client. No step needs the documentation."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.console.browser import open_context, watch_errors
from tests.console.showcase import tool, write_catalog
from tests.gateway.serving import GatewayProcess, running_gateway, wait_until, write_json


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway without a configuration."""
    with running_gateway(tmp_path_factory.mktemp("demo")) as gateway:
        wait_until(lambda: gateway.servers()["demo"]["state"] == "started")
        yield gateway


def test_empty_install_leads_to_the_first_result_in_three_steps(browser: Browser, demo: GatewayProcess) -> None:
    with open_context(browser, demo.url, permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        page.goto("/")
        steps = page.get_by_role("region", name="First steps")
        expect(steps.get_by_role("heading", level=3)).to_have_text(
            ["Import your servers", "Connect your client", "Try a search"]
        )
        names = ["Claude Code", "Claude Desktop", "Cursor", "VS Code", "Codex", "Gemini CLI", "opencode"]
        expect(steps.get_by_role("tab")).to_have_text(names)
        for name in names:
            steps.get_by_role("tab", name=name).click()
            code = steps.get_by_role("tabpanel").locator("code")
            steps.get_by_role("tabpanel").get_by_role("button", name="Copy").click()
            assert page.evaluate("navigator.clipboard.readText()") == code.inner_text()
        assert "/mcp" in code.inner_text()
        steps.get_by_role("tab", name="opencode").press("ArrowRight")
        expect(steps.get_by_role("tab", name="Claude Code")).to_be_focused()
        expect(code).to_contain_text("claude mcp add")
        steps.get_by_role("button", name="Search").click()
        expect(page).to_have_url(re.compile(r"/search\?q="))
        expect(page.locator(".hit-name").first).to_have_text("demo___convert_length")


def test_gateway_without_servers_says_so(browser: Browser, tmp_path: Path) -> None:
    config = write_json(tmp_path / "toolcrib.json", {"mcpServers": {}})
    with running_gateway(tmp_path, "--config", str(config)) as gateway, open_context(browser, gateway.url) as context:
        page = context.new_page()
        page.goto("/")
        expect(page.get_by_role("region", name="Figures")).to_contain_text("none yet")
        expect(page.get_by_role("region", name="Figures")).not_to_contain_text("all reachable")
        page.goto("/catalog")
        expect(page.get_by_text("No tools yet")).to_be_visible()


def test_page_opened_before_the_demo_server_has_started_counts_its_tools(browser: Browser, tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, open_context(browser, gateway.url) as context:
        page = context.new_page()
        page.goto("/")
        total = page.locator("[data-start-count]")
        expect(total).to_contain_text(re.compile("looks through [1-9][0-9]* tools"))


def test_search_before_the_server_has_started_is_repeated(browser: Browser, tmp_path: Path) -> None:
    # This server starts when the test has written its file.
    wait = "import pathlib, sys, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    run = "sys.argv = sys.argv[1:]; exec(compile(open(sys.argv[0]).read(), sys.argv[0], 'exec'))"
    entry = write_catalog(tmp_path, "slow", [tool("send_letter", "Send a letter by mail.")])
    entry["args"] = ["-c", wait + run, *entry["args"][2:]]
    config = write_json(tmp_path / "toolcrib.json", {"mcpServers": {"slow": entry}})
    with running_gateway(tmp_path, "--config", str(config)) as gateway, open_context(browser, gateway.url) as context:
        page = context.new_page()
        page.goto("/search?q=send+a+letter")
        expect(page.get_by_text("The servers are starting")).to_be_visible()
        (tmp_path / "go").touch()
        expect(page.locator(".hit-name")).to_have_text("slow___send_letter")


def test_commands_of_the_first_steps_work_without_an_installation(browser: Browser, demo: GatewayProcess) -> None:
    with open_context(browser, demo.url) as context:
        page = context.new_page()
        page.goto("/")
        steps = page.get_by_role("region", name="First steps")
        text = steps.get_by_role("listitem").first.locator("code").inner_text()
        assert text.endswith(" import")
        subprocess.run([*shlex.split(text), "--help"], check=True, capture_output=True)
        steps.get_by_role("link", name="Import servers").click()
        dialog = page.get_by_role("dialog", name="Add a server")
        expect(dialog.get_by_role("button", name="From your clients")).to_have_attribute("aria-pressed", "true")


def test_start_search_call_and_connect(browser: Browser, demo: GatewayProcess) -> None:
    with open_context(browser, demo.url) as context:
        # The address is the first thing that `toolcrib serve` prints.
        assert demo.stdout.startswith(f"Console: {demo.url}/\n")
        page = context.new_page()
        errors = watch_errors(page)
        page.goto("/")
        page.get_by_role("navigation").get_by_role("link", name="Search").click()
        page.get_by_role("button", name="convert miles to kilometres").click()
        page.locator(".hit-name").first.click()
        call = page.get_by_role("form", name="Call the tool")
        call.get_by_label("amount").fill("26.2")
        call.get_by_label("from_unit").select_option(label="mile")
        call.get_by_label("to_unit").select_option(label="kilometre")
        call.get_by_role("button", name="Call the tool").click()
        expect(page.locator(".call-result")).to_contain_text("42.1")
        page.goto("/")
        expect(page.get_by_text(f"{demo.url}/mcp").first).to_be_visible()
        # Without a configuration file, a new server goes to the user's own file, which the page names.
        page.goto("/servers")
        page.get_by_role("button", name="Add a server").click()
        dialog = page.get_by_role("dialog", name="Add a server")
        dialog.get_by_label("Configuration of any client").fill('{"notes": {"command": "npx"}}')
        dialog.get_by_role("button", name="Continue").click()
        dialog.get_by_role("button", name="Show the change").click()
        expect(dialog).to_contain_text("toolcrib.json. Comments and order are kept.")
        expect(dialog).not_to_contain_text("Restart")
        assert errors == []
