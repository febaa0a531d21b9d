"""The tools of a request, ready to be searched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Literal

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.errors import InvalidTool
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.profiles.claude import REGEX, ClaudeToolSearch
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.session.disclosure import DisclosurePlan
from toolcrib.session.turn import TurnHandler

Entries = Sequence[Mapping[str, Any]]
SearchMethod = Literal["pattern", "words", "meaning"]
EntryParser = Callable[[Mapping[str, Any]], list[Tool]]

# Reading by meaning takes about a millisecond a tool, sketching a third of that. Whoever brings
# more tools than these does not wait for it: the answer to his first search should not.
MAX_ENCODED_TOOLS: Final = 100
MAX_STATIC_TOOLS: Final = 2_000
CHARS_PER_TOKEN: Final = 4


class SearchableTools:
    """Tools in an API's own form, and what is made of them when it is first needed.

    Entries that are no tools we can read are not found; everything else is left to the upstream.
    """

    def __init__(self, entries: Entries, reader: EntryParser) -> None:
        self.entries = entries
        self._reader = reader
        self._lock = threading.Lock()
        self._claimed = False

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def entry_tokens(self) -> tuple[int, ...]:
        """About how many tokens each definition takes in a prompt."""
        return tuple(len(serialize_json(entry)) // CHARS_PER_TOKEN + 1 for entry in self.entries)

    @property
    def size_bytes(self) -> int:
        """About how many bytes the definitions are."""
        return sum(self.entry_tokens) * CHARS_PER_TOKEN

    @property
    def mode(self) -> str:
        """How tools are searched by words and meaning, so that nobody waits long for it."""
        if len(self) <= MAX_ENCODED_TOOLS:
            return "hybrid"
        return "fast" if len(self) <= MAX_STATIC_TOOLS else "lexical"

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in their order."""
        with self._lock:
            return self._tools

    @property
    def anthropic_search(self) -> ClaudeToolSearch:
        """Search as Anthropic's API does it: by pattern and by BM25."""
        with self._lock:
            return self._exact

    @property
    def engine(self) -> SearchEngine:
        """Our own search, whose default is `mode`."""
        with self._lock:
            return self._engine

    @property
    def turn_handler(self) -> TurnHandler:
        """The rules of a conversation in which all of these are held back at first."""
        with self._lock:
            return self._conversation

    def find_best(self, query: str, limit: int, engine: SearchEngine | None = None) -> list[Tool]:
        """The tools for a query by words and meaning; where none fits well, by words alone.

        `engine` is another one than its own, over the same tools.
        """
        if self.mode != "lexical":
            result = (engine or self.engine).search(query, limit=limit)
            if result.is_confident:
                return [hit.tool for hit in result]
        return self.anthropic_search.search_bm25(query, limit)

    def claim_preparation(self) -> bool:
        """Whether nobody has taken it on himself yet to prepare this; now somebody has."""
        claimed, self._claimed = self._claimed, True
        return not claimed

    def prepare(self, *ways: SearchMethod) -> None:
        """Make ready what searches in these ways will need. Takes its time: do it in a thread."""
        if "pattern" in ways:
            self.anthropic_search.search(REGEX, {"pattern": "x"})
        if "words" in ways:
            self.anthropic_search.search_bm25("x", 1)
        if "meaning" in ways:
            self.engine.search("x")
            if self.mode == "hybrid":
                self.engine.warm_up()

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
    def _exact(self) -> ClaudeToolSearch:
        return ClaudeToolSearch(self._tools)

    @cached_property
    def _engine(self) -> SearchEngine:
        return SearchEngine(Catalog(self._tools), {self.mode: RANKERS[self.mode], **RANKERS})

    @cached_property
    def _conversation(self) -> TurnHandler:
        catalog = self._engine.catalog
        # The upstream is sent each under its own name, so that is what the model has to be told.
        names = ToolNames(catalog, attrgetter("id"))
        return TurnHandler(self._engine, DisclosurePlan((), self._tools), names)
