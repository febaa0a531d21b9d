"""The `tools` of a request of the Messages API, and their search index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty
from toolcrib.config.settings import LlmSearchRanking
from toolcrib.core import prompts
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool
from toolcrib.gateway.llm.tools.tool_index import Entry, IndexedTool, ToolIndex
from toolcrib.profiles.claude import (
    BM25,
    DEFAULT_LIMIT,
    MAX_LIMIT,
    REGEX,
    VARIANTS,
    ClaudeToolSearch,
    is_deferred,
    is_search_tool,
)

MCP_TOOLSET: Final = "mcp_toolset"
# Fields that an upstream without tool search does not know.
_SEARCH_KEYS: Final = ("defer_loading",)
_SEARCH_TOOL_KEYS: Final = ("type", "defer_loading", "strict", "allowed_callers")


@dataclass(frozen=True, slots=True)
class McpMember:
    """A tool of an MCP server that the request lists."""

    name: str
    entry: Entry
    is_deferred: bool


@dataclass(frozen=True, slots=True)
class MessagesTools:
    """The parsed `tools` of a request.

    `search_names` are the names of the search tools, `searchable` the entries that they search.
    `deferred` are the deferred entries by name; `deferred_names` also has tools of MCP servers.
    """

    entries: list[Any]
    search_names: frozenset[str]
    searchable: list[Entry]
    deferred: Mapping[str, Entry]
    deferred_names: frozenset[str]

    def select_entries(self, revealed: Iterable[str]) -> list[Any]:
        """Return the entries to send: first those that are not deferred, then the revealed ones."""
        names = dict.fromkeys(revealed)
        plain = [_plain_entry(entry, names) for entry in self.entries if not is_deferred_entry(entry)]
        entries = (self.deferred.get(name) for name in names)
        return plain + [_without_keys(entry, _SEARCH_KEYS) for entry in entries if entry is not None]


class MessagesToolIndex(ToolIndex):
    """An index for the search tools of the API, which also find tools that are not deferred."""

    def __init__(
        self,
        always_sent: Iterable[Any],
        tools: Iterable[IndexedTool],
        search_names: frozenset[str],
        ranking: LlmSearchRanking,
    ) -> None:
        super().__init__(always_sent, tools, searches_all=True)
        self._search_names = search_names
        self._ranking = ranking

    @property
    def claude_search(self) -> ClaudeToolSearch:
        """Search as in Anthropic's API: by regex and by BM25."""
        with self._lock:
            return self._claude_search

    def find_best(self, query: str, limit: int) -> list[Tool]:
        """Return the best tools for a query; by BM25 if no tool is a confident match."""
        result = self.engine.search(query, limit=limit)
        if result.confident:
            return [hit.tool for hit in result]
        return self.claude_search.search_bm25(query, limit)

    def prepare(self) -> None:
        """Build what the search tools of the request need. Slow: run it in a thread."""
        if REGEX in self._search_names:
            self.claude_search.search(REGEX, {"pattern": "x"})
        if BM25 in self._search_names and self._ranking == "exact":
            self.claude_search.search_bm25("x", 1)
        elif BM25 in self._search_names:
            super().prepare()

    @cached_property
    def _claude_search(self) -> ClaudeToolSearch:
        return ClaudeToolSearch(indexed.tool for indexed in self.tools.values())


def parse_tools(body: Mapping[str, Any]) -> MessagesTools:
    """Parse the tools of a request."""
    tools = body.get("tools")
    entries = tools if isinstance(tools, list) else []
    search_names: set[str] = set()
    searchable: list[Entry] = []
    deferred: dict[str, Entry] = {}
    deferred_members: list[str] = []
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        if is_search_tool(entry):
            search_names.add(str(entry.get("name")))
        elif entry.get("type") == MCP_TOOLSET:
            members = list_mcp_members(entry)
            searchable += [{**member.entry, "name": member.name} for member in members]
            deferred_members += [member.name for member in members if member.is_deferred]
        else:
            searchable.append(entry)
            if is_deferred_entry(entry):
                deferred[str(entry.get("name"))] = entry
    deferred_names = frozenset([*deferred, *deferred_members])
    return MessagesTools(entries, frozenset(search_names), searchable, deferred, deferred_names)


def build_search_index(tools: MessagesTools, ranking: LlmSearchRanking) -> MessagesToolIndex:
    """Build the index of a request that uses the search tools of the API."""
    always_sent = [entry for entry in tools.entries if not is_deferred_entry(entry)]
    indexed = index_entries(tools.searchable, tools.deferred_names)
    return MessagesToolIndex(always_sent, indexed, tools.search_names, ranking)


def index_entries(entries: Iterable[Entry], deferred_names: Iterable[str]) -> list[IndexedTool]:
    """Return the tools of some entries; entries that cannot be parsed are left to the upstream."""
    deferred = frozenset(deferred_names)
    indexed: dict[str, IndexedTool] = {}
    for entry in entries:
        try:
            tool = parse_entry(entry)
        except InvalidTool:
            continue
        # A cache breakpoint would end the cached prefix at each tool that is revealed.
        plain = {key: value for key, value in entry.items() if key != "cache_control"}
        indexed.setdefault(tool.id, IndexedTool(tool, tool.id, plain, entry, is_deferred=tool.name in deferred))
    return list(indexed.values())


