"""A tool registry behind two meta-tools: the model searches it, then runs what it found by name.

The model is only ever sent `META_TOOLS`; `DynamicToolRegistry.call` answers both, always with
JSON. A `Registry` stores and runs the tools; this module adds the meta-tools, their ranking and
their texts.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeVar

from toolcrib.adapters.wire_formats import get_wire_format
from toolcrib.agent.agent import MAX_STEPS, Agent, AgentFinished
from toolcrib.agent.anthropic import Anthropic
from toolcrib.agent.provider import Provider
from toolcrib.core.calls import CallReply, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig, InvalidQuery, ToolFailed, UnknownTool
from toolcrib.registry.execution import VERSION_SEPARATOR, RegistryEntry
from toolcrib.registry.registry import Registry
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.filters import Where
from toolcrib.search.lexical.prefix import PrefixRanker

SEARCH_DESCRIPTION: Final = (
    "Search for tools that are not in your tool list. Each result has a name, a description and an "
    "input_schema; run it with execute_dynamic_tool. An empty query lists tools, optionally of one "
    "category."
)
QUERY_DESCRIPTION: Final = "A few words about what the tool should do, such as 'rotate photo'."
CATEGORY_DESCRIPTION: Final = "Return only tools of this category. Omit it to search all tools."
MAX_RESULTS_DESCRIPTION: Final = "The maximum number of results."
EXECUTE_DESCRIPTION: Final = "Run a tool that search_tools found. Search first to get its exact name and input_schema."
TOOL_NAME_DESCRIPTION: Final = "The exact name from search_tools."
TOOL_INPUT_DESCRIPTION: Final = "The input, matching the tool's input_schema."

NOT_FOUND: Final = "No tools found matching '{query}'"
TRY_OTHER_WORDS: Final = "Try different keywords or search without a category filter"
WEAK_MATCH: Final = "These are the nearest tools, but none may fit"
UNKNOWN_CATEGORY: Final = "Unknown category: {category}. Use one of {known}, or omit it"
UNKNOWN_TOOL: Final = "Tool not found: {name}"
VERIFY_NAME: Final = "Use search_tools to verify the tool name is correct"
EXECUTION_FAILED: Final = "Execution failed: {error}"
UNKNOWN_META_TOOL: Final = "Unknown meta-tool: {name}"
MISSING_FIELD: Final = "The field {field} is missing. Call again with it"
WRONG_TYPE: Final = "The field {field} must be {type}. Correct it and call again"
VERSION: Final = "(Version: {version})"
VERSION_AND_DEPRECATED: Final = "(Current version: {version}; deprecated: {deprecated})"
UPDATED: Final = "Updating tool {name}: v{replaced} -> v{version}"

SYSTEM_PROMPT: Final = """You can find and use tools that are not in your tool list.

Workflow:
1. Decide what the task requires.
2. Find suitable tools with search_tools.
3. Read the input_schema of each tool.
4. Run the tools with execute_dynamic_tool.
5. Check the results; search again if something is missing.

