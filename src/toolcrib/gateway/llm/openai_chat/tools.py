"""The `tools` of a chat completion: which are held back.

OpenAI has no tool search here. Other servers have made an extension that we take as well: a tool
says `defer_loading`, beside its function or inside, and a result refers to tools by `tool_reference`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from toolcrib.adapters.openai_chat import tools_from_wire
from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name
from toolcrib.errors import InvalidTool
from toolcrib.gateway.llm.tool_index import Entry, IndexedTool, ToolIndex, wire_name
from toolcrib.session.disclosure import Disclosure

_DEFER_FIELD: Final = "defer_loading"
# By such a name a client offers a search of its own, and needs no other beside it.
_CLIENT_SEARCH_NAME: Final = re.compile(
    r"tool_?search|search_?(?:for_?)?tools?|find_?tools?", re.IGNORECASE
)


def is_search_entry(entry: Entry) -> bool:
    """Whether an entry asks for a search on our side, in the words of any of those who have one."""
    kind = str_or_empty(entry.get("type")).rpartition(":")[2]
    return kind == "tool_search" or kind.startswith("tool_search_tool_")


def is_deferred_entry(entry: Entry) -> bool:
    """Whether a tool asks to be held back."""
    function = entry.get("function")
    inside = function.get(_DEFER_FIELD) if isinstance(function, dict) else None
    return entry.get(_DEFER_FIELD) is True or inside is True


def uses_tool_search(tools: Sequence[Entry]) -> bool:
    """Whether a request uses the extension."""
    return any(is_deferred_entry(entry) or is_search_entry(entry) for entry in tools)


def build_deferred_index(tools: Sequence[Entry], *, client_loads: bool) -> ToolIndex:
    """The shelf of a request that says itself which tools are held back.

    We search, unless the client does: `client_loads` says that it has, a tool's name that it can.
    """
    held = {number for number, one in enumerate(tools) if is_deferred_entry(one)}
    front, wares = _split_entries(tools, dict(_parse_entries(tools)), held)
    own = any(_CLIENT_SEARCH_NAME.search(_entry_name(entry)) for entry in front)
    searched = any(map(is_search_entry, tools)) or not (client_loads or own)
    return ToolIndex(front, wares, searched=searched)


def build_transparent_index(tools: Sequence[Entry], disclosure: Disclosure) -> ToolIndex:
    """The shelf of a request that says nothing: enough tools are held back, few are not."""
    read = dict(_parse_entries(tools))
    plan = disclosure.plan(read.values())
    waiting = {tool.id for tool in plan.deferred_tools}
    held = {number for number, tool in read.items() if tool.id in waiting}
    front, wares = _split_entries(tools, read, held)
    return ToolIndex(front, wares)


def render_entry(tool: Tool) -> Entry:
    """A tool of ours as an entry."""
    function = {
        "name": public_name(tool),
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def _split_entries(
    tools: Sequence[Entry], read: Mapping[int, Tool], held: set[int]
) -> tuple[list[Entry], list[IndexedTool]]:
    """What is always sent, and what can be read; the tools with these numbers are held back."""
    front: list[Entry] = []
    wares: list[IndexedTool] = []
    for number, entry in enumerate(tools):
        sent = _without_deferral(entry)
        waits = number in held and number in read
        if number in read:
            wares.append(IndexedTool(read[number], sent, entry, is_deferred=waits))
        if not waits and not is_search_entry(entry):
            front.append(sent)
    return front, wares


def _parse_entries(tools: Iterable[Entry]) -> Iterator[tuple[int, Tool]]:
    """The tools that can be searched, each with its number.

    The others are the upstream's to judge: what is no function, has a name that OpenAI does not
    take, or one that stands twice.
    """
    seen: set[str] = set()
    for number, entry in enumerate(tools):
        if entry.get("type") != "function" or not isinstance(entry.get("function"), dict):
            continue
        try:
            (tool,) = tools_from_wire(entry)
        except InvalidTool:
            continue
        if tool.id not in seen and wire_name(tool.id) == tool.id:
            seen.add(tool.id)
            yield number, tool


def _without_deferral(entry: Entry) -> Entry:
    function = entry.get("function")
    inside = isinstance(function, dict) and _DEFER_FIELD in function
    if _DEFER_FIELD not in entry and not inside:
        return entry
    sent: dict[str, Any] = {name: value for name, value in entry.items() if name != _DEFER_FIELD}
    if inside and isinstance(function, dict):
        sent["function"] = {name: value for name, value in function.items() if name != _DEFER_FIELD}
    return sent


def _entry_name(entry: Entry) -> str:
    function = entry.get("function")
    return str_or_empty(function.get("name")) if isinstance(function, dict) else ""
