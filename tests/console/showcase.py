"""A gateway as a small team would have it: five servers, two access profiles, and one server that fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parent / "catalog_server.py"
TEXT = {"type": "string"}
READ, WRITE = {"readOnlyHint": True}, {"readOnlyHint": False, "destructiveHint": False}
DELETE = {"readOnlyHint": False, "destructiveHint": True}


def tool(name: str, description: str, annotations: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    """Return a definition; a property that ends with an underscore is required."""
    schema = {
        "type": "object",
        "properties": {key.rstrip("_"): value for key, value in properties.items()},
        "required": [key.rstrip("_") for key in properties if key.endswith("_")],
    }
    return {"name": name, "description": description, "inputSchema": schema, "annotations": annotations or {}}


def text(description: str, **more: Any) -> dict[str, Any]:
    return {**TEXT, "description": description, **more}


NUMBER = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20, "description": "How many to return."}
LABELS = {"type": "array", "items": TEXT, "description": "Labels to set."}
STATE = text("Only those in this state.", enum=["open", "closed", "all"], default="open")
PEOPLE = {
    "type": "array",
    "description": "Who is invited.",
    "items": {"type": "object", "properties": {"email": text("The address."), "optional": {"type": "boolean"}}},
}
GITHUB = [
    tool(
        "search_issues",
        "Search issues and pull requests across repositories by text, label, author or state.",
        READ,
        query_=text("What to look for."),
        state=STATE,
        limit=NUMBER,
    ),
    tool(
        "create_issue",
        "Open a new issue in a repository with a title, a body and labels.",
        WRITE,
        repository_=text("Owner and name, such as octo/site."),
        title_=text("The title."),
        body=text("Markdown."),
        labels=LABELS,
    ),
    tool(
        "merge_pull_request",
        "Merge a pull request into its base branch.",
        DELETE,
        repository_=text("Owner and name."),
        number_={"type": "integer"},
        method=text("How.", enum=["merge", "squash", "rebase"]),
    ),
    tool(
        "list_commits",
        "List the commits of a branch, newest first.",
        READ,
        repository_=text("Owner and name."),
        branch=text("The branch."),
        limit=NUMBER,
    ),
    tool(
        "delete_branch",
        "Delete a branch of a repository. This cannot be undone.",
        DELETE,
        repository_=text("Owner and name."),
        branch_=text("The branch to delete."),
    ),
    tool(
        "get_file_contents",
        "Read a file of a repository at a branch, tag or commit.",
        READ,
        repository_=text("Owner and name."),
        path_=text("Path of the file."),
        ref=text("Branch, tag or commit."),
    ),
    tool(
        "review_pull_request",
        "Approve a pull request, request changes or leave a comment.",
        WRITE,
        repository_=text("Owner and name."),
        number_={"type": "integer"},
        verdict_=text("What you decide.", enum=["approve", "request changes", "comment"]),
    ),
]
CHAT = [
    tool(
        "send_message",
        "Send a message to a channel or a person.",
        WRITE,
        channel_=text("Channel or person."),
        text_=text("The message."),
    ),
    tool(
        "search_messages",
        "Search messages in all channels that you can read.",
        READ,
        query_=text("What to look for."),
        since=text("Only after this day.", format="date"),
    ),
    tool("list_channels", "List the channels of the workspace with their topics.", READ, limit=NUMBER),
    tool(
        "set_reminder",
        "Set a reminder for yourself or a channel.",
        WRITE,
        text_=text("What about."),
        at_=text("When.", format="date-time"),
    ),
    tool(
        "delete_message",
        "Delete a message that you have sent.",
        DELETE,
        channel_=text("The channel."),
        timestamp_=text("The time of the message."),
    ),
]
CALENDAR = [
    tool(
        "create_event",
        "Create an event in the calendar and invite people by mail.",
        WRITE,
        title_=text("The title."),
        start_=text("Begin.", format="date-time"),
        end=text("End.", format="date-time"),
        place={"anyOf": [TEXT, {"type": "null"}], "default": None, "description": "Where."},
        people=PEOPLE,
    ),
    tool(
        "list_events",
        "List the events between two days.",
        READ,
        since_=text("First day.", format="date"),
        until=text("Last day.", format="date"),
    ),
    tool(
        "find_free_time",
        "Find a time at which all of these people are free.",
        READ,
        people_=PEOPLE,
        minutes={"type": "integer", "default": 30, "description": "How long."},
    ),
    tool(
        "draw_chart",
        "Draw a chart of the hours spent in meetings.",
        READ,
        month=text("The month.", pattern="^[0-9]{4}-[0-9]{2}$"),
    ),
    tool("fail", "Lock the calendar.", WRITE),
    tool("crash", "Stop the calendar's server.", DELETE),
]
MAIL = [
    tool(
        "send_message",
        "Send a message to a channel or a person.",
        WRITE,
        to_=text("Who gets it."),
        text_=text("The message."),
    ),
    tool(
        "send_email",
        "Send an email with a subject, a body and attachments.",
        WRITE,
        to_=text("Who gets it."),
        subject_=text("The subject."),
        body=text("The text."),
    ),
    tool(
        "search_mail",
        "Search the mailbox by sender, subject or words.",
        READ,
        query_=text("What to look for."),
        limit=NUMBER,
    ),
]
WIKI = [
    tool(
        "search_pages",
        "Search the pages of the wiki by words, author or space.",
        READ,
        query_=text("What to look for."),
        limit=NUMBER,
    ),
    tool(
        "create_page",
        "Create a page in a space of the wiki.",
        WRITE,
        space_=text("The space."),
        title_=text("The title."),
        body=text("Markdown."),
    ),
    tool("export_page", "Export a page as a PDF file.", READ, page_=text("The page.")),
    tool("move_page", "Move a page to another space.", WRITE, page_=text("The page."), space_=text("The new space.")),
]
CATALOGS = {"github": GITHUB, "chat": CHAT, "calendar": CALENDAR, "mail": MAIL, "wiki": WIKI}


def write_catalog(folder: Path, name: str, tools: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Write the tools of a server and return its entry in the configuration."""
    path = folder / f"{name}.tools.json"
    path.write_text(json.dumps({"title": name, "tools": tools, **more}), encoding="utf-8")
    shutil.copy(SERVER, folder / SERVER.name)
    args = ["-I", "-S", SERVER.name, path.name]
    return {"command": "python3", "args": args, "cwd": str(folder), "connectSeconds": 300}


def write_showcase(folder: Path, **more: Any) -> Path:
    """Write the configuration and the catalogs of the showcase; return the path of the configuration."""
    servers = {name: write_catalog(folder, name, tools) for name, tools in CATALOGS.items()}
    servers["warehouse"] = {
        "command": "python3",
        "args": ["-I", "-S", "-c", "import sys; sys.exit('connection refused: the database does not answer')"],
    }
    path = folder / "toolcrib.json"
    settings = {
        "profiles": {"support": {"servers": ["chat", "mail"]}, "readers": {"tools": ["*search*", "*list*"]}},
        "toolSearch": {"mode": "search"},
        "store": f"sqlite:///{folder / 'store.db'}",
        **more,
    }
    document = json.dumps({"mcpServers": servers, **settings}, indent=2)
    path.write_text(document.replace("{\n", "{\n  // The tools of our team.\n", 1), encoding="utf-8")
    return path
