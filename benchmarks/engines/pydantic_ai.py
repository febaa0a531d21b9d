"""Pydantic AI's local tool search, called as an agent run calls it: `call_tool("search_tools")`.

`ToolSearch()` without a strategy searches an inverted index wherever the provider has no native
search. `ToolSearch(strategy="keywords")` scans every tool instead; it is the peer
`pydantic_ai_keywords`. The `get_tools` walk a run makes before every request is left out, which
flatters both.
"""

from typing import Any, Literal

from pydantic_ai import RunContext
from pydantic_ai.capabilities import ToolSearch
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_ai.usage import RunUsage

from benchmarks.engines.contender import LIMIT, run_coroutine
from benchmarks.generate import Row


class PydanticAI:
    """Compares the whole corpus on every call and rebuilds the index when it has changed."""

    def __init__(self, strategy: Literal["keywords"] | None = None) -> None:
        self._context = RunContext[None](deps=None, model=TestModel(), usage=RunUsage())
        self._search = ToolSearch[None](strategy=strategy, max_results=LIMIT)
        self._toolset = self._search.get_wrapper_toolset(ExternalToolset[None]([]))
        self._tools: dict[str, ToolDefinition] = {}

    def prepare(self, row: Row) -> ToolDefinition:
        return ToolDefinition(
            name=row["id"],
            description=row["description"],
            parameters_json_schema=row["input_schema"],
            defer_loading=True,
        )

    def fit(self, tools: list[ToolDefinition]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        seed = ExternalToolset[None](tools[:1])
        toolset = self._search.get_wrapper_toolset(seed)
        self._search_tool: Any = run_coroutine(toolset.get_tools(self._context))["search_tools"]
        self.search("first")

    def search(self, query: str) -> list[str]:
        return self._find(query, [*self._tools.values()])

    def search_server(self, query: str, server: str) -> list[str]:
        prefix = f"{server}___"
        return self._find(query, [t for t in self._tools.values() if t.name.startswith(prefix)])

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        return self._find(query, [t for t in self._tools.values() if t.name in allowed])

    def add(self, tool: ToolDefinition) -> None:
        self._tools[tool.name] = tool

    def remove(self, id: str) -> None:
        del self._tools[id]

    def _find(self, query: str, visible: list[ToolDefinition]) -> list[str]:
        tool: ToolsetTool[None] = self._search_tool
        self._search_tool.corpus = visible
        call = self._toolset.call_tool("search_tools", {"queries": [query]}, self._context, tool)
        try:
            return [match["name"] for match in run_coroutine(call)["discovered_tools"]]
        except ModelRetry:
            # Its reply to a query without a Latin letter.
            return []


def contender() -> PydanticAI:
    """Return the engine with the defaults of an agent."""
    return PydanticAI()
