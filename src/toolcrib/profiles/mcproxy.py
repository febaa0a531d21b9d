"""MCProxy's `tool_search`: a long tool list is cut, and a search replaces it with what it found.

`McproxyToolSearch` follows the documentation. `toolcrib.profiles.mcproxy_source` follows the
program where it differs; it is a separate module because both together exceed 500 lines. The state
of one client is a `McproxySession`, a value that each call takes and returns: one client's search
never changes another client's list.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.errors import InvalidConfig, InvalidQuery
from toolcrib.search.engine import MAX_LIMIT, SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.session.disclosure import ALPHABETICAL, RANDOM, SERVER_PRIORITY, Activation, Disclosure, Selection

SEARCH_DESCRIPTION: Final = (
    "Search through {hidden} additional available tools. Use natural language or keywords to find relevant tools."
)
QUERY_DESCRIPTION: Final = "Search query to find relevant tools"
FOUND: Final = "Found {count} matching tools:"
NOT_FOUND: Final = "No tools found matching '{query}'. Try a different search term."
QUERY_MISSING: Final = "Missing required 'query' parameter"
SEARCH_OFF: Final = "Tool search is switched off by enabled or maxToolsLimit"
WRONG_TYPE: Final = "tool_search config: {key} must be {expected}, not {value!r}"
UNKNOWN_KEY: Final = "tool_search config: unknown key {key!r}; the keys are {known}"
DEBUG_LINES: Final = (
    '🔍 Tool search query: "{query}"',
    "   Index size: {size} tools",
    "   Matches before threshold: {before}",
    "   Matches after threshold: {after}",
    "   Search time: {milliseconds}ms",
)

MIDDLEWARE_TYPE: Final = "tool_search"
_MIDDLEWARE_KEYS: Final = ("type", "enabled", "config")

SEARCH_TOOL_NAME: Final = "search_available_tools"
UNKNOWN_SERVER: Final = "unknown"
STRATEGIES: Final = (SERVER_PRIORITY, ALPHABETICAL, RANDOM)
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603


@dataclass(frozen=True, slots=True)
class McproxyConfig:
    """The middleware's configuration; a limit of 0 hides nothing."""

    enabled: bool = True
    max_tools: int = 50
    threshold: float = 0.1
    selection_order: tuple[str, ...] = (SERVER_PRIORITY,)
    debug: bool = False

    @classmethod
    def from_json(cls, config: object) -> McproxyConfig:
        """Return the configuration from JSON; null means the defaults.

        The JSON is the object with the settings, or the middleware entry around it, with `type`,
        `enabled` and `config`. An unknown key raises `InvalidConfig`.
        """
        if config is None:
            return cls()
        if not isinstance(config, Mapping):
            raise _wrong_type_error("config", "an object", config)
        if "type" in config or "config" in config:
            return cls._from_middleware(config)
        fields: dict[str, Any] = {}
        for key, value in config.items():
            if key not in _KEYS:
                raise _unknown_key_error(key, _KEYS)
            name, expected, is_valid = _KEYS[key]
            if not is_valid(value):
                raise _wrong_type_error(key, expected, value)
            fields[name] = tuple(value) if isinstance(value, list) else value
        return cls(**fields)

    @classmethod
    def _from_middleware(cls, entry: Mapping[str, Any]) -> McproxyConfig:
        for key in entry:
            if key not in _MIDDLEWARE_KEYS:
                raise _unknown_key_error(key, _MIDDLEWARE_KEYS)
        if entry.get("type", MIDDLEWARE_TYPE) != MIDDLEWARE_TYPE:
            raise InvalidConfig(f'the middleware is {entry["type"]!r}; its type must be "{MIDDLEWARE_TYPE}"')
        settings = cls.from_json(entry.get("config"))
        is_enabled = entry.get("enabled", True)
        if not isinstance(is_enabled, bool):
            raise _wrong_type_error("enabled", "true or false", is_enabled)
        return replace(settings, enabled=settings.enabled and is_enabled)


@dataclass(frozen=True, slots=True)
class McproxySession:
    """The tools one client has in place of the whole list; empty at first."""

    exposed: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class McproxyListing:
    """The answer to `tools/list`, and the session after it."""

    tools: tuple[Tool, ...]
    session: McproxySession


class McproxyMatch(NamedTuple):
    """A tool and its score."""

    tool: Tool
    score: float


@dataclass(frozen=True, slots=True)
class RpcError:
    """A call that is answered with a JSON-RPC error."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class McproxyReply:
    """The answer to a search, and the session after it.

    `list_changed` requests the notification of that name; `matches` are the tools before the
    threshold is applied; `debug` are lines for a log.
    """

    text: str
    session: McproxySession
    list_changed: bool = True
    is_error: bool = False
    matches: tuple[McproxyMatch, ...] = ()
    debug: tuple[str, ...] = field(default=(), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the result of the call in MCP's format."""
        return {"content": [{"type": "text", "text": self.text}], "isError": self.is_error}


DEFAULT_CONFIG: Final = McproxyConfig()
EMPTY_SESSION: Final = McproxySession()