Rules:
- Use only tools that search_tools returned. Do not guess names.
- If a search finds nothing, try other words before you give up.
- If a tool rejects its input, compare it with the input_schema and correct it."""

SEARCH_NAME: Final = "search_tools"
EXECUTE_NAME: Final = "execute_dynamic_tool"
CATEGORIES: Final = ("communication", "data", "integration", "computation", "media", "utility")
DEFAULT_CATEGORY: Final = "utility"
DEFAULT_VERSION: Final = "1.0"
DEFAULT_RESULTS: Final = 5
MAX_RESULTS: Final = 20
MAX_LOGGED_CHARS: Final = 150
LOG_PREFIX: Final = "[Meta-tool] "
DEFAULT_MODEL: Final = "claude-opus-4-5"
PREFIX_MODE: Final = "prefix"
# Hits with a lower share of the best score are dropped.
_MIN_SHARE_OF_BEST: Final = 0.5

META_TOOLS: Final = (
    Tool(
        SEARCH_NAME,
        SEARCH_DESCRIPTION,
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": QUERY_DESCRIPTION},
                "category": {"type": "string", "description": CATEGORY_DESCRIPTION, "enum": list(CATEGORIES)},
                "max_results": {
                    "type": "integer",
                    "default": DEFAULT_RESULTS,
                    "minimum": 1,
                    "maximum": MAX_RESULTS,
                    "description": MAX_RESULTS_DESCRIPTION,
                },
            },
            "required": ["query"],
        },
    ),
    Tool(
        EXECUTE_NAME,
        EXECUTE_DESCRIPTION,
        {
            "type": "object",
            "properties": {
                "tool_name": {"type": "string", "description": TOOL_NAME_DESCRIPTION},
                "tool_input": {"type": "object", "description": TOOL_INPUT_DESCRIPTION},
            },
            "required": ["tool_name", "tool_input"],
        },
    ),
)

_TYPE_NAMES: Final = {str: "text", int: "a whole number", dict: "an object"}

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ToolRegistration:
    """A registered tool: its definition as the model sees it, its function and its usage."""

    definition: dict[str, Any]
    func: Callable[..., Any]
    category: str
    tags: list[str]
    usage_count: int = 0
    last_used: datetime | None = None
    version: str = DEFAULT_VERSION


class DynamicToolRegistry:
    """Tools that can be added and removed while an agent runs. Safe to use from several threads.

    `mode` selects how tools are ranked: a mode of `SearchEngine`, by default words and meaning, or
    "prefix", which gives the scores of the original. `registry` stores and runs the tools.
    """

    def __init__(self, mode: str = "", *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        if mode not in ("", PREFIX_MODE, *RANKERS):
            raise InvalidConfig(f"unknown mode {mode!r}; use one of {', '.join((PREFIX_MODE, *RANKERS))}")
        self.registry = Registry(now=now)
        self._mode = mode
        self._prefixes = PrefixRanker().fit(Catalog())
        self._engine = SearchEngine(Catalog())
        # Definitions and functions by `name@version`, as they were registered.
        self._registered: dict[str, tuple[dict[str, Any], Callable[..., Any]]] = {}
        self._lock = threading.RLock()

    @property
    def tools(self) -> Mapping[str, ToolRegistration]:
        """The registered tools by name. `name@version` gets an older version."""
        return _Registrations(self)

    def register(
        self,
        tool_definition: Mapping[str, Any],
        func: Callable[..., Any],
        category: str = DEFAULT_CATEGORY,
        tags: Iterable[str] | None = None,
    ) -> Self:
        """Add a tool; one with the same name is replaced, and its usage and version are kept."""
        tool = _tool_from_definition(tool_definition, category, tags)
        with self._lock:
            version = self._current_version(tool.name) or DEFAULT_VERSION
            return self._store(tool.replace(version=version), tool_definition, func)

    def unregister(self, name: str) -> Self:
        """Remove a tool; raise `UnknownTool` if there is none with this name."""
        with self._lock:
            self.registry.unregister(self._find_entry(name).tool.id)
        return self

    def search(
        self, query: str, category: str | None = None, max_results: int = DEFAULT_RESULTS
    ) -> list[dict[str, Any]]:
        """Return the 1 to 20 best tools for a query; a blank query returns the first ones."""
        return self._search(query, category, max_results)[0]

    def execute(self, tool_name: str, tool_input: Mapping[str, Any]) -> Any:
        """Run a tool; an exception of the tool is counted as a failure and raised.

        Raises `UnknownTool`, which is a `ValueError`, if there is no tool with this name.
        """
        self._find_entry(tool_name)
        try:
            return self.registry.execute(tool_name, tool_input)
        except ToolFailed as error:
            if isinstance(error.__cause__, Exception):
                raise error.__cause__ from None
            raise

    def list_categories(self) -> dict[str, int]:
        """Return the number of tools in each category."""
        return dict(Counter(tool.category for tool in self.registry.catalog))

    def get_popular_tools(self, top_n: int = 10) -> list[dict[str, Any]]:
        """Return the tools with the most successful calls."""
        rows: list[dict[str, Any]] = [
            {"name": tool.name, "usage_count": self.registry.usage(tool.name).successes, "category": tool.category}
            for tool in self.registry.catalog
        ]
        return sorted(rows, key=lambda row: -row["usage_count"])[: max(0, top_n)]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Answer a call of a meta-tool with JSON; errors are answers too."""
        try:
            if not isinstance(arguments, Mapping):
                raise InvalidQuery(f"arguments must be an object, not {type(arguments).__name__}")
            if name == SEARCH_NAME:
                return _to_json(self._answer_search(arguments))
            if name == EXECUTE_NAME:
                return self._answer_execute(arguments)
        except InvalidQuery as error:
            return _to_json({"error": str(error)})
        return _to_json({"error": UNKNOWN_META_TOOL.format(name=name)})

    def _store(self, tool: Tool, definition: Mapping[str, Any], func: Callable[..., Any]) -> Self:
        self.registry.register(tool, func, replace=True)
        self._registered[f"{tool.id}{VERSION_SEPARATOR}{tool.version}"] = dict(definition), func
        return self

    def _find_entry(self, name: str) -> RegistryEntry:
        if not self.registry.has_tool(name):
            raise UnknownTool(UNKNOWN_TOOL.format(name=name))
        return self.registry[name]

    def _current_version(self, name: str) -> str:
        return self.registry[name].tool.version if self.registry.has_tool(name) else ""

    def _get_registration(self, name: str) -> ToolRegistration:
        with self._lock:
            entry = self._find_entry(name)
            definition, func = self._registered.get(entry.reference) or _definition_from_tool(entry)
            usage = self.registry.usage(name)
            return ToolRegistration(
                definition,
                func,
                entry.tool.category or DEFAULT_CATEGORY,
                list(entry.tool.tags),
                usage.successes,
                usage.last_used,
                entry.tool.version,
            )

    def _check_category(self, category: str) -> None:
        known = dict.fromkeys((*CATEGORIES, *self.list_categories()))
        if category not in known:
            raise InvalidQuery(UNKNOWN_CATEGORY.format(category=category, known=", ".join(known)))

    def _search_prefixes(self, catalog: Catalog, query: str, category: str | None) -> list[tuple[Tool, float]]:
        self._prefixes = self._prefixes.with_catalog(catalog)
        points = self._prefixes.tally_points(query).items()
        found = [(tool, score) for slot, score in points if (tool := catalog.tool_at(slot))]
        # The sort is stable: tools with equal scores keep the order in which they were found.
        found.sort(key=lambda pair: -pair[1])
        return [(tool, score) for tool, score in found if not category or tool.category == category]

    def _search_engine(
        self, catalog: Catalog, query: str, category: str | None, limit: int
    ) -> tuple[list[tuple[Tool, float]], bool]:
        self._engine = self._engine.with_catalog(catalog)
        result = self._engine.search(query, limit=limit, mode=self._mode, where=Where(category=category or ""))
        best = max((hit.score for hit in result), default=0.0)
        found = [(hit.tool, hit.score) for hit in result if hit.score >= best * _MIN_SHARE_OF_BEST]
        return found, result.confident

    def _search(self, query: str, category: str | None, max_results: int) -> tuple[list[dict[str, Any]], bool]:
        """Return the rows for a query, and whether one of them fits well."""
        if category:
            self._check_category(category)
        limit = max(1, min(max_results, MAX_RESULTS))
        with self._lock:
            catalog = self.registry.catalog
            confident = True
            if not query.strip():
                found = [(tool, 0.0) for tool in catalog if not category or tool.category == category]
            elif self._mode == PREFIX_MODE:
                found = self._search_prefixes(catalog, query, category)
            else:
                found, confident = self._search_engine(catalog, query, category, limit)
            return [_render_row(self.tools[tool.name], score) for tool, score in found[:limit]], confident

    def _answer_search(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        query = _read_field(arguments, "query", str)
        category = _read_field(arguments, "category", str, "")
        rows, confident = self._search(query, category, _read_field(arguments, "max_results", int, DEFAULT_RESULTS))
        if rows and confident:
            return {"found": len(rows), "tools": rows}
        if rows:
            return {"found": len(rows), "tools": rows, "message": WEAK_MATCH, "suggestion": TRY_OTHER_WORDS}
        return {"found": 0, "message": NOT_FOUND.format(query=query), "suggestion": TRY_OTHER_WORDS}

    def _answer_execute(self, arguments: Mapping[str, Any]) -> str:
        name = _read_field(arguments, "tool_name", str)
        tool_input = _read_field(arguments, "tool_input", dict)
        if not self.registry.has_tool(name):
            message = UNKNOWN_TOOL.format(name=name)
            return _to_json({"error": message, "suggestion": VERIFY_NAME})
        try:
            return _to_json(self.execute(name, tool_input))
        # Tools may raise any exception; the model receives its text.
        except Exception as error:
            return _to_json({"error": EXECUTION_FAILED.format(error=error), "tool_name": name})


class VersionedToolRegistry(DynamicToolRegistry):
    """A registry whose tools have versions, which their descriptions name.

    A name refers to the newest version; the others can be run as `name@version`. `log` is called with
    a line for each update.
    """

    def __init__(
        self,
        mode: str = "",
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        log: Callable[[str], None] = print,
    ) -> None:
        super().__init__(mode, now=now)
        self._log = log

    def register_versioned(
        self,
        tool_definition: Mapping[str, Any],
        func: Callable[..., Any],
        version: str = DEFAULT_VERSION,
        deprecated_versions: Iterable[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Add a version of a tool. `kwargs` are the category and the tags, as in `register`."""
        tool = _tool_from_definition(tool_definition, **{"category": DEFAULT_CATEGORY, "tags": None, **kwargs})
        deprecated = ", ".join(deprecated_versions or ())
        note = VERSION_AND_DEPRECATED if deprecated else VERSION
        # The note is shown to the model but not searched.
        description = f"{tool.description}\n{note.format(version=version, deprecated=deprecated)}"
        with self._lock:
            replaced = self._current_version(tool.name)
            self._store(tool.replace(version=version), {**tool_definition, "description": description}, func)
        if replaced:
            self._log(UPDATED.format(name=tool.name, replaced=replaced, version=version))
        return self


class _Registrations(Mapping[str, ToolRegistration]):
    """The tools of a registry, read at the time of each access."""

    def __init__(self, owner: DynamicToolRegistry) -> None:
        self._owner = owner

    def __getitem__(self, name: str) -> ToolRegistration:
        try:
            return self._owner._get_registration(name)
        except UnknownTool:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (tool.name for tool in self._owner.registry.catalog)

    def __len__(self) -> int:
        return len(self._owner.registry.catalog)


class MetaToolSession:
    """The session of an agent with the two meta-tools."""

    pending = ()

    def __init__(self, registry: DynamicToolRegistry, log: Callable[[str], None]) -> None:
        self._registry = registry
        self._log = log

    def tools(self, wire: str) -> list[dict[str, Any]]:
        """Return the meta-tools, always the same."""
        return get_wire_format(wire).tools_to_wire(META_TOOLS)

    def handle(self, wire: str, reply: object) -> list[dict[str, Any]]:
        """Return the reply and the answers to its calls."""
        wire_format = get_wire_format(wire)
        answers = [self._answer(call) for call in wire_format.calls_from_wire(reply)]
        return [*wire_format.reply_to_messages(reply), *(wire_format.answers_to_wire(answers) if answers else [])]

    def _answer(self, call: ToolCall) -> CallReply:
        arguments = {} if call.arguments is None else call.arguments
        self._log(f"{LOG_PREFIX}{call.name}: {_to_json(arguments)[:MAX_LOGGED_CHARS]}")
        return CallReply(call, self._registry.call(call.name, arguments))


class DynamicToolAgent:
    """Lets a model work with the two meta-tools until its task is done.

    Without a `provider`, the official Anthropic client is created, which reads its key from the
    environment. `log` is called with one line per call.
    """

    def __init__(
        self,
        registry: DynamicToolRegistry,
        model: str = DEFAULT_MODEL,
        *,
        provider: Provider | None = None,
        max_steps: int = MAX_STEPS,
        log: Callable[[str], None] = print,
    ) -> None:
        if not isinstance(model, str):
            raise InvalidConfig(f"model must be the name of a model, not {type(model).__name__}; use provider=")
        self.registry = registry
        self.model = model
        self.meta_tools = get_wire_format("anthropic").tools_to_wire(META_TOOLS)
        self._provider = provider or Anthropic(_create_client(), model)
        self._session = MetaToolSession(registry, log)
        self._max_steps = max_steps

    def run(self, user_message: str, system: str = "") -> str:
        """Return the final text of the model; raise `AgentUnfinished` if it does not finish.

        An empty `system` is the default prompt, which explains the meta-tools.
        """
        return _final_text(self._build_agent(system).run(user_message))

    async def run_async(self, user_message: str, system: str = "") -> str:
        """Do the same as `run` with the provider of an async client."""
        return _final_text(await self._build_agent(system).run_async(user_message))

    def _build_agent(self, system: str) -> Agent:
        return Agent(self._provider, self._session, system=system or SYSTEM_PROMPT, max_steps=self._max_steps)


def _create_client() -> Any:
    try:
        import anthropic
    except ImportError:
        raise InvalidConfig("the default provider needs the anthropic package; install it or pass provider=") from None
    return anthropic.Anthropic()


def _final_text(finished: AgentFinished) -> str:
    """Return the text of the last message, its blocks separated by spaces."""
    blocks = finished.messages[-1].get("content")
    if not isinstance(blocks, list):
        return finished.text
    return " ".join(block["text"] for block in blocks if "text" in block)


def _tool_from_definition(definition: Mapping[str, Any], category: str, tags: Iterable[str] | None) -> Tool:
    return Tool(
        definition.get("name") or "",
        definition.get("description") or "",
        definition.get("input_schema"),
        category=category,
        tags=tags or (),
    )


def _definition_from_tool(entry: RegistryEntry) -> tuple[dict[str, Any], Callable[..., Any]]:
    """Return the definition and the function of a tool that was added to `registry` directly."""

    def run(**arguments: Any) -> Any:
        return entry.bind(arguments)()

    tool = entry.tool
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}, run


def _render_row(registration: ToolRegistration, score: float) -> dict[str, Any]:
    definition = registration.definition
    return {
        "name": definition["name"],
        "description": definition.get("description") or "",
        "category": registration.category,
        "tags": registration.tags,
        "input_schema": definition.get("input_schema") or {},
        "relevance_score": round(score, 2),
    }


def _read_field(
    arguments: Mapping[str, Any], field: str, expected_type: type[Value], default: Value | None = None
) -> Value:
    """Return a field of a call; raise if it has no default and is missing."""
    value = arguments.get(field)
    if value is None and default is not None:
        return default
    if value is None:
        raise InvalidQuery(MISSING_FIELD.format(field=field))
    if not isinstance(value, expected_type) or (expected_type is int and isinstance(value, bool)):
        raise InvalidQuery(WRONG_TYPE.format(field=field, type=_TYPE_NAMES[expected_type]))
    return value


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
