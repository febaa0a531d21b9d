"""Render search results for a model, within a size limit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolcrib.config.settings import Detail
from toolcrib.core import prompts
from toolcrib.core.schema import render_signature
from toolcrib.hub.directory import DirectoryEntry

DETAILS: Final[tuple[Detail, ...]] = ("names", "summary", "schema")
SUMMARY_CHARS: Final = 200
MAX_NAMED_SERVERS: Final = 40
MAX_NOTES: Final = 5


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return a tool result that consists of one text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


@dataclass
class ResultPage:
    """Renders tools until the character budget is spent; collects them as structured content."""

    chars_left: int
    tools: list[dict[str, Any]] = field(default_factory=list)
    shortened_count: int = 0

    def render_tool(self, entry: DirectoryEntry, detail: Detail) -> str:
        """Return a tool in the requested detail, or in less if the budget does not allow it."""
        for level in reversed(DETAILS[: DETAILS.index(detail) + 1]):
            text, structured = _render_entry(entry, level)
            # The result contains both forms; the longer one counts.
            chars = max(len(text), len(json.dumps(structured, ensure_ascii=False)))
            if chars <= self.chars_left or level == "names":
                self.chars_left -= chars
                self.shortened_count += level != detail
                self.tools.append(structured)
                return text
        raise AssertionError("the level `names` always fits")


def render_found_tools(
    entries: Sequence[DirectoryEntry], detail: Detail, page: ResultPage, call: str
) -> str:
    """Return the found tools grouped by server, best server first."""
    by_server: dict[str, list[DirectoryEntry]] = {}
    for entry in entries:
        by_server.setdefault(entry.server, []).append(entry)
    lines = [prompts.GATEWAY_RESULT_COUNT.format(count=format_tool_count(len(entries)), call=call)]
    for server, server_entries in by_server.items():
        lines += ["", f"{server}:"]
        lines += [page.render_tool(entry, detail) for entry in server_entries]
    return "\n".join(lines)


def render_numbered_tools(heading: str, entries: Sequence[DirectoryEntry], page: ResultPage) -> str:
    """Return the found tools as a numbered list; add their definitions to the page."""
    lines = [heading, ""]
    definition_chars_left = page.chars_left
    for number, entry in enumerate(entries, 1):
        description = f" - {entry.tool.description}" if entry.tool.description else ""
        line = f"{number}. {entry.name}{description}"
        lines.append(line if len(line) <= page.chars_left else f"{number}. {entry.name}")
        page.chars_left -= len(lines[-1])
        definition = entry.wire_definition
        # A definition that does not fit is still in the tool list, or available by name.
        chars = len(json.dumps(definition, ensure_ascii=False))
        fits = chars <= definition_chars_left
        page.tools.append(definition if fits else {"name": entry.name})
        definition_chars_left -= min(chars, definition_chars_left)
    return "\n".join(lines)


def render_notes(
    entries: Sequence[DirectoryEntry],
    unreachable: Mapping[str, str],
    quarantined: Mapping[str, int],
    unlisted: Mapping[str, str],
    unusable: Mapping[str, str],
) -> list[str]:
    """Return at most `MAX_NOTES` notes on the servers and tools of a search result.

    The mappings are keyed by server: `quarantined` counts tools, the others give a reason.
    """
    notes = render_unlisted_servers(unlisted)
    for server, reason in unreachable.items():
        if count := sum(entry.server == server for entry in entries):
            notes.append(
                prompts.SERVER_UNAVAILABLE.format(
                    count=format_tool_count(count), server=server, reason=reason
                )
            )
    for server, count in quarantined.items():
        notes.append(
            prompts.TOOLS_QUARANTINED.format(count=format_tool_count(count), server=server)
        )
    for server, reason in unusable.items():
        notes.append(prompts.TOOLS_UNUSABLE.format(server=server, reason=reason))
    for entry in entries:
        if entry.findings and entry.findings[0].severity == "high":
            category = entry.findings[0].category
            notes.append(prompts.SUSPICIOUS_TOOL.format(name=entry.name, kind=category))
    return notes[:MAX_NOTES]


def render_server_counts(entries: Iterable[DirectoryEntry]) -> str:
    """Return the servers of the given tools, each with its number of tools."""
    counts = Counter(entry.server for entry in entries)
    return join_server_names([f"{server} ({count})" for server, count in counts.items()])


def render_unlisted_servers(unlisted: Mapping[str, str]) -> list[str]:
    """Return notes on servers whose tools are unknown; a server without a reason is starting."""
    notes = []
    starting = [name for name, reason in unlisted.items() if not reason]
    if starting:
        count = "1 server is" if len(starting) == 1 else f"{len(starting)} servers are"
        servers = join_server_names(starting)
        notes.append(prompts.SERVERS_STARTING.format(count=count, servers=servers))
    for name, reason in unlisted.items():
        if reason:
            notes.append(prompts.TOOLS_UNKNOWN.format(server=name, reason=reason))
    return notes


def join_server_names(names: Sequence[str]) -> str:
    """Return at most `MAX_NAMED_SERVERS` names and the number of the rest."""
    more = len(names) - MAX_NAMED_SERVERS
    return ", ".join([*names[:MAX_NAMED_SERVERS], *([f"and {more} more"] if more > 0 else [])])


def format_tool_count(count: int) -> str:
    """Return "1 tool" or "N tools"."""
    return "1 tool" if count == 1 else f"{count} tools"


def _render_entry(entry: DirectoryEntry, detail: Detail) -> tuple[str, dict[str, Any]]:
    """Return a tool as text for the model and as structured content."""
    tool, name = entry.tool, entry.name
    if detail == "names":
        return f"- {name}", {"name": name}
    if detail == "summary":
        summary = " ".join(tool.description.split())
        if len(summary) > SUMMARY_CHARS:
            summary = f"{summary[: SUMMARY_CHARS - 1]}…"
        signature = render_signature(name, tool.input_schema)
        structured = {"name": name, "signature": signature, "description": summary}
        return f"- {signature}: {summary}", structured
    definition = entry.wire_definition
    schema = json.dumps(definition["inputSchema"], ensure_ascii=False, separators=(",", ":"))
    return f"- {name}: {tool.description}\n  parameters: {schema}", definition