class McproxyToolSearch:
    """The middleware over the tools of all servers; `servers` are their names in config order."""

    search_description: ClassVar[str] = SEARCH_DESCRIPTION
    query_description: ClassVar[str] = QUERY_DESCRIPTION
    # The score that corresponds to a threshold of 1.
    full_score: ClassVar[float] = 1.0

    def __init__(
        self,
        tools: Iterable[Tool],
        config: McproxyConfig = DEFAULT_CONFIG,
        *,
        servers: Sequence[str] = (),
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.catalog = Catalog(_with_public_name(tool) for tool in tools)
        self.config = config
        self._servers = servers
        self._seed = seed
        self._clock = clock

    @property
    def is_enabled(self) -> bool:
        """Whether tools may be hidden and searched."""
        return self.config.enabled and self.config.max_tools > 0

    @property
    def disclosure(self) -> Disclosure:
        """The limit of visible tools as a `Disclosure`."""
        limit = self.config.max_tools
        return Disclosure(Activation(tools=limit + 1), max_visible_tools=limit)

    def build_search_tool(self, hidden: int) -> Tool:
        """Return the tool that searches the hidden tools."""
        query = {"type": "string", "description": self.query_description}
        schema = {"type": "object", "properties": {"query": query}, "required": ["query"]}
        return Tool(SEARCH_TOOL_NAME, self.search_description.format(hidden=hidden), schema)

    def list_tools(self, session: McproxySession = EMPTY_SESSION) -> McproxyListing:
        """Return all tools if they are few, else the last search results or a selection."""
        plan = self.disclosure.plan(self.order_tools())
        if not self.is_enabled or not plan.is_active:
            return McproxyListing(tuple(self.catalog), session)
        exposed = (self.catalog.get(tool.id) for tool in session.exposed)
        visible = [tool for tool in exposed if tool] or plan.visible_tools
        return McproxyListing((*visible, self.build_search_tool(len(self.catalog) - len(visible))), session)

    def search(self, arguments: Mapping[str, Any], session: McproxySession = EMPTY_SESSION) -> McproxyReply | RpcError:
        """Answer a call of the search tool; the tools it finds replace the client's list."""
        query = arguments.get("query")
        if not isinstance(query, str):
            return RpcError(INVALID_PARAMS, QUERY_MISSING)
        if not self.is_enabled:
            return RpcError(INTERNAL_ERROR, SEARCH_OFF)
        started = self._clock()
        try:
            matches = tuple(self.find_matches(query))
        except InvalidQuery as error:
            return McproxyReply(str(error), session, list_changed=False, is_error=True)
        min_score = self.config.threshold * self.full_score
        found = tuple(tool for tool, score in matches if score >= min_score)
        text = self.render_found(query, found) if found else NOT_FOUND.format(query=query)
        seconds = self._clock() - started
        return McproxyReply(
            text,
            McproxySession(found) if found else session,
            matches=matches,
            debug=self._debug_lines(query, len(matches), len(found), seconds),
        )

    def order_tools(self) -> list[Tool]:
        """Return all tools in selection order; each strategy breaks the ties of the previous ones.

        Remaining ties are in alphabetical order; unknown strategies are ignored.
        """

        strategies = (*(strategy for strategy in self.config.selection_order if strategy in STRATEGIES), ALPHABETICAL)
        return Selection(strategies, tuple(self._servers), seed=self._seed).sort_tools(self.catalog)

    def find_matches(self, query: str) -> list[McproxyMatch]:
        """Return the best tools for a query, up to the limit, with the engine's scores."""
        if not query.strip():
            return []
        result = self._engine.search(query, limit=min(self.config.max_tools, MAX_LIMIT))
        return [McproxyMatch(hit.tool, hit.score) for hit in result.hits]

    def render_found(self, query: str, found: Sequence[Tool]) -> str:
        """Return the text that lists the found tools for the model."""
        lines = [FOUND.format(count=len(found)), ""]
        for number, tool in enumerate(found, 1):
            description = f" - {tool.description}" if tool.description else ""
            lines.append(f"{number}. {tool.name}{description}")
        return "\n".join(lines)

    @cached_property
    def _engine(self) -> SearchEngine:
        return SearchEngine(self.catalog, {"lexical": LexicalRanker()})

    def _debug_lines(self, query: str, before: int, after: int, seconds: float) -> tuple[str, ...]:
        if not self.config.debug:
            return ()
        values = {
            "query": query,
            "size": len(self.catalog),
            "before": before,
            "after": after,
            "milliseconds": round(seconds * 1000),
        }
        return tuple(line.format(**values) for line in DEBUG_LINES)


def server_from_name(name: str) -> str:
    """Return the server in a tool's public name."""
    server, separator, _ = name.partition(SERVER_SEPARATOR)
    return server if separator and server else UNKNOWN_SERVER


def _with_public_name(tool: Tool) -> Tool:
    """Return a tool with its id as its name; MCProxy has no deferral policies."""
    return tool.replace(name=tool.id, server=server_from_name(tool.id), id=tool.id, policy="automatic")


def _unknown_key_error(key: object, known: Iterable[str]) -> InvalidConfig:
    return InvalidConfig(UNKNOWN_KEY.format(key=key, known=", ".join(known)))


def _wrong_type_error(key: str, expected: str, value: object) -> InvalidConfig:
    return InvalidConfig(WRONG_TYPE.format(key=key, expected=expected, value=value))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_KEYS: Final[Mapping[str, tuple[str, str, Callable[[object], bool]]]] = {
    "enabled": ("enabled", "true or false", lambda value: isinstance(value, bool)),
    "maxToolsLimit": ("max_tools", "a whole number from 0", _is_count),
    "searchThreshold": ("threshold", "a number", _is_number),
    "toolSelectionOrder": ("selection_order", "a list of texts", _are_texts),
    "debug": ("debug", "true or false", lambda value: isinstance(value, bool)),
}
