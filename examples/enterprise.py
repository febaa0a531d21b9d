"""An agent that finds its tools in a company's registry, with three tasks.

Run it with `pip install toolcrib anthropic` and an ANTHROPIC_API_KEY:

    python examples/enterprise.py

The model is sent two tools, regardless of the size of the registry. If another function is
registered, the next search finds it.
"""

from __future__ import annotations

from typing import Any, Literal

from toolcrib.profiles.dynamic_registry import DynamicToolAgent, DynamicToolRegistry

TASKS = (
    # Needs one tool.
    "Write to team@example.com that Friday's review is called off.",
    # Needs several tools, each with input from another.
    "Look up ada@example.com and alan@example.com among our customers, open a follow-up ticket "
    "in project SALES for each, and write to sales@example.com what you opened.",
    # Needs tools of different teams.
    "Text a voucher to every customer in the shop database who spent over 10,000 this year.",
)

CUSTOMERS = {
    "ada@example.com": {"name": "Ada", "company": "Engines Ltd"},
    "alan@example.com": {"name": "Alan", "company": "Bletchley Systems"},
}
SPENDERS = [
    {"name": "Grace", "phone": "+1 555 0100", "spent": 18_400},
    {"name": "Edsger", "phone": "+1 555 0101", "spent": 10_250},
]


def build_registry() -> DynamicToolRegistry:
    """Return a registry with five tools in three categories; the functions return fixed data."""
    tools = DynamicToolRegistry()
    tickets: list[str] = []

    @tools.registry.tool(category="communication", tags=["email", "notify", "message"])
    def send_email(to: str, subject: str, body: str) -> dict[str, str]:
        """Send an email."""
        return {"status": "sent", "to": to}

    @tools.registry.tool(category="communication", tags=["sms", "phone", "message"])
    def send_text(phone: str, message: str) -> dict[str, str]:
        """Send a text message to a phone.

        Args:
            phone: The number, with its country code.
            message: At most 160 characters.
        """
        if len(message) > 160:
            raise ValueError(f"the message has {len(message)} characters; 160 is the limit")
        return {"status": "sent", "phone": phone}

    @tools.registry.tool(category="data", tags=["sql", "query", "orders"])
    def query_database(sql: str, database: Literal["shop", "archive"] = "shop") -> dict[str, Any]:
        """Read rows from a database."""
        return {"rows": SPENDERS if database == "shop" else []}

    @tools.registry.tool(category="integration", tags=["issue", "task", "project"])
    def create_ticket(project: str, summary: str, kind: Literal["bug", "story", "task"] = "task") -> dict[str, str]:
        """Open a ticket in the tracker."""
        tickets.append(summary)
        return {"ticket": f"{project}-{len(tickets)}"}

    @tools.registry.tool(category="integration", tags=["crm", "customer", "contact"])
    def find_contact(email: str) -> dict[str, str]:
        """Look up a customer by email address."""
        return CUSTOMERS[email]

    return tools


def main() -> None:
    """Run all three tasks and print every call."""
    agent = DynamicToolAgent(build_registry(), "claude-sonnet-5")
    for task in TASKS:
        print(f"\n{task}\n{agent.run(task)}")


if __name__ == "__main__":
    main()
