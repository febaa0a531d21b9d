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
from toolcrib.core.tool_names import Names
from toolcrib.errors import DuplicateTool
from toolcrib.search.engine import Allowed, SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.turn import Conversation, Style
from toolcrib.toolcrib import checked_budget

MAX_KEPT: Final = 20_000


class Options(TypedDict, total=False):
    """What can be chosen in every framework.

    `disclosure`: what is shown from the start. `budget`: how many tokens the revealed tools may
    take. `engine`: how to make the search engine of a catalog.
    """

    disclosure: Disclosure | None
    budget: int | None
    engine: Callable[[Catalog], SearchEngine]


class Shelf:
    """The tools of one agent, and the rules of its conversations."""

    def __init__(
        self,
        *,
        disclosure: Disclosure | None = None,
        budget: int | None = None,
        engine: Callable[[Catalog], SearchEngine] = SearchEngine,
        style: Style = "reveal",
    ) -> None:
        self.budget = checked_budget(budget)
        self._disclosure = disclosure or Disclosure()
        self._engine_of = engine
        self._style: Style = style
        # One value, replaced as a whole: whoever runs in another thread sees the old or the new.
        self._fitted: tuple[SearchEngine, Names] | None = None

    def conversation(self, tools: Iterable[Tool], allowed: Allowed | None = None) -> Conversation:
        """The rules of a conversation in which there are these tools, of which these may be used."""
        listed = _by_id(tools)
        engine, names = self._fit(listed.values())
        rights = _rights(listed, allowed)
        plan = self._disclosure.plan(filter(rights, listed.values()))
        seen = None if allowed is None and len(listed) == len(engine.catalog) else rights
        return Conversation(engine, plan, names, self._style, seen, self._disclosure.count)

    def _fit(self, tools: Iterable[Tool]) -> tuple[SearchEngine, Names]:
        """An engine over a catalog in which at least these tools stand as they are."""
        given = list(tools)
        fitted = self._fitted
        if fitted is None:
            return self._keep(self._engine_of(Catalog(given)))
        engine, _ = fitted
        new = [tool for tool in given if engine.catalog.get(tool.id) != tool]
        if not new:
            return fitted
        if len(engine.catalog) + len(new) > max(MAX_KEPT, len(given)):
            return self._keep(self._engine_of(Catalog(given)))
        return self._keep(engine.updated(engine.catalog.with_tools(new)))

    def _keep(self, engine: SearchEngine) -> tuple[SearchEngine, Names]:
        # A framework sends each tool under its own name, so that is what the model has to be told.
        fitted = engine, Names(engine.catalog, attrgetter("id"))
        self._fitted = fitted
        return fitted


def _by_id(tools: Iterable[Tool]) -> dict[str, Tool]:
    listed: dict[str, Tool] = {}
    for tool in tools:
        if listed.setdefault(tool.id, tool) is not tool:
            raise DuplicateTool(f"two tools are called {tool.id!r}; rename one")
    return listed


def _rights(listed: dict[str, Tool], allowed: Allowed | None) -> Callable[[Tool], bool]:
    """Whether a tool is in this listing, and the caller may use it."""
    if allowed is None:
        return lambda tool: tool.id in listed
    if callable(allowed):
        return lambda tool: tool.id in listed and allowed(tool)
    ids = frozenset([allowed] if isinstance(allowed, str) else allowed)
    return lambda tool: tool.id in listed and tool.id in ids
