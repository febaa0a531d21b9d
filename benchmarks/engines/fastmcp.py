"""FastMCP's BM25SearchTransform: the `_search` a server runs on every call.

The catalog walk before it (`_get_visible_tools`) and the rendering after it are left out, which
flatters it. A filter is what its auth pipeline does: the transform sees the allowed tools only.
"""

from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool

from benchmarks.engines.contender import LIMIT, run_coroutine
from benchmarks.generate import Row


class FastMCP:
    """Hashes the catalog on every call and rebuilds the index when the hash has changed."""

    def __init__(self) -> None:
        self._transform = BM25SearchTransform(max_results=LIMIT)
        self._tools: dict[str, Tool] = {}

    def prepare(self, row: Row) -> Tool:
        return Tool(
            name=row["id"], description=row["description"], parameters=row["input_schema"], tags=set(row["tags"])
        )

    def fit(self, tools: list[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self.search("first")

    def search(self, query: str) -> list[str]:
        return self._find(query, [*self._tools.values()])

    def search_server(self, query: str, server: str) -> list[str]:
        prefix = f"{server}___"
        return self._find(query, [t for t in self._tools.values() if t.name.startswith(prefix)])

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        return self._find(query, [t for t in self._tools.values() if t.name in allowed])

    def add(self, tool: Tool) -> None:
        self._tools[tool.name] = tool

    def remove(self, id: str) -> None:
        del self._tools[id]

    def _find(self, query: str, visible: list[Tool]) -> list[str]:
        return [tool.name for tool in run_coroutine(self._transform._search(visible, query))]


def contender() -> FastMCP:
    """Return the engine."""
    return FastMCP()
