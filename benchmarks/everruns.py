"""Measure how much smaller a tool list is when the everruns profile hides parameters.

python -m benchmarks.everruns

The surface is that of a general agent: 18 tools for files, shell, web, sessions, storage, to-dos, time and
subagents, and the search tool. Both sizes are those of the first request.
"""

from __future__ import annotations

from typing import Any

import click

from toolcrib import Tool
from toolcrib.profiles.everruns import (
    SEARCH_TOOL,
    EverrunsDefinition,
    EverrunsToolSearch,
    Stub,
    bare_stub,
    instructing_stub,
    measure_size,
)

CHARS_PER_TOKEN = 4


def _parameter(kind: str, description: str, **rules: Any) -> dict[str, Any]:
    return {"type": kind, "description": description, **rules}


PATH = _parameter("string", "Path of the file, relative to the root of the workspace.")
ENCODING = _parameter("string", "How the bytes are decoded.", enum=["utf-8", "latin-1", "base64"], default="utf-8")
SESSION_ID = _parameter("string", "Id of the session, as list_sessions returns it.")
KEY = _parameter("string", "Key of the entry: letters, digits, dots and dashes.", pattern=r"^[\w.-]{1,200}$")
TIMEOUT = _parameter("integer", "Seconds until the operation is stopped.", minimum=1, maximum=3600, default=60)
OFFSET = _parameter("integer", "Number of the first line, counted from 0.", minimum=0, default=0)
LIMIT = _parameter("integer", "How many entries to return at most.", minimum=1, maximum=1000, default=100)
TASKS = _parameter(
    "array",
    "All tasks in order; the list replaces the one before.",
    items={
        "type": "object",
        "properties": {
            "title": _parameter("string", "What is to be done, in a few words.", maxLength=200),
            "status": _parameter("string", "Where the task stands.", enum=["open", "active", "done", "dropped"]),
            "notes": _parameter("string", "Anything worth keeping for later steps."),
        },
        "required": ["title", "status"],
    },
)


def _tool(name: str, description: str, required: str = "", **parameters: dict[str, Any]) -> Tool:
    schema = {"type": "object", "properties": parameters, "additionalProperties": False}
    return Tool(name, description, {**schema, "required": required.split()} if required else schema)


SURFACE = (
    _tool("read_file", "Return the content of a file, with line numbers.", "path", path=PATH, encoding=ENCODING, offset=OFFSET, limit=LIMIT),
    _tool("write_file", "Create a file or replace its content.", "path content", path=PATH, content=_parameter("string", "The new content, whole."), encoding=ENCODING),
    _tool(
        "edit_file", "Replace a passage of a file; the passage must occur exactly once.", "path old_text new_text",
        path=PATH, old_text=_parameter("string", "The passage as it is, with its whitespace."), new_text=_parameter("string", "What stands there afterwards."),
        replace_all=_parameter("boolean", "Replace every occurrence instead of refusing several.", default=False),
    ),
    _tool("list_directory", "List the entries of a directory.", "path", path=PATH, recursive=_parameter("boolean", "Include the directories below.", default=False), limit=LIMIT),
    _tool(
        "search_files", "Find lines that match a regular expression.", "pattern",
        pattern=_parameter("string", "The regular expression."), path=PATH, glob=_parameter("string", "Only files whose names match, such as *.py."),
        ignore_case=_parameter("boolean", "Treat upper and lower case alike.", default=False), limit=LIMIT,
    ),
    _tool("delete_file", "Delete a file.", "path", path=PATH),
    _tool(
        "run_shell", "Run a command in the workspace and return its output and exit code.", "command",
        command=_parameter("string", "The command line, run by a POSIX shell."), workdir=PATH, timeout_seconds=TIMEOUT,
        environment=_parameter("object", "Variables to set in addition.", additionalProperties={"type": "string"}),
    ),
    _tool(
        "fetch_url", "Fetch a page and return it as text.", "url",
        url=_parameter("string", "Address with its scheme.", format="uri"), method=_parameter("string", "The HTTP method.", enum=["GET", "HEAD", "POST"], default="GET"),
        headers=_parameter("object", "Headers to send.", additionalProperties={"type": "string"}), timeout_seconds=TIMEOUT,
        max_chars=_parameter("integer", "Where the text is cut.", minimum=100, maximum=200_000, default=20_000),
    ),
    _tool("search_web", "Search the web and return titles, addresses and excerpts.", "query", query=_parameter("string", "The search words."), limit=LIMIT, site=_parameter("string", "Only pages of this domain.")),
    _tool("list_sessions", "List the sessions of this agent, newest first.", status=_parameter("string", "Only sessions in this state.", enum=["idle", "running", "failed"]), limit=LIMIT, offset=OFFSET),
    _tool("read_session", "Return the messages of a session.", "session_id", session_id=SESSION_ID, offset=OFFSET, limit=LIMIT),
    _tool("send_message", "Send a message to another session.", "session_id text", session_id=SESSION_ID, text=_parameter("string", "The message."), wait=_parameter("boolean", "Wait for the answer.", default=True), timeout_seconds=TIMEOUT),
    _tool("store_value", "Store a value that outlives the session.", "key value", key=KEY, value=_parameter("string", "The value, as text or JSON."), expires_in_seconds=TIMEOUT),
    _tool("load_value", "Return a stored value.", "key", key=KEY),
    _tool("list_values", "List stored keys.", prefix=_parameter("string", "Only keys that begin with this."), limit=LIMIT, offset=OFFSET),
    _tool("write_todos", "Keep the list of tasks of this session.", "tasks", tasks=TASKS),
    _tool("get_time", "Return the current date and time.", timezone=_parameter("string", "IANA name such as Europe/Lisbon.", default="UTC"), format=_parameter("string", "How to write it.", enum=["iso8601", "unix", "rfc2822"], default="iso8601")),
    _tool(
        "start_subagent", "Start a subagent with a task of its own and return its report.", "task",
        task=_parameter("string", "The whole task; the subagent sees nothing else."), tools=_parameter("array", "Names of the tools it may use.", items={"type": "string"}),
        model=_parameter("string", "Model to use; the same by default."), max_steps=_parameter("integer", "Steps until it must report.", minimum=1, maximum=200, default=40), timeout_seconds=TIMEOUT,
    ),
    SEARCH_TOOL,
)  # fmt: skip


def measure(stub: Stub) -> str:
    """Return the table for one kind of stub."""
    full = measure_size([EverrunsDefinition(tool) for tool in SURFACE])
    hidden = measure_size(EverrunsToolSearch(stub=stub).advertise(SURFACE))
    lines = ["| | full schemas | deferred, first turn | smaller |", "|---|--:|--:|--:|"]
    for label, before, after in (
        ("tool list sent to the model", full.tools, hidden.tools),
        ("parameter schemas alone", full.parameters, hidden.parameters),
    ):
        saved = f"{100 * (before - after) / before:.0f} %"
        lines.append(f"| {label} | {_size(before)} | {_size(after)} | {saved} |")
    return "\n".join(lines)


def _size(size_bytes: int) -> str:
    return f"{size_bytes:,} B (~{size_bytes // CHARS_PER_TOKEN:,} tokens)"


@click.command()
def main() -> None:
    """Print the sizes for both kinds of stub."""
    print(f"{len(SURFACE)} tools\n")
    for label, stub in (
        ("The stub names the tool to search for (default):", instructing_stub),
        ("The bare stub:", bare_stub),
    ):
        print(f"{label}\n\n{measure(stub)}\n")


if __name__ == "__main__":
    main()
