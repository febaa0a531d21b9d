"""The gateway's own tools: their definitions, and the text of their results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolcrib.config.settings import Detail, GatewayConfig
from toolcrib.core import prompts
from toolcrib.core.schema import render_signature
from toolcrib.hub.directory import DirectoryEntry, format_tool_count
from toolcrib.hub.view import AccessView, DisclosureMode
from toolcrib.profiles import mcproxy
from toolcrib.session.turn import DEFAULT_LIMIT, MAX_LIMIT

_SEARCH_ANNOTATIONS: Final = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
# `call_tool` may run any tool, so its hints cover the most dangerous one.
_CALL_ANNOTATIONS: Final = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
_RISK_ANNOTATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "read": {"readOnlyHint": True, "openWorldHint": True},
    "write": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": True},
    "destructive": _CALL_ANNOTATIONS,
}
_STRING: Final = {"type": "string"}
DETAILS: Final[tuple[Detail, ...]] = ("names", "summary", "schema")
SUMMARY_CHARS: Final = 200
# What a search can find besides tools.
ITEM_KINDS: Final = ("skill", "prompt", "resource")
SEARCH_KINDS: Final = ("tool", *ITEM_KINDS)
MAX_NAMED_SERVERS: Final = 40
MAX_NAMED_TOOLS: Final = 5
MAX_NOTES: Final = 5
# Claude Code cuts results, except of tools that declare a size of up to 500,000 characters.
MAX_SIZE_META_KEY: Final = "anthropic/maxResultSizeChars"
MAX_DECLARED_CHARS: Final = 500_000
MAX_CHARS_PER_TOKEN: Final = 8


def render_instructions(view: AccessView, mode: DisclosureMode, unlisted: Iterable[str]) -> str:
    """Return what a host tells its model about the gateway.

    The instructions of servers are not passed on: they are not pinned, so a server could change them.
    """
    parts: list[str] = []
    if view.entries:
        parts.append(prompts.GATEWAY_INSTRUCTIONS.format(servers=render_server_counts(view.entries.values())))
    if names := list(unlisted):
        parts.append(prompts.GATEWAY_INSTRUCTIONS_PENDING.format(servers=join_names(names)))
    if mode == "search":
        call = prompts.CALL_NAME if view.settings.call_tools == "single" else prompts.NAMED_CALL_TOOL
        parts.append(prompts.GATEWAY_INSTRUCTIONS_SEARCH.format(search=prompts.SEARCH_NAME, call=call))
    elif mode == "dynamic":
        parts.append(prompts.GATEWAY_INSTRUCTIONS_DYNAMIC.format(search=mcproxy.SEARCH_TOOL_NAME))
    return " ".join(parts)


def build_search_tool(view: AccessView, unlisted: Iterable[str], *, lists_all: bool = False) -> dict[str, Any]:
    """Return the search tool for direct and search mode; its description names the servers.

    `lists_all` means that the list already contains every known tool.
    """
    contents, names, count = [], list(unlisted), len(view.entries)
    if count and not lists_all:
        servers = render_server_counts(view.entries.values())
        more = "1 more tool" if count == 1 else f"{count:,} more tools"
        contents.append(prompts.GATEWAY_TOOL_COUNT.format(count=more, servers=servers))
    if names:
        contents.append(prompts.GATEWAY_PENDING_SERVERS.format(servers=join_names(names)))
    limit = prompts.LIMIT_DESCRIPTION.format(most=MAX_LIMIT, default=DEFAULT_LIMIT)
    return {
        "name": prompts.SEARCH_NAME,
        "description": " ".join([prompts.GATEWAY_FIND, *contents, prompts.GATEWAY_SEARCH]),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {**_STRING, "description": prompts.QUERY_DESCRIPTION},
                "limit": {"type": "integer", "description": limit},
                "detail": {**_STRING, "enum": list(DETAILS), "description": prompts.GATEWAY_DETAIL},
                "server": {**_STRING, "description": prompts.GATEWAY_SERVER},
                "read_only": {"type": "boolean", "description": prompts.GATEWAY_READ_ONLY},
                "kind": {**_STRING, "enum": list(SEARCH_KINDS), "description": prompts.GATEWAY_KIND},
            },
            "required": ["query"],
        },
        "annotations": _SEARCH_ANNOTATIONS,
    }


def build_dynamic_search_tool(view: AccessView, hidden: int) -> dict[str, Any]:
    """Return MCProxy's search tool for dynamic mode; its description counts the hidden tools."""
    servers = prompts.SERVER_LIST.format(servers=render_server_counts(view.entries.values()))
    query = {**_STRING, "description": mcproxy.QUERY_DESCRIPTION}
    return {
        "name": mcproxy.SEARCH_TOOL_NAME,
        "description": f"{mcproxy.SEARCH_DESCRIPTION.format(hidden=hidden)} {servers}",
        "inputSchema": {"type": "object", "properties": {"query": query}, "required": ["query"]},
        "annotations": _SEARCH_ANNOTATIONS,
    }


