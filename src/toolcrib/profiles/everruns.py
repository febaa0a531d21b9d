"""everruns' `tool_search`: tools are listed by name, with their parameters hidden until a search.

From a threshold of tools on, `EverrunsToolSearch.advertise` replaces each tool's parameters with a
stub. `EverrunsToolSearch.search` answers with the full parameters and reveals those tools for the
session, so that the next `advertise` includes them. A stubbed tool can be called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.search.lexical import keyword
from toolcrib.session.disclosure import Activation, Disclosure, find_hosting_provider
from toolcrib.session.session import SessionTable

CAPABILITY = "tool_search"
DESCRIPTION = (
    "Find tools by keywords and load their parameters. Call this before you use a tool whose "
    "parameters you have not seen; an exact tool name loads just that tool."
)
QUERY_DESCRIPTION = "A tool's name, or a few words for what it should do, such as 'rename branch'."
SYSTEM_PROMPT = (
    "To save space, most of your tools are listed by name and description only; their parameters "
    "are loaded on demand. Before you call a tool whose parameters you cannot see, call "
    "`tool_search` with its name or with a few words for what you need. The tools it answers with "
    "can be called with all their parameters from your next step on. Tools that show their "
    "parameters need no search."
)
LOADED = "Full schemas loaded; these tools are callable with their full parameters on your next step."
NO_MATCH = "No tools matched the query. Try a different keyword."
SERVERS_LOADING = "The tools of these servers are listed on your next step."
NO_CONTEXT = "tool_search requires tool execution context and cannot run standalone."
NO_REGISTRY = "Tool registry not available in this context. tool_search requires worker-side tool execution."
NO_VISIBLE_TOOLS = (
    "Visible tool allowlist not available in this context. tool_search requires turn-scoped tool definitions."
)
STUB_DESCRIPTION = (
    'Parameter schema hidden to save context. Call tool_search with query "{name}" '
    "to load the full schema before using this tool."
)

THRESHOLD = 15
MAX_RESULTS = 8
MAX_SESSIONS = 4096

SEARCH_TOOL = Tool(
    CAPABILITY,
    DESCRIPTION,
    {
        "type": "object",
        "properties": {"query": {"type": "string", "description": QUERY_DESCRIPTION}},
        "required": ["query"],
        "additionalProperties": False,
    },
    policy="never",
    annotations={"readOnlyHint": True, "idempotentHint": True},
)

Stub = Callable[[str], dict[str, Any]]


def instructing_stub(name: str) -> dict[str, Any]:
    """Return the earlier stub, in which every tool describes how to load its parameters."""
    return {"type": "object", "description": STUB_DESCRIPTION.format(name=name), "additionalProperties": True}


def bare_stub(name: str) -> dict[str, Any]:
    """Return the later stub; the system prompt describes once how to load parameters."""
    return {"type": "object", "additionalProperties": True}


@dataclass(frozen=True, slots=True)
class EverrunsDefinition:
    """A tool as it is advertised, with its full parameters or a stub."""

    tool: Tool
    stub: dict[str, Any] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters the model sees."""
        return self.tool.input_schema if self.stub is None else self.stub

    def render(self) -> dict[str, Any]:
        """Return the definition the model sees."""
        return _render_definition(self.tool, self.parameters)

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as JSON, for storage."""
        return {"tool": self.tool.to_dict(), "stub": self.stub}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> EverrunsDefinition:
        """Return the definition from its stored JSON."""
        return cls(Tool(**stored["tool"]), stored["stub"])


@dataclass(frozen=True, slots=True)
class EverrunsContext:
    """The data available to one call of the search tool; None if the host did not provide it."""

    registry: Iterable[Tool] | None = None
    visible: Collection[str] | None = None
    session: str | None = None


class DefinitionSize(NamedTuple):
    """The size of a list of tools in a request, in bytes of JSON."""

    tools: int
    parameters: int


class SessionReveals:
    """The tools each session has loaded. At the limit, the oldest session is dropped."""

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._names = SessionTable[tuple[str, ...]](max_sessions, evicts="oldest")

    def reveal(self, session: str, names: Iterable[str]) -> None:
        """Add tools to those a session has loaded."""
        self._names.put(session, tuple(dict.fromkeys((*self.get_names(session), *names))))

    def get_names(self, session: str | None) -> tuple[str, ...]:
        """Return the tools a session has loaded, in order of loading; empty without a session."""
        return () if session is None else self._names.get(session) or ()


@dataclass(frozen=True, slots=True)
class EverrunsToolSearch:
    """The capability: answers the search tool and hides parameters."""

    threshold: int = THRESHOLD
    never_defer: Iterable[str] = ()
    stub: Stub = instructing_stub
    reveals: SessionReveals = field(default_factory=SessionReveals)

    def __post_init__(self) -> None:
        if isinstance(self.never_defer, str):
            raise InvalidConfig(f"never_defer is a list of names; write [{self.never_defer!r}]")
        # Stored as a set, so that an iterator can be read more than once.
        object.__setattr__(self, "never_defer", frozenset(self.never_defer))

    @property
    def disclosure(self) -> Disclosure:
        """The threshold and the exceptions as a `Disclosure`."""
        pinned = frozenset((*self.never_defer, CAPABILITY))
        return Disclosure(Activation(tools=self.threshold), pinned, tier="stub")

    def with_never_defer(self, names: Iterable[str]) -> EverrunsToolSearch:
        """Return this capability with more tools whose parameters are always shown."""
        return replace(self, never_defer=(*self.never_defer, *EverrunsToolSearch(never_defer=names).never_defer))

    def with_config(self, config: Mapping[str, Any]) -> EverrunsToolSearch:
        """Return this capability with a configuration applied; invalid values are ignored, as in the original.

        `config` has `threshold` and `never_defer`, or is the configuration of an agent with its
        `capabilities`.
        """
        if "capabilities" in config:
            capability = find_capability_config(config["capabilities"])
            if capability is None:
                raise InvalidConfig(f"the configuration does not list the capability {CAPABILITY}; add it")
            return self.with_config(capability)
        threshold, names = config.get("threshold"), config.get("never_defer")
        if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 0:
            threshold = self.threshold
        valid_names = names if isinstance(names, list) else []
        added = [name for name in valid_names if isinstance(name, str)]
        return replace(self, threshold=threshold, never_defer=(*self.never_defer, *added))

    def build_system_prompt(self, system: str, tools: Sequence[Tool], *, hosted_search: bool = False) -> str:
        """Return a system prompt with a note on hidden parameters, if `advertise` hides any."""
        if hosted_search or not self.disclosure.activation.is_met(tools):
            return system
        return f"{system}\n\n{SYSTEM_PROMPT}" if system else SYSTEM_PROMPT

    def advertise(
        self, tools: Sequence[Tool], session: str | None = None, *, hosted_search: bool = False
    ) -> list[EverrunsDefinition]:
        """Return the definitions for one step; with hosted search, all of them in full."""
        if hosted_search or not self.disclosure.activation.is_met(tools):
            return [EverrunsDefinition(tool) for tool in tools]
        deferred_ids = {tool.id for tool in self.disclosure.plan(tools).deferred_tools}
        revealed = self.reveals.get_names(session)
        return [
            EverrunsDefinition(tool, self.stub(tool.name))
            if tool.id in deferred_ids and not _is_revealed(tool, revealed)
            else EverrunsDefinition(tool)
            for tool in tools
        ]

    def search(self, arguments: Mapping[str, Any], context: EverrunsContext | None) -> dict[str, Any]:
        """Answer one call of the search tool and reveal the found tools for the session."""
        if context is None:
            return {"error": NO_CONTEXT}
        if context.registry is None:
            return {"error": NO_REGISTRY}
        if context.visible is None:
            return {"error": NO_VISIBLE_TOOLS}
        tools = [tool for tool in context.registry if tool.name in context.visible]
        argument = arguments.get("query")
        query = argument.strip() if isinstance(argument, str) else ""
        found = [tool for tool, _ in rank_tools(tools, query)]
        if found and context.session is not None:
            self.reveals.reveal(context.session, (tool.name for tool in found))
        return _render_found(query, found) if found else _render_no_match(query, tools)


def rank_tools(tools: Iterable[Tool], query: str) -> list[tuple[Tool, int]]:
    """Return the best tools with their points: those with at least half of the best tool's points.

    A query without terms returns the first tools.
    """
    keywords = keyword.parse_keywords(query)
    scored = [
        (tool, keyword.score_keywords(keywords, keyword.build_texts(tool.name, tool.description)))
        for tool in tools
        if tool.name != CAPABILITY
    ]
    if not keywords.terms:
        return [(tool, 0) for tool, _ in scored[:MAX_RESULTS]]
    scored.sort(key=lambda pair: -pair[1])
    return [(tool, points) for tool, points in scored if points and 2 * points >= scored[0][1]][:MAX_RESULTS]


def select_mechanism(model: str | None) -> str:
    """Return who searches under `auto`: "anthropic", "openai", or this capability ("generic")."""
    return find_hosting_provider(model or "") or "generic"


def select_standalone_mechanism(provider: str, model: str | None) -> str:
    """Return who searches if one provider's own search is requested instead of `auto`.

    That provider, if it supports search with this model; otherwise "none": every definition is sent
    in full, without an error.
    """
    return provider if select_mechanism(model) == provider else "none"


def build_server_placeholder(server: str, description: str) -> Tool:
    """Return a tool that represents all tools of an MCP server until a search finds it.

    The names of those tools begin with its name, so revealing it reveals them.
    """
    return Tool(f"mcp_{server}__", description, policy="never")


def find_capability_config(capabilities: object) -> dict[str, Any] | None:
    """Return this capability's configuration from a list of capabilities; None if it is absent.

    The list has one of three forms: ids, a map of ids to configurations, or `{ref, config}`
    objects.
    """
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(capabilities, Mapping):
        pairs = capabilities.items()
    elif isinstance(capabilities, list):
        pairs = map(_id_and_config, capabilities)
    for id, config in pairs:
        if id == CAPABILITY:
            return dict(config) if isinstance(config, Mapping) else {}
    return None


def measure_size(definitions: Iterable[EverrunsDefinition]) -> DefinitionSize:
    """Return the size of definitions in a request."""
    items = list(definitions)
    return DefinitionSize(
        sum(_json_bytes(definition.render()) for definition in items),
        sum(_json_bytes(definition.parameters) for definition in items),
    )


def _render_found(query: str, found: Sequence[Tool]) -> dict[str, Any]:
    tools = [tool for tool in found if not _placeholder_server(tool.name)]
    servers = [server for tool in found if (server := _placeholder_server(tool.name))]
    answer: dict[str, Any] = {
        "query": query,
        "tools": [_render_definition(tool, tool.input_schema) for tool in tools],
        "loaded": [tool.name for tool in tools],
        "message": LOADED if tools else SERVERS_LOADING,
    }
    return {**answer, "loading_mcp_servers": servers} if servers else answer


def _render_no_match(query: str, tools: Iterable[Tool]) -> dict[str, Any]:
    names = [tool.name for tool in tools if tool.name != CAPABILITY]
    return {"query": query, "tools": [], "message": NO_MATCH, "available_tools": names}


def _is_revealed(tool: Tool, revealed: Collection[str]) -> bool:
    """Return whether a search found a tool, or the placeholder of its server."""
    return tool.name in revealed or any(tool.name.startswith(name) for name in revealed if _placeholder_server(name))


def _id_and_config(capability: object) -> tuple[object, object]:
    if isinstance(capability, Mapping):
        return capability.get("ref"), capability.get("config")
    return capability, None


def _placeholder_server(name: str) -> str:
    """Return the server that a placeholder represents; empty for any other tool."""
    is_placeholder = name.startswith("mcp_") and name.endswith("__")
    return name.removeprefix("mcp_").removesuffix("__") if is_placeholder else ""


def _render_definition(tool: Tool, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _json_bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
