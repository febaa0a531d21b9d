"""What the doors of all frameworks have in common: the tools that a framework lists, searchable.

A framework lists its tools anew for every step and every user. A shelf keeps one engine over
whatever it was ever shown, so that two users by turns fit nothing twice; what a listing does not
hold is, for that conversation, not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, TypedDict

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.errors import DuplicateTool
from toolcrib.search.engine import AllowedTools, SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.turn import Style, TurnHandler
from toolcrib.toolcrib import validate_budget

MAX_INDEXED_TOOLS: Final = 20_000


class FrameworkOptions(TypedDict, total=False):
    """What can be chosen in every framework.

    `disclosure`: what is shown from the start. `budget`: how many tokens the revealed tools may
    take. `engine`: how to make the search engine of a catalog.
    """

    disclosure: Disclosure | None
    budget: int | None
    engine: Callable[[Catalog], SearchEngine]


class FrameworkToolIndex:
    """The tools of one agent, and the rules of its conversations."""

    def __init__(
        self,
        *,
        disclosure: Disclosure | None = None,
        budget: int | None = None,
        engine: Callable[[Catalog], SearchEngine] = SearchEngine,
        style: Style = "reveal",
    ) -> None:
        self.budget = validate_budget(budget)
        self._disclosure = disclosure or Disclosure()
        self._build_engine = engine
        self._style: Style = style
        # One value, replaced as a whole: whoever runs in another thread sees the old or the new.
        self._engine_and_names: tuple[SearchEngine, ToolNames] | None = None

    def build_turn_handler(
        self, tools: Iterable[Tool], allowed: AllowedTools | None = None
    ) -> TurnHandler:
        """The rules of a conversation in which there are these tools, of which these may be used."""
        listed = _index_by_id(tools)
        engine, names = self._fit_engine(listed.values())
        rights = _build_filter(listed, allowed)
        plan = self._disclosure.plan(filter(rights, listed.values()))
        seen = None if allowed is None and len(listed) == len(engine.catalog) else rights
        return TurnHandler(engine, plan, names, self._style, seen, self._disclosure.count)

    def _fit_engine(self, tools: Iterable[Tool]) -> tuple[SearchEngine, ToolNames]:
        """An engine over a catalog in which at least these tools stand as they are."""
        given = list(tools)
        fitted = self._engine_and_names
        if fitted is None:
            return self._store_engine(self._build_engine(Catalog(given)))
        engine, _ = fitted
        new = [tool for tool in given if engine.catalog.get(tool.id) != tool]
        if not new:
            return fitted
        if len(engine.catalog) + len(new) > max(MAX_INDEXED_TOOLS, len(given)):
            return self._store_engine(self._build_engine(Catalog(given)))
        return self._store_engine(engine.with_catalog(engine.catalog.with_tools(new)))

    def _store_engine(self, engine: SearchEngine) -> tuple[SearchEngine, ToolNames]:
        # A framework sends each tool under its own name, so that is what the model has to be told.
        fitted = engine, ToolNames(engine.catalog, attrgetter("id"))
        self._engine_and_names = fitted
        return fitted


def _index_by_id(tools: Iterable[Tool]) -> dict[str, Tool]:
    listed: dict[str, Tool] = {}
    for tool in tools:
        if listed.setdefault(tool.id, tool) is not tool:
            raise DuplicateTool(f"two tools are called {tool.id!r}; rename one")
    return listed


def _build_filter(listed: dict[str, Tool], allowed: AllowedTools | None) -> Callable[[Tool], bool]:
    """Whether a tool is in this listing, and the caller may use it."""
    if allowed is None:
        return lambda tool: tool.id in listed
    if callable(allowed):
        return lambda tool: tool.id in listed and allowed(tool)
    ids = frozenset([allowed] if isinstance(allowed, str) else allowed)
    return lambda tool: tool.id in listed and tool.id in ids
