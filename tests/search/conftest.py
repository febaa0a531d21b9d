from __future__ import annotations

import pytest

from toolcrib import Catalog, Tool


def _parameters(**texts: str) -> dict[str, object]:
    properties = {name: {"type": "string", "description": text} for name, text in texts.items()}
    return {"type": "object", "properties": properties}


@pytest.fixture(scope="session")
def office() -> Catalog:
    """Return twelve tools, several of them similar."""
    return Catalog(
        [
            Tool("send_email", "Send an email to somebody", _parameters(to="The address"), server="mail", category="talk", tags=("message",)),
            Tool("read_email", "Read the newest messages", server="mail", category="talk", tags=("message", "inbox"), annotations={"readOnlyHint": True}),
            Tool("send_message", "Post a message to a channel", _parameters(channel="Where to post"), server="chat", category="talk", tags=("message",)),
            Tool("createInvoice", "Bill a customer for an order", _parameters(customer="Who pays", amount="How much"), server="books", category="money"),
            Tool("list-invoices", "Show unpaid bills", server="books", category="money", annotations={"readOnlyHint": True}),
            Tool("refund", "Give the money of a charge back", server="books", category="money", hint="Not for disputes"),
            Tool("get_weather", "The weather at a place, in a GitHub issue style table", _parameters(place="City or postcode"), category="world", annotations={"readOnlyHint": True}),
            Tool("github_create_issue", "Open an issue in a GitHub repository", _parameters(title="What it is about"), server="forge", title="New issue"),
            Tool("github_list_issues", "All open issues", server="forge", annotations={"readOnlyHint": True}),
            Tool("salesforce_query", "Ask the customer database", server="crm"),
            Tool("übersetzen", "Translate a text 翻訳", server="intl"),
            Tool("search", "Find a file", server="disk"),
        ]
    )  # fmt: skip
