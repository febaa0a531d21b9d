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
_SEARCH_KEYS: Final = ("defer_loading",)
_SEARCH_TOOL_KEYS: Final = ("type", "defer_loading", "strict", "allowed_callers")

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class McpMember:
    """A tool of an MCP server, as a toolset lists it."""

    name: str
    entry: Entry
    is_deferred: bool


@dataclass(frozen=True, slots=True)
class MessagesTools:
    """What a request's `tools` come to.

    `searches` are the search tools by name; `searchable` what they search; `deferred` what is held
    back until it is found, by name.
    """

    entries: list[Any]
    search_names: frozenset[str]
    searchable: list[Entry]
    deferred: Mapping[str, Entry]

    def select_entries(self, revealed: Iterable[str]) -> list[Any]:
        """The tools to declare: what is not held back, in its place, then what was revealed."""
        names = list(revealed)
        found = set(names)
        plain = [
            _plain_entry(entry, found) for entry in self.entries if not is_deferred_entry(entry)
        ]
        loaded = (self.deferred.get(name) for name in names)
        return plain + [_without_keys(entry, _SEARCH_KEYS) for entry in loaded if entry is not None]


def parse_tools(body: Mapping[str, Any]) -> MessagesTools:
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
            searchable += [
                {**member.entry, "name": member.name} for member in list_mcp_members(entry)
            ]
        else:
            searchable.append(entry)
            if is_deferred_entry(entry):
                deferred[str(entry.get("name"))] = entry
    return MessagesTools(entries, frozenset(searches), searchable, deferred)


def parse_entry(entry: Entry) -> list[Tool]:
    """The tool of an entry, also where the API defines it and the request only names it."""
    name, description, schema = (entry.get(key) for key in ("name", "description", "input_schema"))
    if not isinstance(name, str):
        raise InvalidTool("a tool needs a name that is text")
    about = description if isinstance(description, str) else ""
    return [Tool(name, about, schema if isinstance(schema, Mapping) else None)]


def list_mcp_members(toolset: Entry) -> list[McpMember]:
    """The enabled tools of an MCP server, as far as the request lists them."""
    listed = toolset.get("tools")
    configs = toolset.get("configs")
    usual = toolset.get("default_config")
    found: list[McpMember] = []
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, Mapping):
            continue
        own = configs.get(entry.get("name")) if isinstance(configs, Mapping) else None
        config = {**_object(usual), **_object(own)}
        if config.get("enabled", True) is not False:
            name = f"{toolset.get('mcp_server_name')}_{entry.get('name')}"
            found.append(McpMember(name, entry, config.get("defer_loading") is True))
    return found


def is_deferred_entry(entry: object) -> bool:
    """Whether an entry is held back: as the API says it, or as one proxy writes it."""
    return isinstance(entry, Mapping) and (
        is_deferred(entry) or is_deferred(_object(entry.get("custom")))
    )


def has_deferred_tools(entry: object) -> bool:
    """Whether an entry holds any tool back, be it itself or one of a server's."""
    if not isinstance(entry, Mapping) or entry.get("type") != MCP_TOOLSET:
        return is_deferred_entry(entry)
    configs = _object(entry.get("configs"))
    return any(
        is_deferred(_object(config)) for config in (entry.get("default_config"), *configs.values())
    )


def _plain_entry(entry: Any, found: set[str]) -> Any:
    """An entry for an upstream that knows nothing of tool search."""
    if not isinstance(entry, Mapping):
        return entry
    if is_search_tool(entry):
        return _plain_search_tool(entry)
    if entry.get("type") == MCP_TOOLSET:
        return _plain_mcp_toolset(entry, found)
    return _without_keys(entry, _SEARCH_KEYS)


def _plain_search_tool(entry: Entry) -> dict[str, Any]:
    """A search tool as an ordinary one, which the model calls and we answer."""
    variant = VARIANTS[str(entry["type"])]
    by_pattern = variant.name == REGEX
    key = variant.keys[0]
    about = prompts.PATTERN_DESCRIPTION if by_pattern else prompts.WORDS_DESCRIPTION
    limit = prompts.REFERENCES_DESCRIPTION.format(most=f"{MAX_LIMIT:,}", default=DEFAULT_LIMIT)
    kept = {name: value for name, value in entry.items() if name not in _SEARCH_TOOL_KEYS}
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


def _plain_mcp_toolset(entry: Entry, found: set[str]) -> dict[str, Any]:
    """A toolset in which the tools that are held back are switched off.

    Where the request does not list the server's tools, none can be found, so all are shown.
    """
    configs = {
        name: _without_keys(config, _SEARCH_KEYS) if isinstance(config, Mapping) else config
        for name, config in _object(entry.get("configs")).items()
    }
    for member in list_mcp_members(entry):
        if member.is_deferred and member.name not in found:
            name = str(member.entry.get("name"))
            configs[name] = {**_object(configs.get(name)), "enabled": False}
    declared = dict(entry)
    if configs:
        declared["configs"] = configs
    if isinstance(entry.get("default_config"), Mapping):
        declared["default_config"] = _without_keys(entry["default_config"], _SEARCH_KEYS)
    return declared


def _without_keys(entry: Entry, keys: Iterable[str]) -> Entry:
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
