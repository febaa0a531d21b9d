"""A tool registry behind two meta-tools: the model searches it, then runs what it found by name.

The model is only ever sent `META_TOOLS`; `DynamicToolRegistry.call` answers both, always with
JSON. A `Registry` stores and runs the tools; this module adds the meta-tools, their ranking and
their texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from toolcrib.adapters.wire_formats import get_wire_format
from toolcrib.agent.agent import MAX_STEPS, Agent, AgentFinished
from toolcrib.agent.provider import Provider
from toolcrib.core.calls import CallReply, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidQuery, ToolFailed, UnknownTool
from toolcrib.registry.registry import Registry
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
    """A registered tool as the model sees it.

    `note` describes the version; it is displayed but not searched. `update` names the version that
    was replaced.
    """

    tool: Tool
    note: str = ""
    update: str = ""

    @property
    def description(self) -> str:
        """The description the model reads."""
        return f"{self.tool.description}\n{self.note}" if self.note else self.tool.description


class DynamicToolRegistry:
    """Tools that can be added and removed while an agent runs; `registry` stores them."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.registry = Registry(now=now)
        self._index = PrefixRanker().fit(Catalog())
        self._notes: dict[str, tuple[str, str]] = {}

    def __getitem__(self, name: str) -> ToolRegistration:
        if not self.registry.has_tool(name):
            raise UnknownTool(UNKNOWN_TOOL.format(name=name))
        entry = self.registry[name]
        return ToolRegistration(entry.tool, *self._notes.get(entry.reference, ()))

    def register(
        self,
        definition: Mapping[str, Any],
        function: Callable[..., Any],
        category: str = DEFAULT_CATEGORY,
        tags: Iterable[str] = (),
    ) -> DynamicToolRegistry:
        """Add a tool; one with the same name is replaced, and its usage and version are kept."""
        tool = _tool_from_definition(definition, category, tags)
        version = self._current_version(tool.name) or DEFAULT_VERSION
        return self._store(tool.replace(version=version), function)

    def register_versioned(
        self,
        definition: Mapping[str, Any],
        function: Callable[..., Any],
        version: str = DEFAULT_VERSION,
        deprecated_versions: Iterable[str] = (),
        *,
        category: str = DEFAULT_CATEGORY,
        tags: Iterable[str] = (),
    ) -> DynamicToolRegistry:
        """Add a version of a tool and name the version in its description.

        The name refers to the newest version; the others can be run as `name@version`.
        """
        tool = _tool_from_definition(definition, category, tags).replace(version=version)
        replaced = self._current_version(tool.name)
        update = UPDATED.format(name=tool.name, replaced=replaced, version=version) if replaced else ""
        deprecated = ", ".join(deprecated_versions)
        note = VERSION_AND_DEPRECATED if deprecated else VERSION
        note = note.format(version=version, deprecated=deprecated)
        return self._store(tool, function, note, update)

    def unregister(self, name: str) -> DynamicToolRegistry:
        """Remove a tool."""
        self.registry.unregister(self[name].tool.name)
        return self

    def search(self, query: str, category: str = "", max_results: int = DEFAULT_RESULTS) -> list[dict[str, Any]]:
        """Return the 1 to 20 best tools for a query; a blank query returns the first ones."""
        if category:
            self._check_category(category)
        found = [
            (registration, score)
            for registration, score in self._score_tools(query)
            if not category or registration.tool.category == category
        ]
        # The sort is stable: tools with equal scores keep the order in which they were found.
        found.sort(key=lambda pair: -pair[1])
        limit = max(1, min(max_results, MAX_RESULTS))
        return [_render_row(registration, score) for registration, score in found[:limit]]

    def execute(self, tool_name: str, tool_input: Mapping[str, Any]) -> Any:
        """Run a tool; an exception of the tool is counted as a failure and raised."""
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

    def _store(self, tool: Tool, function: Callable[..., Any], note: str = "", update: str = "") -> DynamicToolRegistry:
        self.registry.register(tool, function, replace=True)
        self._notes[f"{tool.id}@{tool.version}"] = note, update
        return self

    def _current_version(self, name: str) -> str:
        return self.registry[name].tool.version if self.registry.has_tool(name) else ""

    def _check_category(self, category: str) -> None:
        known = dict.fromkeys((*CATEGORIES, *self.list_categories()))
        if category not in known:
            raise InvalidQuery(UNKNOWN_CATEGORY.format(category=category, known=", ".join(known)))

    def _score_tools(self, query: str) -> list[tuple[ToolRegistration, float]]:
        catalog = self.registry.catalog
        if not query.strip():
            return [(self[tool.name], 0.0) for tool in catalog]
        self._index = index = self._index.with_catalog(catalog)
        return [
            (self[tool.name], score)
            for slot, score in index.tally_points(query).items()
            if (tool := catalog.tool_at(slot))
        ]

    def _answer_search(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        query = _read_field(arguments, "query", str)
        category = _read_field(arguments, "category", str, "")
        rows = self.search(query, category, _read_field(arguments, "max_results", int, DEFAULT_RESULTS))
        if rows:
            return {"found": len(rows), "tools": rows}
        message = NOT_FOUND.format(query=query)
        return {"found": 0, "message": message, "suggestion": TRY_OTHER_WORDS}

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
        self._log(f"{call.name}: {_to_json(arguments)[:MAX_LOGGED_CHARS]}")
        return CallReply(call, self._registry.call(call.name, arguments))


class DynamicToolAgent:
    """Lets a model work with the two meta-tools until its task is done.

    `log` is called with one line per call.
    """

    def __init__(
        self,
        registry: DynamicToolRegistry,
        provider: Provider,
        *,
        max_steps: int = MAX_STEPS,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._session = MetaToolSession(registry, log)
        self._provider = provider
        self._max_steps = max_steps

    def run(self, task: str, system: str = SYSTEM_PROMPT) -> str:
        """Return the final text of the model; raise `AgentUnfinished` if it does not finish."""
        return _final_text(self._build_agent(system).run(task))

    async def run_async(self, task: str, system: str = SYSTEM_PROMPT) -> str:
        """Do the same as `run` with an async client."""
        return _final_text(await self._build_agent(system).run_async(task))

    def _build_agent(self, system: str) -> Agent:
        return Agent(self._provider, self._session, system=system, max_steps=self._max_steps)


def _final_text(finished: AgentFinished) -> str:
    """Return the text of the last message, its blocks separated by spaces."""
    blocks = finished.messages[-1].get("content")
    if not isinstance(blocks, list):
        return finished.text
    return " ".join(block["text"] for block in blocks if "text" in block)


def _tool_from_definition(definition: Mapping[str, Any], category: str, tags: Iterable[str]) -> Tool:
    return Tool(
        definition.get("name") or "",
        definition.get("description") or "",
        definition.get("input_schema"),
        category=category,
        tags=tags,
    )


def _render_row(registration: ToolRegistration, score: float) -> dict[str, Any]:
    tool = registration.tool
    return {
        "name": tool.name,
        "description": registration.description,
        "category": tool.category,
        "tags": list(tool.tags),
        "input_schema": tool.input_schema,
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
