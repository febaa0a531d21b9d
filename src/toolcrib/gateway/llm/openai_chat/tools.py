"""The `tools` of a chat completion, and their search index.

OpenAI has no tool search in this API. Some servers have an extension, which the gateway supports: a
tool sets `defer_loading`, next to its function or inside it, and a result refers to tools with
`tool_reference` parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from toolcrib.adapters.openai_chat import tools_from_wire
from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool
from toolcrib.gateway.llm.tool_index import (
    Entry,
    IndexedTool,
    ToolIndex,
    split_entries,
    to_wire_name,
)
from toolcrib.session.disclosure import Disclosure

_DEFER_FIELD: Final = "defer_loading"
# A client with a tool of such a name searches itself.
_CLIENT_SEARCH_NAME: Final = re.compile(
    r"tool_?search|search_?(?:for_?)?tools?|find_?tools?", re.IGNORECASE
)


def is_search_entry(entry: Entry) -> bool:
    """Return whether an entry asks for tool search by the server, in any known form."""
    type = str_or_empty(entry.get("type")).rpartition(":")[2]
    return type == "tool_search" or type.startswith("tool_search_tool_")


def is_deferred_entry(entry: Entry) -> bool:
    """Return whether an entry is deferred."""
    function = entry.get("function")
    inner = function.get(_DEFER_FIELD) if isinstance(function, dict) else None
    return entry.get(_DEFER_FIELD) is True or inner is True


def uses_tool_search(entries: Sequence[Entry]) -> bool:
    """Return whether a request uses the extension."""
    return any(is_deferred_entry(entry) or is_search_entry(entry) for entry in entries)


def build_deferred_index(entries: Sequence[Entry], *, client_loads: bool) -> ToolIndex:
    """Build the index of a request that says itself which tools are deferred.

    The gateway searches, unless the client has loaded tools (`client_loads`) or has a search tool.
    """
    parsed = list(_parse_entries(entries))
    deferred = {each.tool.id for _, each in parsed if each and is_deferred_entry(each.client_entry)}
    always_sent, tools = split_entries(parsed, deferred)
    client_searches = client_loads or any(map(_CLIENT_SEARCH_NAME.search, map(_name, always_sent)))
    offers_search = any(map(is_search_entry, entries)) or not client_searches
    return ToolIndex(always_sent, tools, offers_search=offers_search)


def build_transparent_index(entries: Sequence[Entry], disclosure: Disclosure) -> ToolIndex:
    """Build the index of a request that does not know tool search."""
    parsed = list(_parse_entries(entries))
    plan = disclosure.plan(each.tool for _, each in parsed if each)
    return ToolIndex(*split_entries(parsed, {tool.id for tool in plan.deferred_tools}))


def _parse_entries(entries: Iterable[Entry]) -> Iterator[tuple[Entry, IndexedTool | None]]:
    """Yield the entries with their tools, without search tools.

    Entries that are not functions, or have an invalid or duplicate name, are left to the upstream.
    """
    seen: set[str] = set()
    for entry in entries:
        if is_search_entry(entry):
            continue
        sent = _without_deferral(entry)
        tool = _parse_function(entry)
        if tool is None or tool.id in seen or to_wire_name(tool.id) != tool.id:
            yield sent, None
            continue
        seen.add(tool.id)
        yield sent, IndexedTool(tool, tool.id, sent, entry)


def _parse_function(entry: Entry) -> Tool | None:
    if entry.get("type") != "function" or not isinstance(entry.get("function"), dict):
        return None
    try:
        (tool,) = tools_from_wire(entry)
    except InvalidTool:
        return None
    return tool


def _without_deferral(entry: Entry) -> Entry:
    function = entry.get("function")
    is_inside = isinstance(function, dict) and _DEFER_FIELD in function
    if _DEFER_FIELD not in entry and not is_inside:
        return entry
    sent: dict[str, Any] = {name: value for name, value in entry.items() if name != _DEFER_FIELD}
    if is_inside and isinstance(function, dict):
        sent["function"] = {name: value for name, value in function.items() if name != _DEFER_FIELD}
    return sent


def _name(entry: Entry) -> str:
    function = entry.get("function")
    return str_or_empty(function.get("name")) if isinstance(function, dict) else ""
