"""Toolcrib in mode `lexical`, through the public API."""

from benchmarks.engines.contender import LIMIT
from benchmarks.generate import Row
from toolcrib import Catalog, SearchEngine, Tool, Where


class Toolcrib:
    """A change creates a new catalog and a new engine."""

    def prepare(self, row: Row) -> Tool:
        return Tool(
            name=row["name"],
            description=row["description"],
            input_schema=row["input_schema"],
            server=row["server"],
            category=row["category"],
            tags=tuple(row["tags"]),
        )

    def fit(self, tools: list[Tool]) -> None:
        self._catalog = Catalog(tools)
        self._engine = SearchEngine(self._catalog)
        # Indexes are built on first use: names, terms and filters.
        self.search_server("first", "none")

    def search(self, query: str) -> list[str]:
        result = self._engine.search(query, limit=LIMIT, mode="lexical")
        return [hit.tool.id for hit in result.hits]

    def search_server(self, query: str, server: str) -> list[str]:
        where = Where(server=server)
        result = self._engine.search(query, limit=LIMIT, mode="lexical", where=where)
        return [hit.tool.id for hit in result.hits]

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        result = self._engine.search(query, limit=LIMIT, mode="lexical", allowed=allowed)
        return [hit.tool.id for hit in result.hits]

    def add(self, tool: Tool) -> None:
        self._catalog = self._catalog.with_tools([tool])
        self._engine = self._engine.with_catalog(self._catalog)

    def remove(self, id: str) -> None:
        self._catalog = self._catalog.without([id])
        self._engine = self._engine.with_catalog(self._catalog)


def contender() -> Toolcrib:
    """Return the engine."""
    return Toolcrib()
