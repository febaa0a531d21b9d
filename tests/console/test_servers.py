"""The servers: a crash while the page is open, starting and stopping, and edits of toolcrib.json."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.console.showcase import tool, write_catalog
from tests.gateway.serving import GatewayProcess, wait_until, write_json


def test_overview_leads_to_the_server_that_fails(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("region", name="Servers").get_by_role("link").nth(1)).to_have_text("warehouse")
    page.get_by_role("region", name="Needs attention").get_by_role("link", name="Open: warehouse").click()
    expect(page.get_by_role("region", name="Server")).to_contain_text("the database does not answer")


def test_failing_server_comes_first_with_its_error_and_log(page: Page) -> None:
    page.goto("/servers")
    first = page.locator("[data-server]").first
    expect(first).to_contain_text("warehouse")
    expect(first).to_contain_text("not reachable")
    first.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    detail = page.get_by_role("region", name="Server")
    expect(detail.locator(".notice")).to_contain_text("the database does not answer")
    expect(detail.get_by_label("Log")).to_contain_text("connection refused")
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()


def test_server_that_dies_is_seen_and_comes_back(page: Page, gateway: GatewayProcess) -> None:
    page.goto("/servers?server=calendar")
    detail = page.get_by_role("region", name="Server")
    expect(detail).to_contain_text("calendar 2.4.1")
    gateway.request("/api/tools/calendar___crash/call", body={"arguments": {}})
    expect(detail.get_by_label("Log")).to_contain_text("giving up: the disk is full")
    expect(detail.locator("dd", has_text="1").first).to_be_visible()
    expect(detail.locator(".detail-head")).to_contain_text("running")


def test_server_is_stopped_started_and_restarted(page: Page) -> None:
    page.goto("/servers?server=chat")
    detail = page.get_by_role("region", name="Server")
    detail.get_by_role("button", name="Stop").click()
    expect(detail.locator(".detail-head")).to_contain_text("stopped")
    # Another tab sees it too.
    other = page.context.new_page()
    other.goto("/servers")
    expect(other.locator("[data-server=chat]")).to_contain_text("stopped")
    detail.get_by_role("button", name="Start").click()
    expect(detail.locator(".detail-head")).to_contain_text("running")
    expect(other.locator("[data-server=chat]")).to_contain_text("running")
    detail.get_by_role("button", name="Restart").click()
    expect(page.get_by_text("chat restarts.")).to_be_visible()
    expect(detail.locator(".detail-head")).to_contain_text("running")


def test_server_is_added_by_pasted_text_after_a_test(page: Page, gateway: GatewayProcess, showcase: Path) -> None:
    entry = write_catalog(showcase, "notes", [tool("add_note", "Write a note.")])
    page.goto("/servers")
    page.get_by_role("button", name="Add a server").click()
    dialog = page.get_by_role("dialog", name="Add a server")
    expect(dialog.get_by_label("Configuration of any client")).to_be_focused()
    dialog.get_by_label("Configuration of any client").fill("{")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_role("alert")).to_contain_text("pasted text")
    text = json.dumps({"mcpServers": {"notes": {**entry, "env": {"API_TOKEN": "hunter2222"}}}})
    dialog.get_by_label("Configuration of any client").fill(text)
    dialog.get_by_role("button", name="Continue").click()
    dialog.get_by_role("button", name="Test").click()
    expect(dialog).to_contain_text("It works: 1 tool")
    dialog.get_by_role("button", name="Show the change").click()
    added = dialog.get_by_label("Changes").locator("[data-kind=add]")
    expect(added.filter(has_text='"notes"')).to_have_count(1)
    expect(added.filter(has_text="API_TOKEN")).to_contain_text("•••")
    assert "notes" not in gateway.servers()
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator("[data-server=notes]")).to_contain_text("running")
    text = (showcase / "toolcrib.json").read_text(encoding="utf-8")
    assert "// The tools of our team." in text and "hunter2222" in text
    page.locator("[data-server=notes]").click()
    for action, says in (("Disable", '"enabled": false'), ("Enable", '"enabled": false'), ("Remove", '"notes"')):
        page.get_by_role("region", name="Server").get_by_role("button", name=action).click()
        change = page.get_by_role("dialog", name=f"{action} notes")
        expect(change.get_by_label("Changes")).to_contain_text(says)
        change.get_by_role("button", name=action).click()
        if action != "Remove":
            expected = "disabled" if action == "Disable" else "running"
            expect(page.locator("[data-server=notes]")).to_contain_text(expected)
    expect(page.locator("[data-server=notes]")).to_have_count(0)
    expect(page.get_by_text("There is no such server")).to_be_visible()
    wait_until(lambda: "notes" not in gateway.servers())
    assert "notes" not in (showcase / "toolcrib.json").read_text(encoding="utf-8")


def test_servers_of_other_clients_are_offered(page: Page, home: Path) -> None:
    entry = {"command": "npx", "args": ["-y", "weather-server"]}
    (home / ".cursor").mkdir(parents=True, exist_ok=True)
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"weather": entry}}), encoding="utf-8")
    page.goto("/servers")
    page.get_by_role("button", name="Add a server").click()
    dialog = page.get_by_role("dialog", name="Add a server")
    dialog.get_by_role("button", name="From your clients").click()
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_text("Name (from Cursor)")).to_be_visible()
    expect(dialog.get_by_label("Entry")).to_contain_text("weather-server")


def test_servers_of_a_client_are_added_together(page: Page, gateway: GatewayProcess, showcase: Path) -> None:
    entries = {name: write_catalog(showcase, name, [tool("add", "Add.")]) for name in ("first", "second")}
    page.goto("/servers?add=paste")
    dialog = page.get_by_role("dialog", name="Add a server")
    dialog.get_by_label("Configuration of any client").fill(json.dumps({"mcpServers": entries}))
    dialog.get_by_role("button", name="Continue").click()
    dialog.get_by_role("button", name="Add all 2").click()
    added = dialog.get_by_label("Changes").locator("[data-kind=add]")
    expect(added.filter(has_text='"first"')).to_have_count(1)
    expect(added.filter(has_text='"second"')).to_have_count(1)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    for name in entries:
        expect(page.locator(f"[data-server={name}]")).to_contain_text("running")
        remove_server(gateway, name)


def test_openapi_document_is_added_by_form(page: Page, gateway: GatewayProcess, showcase: Path) -> None:
    operation = {"operationId": "get_health", "summary": "Get the health.", "responses": {"200": {"description": "Ok"}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Health", "version": "1"},
        "servers": [{"url": gateway.url}],
        "paths": {"/health": {"get": operation}},
    }
    path = write_json(showcase / "health.json", document)
    page.goto("/servers?add=openapi")
    dialog = page.get_by_role("dialog", name="Add a server")
    dialog.get_by_label("Name").fill("health")
    dialog.get_by_label("OpenAPI document").fill(str(path))
    dialog.get_by_role("button", name="Continue").click()
    dialog.get_by_role("button", name="Test").click()
    expect(dialog).to_contain_text("It works: 1 tool")
    dialog.get_by_role("button", name="Show the change").click()
    dialog.get_by_role("button", name="Save").click()
    row = page.locator("[data-server=health]")
    expect(row).to_contain_text("OpenAPI")
    expect(row).to_contain_text("running")
    row.click()
    detail = page.get_by_role("region", name="Server")
    expect(detail).to_contain_text("HTTP API (OpenAPI)")
    expect(detail).to_contain_text(str(path))
    page.goto("/catalog?tool=health___get_health")
    page.get_by_role("button", name="Call the tool").click()
    expect(page.locator(".call-result")).to_contain_text("Succeeded")
    remove_server(gateway, "health")


def remove_server(gateway: GatewayProcess, name: str) -> None:
    edit = {"action": "remove", "name": name}
    revision = gateway.request("/api/config/servers", body=edit).json["revision"]
    assert gateway.request("/api/config/servers", body={**edit, "apply": True, "revision": revision}).status == 200
    wait_until(lambda: name not in gateway.servers())


def test_server_is_added_by_form_and_a_wrong_one_is_diagnosed(page: Page) -> None:
    page.goto("/servers")
    page.get_by_role("button", name="Add a server").click()
    dialog = page.get_by_role("dialog", name="Add a server")
    dialog.get_by_role("button", name="Program").click()
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_role("alert")).to_contain_text("needs a name")
    dialog.get_by_label("Name").fill("broken")
    dialog.get_by_label("Command").fill("/no/such/program")
    dialog.get_by_label("Arguments").fill("--one\n--two")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_label("Entry")).to_contain_text('"--two"')
    dialog.get_by_role("button", name="Test").click()
    expect(dialog).to_contain_text("It does not start.")
    expect(dialog).to_contain_text("Fix:")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
