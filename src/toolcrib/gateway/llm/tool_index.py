"""The tools of a request to one of OpenAI's APIs: what the model is sent, and what waits for a search.

A `Shelf` belongs to a set of tools and is kept for the next request that brings them; a `Desk`
belongs to one request, and knows what has been handed out.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from toolcrib.core.calls import ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames, safe_name
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.toolset import CHARS_PER_TOKEN, MAX_ENCODED_TOOLS, MAX_STATIC_TOOLS
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.session import turn
from toolcrib.session.disclosure import DisclosurePlan
from toolcrib.session.session import ModelAction, Session
from toolcrib.session.turn import Turn, TurnHandler

Entry = dict[str, Any]

# What OpenAI's APIs take. Others take less, but whoever sends such a name knows what he sends it to.
_VALID_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# For one answer, however many a model asks for at once.
MAX_SEARCHES: Final = 64


def wire_name(id: str) -> str:
    """The name by which the upstream is sent a tool: its own, where OpenAI's APIs take it."""
    return id if _VALID_NAME.fullmatch(id) else safe_name(id)


@dataclass(frozen=True, slots=True)
class IndexedTool:
    """A tool that a request brings: what is searched of it, and what the upstream is sent.

    `given` is the client's own entry, `namespace` where it stands in one; `held` says that it
    waits for a search.
    """

    tool: Tool
    wire_entry: Entry
    client_entry: Entry
    namespace: str | None = None
    is_deferred: bool = False


class ToolIndex:
    """A set of tools. `front` is always sent, in its order; `wares` are those that we can read.

    `searched` says whether the model is given our search tool; else only the client loads tools.
    """

    def __init__(
        self, front: Sequence[Entry], wares: Iterable[IndexedTool], *, searched: bool = True
    ) -> None:
        self.always_sent = tuple(front)
        self.tools: Mapping[str, IndexedTool] = {ware.tool.id: ware for ware in wares}
        self.deferred: Mapping[str, IndexedTool] = {
            id: one for id, one in self.tools.items() if one.is_deferred
        }
        self.offers_search = searched and bool(self.deferred)
        self._lock = threading.Lock()
        self._claimed = False

    def claim_preparation(self) -> bool:
        """Whether nobody has taken it on himself yet to prepare this; now somebody has."""
        claimed, self._claimed = self._claimed, True
        return self.offers_search and not claimed

    def prepare(self) -> None:
        """Make ready what a search will need. This takes its time: do it in a thread."""
        engine = self.turn_handler.engine
        engine.search("x")
        engine.warm_up(max_tools=MAX_ENCODED_TOOLS)

    @property
    def turn_handler(self) -> TurnHandler:
        """The rules by which calls of our search tool are answered."""
        with self._lock:
            return self._turn_handler

    @property
    def search_tool(self) -> Tool:
        """Our search tool, under a name that no other tool has."""
        return self.turn_handler.search_tool

    def find(self, name: str) -> IndexedTool | None:
        """The tool that the model knows by a name, or that has this id."""
        tool = self.turn_handler.find_tool(name)
        return self.tools.get(tool.id) if tool else None

    def find_deferred(self, name: str) -> Tool | None:
        """The tool that waits under a name, if there is one."""
        ware = self.find(name)
        return ware.tool if ware and ware.is_deferred else None

    def saved_tokens(self, shown: Iterable[str] = ()) -> int:
        """About how many tokens the definitions take that the model is not sent."""
        return self._deferred_tokens - sum(_estimate_tokens(self.deferred[id]) for id in shown)

    @cached_property
    def _deferred_tokens(self) -> int:
        return sum(map(_estimate_tokens, self.deferred.values()))

    @cached_property
    def _turn_handler(self) -> TurnHandler:
        held = tuple(ware.tool for ware in self.deferred.values())
        mode = _choose_mode(len(held))
        catalog = everything = Catalog(held)
        if len(held) < len(self.tools):
            everything = Catalog(ware.tool for ware in self.tools.values())
        # Names over everything, so that ours is free; the search only over what is held back.
        engine = SearchEngine(catalog, {mode: RANKERS[mode]})
        return TurnHandler(
            engine, DisclosurePlan((), held), ToolNames(everything, _wire_name_of_tool)
        )


class ToolSelection:
    """What one request has been handed, in the order of handing; that order only grows."""

    def __init__(self, shelf: ToolIndex) -> None:
        self.index = shelf
        self._session = Session()
        self._handed: dict[str, Entry] = {}
        self._calls = 0

    @property
    def wire_entries(self) -> list[Entry]:
        """What has been handed out, as the upstream is sent it."""
        return list(self._handed.values())

    @property
    def revealed_ids(self) -> list[str]:
        """The ids of the held tools that were handed out."""
        return [id for id in self._handed if id in self.index.deferred]

    def is_unrevealed(self, name: str) -> bool:
        """Whether a tool waits still, so that the model has not seen its parameters."""
        tool = self.index.find_deferred(name)
        return tool is not None and tool.id not in self._handed

    def replay_history(self, turns: Iterable[Sequence[ModelAction]]) -> None:
        """Hand out what a history tells of."""
        self._session = Session.from_history(turns, self.index.find_deferred, start=self._session)
        self._record_revealed()

    def reveal(self, names: Iterable[str]) -> None:
        """Hand out the tools of these names; those that are unknown, or always there, are not."""
        tools = [tool for tool in map(self.index.find_deferred, names) if tool]
        self._session = self._session.reveal(tools)
        self._record_revealed()

    def add_client_tool(self, id: str, entry: Entry) -> None:
        """Hand out a tool that the client defines in its history."""
        if id not in self.index.tools:
            self._handed.setdefault(id, entry)

    def handle_calls(self, calls: Sequence[ToolCall], rounds: int) -> Turn:
        """What these calls mean, after so many rounds in which the model only searched."""
        self._calls += len(calls)
        enough = self._calls > MAX_SEARCHES
        before = replace(
            self._session, consecutive_searches=turn.MAX_SEARCHES if enough else rounds
        )
        result = self.index.turn_handler.handle_calls(before, calls)
        self._session = result.session
        self._record_revealed()
        return result

    def _record_revealed(self) -> None:
        for one in self._session.revealed:
            self._handed.setdefault(one.id, self.index.deferred[one.id].wire_entry)


def _wire_name_of_tool(tool: Tool) -> str:
    return wire_name(tool.id)


def _estimate_tokens(ware: IndexedTool) -> int:
    # As quick as it can be: on the first request with many tools somebody waits for this.
    return len(serialize_json(ware.wire_entry)) // CHARS_PER_TOKEN + 1


def _choose_mode(tools: int) -> str:
    if tools <= MAX_ENCODED_TOOLS:
        return "hybrid"
    return "fast" if tools <= MAX_STATIC_TOOLS else "lexical"
