"""`/api/tools`: the tools, one tool in detail, and calls from the console."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from toolcrib.core.calls import ToolCall
from toolcrib.core.token_count import count_tool_tokens, estimate_tokens
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import InvalidQuery, RequestFailed, ServerUnavailable, UnknownTool
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.gateway.mcp.server.meta_tools import FoundTool, render_tools
from toolcrib.hub.directory import DirectoryEntry
from toolcrib.safety.pinning import render_definition_diff
from toolcrib.session.session import Session
from toolcrib.session.turn import MAX_SUGGESTIONS
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.store import Store
from toolcrib.storage.tool_usage import ToolUsageTotal

MAX_PAGE_SIZE: Final = 1_000
DEFAULT_PAGE_SIZE: Final = 100
SUMMARY_CHARS: Final = 160


def add_catalog_routes(routes: ApiRoutes) -> None:
    """Add the routes of tools."""
    routes.add("GET", "/api/tools", _list_tools)
    routes.add("GET", "/api/tools/{name}", _get_tool)
    routes.add("POST", "/api/tools/{name}/call", _call_tool)


def _list_tools(call: ApiCall) -> dict[str, Any]:
    server = call.text("server")
    limit = call.integer("limit", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    offset = call.integer("offset", 0)
    entries = [entry for entry in call.view.entries.values() if server in ("", entry.server)]
    page = entries[offset : offset + limit]
    if call.flag("summary"):
        return {"tools": list(map(_summarize_tool, page)), "total": len(entries)}
    return {"tools": [{**entry.wire_definition, "server": entry.server} for entry in page], "total": len(entries)}


def _summarize_tool(entry: DirectoryEntry) -> dict[str, Any]:
    tool = entry.tool
    return {
        "name": entry.name,
        "server": entry.server,
        "title": tool.title[:SUMMARY_CHARS],
        "description": " ".join(tool.description[: 2 * SUMMARY_CHARS].split())[:SUMMARY_CHARS],
        "tokens": count_tool_tokens(tool),
        "readOnly": tool.read_only,
        "destructive": entry.risk == "destructive",
        "flagged": bool(entry.findings),
        "tags": list(tool.tags),
        "category": tool.category,
    }


def _find_entry(call: ApiCall) -> DirectoryEntry:
    name = call.text("name")
    entry = call.view.entries.get(name)
    if entry is None:
        same = [one.name for one in call.view.entries.values() if one.remote_name == name][:MAX_SUGGESTIONS]
        nearest = same or get_close_matches(name, call.view.entries, cutoff=0.8)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else "search for its name"
        raise UnknownTool(f"there is no tool {name!r:.200}; {hint}")
    return entry


def _get_tool(call: ApiCall) -> dict[str, Any]:
    entry, store = _find_entry(call), call.router.hub.store
    definition = entry.wire_definition
    stub = render_tools([FoundTool(entry, 1.0)], "summary", 10**6)
    forms = {
        "full": json.dumps(definition, ensure_ascii=False, indent=2),
        "stub": stub.lines[0].removeprefix("- 1.00 "),
        "signature": stub.tools[0]["signature"],
    }
    tokens = {form: estimate_tokens(text) for form, text in forms.items()} | {"full": count_tool_tokens(entry.tool)}
    usage = store.get_usage().get(entry.name, ToolUsageTotal(0, 0, 0.0))
    return {
        **_summarize_tool(entry),
        "remoteName": entry.remote_name,
        # The name without an override, which is the key of an override.
        "originalName": f"{entry.tool.server}{SERVER_SEPARATOR}{entry.remote_name}",
        "definition": definition,
        "forms": {form: {"text": text, "tokens": tokens[form]} for form, text in forms.items()},
        "findings": [asdict(finding) for finding in entry.findings],
        "usage": asdict(usage),
        **_describe_pin(store, entry),
    }


def _describe_pin(store: Store, entry: DirectoryEntry) -> dict[str, Any]:
    """Return the pin of a tool and the earlier definitions, each with what changed after it."""
    pin = store.get_pins(entry.server).get(entry.remote_name)
    if pin is None:
        return {"pin": None, "versions": []}
    versions = []
    newer: Mapping[str, Any] = pin.definition
    for version in store.list_definition_versions(entry.server, entry.remote_name):
        versions.append(
            {
                "fingerprint": version.fingerprint,
                "replacedAt": version.replaced_at,
                "diff": render_definition_diff(version.definition, newer),
            }
        )
        newer = version.definition
    return {
        "pin": {"fingerprint": pin.fingerprint, "state": pin.state, "firstSeen": pin.first_seen},
        "versions": versions,
    }


class ConsoleCaller:
    """The console as a client of a server. It cannot answer requests of the server."""

    capabilities: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.key: object = self

    async def send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        raise MCPError(METHOD_NOT_FOUND, "the console cannot answer requests of a server")

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        pass

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        pass


async def _call_tool(call: ApiCall) -> dict[str, Any]:
    """Call a tool with validated arguments, and return its result and the time it took."""
    entry, arguments = _find_entry(call), call.body.get("arguments", {})
    if not isinstance(arguments, dict):
        raise InvalidQuery("`arguments` must be an object")
    turn = call.view.get_turn_handler("search").handle_calls(Session(), (ToolCall("", entry.name, arguments),))
    if turn.replies:
        raise InvalidQuery(turn.replies[0].text)
    server = call.router.pool.servers.get(entry.server)
    if server is None:
        raise RequestFailed(f"{entry.server} is not running; enable it first", 409)
    params = {"name": entry.remote_name, "arguments": entry.prepare_arguments(turn.tasks[0].arguments)}
    started = time.monotonic()
    result: dict[str, Any] = {}
    problem = ""
    try:
        result = await server.request("tools/call", params, ConsoleCaller())
    except ServerUnavailable as error:
        problem = str(error)
    except MCPError as error:
        problem = f"{entry.server}: {error.error.message}"
    seconds = time.monotonic() - started
    succeeded = not problem and result.get("isError") is not True
    _record_call(call, entry, succeeded, seconds, problem)
    if problem:
        raise RequestFailed(problem, 502)
    return {"result": result, "succeeded": succeeded, "seconds": round(seconds, 4)}


def _record_call(call: ApiCall, entry: DirectoryEntry, succeeded: bool, seconds: float, problem: str) -> None:
    call.router.hub.record_call(entry.name, succeeded, seconds)
    details: dict[str, Any] = {"error": problem} if problem else {}
    if call.router.audit.records_content(call.view.profile.name):
        details["arguments"] = call.body.get("arguments", {})
    call.router.audit.record_request(
        AuditRow(
            "call",
            "ok" if succeeded else "error",
            key=call.caller,
            profile=call.view.profile.name,
            client=call.client,
            server=entry.server,
            tool=entry.name,
            seconds=seconds,
            request_id=call.request_id,
            details=details,
        )
    )