def build_call_tools(config: GatewayConfig) -> list[dict[str, Any]]:
    """Return `describe_tool` and the tools that call others."""
    description = prompts.DESCRIBE_NAMES.format(search=prompts.SEARCH_NAME)
    names = {"type": "array", "items": _STRING, "description": description}
    return [
        {
            "name": prompts.DESCRIBE_NAME,
            "description": prompts.DESCRIBE_DESCRIPTION,
            "inputSchema": {"type": "object", "properties": {"names": names}, "required": ["names"]},
            "annotations": _SEARCH_ANNOTATIONS,
        },
        *(_build_call_tool(config, name, description, hints) for name, description, hints in _list_call_tools(config)),
    ]


def _list_call_tools(config: GatewayConfig) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return the names, descriptions and annotations of the call tools."""
    if config.tool_search.call_tools == "single":
        return [(prompts.CALL_NAME, prompts.CALL_DESCRIPTION, _CALL_ANNOTATIONS)]
    return [
        (name, prompts.RISK_CALL_DESCRIPTIONS[risk], _RISK_ANNOTATIONS[risk])
        for risk, name in prompts.RISK_CALL_NAMES.items()
    ]


def _build_call_tool(
    config: GatewayConfig, name: str, description: str, annotations: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "description": description.format(search=prompts.SEARCH_NAME),
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {**_STRING, "description": prompts.CALL_TOOL_NAME.format(search=prompts.SEARCH_NAME)},
                "arguments": {"type": "object", "description": prompts.CALL_ARGUMENTS},
            },
            "required": ["name", "arguments"],
        },
        "annotations": dict(annotations),
        **_declare_result_size(config.results.budget_tokens),
    }


def build_result_tools(config: GatewayConfig) -> list[dict[str, Any]]:
    """Return `read_result`, unless no result is ever shortened."""
    budgets = [server.result_budget_tokens for server in config.servers.values()]
    budgets += [override.result_budget_tokens for override in config.overrides.values()]
    if not config.results.budget_tokens and not any(budgets):
        return []
    properties: dict[str, Any] = {
        name: {**_STRING, "description": text} for name, text in prompts.READ_PARAMETERS.items()
    }
    for name, text in prompts.READ_NUMBERS.items():
        properties[name] = {"type": "integer", "minimum": 0, "description": text}
    return [
        {
            "name": prompts.READ_NAME,
            "description": prompts.READ_DESCRIPTION,
            "inputSchema": {"type": "object", "properties": properties, "required": ["handle"]},
            "annotations": _SEARCH_ANNOTATIONS,
            **_declare_result_size(config.results.read_tokens),
        }
    ]


def build_code_tools(config: GatewayConfig) -> list[dict[str, Any]]:
    """Return `run_code`, if code mode is enabled."""
    if not config.code_mode.enabled:
        return []
    code = {**_STRING, "description": prompts.CODE_PARAMETER}
    return [
        {
            "name": prompts.CODE_NAME,
            "description": prompts.CODE_DESCRIPTION.format(search=prompts.SEARCH_NAME),
            "inputSchema": {"type": "object", "properties": {"code": code}, "required": ["code"]},
            "annotations": _CALL_ANNOTATIONS,
            **_declare_result_size(config.results.budget_tokens),
        }
    ]


def _declare_result_size(tokens: int) -> dict[str, Any]:
    """Return the `_meta` that tells Claude Code not to cut results of this many tokens."""
    chars = tokens * MAX_CHARS_PER_TOKEN if tokens else MAX_DECLARED_CHARS
    return {"_meta": {MAX_SIZE_META_KEY: min(chars, MAX_DECLARED_CHARS)}}


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return a tool result that consists of one text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


class FoundTool(NamedTuple):
    """A tool of a search result, and its score from 0 to 1."""

    entry: DirectoryEntry
    score: float
    # The tool with which to call it, if there are several.
    call: str = ""
    # How to call it in a script, if code mode is enabled.
    stub: str = ""


class RenderedTools(NamedTuple):
    """The tools of a search result as lines for the model and as structured content."""

    lines: list[str]
    tools: list[dict[str, Any]]
    shortened_count: int


def render_tools(found: Sequence[FoundTool], detail: Detail, max_chars: int) -> RenderedTools:
    """Return the tools in their order, in the requested detail or in less to stay within `max_chars`.

    The best tools get more detail first. A tool is a bare name only if the summaries of all tools
    do not fit.
    """
    rendered = [_render_tool(tool, "names") for tool in found]
    levels = [0] * len(found)
    chars_left = max_chars - sum(map(_count_chars, rendered))
    for level in range(1, DETAILS.index(detail) + 1):
        for index, tool in enumerate(found):
            larger = _render_tool(tool, DETAILS[level])
            extra = _count_chars(larger) - _count_chars(rendered[index])
            if extra <= chars_left:
                rendered[index], levels[index] = larger, level
                chars_left -= extra
    lines, tools = [line for line, _ in rendered], [tool for _, tool in rendered]
    return RenderedTools(lines, tools, sum(DETAILS[level] != detail for level in levels))


def render_numbered_lines(found: Sequence[FoundTool], max_chars: int) -> list[str]:
    """Return a line for each tool in MCProxy's format; without the description if it does not fit."""
    lines = []
    for number, (entry, *_) in enumerate(found, 1):
        name = f"{number}. {entry.name}"
        line = f"{name} - {entry.tool.description}" if entry.tool.description else name
        lines.append(line if len(line) <= max_chars else name)
        max_chars -= len(lines[-1])
    return lines


