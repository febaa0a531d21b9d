"""The search playground, used as a person would."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.gateway.serving import GatewayProcess


def test_results_appear_while_typing_and_say_why(page: Page) -> None:
    page.goto("/search")
    page.keyboard.press("/")
    page.keyboard.type("create an issue on github and send a message to the team")
    hits = page.locator(".hit")
    first = hits.first
    expect(first).to_contain_text("github___create_issue")
    expect(first.locator(".reasons")).to_contain_text("meaning")
    expect(first.locator(".reasons")).to_contain_text("name create")
    expect(first.locator("mark").first).to_have_text("issue")
    expect(page.get_by_role("img", name="Confident")).to_be_visible()
    # The two steps of the query have two colours, and each hit the colour of its step.
    steps = page.get_by_role("list", name="Steps of the query").get_by_role("listitem")
    expect(steps).to_have_text(["create an issue on github", "send a message to the team"])
    assert first.get_attribute("data-series") == "1"
    message = hits.filter(has_text="chat___send_message")
    assert message.get_attribute("data-series") == "2"
    # The same tool of another server is grouped.
    message.get_by_text("1 near-duplicate").click()
    expect(message).to_contain_text("mail___send_message")
    # The address keeps the query.
    page.reload()
    expect(hits.first).to_contain_text("github___create_issue")
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_text("Type what the tool should do")).to_be_visible()


def test_keyboard_moves_through_the_hits_and_opens_one(page: Page) -> None:
    page.goto("/search?q=send+a+message")
    expect(page.locator(".hit")).not_to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    name = page.locator(".hit-name").first.inner_text()
    assert page.evaluate("document.activeElement.textContent") == name
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    page.go_back()
    page.get_by_role("searchbox").press("Escape")
    expect(page.get_by_role("searchbox")).to_have_value("")


def test_two_modes_are_compared(page: Page) -> None:
    page.goto("/search?q=find+a+slot+for+a+meeting")
    page.get_by_label("Compare with").select_option("lexical")
    lexical = page.get_by_role("region", name="Results of mode lexical")
    hybrid = page.get_by_role("region", name="Results of mode hybrid")
    expect(lexical.locator(".hit").first).to_be_visible()
    expect(hybrid.get_by_text("not in lexical").first).to_be_visible()
    expect(lexical.locator(".reasons").first).not_to_contain_text("meaning")
    page.get_by_label("Mode", exact=True).select_option("regex")
    page.get_by_role("searchbox").fill("[")
    expect(page.get_by_text("This query cannot be read")).to_be_visible()


def test_filters_and_see_as(page: Page) -> None:
    page.goto("/search?q=search")
    expect(page.locator(".hit-name").filter(has_text="github")).not_to_have_count(0)
    page.get_by_label("Server").select_option("mail")
    expect(page.locator(".hit-name").first).to_contain_text("mail___")
    expect(page.locator(".hit-name").filter(has_text="github")).to_have_count(0)
    page.get_by_label("Server").select_option("")
    page.get_by_label("See as").select_option("support")
    expect(page.locator(".hit-name").filter(has_text="github")).to_have_count(0)
    expect(page.locator(".hit-name").filter(has_text="chat___search_messages")).to_have_count(1)
    page.get_by_label("See as").select_option("")
    page.get_by_role("searchbox").fill("delete")
    expect(page.locator(".hit-name").filter(has_text="delete_branch")).to_have_count(1)
    page.get_by_label("Read-only tools").check()
    expect(page.locator(".hit-name").filter(has_text="delete_branch")).to_have_count(0)


def test_see_as_offers_profiles_that_were_created_in_the_console(page: Page, gateway: GatewayProcess) -> None:
    assert gateway.request("/api/profiles", body={"name": "letters", "servers": ["mail"]}).status == 200
    page.goto("/search?q=search&profile=letters")
    expect(page.locator(".hit-name").first).to_contain_text("mail___")
    expect(page.get_by_label("See as")).to_have_value("letters")
    expect(page.locator(".hit-name").filter(has_text="github")).to_have_count(0)


def test_examples_fit_the_catalog(page: Page) -> None:
    page.goto("/search")
    example = page.locator(".state-actions button").first
    expect(example).to_be_visible()
    text = example.inner_text()
    example.click()
    expect(page.get_by_role("searchbox")).to_have_value(text)
    expect(page.get_by_role("img", name="Confident")).to_be_visible()


def test_missing_tool_is_explained(page: Page) -> None:
    page.goto("/search?q=letter&mode=lexical")
    explain = page.get_by_role("region", name="Why was a tool not found?")
    explain.get_by_label("Name of the tool").fill("calendar___create_event")
    explain.get_by_role("button", name="Explain").click()
    expect(explain).to_contain_text("Does not match 'letter' in mode lexical")
    explain.get_by_label("Name of the tool").fill("nothing")
    explain.get_by_role("button", name="Explain").click()
    expect(explain).to_contain_text("no tool 'nothing'")


def test_saved_test_is_evaluated_and_deleted(page: Page) -> None:
    page.goto("/search?q=open+a+bug+report&compare=lexical")
    hit = page.get_by_role("region", name="Results of mode hybrid").locator(".hit", has_text="create_issue")
    hit.get_by_role("button", name="Save as test").click()
    tests = page.get_by_role("region", name="Saved tests", exact=True).first
    expect(tests).to_contain_text("open a bug report")
    # On a phone, words stay whole.
    page.set_viewport_size({"width": 380, "height": 800})
    delete = tests.get_by_role("button", name="Delete the test")
    box = delete.bounding_box()
    assert box is not None and box["height"] < 30
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="Evaluate").click()
    expect(tests.locator(".metric-group h3")).to_have_text(["hybrid", "lexical"])
    expect(tests.locator("tbody .badge").first).to_contain_text("number")
    tests.get_by_role("button", name="Delete the test").click()
    expect(page.get_by_role("heading", name="Saved tests")).to_be_hidden()
