"""The catalog: the list, a tool in detail, and calls."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.console.conftest import edit_tools
from tests.gateway.serving import GatewayProcess, wait_until


def test_list_is_filtered_and_moved_through_by_keyboard(page: Page, gateway: GatewayProcess) -> None:
    total = gateway.request("/api/tools?limit=1").json["total"]
    page.goto("/catalog")
    count = page.locator("[data-tool-count]")
    expect(count).to_have_text(f"{total} tools")
    page.keyboard.press("/")
    page.keyboard.type("search mail")
    expect(count).to_have_text(f"1 of {total} tools")
    page.keyboard.press("Escape")
    page.get_by_text("Filters").click()
    page.get_by_role("checkbox", name="chat").check()
    expect(count).to_have_text(f"5 of {total} tools")
    page.get_by_role("checkbox", name="read-only").check()
    expect(count).to_have_text(f"2 of {total} tools")
    page.get_by_label("Filter by name").press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="chat___list_channels")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Choose a tool")).to_be_visible()


def test_tool_is_shown_as_the_model_sees_it(page: Page) -> None:
    page.goto("/catalog?tool=calendar___find_free_time")
    detail = page.get_by_role("region", name="Tool")
    rows = detail.get_by_role("region", name="Parameters").get_by_role("row")
    expect(rows.nth(1)).to_have_accessible_name("people required list of object Who is invited.")
    expect(rows.nth(2)).to_contain_text("people[].email")
    expect(detail.get_by_role("button", name="Full definition")).to_have_attribute("aria-pressed", "true")
    detail.get_by_role("button", name="Signature").click()
    signature = detail.locator(".code-block code")
    expect(signature).to_contain_text("calendar___find_free_time(people")
    detail.get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == signature.inner_text()
    expect(detail).to_contain_text("The definition has not changed since.")


def test_call_returns_json_text_and_image(page: Page) -> None:
    page.goto("/catalog?tool=github___search_issues")
    page.get_by_label("query").fill("crash")
    page.get_by_label("state").select_option("closed")
    page.get_by_label("limit").fill("5")
    page.get_by_role("button", name="Call the tool").click()
    result = page.locator(".call-result")
    expect(result).to_contain_text("Succeeded")
    expect(result).to_contain_text('"limit": 5')
    expect(result).to_contain_text('"state": "closed"')
    page.goto("/catalog?tool=calendar___draw_chart")
    page.get_by_role("button", name="Call the tool").click()
    expect(page.get_by_role("img", name="Image in the result")).to_have_js_property("naturalWidth", 96)
    page.goto("/catalog?tool=calendar___fail")
    page.get_by_role("button", name="Call the tool").click()
    expect(page.locator(".call-result")).to_contain_text("The tool returned an error")
    expect(page.locator(".call-result")).to_contain_text("the calendar is locked")


def test_wrong_arguments_are_explained(page: Page) -> None:
    page.goto("/catalog?tool=calendar___find_free_time")
    call = page.get_by_role("form", name="Call the tool")
    call.get_by_role("button", name="Call the tool").click()
    expect(call.get_by_role("alert")).to_have_text("people is required")
    call.get_by_label("people").fill("nobody")
    call.get_by_role("button", name="Call the tool").click()
    expect(call.get_by_role("alert")).to_have_text("people must be valid JSON")
    call.get_by_role("button", name="Edit as JSON").click()
    call.get_by_label("Arguments as JSON").fill('{"people": "nobody"}')
    call.get_by_role("button", name="Call the tool").click()
    expect(call.get_by_role("alert")).to_contain_text("people")


def test_optional_parameters_and_lists_need_no_json(page: Page) -> None:
    page.goto("/catalog?tool=calendar___create_event")
    call = page.get_by_role("form", name="Call the tool")
    call.get_by_label("title").fill("Review")
    call.get_by_label("start").fill("2026-11-18T09:00:00Z")
    call.get_by_label("place").fill("Room 4")
    call.get_by_role("button", name="Call the tool").click()
    expect(page.locator(".call-result")).to_contain_text('"place": "Room 4"')
    page.goto("/catalog?tool=github___create_issue")
    call.get_by_label("repository").fill("octo/site")
    call.get_by_label("title").fill("Blank page")
    call.get_by_label("labels").fill("bug\nurgent now")
    call.get_by_role("button", name="Edit as JSON").click()
    text = call.get_by_label("Arguments as JSON")
    expect(text).to_have_value(re.compile('"urgent now"'))
    # What was entered as JSON is in the fields afterwards.
    text.fill(text.input_value().replace("Blank page", "White page").replace("urgent now", "later"))
    call.get_by_role("button", name="Edit in fields").click()
    expect(call.get_by_label("title")).to_have_value("White page")
    expect(call.get_by_label("labels")).to_have_value("bug\nlater")
    call.get_by_role("button", name="Call the tool").click()
    expect(page.locator(".call-result")).to_contain_text("White page")


def test_destructive_tool_asks_first(page: Page) -> None:
    page.goto("/catalog?tool=github___delete_branch")
    page.get_by_label("repository").fill("octo/site")
    page.get_by_label("branch").fill("main")
    page.get_by_role("button", name="Call the tool").click()
    dialog = page.get_by_role("dialog", name="Call this tool?")
    expect(dialog).to_contain_text("octo/site")
    # A second Enter by mistake does not call the tool.
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator(".call-result")).to_be_empty()
    page.get_by_role("button", name="Call the tool").click()
    dialog.get_by_role("button", name="Call the tool").click()
    expect(page.locator(".call-result")).to_contain_text("delete_branch")


def test_history_shows_what_changed(page: Page, gateway: GatewayProcess, showcase: Path) -> None:
    edit_tools(showcase, "github", list_commits="List the commits of a branch, oldest first.")
    gateway.request("/api/servers/github/restart", body={})
    wait_until(lambda: gateway.servers()["github"]["waiting"])
    gateway.request("/api/decisions/approve", body={"server": "github"})
    page.goto("/catalog?tool=github___list_commits")
    page.locator(".version summary").click()
    diff = page.get_by_label("Changes")
    expect(diff.locator("[data-kind=remove]")).to_contain_text("newest first")
    expect(diff.locator("[data-kind=add]")).to_contain_text("oldest first")


def test_unknown_tool_is_said_plainly(page: Page) -> None:
    page.goto("/catalog?tool=nothing")
    expect(page.get_by_role("alert")).to_contain_text("This tool is not in the catalog")