def build_search_result(rendered: RenderedTools, text: str, notes: Sequence[str], *, is_match: bool) -> dict[str, Any]:
    """Return a search result. Some hosts show the model only the structured content, so it has the notes too."""
    return {
        **text_result(text),
        "structuredContent": {"confident": is_match, "notes": list(notes), "tools": rendered.tools},
    }


# Notes for a model use the templates of `prompts` themselves.
MODEL_WORDING: Final[Mapping[str, str]] = {}


def render_notes(
    entries: Sequence[DirectoryEntry],
    unreachable: Mapping[str, str],
    quarantined: Mapping[str, Sequence[str]],
    unlisted: Mapping[str, str],
    unusable: Mapping[str, str],
    *,
    wording: Mapping[str, str],
) -> list[str]:
    """Return at most `MAX_NOTES` notes on the servers and tools of a search result.

    The mappings are keyed by server: `quarantined` names tools, the others give a reason. `wording` has other
    templates in place of some of `prompts`.
    """
    notes = render_unlisted_servers(unlisted, wording)
    for server, reason in unreachable.items():
        if count := sum(entry.server == server for entry in entries):
            notes.append(
                prompts.SERVER_UNAVAILABLE.format(count=format_tool_count(count), server=server, reason=reason)
            )
    for server, tool_names in quarantined.items():
        tools, names = format_tool_count(len(tool_names)), join_names(tool_names, MAX_NAMED_TOOLS)
        template = wording.get(prompts.TOOLS_QUARANTINED, prompts.TOOLS_QUARANTINED)
        notes.append(template.format(count=tools, server=server, names=names))
    notes += [prompts.TOOLS_UNUSABLE.format(server=server, reason=reason) for server, reason in unusable.items()]
    # First, because they protect the user, and the number of notes is limited.
    return [*render_warnings(entries, wording), *notes][:MAX_NOTES]


