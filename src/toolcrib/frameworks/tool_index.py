"""A search index over the tools that a framework passes to Toolcrib, shared by all integrations.

A framework passes its tools again for every step and every user. The index keeps one engine over
all tools it has seen, so that alternating users do not cause a rebuild; tools that are not passed
in a step do not exist for that step.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Final, TypedDict, TypeVar

from toolcrib.adapters.wire_formats import count_wire_tokens
from toolcrib.core.catalog import Catalog
from toolcrib.core.rights import AllowedTools, build_rights
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.core.validation import find_schema_problem
from toolcrib.errors import DuplicateTool
from toolcrib.search.engine import SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.turn import Style, TurnHandler
from toolcrib.toolcrib import validate_budget

MAX_INDEXED_TOOLS: Final = 20_000

Context = TypeVar("Context")
# Returns which tools a run may use; an async agent awaits it.
AllowedCallback = Callable[[Context], AllowedTools | Awaitable[AllowedTools]]


class IndexOptions(TypedDict, total=False):
    """Options of every integration.

    `disclosure` selects the tools that are visible from the start; `engine` builds the search
    engine of a catalog.
    """

    disclosure: Disclosure | None
    engine: Callable[[Catalog], SearchEngine]


class FrameworkOptions(IndexOptions, total=False):
    """Options of integrations that keep sessions; `budget` limits the tokens of revealed tools."""

    budget: int | None


class FrameworkToolIndex:
    """The tools of one agent; builds the turn handler of each step."""

    def __init__(
        self,
        *,
        disclosure: Disclosure | None = None,
        budget: int | None = None,
        engine: Callable[[Catalog], SearchEngine] = SearchEngine,
        wire: str = "openai_chat",
    ) -> None:
        self.budget = validate_budget(budget)
        self._disclosure = disclosure or Disclosure()
        self._build_engine = engine
        # A model behind a framework may get its tools in another format, which differs little in size.
        self._count = partial(count_wire_tokens, wire, self._disclosure.count)
        # Replaced in one assignment, so that other threads never see half an update.
        self._engine_and_names: tuple[SearchEngine, ToolNames] | None = None

    def build_turn_handler(
        self, tools: Iterable[Tool], allowed: AllowedTools | None = None, *, style: Style = "reveal"
    ) -> TurnHandler:
        """Return the turn handler for a step with these tools; `allowed` restricts them further."""
        tools_by_id = _index_by_id(tools)
        engine, names = self._fit_engine(tools_by_id.values())
        is_allowed = build_rights(allowed).is_allowed
        usable = filter(is_allowed, tools_by_id.values())
        plan = self._disclosure.plan_within(usable, self.budget, self._count)

        def is_usable(tool: Tool) -> bool:
            return tool.id in tools_by_id and is_allowed(tool)

        accepts = None if allowed is None and len(tools_by_id) == len(engine.catalog) else is_usable
        return TurnHandler(engine, plan, names, style, accepts, self._count)

    def _fit_engine(self, tools: Iterable[Tool]) -> tuple[SearchEngine, ToolNames]:
        """Return an engine whose catalog contains these tools in their current form."""
        current = list(tools)
        stored = self._engine_and_names
        if stored is None:
            _warn_about_schemas(current)
            return self._store_engine(self._build_engine(Catalog(current)))
        engine, _ = stored
        new = [tool for tool in current if engine.catalog.get(tool.id) != tool]
        if not new:
            return stored
        _warn_about_schemas(new)
        if len(engine.catalog) + len(new) > max(MAX_INDEXED_TOOLS, len(current)):
            return self._store_engine(self._build_engine(Catalog(current)))
        return self._store_engine(engine.with_catalog(engine.catalog.with_tools(new)))

    def _store_engine(self, engine: SearchEngine) -> tuple[SearchEngine, ToolNames]:
        # Frameworks send each tool under its own name, so names must not be changed for the model.
        stored = engine, ToolNames(engine.catalog, attrgetter("id"))
        self._engine_and_names = stored
        return stored


def _index_by_id(tools: Iterable[Tool]) -> dict[str, Tool]:
    tools_by_id: dict[str, Tool] = {}
    for tool in tools:
        if tools_by_id.setdefault(tool.id, tool) is not tool:
            raise DuplicateTool(f"two tools are called {tool.id!r}; rename one")
    return tools_by_id


def _warn_about_schemas(tools: Iterable[Tool]) -> None:
    for tool in tools:
        if problem := find_schema_problem(tool.input_schema):
            message = f"the schema of {tool.id} is broken, so only a part of it is checked: {problem}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
