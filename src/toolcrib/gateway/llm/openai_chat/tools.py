"""The `tools` of a chat completion, and their search index.

OpenAI has no tool search in this API. Some servers have an extension, which the gateway supports: a
tool sets `defer_loading`, next to its function or inside it, and a result refers to tools with
`tool_reference` parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from toolcrib.adapters.openai_chat import tools_from_wire
from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool
from toolcrib.gateway.llm.tool_index import Entry, IndexedTool, ToolIndex, to_wire_name
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
    deferred = {number for number, entry in enumerate(entries) if is_deferred_entry(entry)}
    always_sent, tools = _split_entries(entries, dict(_parse_entries(entries)), deferred)
    client_searches = client_loads or any(map(_CLIENT_SEARCH_NAME.search, map(_name, always_sent)))
    offers_search = any(map(is_search_entry, entries)) or not client_searches
    return ToolIndex(always_sent, tools, offers_search=offers_search)


def build_transparent_index(entries: Sequence[Entry], disclosure: Disclosure) -> ToolIndex:
    """Build the index of a request that does not know tool search."""
    parsed = dict(_parse_entries(entries))
    deferred_ids = {tool.id for tool in disclosure.plan(parsed.values()).deferred_tools}
    deferred = {number for number, tool in parsed.items() if tool.id in deferred_ids}
    return ToolIndex(*_split_entries(entries, parsed, deferred))


def _split_entries(
    entries: Sequence[Entry], parsed: Mapping[int, Tool], deferred: set[int]
) -> tuple[list[Entry], list[IndexedTool]]:
    """Return the entries that are always sent, and the tools that could be parsed."""
    always_sent: list[Entry] = []
    tools: list[IndexedTool] = []
    for number, entry in enumerate(entries):
        sent = _without_deferral(entry)
        tool = parsed.get(number)
        is_deferred = tool is not None and number in deferred
        if tool is not None:
            tools.append(IndexedTool(tool, tool.id, sent, entry, is_deferred=is_deferred))
        if not is_deferred and not is_search_entry(entry):
            always_sent.append(sent)
    return always_sent, tools


def _parse_entries(entries: Iterable[Entry]) -> Iterator[tuple[int, Tool]]:
    """Yield the tools that can be searched, with the numbers of their entries.

    Entries that are not functions, or have an invalid or duplicate name, are left to the upstream.
    """
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        if entry.get("type") != "function" or not isinstance(entry.get("function"), dict):
            continue
        try:
            (tool,) = tools_from_wire(entry)
        except InvalidTool:
            continue
        if tool.id not in seen and to_wire_name(tool.id) == tool.id:
            seen.add(tool.id)
            yield number, tool


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
