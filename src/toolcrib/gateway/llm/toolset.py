"""The tools of a request, ready to be searched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Literal

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import Names
from toolcrib.errors import InvalidTool
from toolcrib.gateway.llm.json_body import written
from toolcrib.profiles.claude import REGEX, ToolSearch
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.session.disclosure import Plan
from toolcrib.session.turn import Conversation

Entries = Sequence[Mapping[str, Any]]
Way = Literal["pattern", "words", "meaning"]
Reader = Callable[[Mapping[str, Any]], list[Tool]]

# Reading by meaning takes about a millisecond a tool, sketching a third of that. Whoever brings
# more tools than these does not wait for it: the answer to his first search should not.
MOST_READ: Final = 100
MOST_SKETCHED: Final = 2_000
CHARACTERS_A_TOKEN: Final = 4


class Toolset:
    """Tools in an API's own form, and what is made of them when it is first needed.

    Entries that are no tools we can read are not found; everything else is left to the upstream.
    """

    def __init__(self, entries: Entries, reader: Reader) -> None:
        self.entries = entries
        self._reader = reader
        self._lock = threading.Lock()
        self._claimed = False

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """About how many tokens each definition takes in a prompt."""
        return tuple(len(written(entry)) // CHARACTERS_A_TOKEN + 1 for entry in self.entries)

    @property
    def size_bytes(self) -> int:
        """About how many bytes the definitions are."""
        return sum(self.tokens) * CHARACTERS_A_TOKEN

    @property
    def mode(self) -> str:
        """How tools are searched by words and meaning, so that nobody waits long for it."""
        if len(self) <= MOST_READ:
            return "hybrid"
        return "fast" if len(self) <= MOST_SKETCHED else "lexical"

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in their order."""
        with self._lock:
            return self._tools

    @property
    def exact(self) -> ToolSearch:
        """Search as Anthropic's API does it: by pattern and by BM25."""
        with self._lock:
            return self._exact

    @property
    def engine(self) -> SearchEngine:
        """Our own search, whose default is `mode`."""
        with self._lock:
            return self._engine

    @property
    def conversation(self) -> Conversation:
        """The rules of a conversation in which all of these are held back at first."""
        with self._lock:
            return self._conversation

    def best(self, query: str, limit: int, engine: SearchEngine | None = None) -> list[Tool]:
        """The tools for a query by words and meaning; where none fits well, by words alone.

        `engine` is another one than its own, over the same tools.
        """
        if self.mode != "lexical":
            result = (engine or self.engine).search(query, limit=limit)
            if result.confident:
                return [hit.tool for hit in result]
        return self.exact.best(query, limit)

    def claim(self) -> bool:
        """Whether nobody has taken it on himself yet to prepare this; now somebody has."""
        claimed, self._claimed = self._claimed, True
        return not claimed

    def prepare(self, *ways: Way) -> None:
        """Make ready what searches in these ways will need. Takes its time: do it in a thread."""
        if "pattern" in ways:
            self.exact.search(REGEX, {"pattern": "x"})
        if "words" in ways:
            self.exact.best("x", 1)
        if "meaning" in ways:
            self.engine.search("x")
            if self.mode == "hybrid":
                self.engine.settle()

    @cached_property
    def _tools(self) -> tuple[Tool, ...]:
        found: dict[str, Tool] = {}
        for entry in self.entries:
            try:
                for tool in self._reader(entry):
                    found.setdefault(tool.id, tool)
            except InvalidTool:
                continue
        return tuple(found.values())

    @cached_property
    def _exact(self) -> ToolSearch:
        return ToolSearch(self._tools)

    @cached_property
    def _engine(self) -> SearchEngine:
        return SearchEngine(Catalog(self._tools), {self.mode: RANKERS[self.mode], **RANKERS})

    @cached_property
    def _conversation(self) -> Conversation:
        catalog = self._engine.catalog
        # The upstream is sent each under its own name, so that is what the model has to be told.
        names = Names(catalog, attrgetter("id"))
        return Conversation(self._engine, Plan((), self._tools), names)
