"""The tools of a request: which are searched, which are held back, and how they are declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.core import prompts
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool
from toolcrib.profiles.claude import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    REGEX,
    VARIANTS,
    is_deferred,
    is_search_tool,
)

MCP_TOOLSET: Final = "mcp_toolset"
# What only an API with tool search knows of a tool.
_FOR_SEARCH: Final = ("defer_loading",)
_OF_A_SEARCH_TOOL: Final = ("type", "defer_loading", "strict", "allowed_callers")

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """A tool of an MCP server, as a toolset lists it."""

    name: str
    entry: Entry
    deferred: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """What a request's `tools` come to.

    `searches` are the search tools by name; `searchable` what they search; `deferred` what is held
    back until it is found, by name.
    """

    entries: list[Any]
    searches: frozenset[str]
    searchable: list[Entry]
    deferred: Mapping[str, Entry]

    def shown(self, revealed: Iterable[str]) -> list[Any]:
        """The tools to declare: what is not held back, in its place, then what was revealed."""
        names = list(revealed)
        found = set(names)
        plain = [_declared(entry, found) for entry in self.entries if not is_held(entry)]
        loaded = (self.deferred.get(name) for name in names)
        return plain + [_without(entry, _FOR_SEARCH) for entry in loaded if entry is not None]


def listing(body: Mapping[str, Any]) -> Listing:
    """The tools of a request."""
    tools = body.get("tools")
    entries = tools if isinstance(tools, list) else []
    searches: set[str] = set()
    searchable: list[Entry] = []
    deferred: dict[str, Entry] = {}
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        if is_search_tool(entry):
            searches.add(str(entry.get("name")))
        elif entry.get("type") == MCP_TOOLSET:
            searchable += [{**member.entry, "name": member.name} for member in members(entry)]
        else:
            searchable.append(entry)
            if is_held(entry):
                deferred[str(entry.get("name"))] = entry
    return Listing(entries, frozenset(searches), searchable, deferred)


def tools_from_entry(entry: Entry) -> list[Tool]:
    """The tool of an entry, also where the API defines it and the request only names it."""
    name, description, schema = (entry.get(key) for key in ("name", "description", "input_schema"))
    if not isinstance(name, str):
        raise InvalidTool("a tool needs a name that is text")
    about = description if isinstance(description, str) else ""
    return [Tool(name, about, schema if isinstance(schema, Mapping) else None)]


def members(toolset: Entry) -> list[Member]:
    """The enabled tools of an MCP server, as far as the request lists them."""
    listed = toolset.get("tools")
    configs = toolset.get("configs")
    usual = toolset.get("default_config")
    found: list[Member] = []
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, Mapping):
            continue
        own = configs.get(entry.get("name")) if isinstance(configs, Mapping) else None
        config = {**_object(usual), **_object(own)}
        if config.get("enabled", True) is not False:
            name = f"{toolset.get('mcp_server_name')}_{entry.get('name')}"
            found.append(Member(name, entry, config.get("defer_loading") is True))
    return found


def is_held(entry: object) -> bool:
    """Whether an entry is held back: as the API says it, or as one proxy writes it."""
    return isinstance(entry, Mapping) and (
        is_deferred(entry) or is_deferred(_object(entry.get("custom")))
    )


def defers(entry: object) -> bool:
    """Whether an entry holds any tool back, be it itself or one of a server's."""
    if not isinstance(entry, Mapping) or entry.get("type") != MCP_TOOLSET:
        return is_held(entry)
    configs = _object(entry.get("configs"))
    return any(
        is_deferred(_object(config)) for config in (entry.get("default_config"), *configs.values())
    )


def _declared(entry: Any, found: set[str]) -> Any:
    """An entry for an upstream that knows nothing of tool search."""
    if not isinstance(entry, Mapping):
        return entry
    if is_search_tool(entry):
        return _search_tool(entry)
    if entry.get("type") == MCP_TOOLSET:
        return _mcp_toolset(entry, found)
    return _without(entry, _FOR_SEARCH)


def _search_tool(entry: Entry) -> dict[str, Any]:
    """A search tool as an ordinary one, which the model calls and we answer."""
    variant = VARIANTS[str(entry["type"])]
    by_pattern = variant.name == REGEX
    key = variant.keys[0]
    about = prompts.PATTERN_DESCRIPTION if by_pattern else prompts.WORDS_DESCRIPTION
    limit = prompts.REFERENCES_DESCRIPTION.format(most=f"{MAX_LIMIT:,}", default=DEFAULT_LIMIT)
    kept = {name: value for name, value in entry.items() if name not in _OF_A_SEARCH_TOOL}
    return {
        **kept,
        "description": prompts.PATTERN_SEARCH_DESCRIPTION
        if by_pattern
        else prompts.WORD_SEARCH_DESCRIPTION,
        "input_schema": {
            "type": "object",
            "properties": {
                key: {"type": "string", "description": about.format(most=variant.max_chars)},
                "limit": {"type": "integer", "description": limit},
            },
            "required": [key],
        },
    }


def _mcp_toolset(entry: Entry, found: set[str]) -> dict[str, Any]:
    """A toolset in which the tools that are held back are switched off.

    Where the request does not list the server's tools, none can be found, so all are shown.
    """
    configs = {
        name: _without(config, _FOR_SEARCH) if isinstance(config, Mapping) else config
        for name, config in _object(entry.get("configs")).items()
    }
    for member in members(entry):
        if member.deferred and member.name not in found:
            name = str(member.entry.get("name"))
            configs[name] = {**_object(configs.get(name)), "enabled": False}
    declared = dict(entry)
    if configs:
        declared["configs"] = configs
    if isinstance(entry.get("default_config"), Mapping):
        declared["default_config"] = _without(entry["default_config"], _FOR_SEARCH)
    return declared


def _without(entry: Entry, keys: Iterable[str]) -> Entry:
    custom = entry.get("custom")
    if isinstance(custom, Mapping) and "defer_loading" in custom:
        kept = {key: value for key, value in custom.items() if key != "defer_loading"}
        entry = {**entry, "custom": kept}
        if not kept:
            del entry["custom"]
    if not any(key in entry for key in keys):
        return entry
    return {key: value for key, value in entry.items() if key not in keys}


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
