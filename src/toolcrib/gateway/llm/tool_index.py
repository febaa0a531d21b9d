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

from toolcrib.core.calls import Call
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import Names, safe_name
from toolcrib.gateway.llm.json_body import written
from toolcrib.gateway.llm.toolset import CHARACTERS_A_TOKEN, MOST_READ, MOST_SKETCHED
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.session import turn
from toolcrib.session.disclosure import Plan
from toolcrib.session.session import Act, Session
from toolcrib.session.turn import Conversation, Turn

Entry = dict[str, Any]

# What OpenAI's APIs take. Others take less, but whoever sends such a name knows what he sends it to.
_TAKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# For one answer, however many a model asks for at once.
MAX_SEARCHES: Final = 64


def sent_name(id: str) -> str:
    """The name by which the upstream is sent a tool: its own, where OpenAI's APIs take it."""
    return id if _TAKEN.fullmatch(id) else safe_name(id)


@dataclass(frozen=True, slots=True)
class Ware:
    """A tool that a request brings: what is searched of it, and what the upstream is sent.

    `given` is the client's own entry, `namespace` where it stands in one; `held` says that it
    waits for a search.
    """

    tool: Tool
    sent: Entry
    given: Entry
    namespace: str | None = None
    held: bool = False


class Shelf:
    """A set of tools. `front` is always sent, in its order; `wares` are those that we can read.

    `searched` says whether the model is given our search tool; else only the client loads tools.
    """

    def __init__(
        self, front: Sequence[Entry], wares: Iterable[Ware], *, searched: bool = True
    ) -> None:
        self.front = tuple(front)
        self.wares: Mapping[str, Ware] = {ware.tool.id: ware for ware in wares}
        self.held: Mapping[str, Ware] = {id: one for id, one in self.wares.items() if one.held}
        self.searched = searched and bool(self.held)
        self._lock = threading.Lock()
        self._claimed = False

    def claim(self) -> bool:
        """Whether nobody has taken it on himself yet to prepare this; now somebody has."""
        claimed, self._claimed = self._claimed, True
        return self.searched and not claimed

    def prepare(self) -> None:
        """Make ready what a search will need. This takes its time: do it in a thread."""
        engine = self.conversation.engine
        engine.search("x")
        engine.settle(most=MOST_READ)

    @property
    def conversation(self) -> Conversation:
        """The rules by which calls of our search tool are answered."""
        with self._lock:
            return self._conversation

    @property
    def search(self) -> Tool:
        """Our search tool, under a name that no other tool has."""
        return self.conversation.search_tool

    def ware(self, name: str) -> Ware | None:
        """The tool that the model knows by a name, or that has this id."""
        tool = self.conversation.find(name)
        return self.wares.get(tool.id) if tool else None

    def held_tool(self, name: str) -> Tool | None:
        """The tool that waits under a name, if there is one."""
        ware = self.ware(name)
        return ware.tool if ware and ware.held else None

    def saved_tokens(self, shown: Iterable[str] = ()) -> int:
        """About how many tokens the definitions take that the model is not sent."""
        return self._held_tokens - sum(_tokens(self.held[id]) for id in shown)

    @cached_property
    def _held_tokens(self) -> int:
        return sum(map(_tokens, self.held.values()))

    @cached_property
    def _conversation(self) -> Conversation:
        held = tuple(ware.tool for ware in self.held.values())
        mode = _mode(len(held))
        catalog = everything = Catalog(held)
        if len(held) < len(self.wares):
            everything = Catalog(ware.tool for ware in self.wares.values())
        # Names over everything, so that ours is free; the search only over what is held back.
        engine = SearchEngine(catalog, {mode: RANKERS[mode]})
        return Conversation(engine, Plan((), held), Names(everything, _named))


class Desk:
    """What one request has been handed, in the order of handing; that order only grows."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._session = Session()
        self._handed: dict[str, Entry] = {}
        self._calls = 0

    @property
    def tools(self) -> list[Entry]:
        """What has been handed out, as the upstream is sent it."""
        return list(self._handed.values())

    @property
    def revealed(self) -> list[str]:
        """The ids of the held tools that were handed out."""
        return [id for id in self._handed if id in self.shelf.held]

    def holds_back(self, name: str) -> bool:
        """Whether a tool waits still, so that the model has not seen its parameters."""
        tool = self.shelf.held_tool(name)
        return tool is not None and tool.id not in self._handed

    def follow(self, turns: Iterable[Sequence[Act]]) -> None:
        """Hand out what a history tells of."""
        self._session = Session.from_history(turns, self.shelf.held_tool, start=self._session)
        self._note()

    def load(self, names: Iterable[str]) -> None:
        """Hand out the tools of these names; those that are unknown, or always there, are not."""
        tools = [tool for tool in map(self.shelf.held_tool, names) if tool]
        self._session = self._session.reveal(tools)
        self._note()

    def bring(self, id: str, entry: Entry) -> None:
        """Hand out a tool that the client defines in its history."""
        if id not in self.shelf.wares:
            self._handed.setdefault(id, entry)

    def turn(self, calls: Sequence[Call], rounds: int) -> Turn:
        """What these calls mean, after so many rounds in which the model only searched."""
        self._calls += len(calls)
        enough = self._calls > MAX_SEARCHES
        before = replace(self._session, searches=turn.MAX_SEARCHES if enough else rounds)
        result = self.shelf.conversation.turn(before, calls)
        self._session = result.session
        self._note()
        return result

    def _note(self) -> None:
        for one in self._session.shown:
            self._handed.setdefault(one.id, self.shelf.held[one.id].sent)


def _named(tool: Tool) -> str:
    return sent_name(tool.id)


def _tokens(ware: Ware) -> int:
    # As quick as it can be: on the first request with many tools somebody waits for this.
    return len(written(ware.sent)) // CHARACTERS_A_TOKEN + 1


def _mode(tools: int) -> str:
    if tools <= MOST_READ:
        return "hybrid"
    return "fast" if tools <= MOST_SKETCHED else "lexical"