def render_warnings(entries: Iterable[DirectoryEntry], wording: Mapping[str, str] = MODEL_WORDING) -> list[str]:
    """Return a warning for each tool whose definition looks hostile or has changed."""
    hostile, changed = (wording.get(text, text) for text in (prompts.SUSPICIOUS_TOOL, prompts.TOOL_CHANGED))
    warnings = []
    for entry in entries:
        if entry.findings and entry.findings[0].severity == "high":
            warnings.append(hostile.format(name=entry.name, kind=entry.findings[0].category))
        if entry.is_changed:
            warnings.append(changed.format(name=entry.name))
    return warnings


def render_server_counts(entries: Iterable[DirectoryEntry]) -> str:
    """Return the servers of the given tools, each with its number of tools."""
    counts = Counter(entry.server for entry in entries)
    return join_names([f"{server} ({count})" for server, count in counts.items()])


def render_unlisted_servers(unlisted: Mapping[str, str], wording: Mapping[str, str] = MODEL_WORDING) -> list[str]:
    """Return notes on servers whose tools are unknown; a server without a reason is starting."""
    notes = []
    starting = [name for name, reason in unlisted.items() if not reason]
    if starting:
        count = "1 server is" if len(starting) == 1 else f"{len(starting)} servers are"
        servers = join_names(starting)
        template = wording.get(prompts.SERVERS_STARTING, prompts.SERVERS_STARTING)
        notes.append(template.format(count=count, servers=servers))
    unknown = [prompts.TOOLS_UNKNOWN.format(server=name, reason=reason) for name, reason in unlisted.items() if reason]
    return [*notes, *unknown]


def join_names(names: Sequence[str], max_names: int = MAX_NAMED_SERVERS) -> str:
    """Return at most `max_names` names and the number of the rest."""
    more = len(names) - max_names
    return ", ".join([*names[:max_names], *([f"and {more} more"] if more > 0 else [])])


def _render_tool(found: FoundTool, detail: Detail) -> tuple[str, dict[str, Any]]:
    """Return a tool as text for the model and as structured content."""
    entry, score = found.entry, round(found.score, 2)
    tool, name = entry.tool, entry.name
    lead = f"- {score:.2f} {name}"
    structured: dict[str, Any] = {"name": name, "score": score}
    if found.call:
        lead = f"{lead} [{found.call}]"
        structured["call"] = found.call
    if detail == "names":
        return lead, structured
    if detail == "summary":
        summary = " ".join(tool.description.split())
        if len(summary) > SUMMARY_CHARS:
            summary = f"{summary[: SUMMARY_CHARS - 1]}…"
        signature = found.stub or render_signature(name, tool.input_schema)
        if found.stub:
            # The signature does not show the name for other calls.
            signature = f"{name}: {signature}"
        line = f"- {score:.2f} {signature}" + (f" [{found.call}]" if found.call else "")
        structured |= {"signature": signature, "description": summary}
        return f"{line}: {summary}" if summary else line, structured
    definition = entry.wire_definition
    schema = json.dumps(definition["inputSchema"], ensure_ascii=False, separators=(",", ":"))
    line = f"{lead}: {tool.description}" if tool.description else lead
    return f"{line}\n  parameters: {schema}", {**structured, **definition}


def _count_chars(rendered: tuple[str, dict[str, Any]]) -> int:
    # The result contains both forms; the longer one counts.
    text, structured = rendered
    return max(len(text), len(json.dumps(structured, ensure_ascii=False)))
