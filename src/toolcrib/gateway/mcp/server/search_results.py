"""What a model reads of the tools that a search found, within a limit of size."""

from __future__ import annotations

import json
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
    """A result that is a text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


@dataclass
class ResultPage:
    """Lines for a model, as many as there is room for."""

    chars_left: int
    tools: list[dict[str, Any]] = field(default_factory=list)
    shortened_count: int = 0

    def render_tool(self, entry: DirectoryEntry, detail: Detail) -> str:
        """A tool in as much detail as was asked for and as there is room for."""
        for level in reversed(DETAILS[: DETAILS.index(detail) + 1]):
            text, told = _render_entry(entry, level)
            # It is told twice, for models and for programs; neither is to be too long.
            chars = max(len(text), len(json.dumps(told, ensure_ascii=False)))
            if chars <= self.chars_left or level == "names":
                self.chars_left -= chars
                self.shortened_count += level != detail
                self.tools.append(told)
                return text
        raise AssertionError("a name always has room")


def render_found_tools(
    entries: Sequence[DirectoryEntry], detail: Detail, page: ResultPage, call: str
) -> str:
    """The tools that were found, the best first, those of one server together."""
    by_server: dict[str, list[DirectoryEntry]] = {}
    for entry in entries:
        by_server.setdefault(entry.server, []).append(entry)
    lines = [prompts.GATEWAY_RESULT_COUNT.format(count=format_tool_count(len(entries)), call=call)]
    for server, of_server in by_server.items():
        lines += ["", f"{server}:"]
        lines += [page.render_tool(entry, detail) for entry in of_server]
    return "\n".join(lines)


def render_numbered_tools(heading: str, entries: Sequence[DirectoryEntry], page: ResultPage) -> str:
    """The tools that were found as a numbered list, with their definitions beside it."""
    lines = [heading, ""]
    room = page.chars_left
    for number, entry in enumerate(entries, 1):
        about = f" - {entry.tool.description}" if entry.tool.description else ""
        line = f"{number}. {entry.name}{about}"
        lines.append(line if len(line) <= page.chars_left else f"{number}. {entry.name}")
        page.chars_left -= len(lines[-1])
        definition = entry.wire_definition
        # A definition without room is listed all the same, or can be asked for by its name.
        chars = len(json.dumps(definition, ensure_ascii=False))
        page.tools.append(definition if chars <= room else {"name": entry.name})
        room -= min(chars, room)
    return "\n".join(lines)


def render_notes(
    entries: Iterable[DirectoryEntry],
    unreachable: Mapping[str, str],
    waiting: Mapping[str, int],
    unseen: Mapping[str, str],
    unusable: Mapping[str, str],
) -> list[str]:
    """What else is to be said: which tools cannot be called, wait for approval, or look bad, and
    which servers nobody has seen the tools of, or have some that nobody can use."""
    found = list(entries)
    said = render_unlisted_servers(unseen)
    for server, reason in unreachable.items():
        count = sum(entry.server == server for entry in found)
        if count:
            said.append(
                prompts.SERVER_UNAVAILABLE.format(
                    count=format_tool_count(count), server=server, reason=reason
                )
            )
    for server, count in waiting.items():
        said.append(prompts.TOOLS_QUARANTINED.format(count=format_tool_count(count), server=server))
    said += [
        prompts.TOOLS_UNUSABLE.format(server=name, reason=why) for name, why in unusable.items()
    ]
    for entry in found:
        said += [
            prompts.SUSPICIOUS_TOOL.format(name=entry.name, kind=finding.category)
            for finding in entry.findings[:1]
            if finding.severity == "high"
        ]
    return said[:MAX_NOTES]


def render_server_counts(entries: Iterable[DirectoryEntry]) -> str:
    """The servers behind a search and how many tools each has, within bounds."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.server] = counts.get(entry.server, 0) + 1
    return join_server_names([f"{server} ({count})" for server, count in counts.items()])


def render_unlisted_servers(unseen: Mapping[str, str]) -> list[str]:
    """That the tools of these servers are not known, and why; without a reason they still start."""
    said = []
    starting = [name for name, why in unseen.items() if not why]
    if starting:
        count = "1 server is" if len(starting) == 1 else f"{len(starting)} servers are"
        said.append(
            prompts.SERVERS_STARTING.format(count=count, servers=join_server_names(starting))
        )
    return said + [
        prompts.TOOLS_UNKNOWN.format(server=name, reason=why) for name, why in unseen.items() if why
    ]


def join_server_names(servers: Sequence[str]) -> str:
    """The names of servers, within bounds."""
    more = len(servers) - MAX_NAMED_SERVERS
    return ", ".join([*servers[:MAX_NAMED_SERVERS], *([f"and {more} more"] if more > 0 else [])])


def _render_entry(entry: DirectoryEntry, detail: Detail) -> tuple[str, dict[str, Any]]:
    tool = entry.tool
    if detail == "names":
        return f"- {entry.name}", {"name": entry.name}
    if detail == "summary":
        about = " ".join(tool.description.split())
        about = about if len(about) <= SUMMARY_CHARS else f"{about[: SUMMARY_CHARS - 1]}…"
        line = render_signature(entry.name, tool.input_schema)
        return f"- {line}: {about}", {"name": entry.name, "signature": line, "description": about}
    definition = entry.wire_definition
    schema = json.dumps(definition["inputSchema"], ensure_ascii=False, separators=(",", ":"))
    return f"- {entry.name}: {tool.description}\n  parameters: {schema}", definition


def format_tool_count(count: int) -> str:
    """So many tools, in words."""
    return "1 tool" if count == 1 else f"{count} tools"