def parse_entry(entry: Entry) -> Tool:
    """Return the tool of an entry; tools that the API defines have only a name."""
    name, description, schema = (entry.get(key) for key in ("name", "description", "input_schema"))
    if not isinstance(name, str):
        raise InvalidTool("the name of a tool must be a string")
    return Tool(
        name,
        description if isinstance(description, str) else "",
        schema if isinstance(schema, dict) else None,
        policy="never" if entry.get("defer_loading") is False else "automatic",
    )


def list_mcp_members(toolset: Entry) -> list[McpMember]:
    """Return the enabled tools of an MCP server, as far as the request lists them."""
    entries = toolset.get("tools")
    configs = dict_or_empty(toolset.get("configs"))
    members: list[McpMember] = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        own = configs.get(str(entry.get("name")))
        config = {**dict_or_empty(toolset.get("default_config")), **dict_or_empty(own)}
        if config.get("enabled", True) is not False:
            name = f"{toolset.get('mcp_server_name')}_{entry.get('name')}"
            members.append(McpMember(name, entry, config.get("defer_loading") is True))
    return members


def is_deferred_entry(entry: object) -> bool:
    """Return whether an entry is deferred; some proxies write that in a `custom` object."""
    if not isinstance(entry, dict):
        return False
    return is_deferred(entry) or ("custom" in entry and is_deferred(dict_or_empty(entry["custom"])))


def strip_deferral(entry: Any) -> Any:
    """Return an entry without the fields of tool search."""
    return _without_keys(entry, _SEARCH_KEYS) if isinstance(entry, dict) else entry


def has_deferred_tools(entry: object) -> bool:
    """Return whether an entry is deferred, or is an MCP server with deferred tools."""
    if not isinstance(entry, dict) or entry.get("type") != MCP_TOOLSET:
        return is_deferred_entry(entry)
    configs = dict_or_empty(entry.get("configs"))
    return any(is_deferred(dict_or_empty(config)) for config in (entry.get("default_config"), *configs.values()))


def _plain_entry(entry: Any, revealed: Collection[str]) -> Any:
    """Return an entry as an upstream without tool search takes it."""
    if not isinstance(entry, dict):
        return entry
    if is_search_tool(entry):
        return _plain_search_tool(entry)
    if entry.get("type") == MCP_TOOLSET:
        return _plain_mcp_toolset(entry, revealed)
    return _without_keys(entry, _SEARCH_KEYS)


def _plain_search_tool(entry: Entry) -> dict[str, Any]:
    """Return a search tool as an ordinary tool."""
    variant = VARIANTS[str(entry["type"])]
    key = variant.keys[0]
    if variant.name == REGEX:
        description, about = prompts.PATTERN_SEARCH_DESCRIPTION, prompts.PATTERN_DESCRIPTION
    else:
        description, about = prompts.WORD_SEARCH_DESCRIPTION, prompts.WORDS_DESCRIPTION
    limit = prompts.REFERENCES_DESCRIPTION.format(most=f"{MAX_LIMIT:,}", default=DEFAULT_LIMIT)
    return {
        **{name: value for name, value in entry.items() if name not in _SEARCH_TOOL_KEYS},
        "description": description,
        "input_schema": {
            "type": "object",
            "properties": {
                key: {"type": "string", "description": about.format(most=variant.max_chars)},
                "limit": {"type": "integer", "description": limit},
            },
            "required": [key],
        },
    }


def _plain_mcp_toolset(entry: Entry, revealed: Collection[str]) -> dict[str, Any]:
    """Return an MCP toolset in which the deferred tools are disabled until they are revealed.

    If the request does not list the tools of the server, no search finds them; all stay enabled.
    """
    configs = {
        name: _without_keys(config, _SEARCH_KEYS) if isinstance(config, dict) else config
        for name, config in dict_or_empty(entry.get("configs")).items()
    }
    for member in list_mcp_members(entry):
        if member.is_deferred and member.name not in revealed:
            name = str(member.entry.get("name"))
            configs[name] = {**dict_or_empty(configs.get(name)), "enabled": False}
    plain = dict(entry)
    if configs:
        plain["configs"] = configs
    if isinstance(entry.get("default_config"), dict):
        plain["default_config"] = _without_keys(entry["default_config"], _SEARCH_KEYS)
    return plain


def _without_keys(entry: Entry, keys: Iterable[str]) -> Entry:
    custom = entry.get("custom")
    if isinstance(custom, dict) and "defer_loading" in custom:
        rest = {key: value for key, value in custom.items() if key != "defer_loading"}
        entry = {**entry, "custom": rest}
        if not rest:
            del entry["custom"]
    if not any(key in entry for key in keys):
        return entry
    return {key: value for key, value in entry.items() if key not in keys}
