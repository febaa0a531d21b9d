"""The tools of a request: which the model is sent, and which wait for a search.

A `ToolIndex` belongs to a list of tools and is cached for the next request that sends the same list.
A `ToolSelection` belongs to one request and records which deferred tools it has revealed.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Generic, NamedTuple, TypeVar

from toolcrib.core import prompts
from toolcrib.core.calls import ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames, safe_name
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.session import turn
from toolcrib.session.disclosure import DisclosurePlan
from toolcrib.session.session import ModelAction, Session
from toolcrib.session.turn import Turn, TurnHandler

Entry = Mapping[str, Any]
Entries = Sequence[Any]

# Encoding takes about 1 ms per tool and a static embedding a third of that. Larger lists use a
# faster mode, so that the first search does not wait.
MAX_ENCODED_TOOLS: Final = 100
MAX_STATIC_TOOLS: Final = 2_000
# Calls that the gateway handles for one response, over all rounds.
MAX_SEARCHES: Final = 64
# Limits of the cache; the bytes are those of the tools as JSON, an index is several times larger.
MAX_CACHED_TOOLS: Final = 200_000
MAX_CACHED_BYTES: Final = 32 << 20

_CHARS_PER_TOKEN: Final = 4
_VALID_OPENAI_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def to_wire_name(id: str) -> str:
    """Return the name under which OpenAI's APIs accept a tool; the id itself where it is valid."""
    return id if _VALID_OPENAI_NAME.fullmatch(id) else safe_name(id)


def estimate_entry_tokens(entry: Entry) -> int:
    """Return a quick estimate of the tokens that a tool definition takes in a prompt."""
    return len(serialize_json(entry)) // _CHARS_PER_TOKEN + 1


def shorten_description(text: str) -> str:
    """Return a description, cut to the length that search results have."""
    limit = turn.MAX_DESCRIPTION_CHARS
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def render_loaded_tools(found: Sequence[Mapping[str, str]]) -> str:
    """Return the text that tells the model which tools were loaded."""
    answer = {"found": found, "message": prompts.TOOLS_LOADED if found else prompts.NO_MATCH}
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class IndexedTool:
    """A tool of a request, with its definition as the client sent it and as the upstream gets it."""

    tool: Tool
    wire_name: str
    wire_entry: Entry
    client_entry: Entry
    namespace: str | None = None
    is_deferred: bool = False


def split_entries(
    entries: Iterable[tuple[Any, IndexedTool | None]], deferred_ids: Collection[str]
) -> tuple[list[Any], list[IndexedTool]]:
    """Return the entries that are always sent, and all tools, of which some become deferred.

    The tool of an entry is None if the entry is not a tool that can be deferred.
    """
    always_sent: list[Any] = []
    tools: list[IndexedTool] = []
    for entry, indexed in entries:
        if indexed is None:
            always_sent.append(entry)
            continue
        is_deferred = indexed.tool.id in deferred_ids
        tools.append(replace(indexed, is_deferred=is_deferred))
        if not is_deferred:
            always_sent.append(indexed.wire_entry)
    return always_sent, tools


class ToolIndex:
    """A list of tools and the search engine over them, which is built on first use.

    `always_sent` are the entries that are sent with every request, in this order. `tools` are the
    tools that could be parsed, by id. `offers_search` is false if the client searches itself.
    `searches_all` also finds tools that are not deferred.
    """

    def __init__(
        self,
        always_sent: Iterable[Any],
        tools: Iterable[IndexedTool],
        *,
        offers_search: bool = True,
        searches_all: bool = False,
    ) -> None:
        self.always_sent = tuple(always_sent)
        self.tools: Mapping[str, IndexedTool] = {each.tool.id: each for each in tools}
        self.deferred: Mapping[str, IndexedTool] = {
            id: indexed for id, indexed in self.tools.items() if indexed.is_deferred
        }
        self.offers_search = offers_search and bool(self.deferred or searches_all)
        self._searchable = self.tools if searches_all else self.deferred
        self._lock = threading.Lock()
        self._is_claimed = False

    def claim_preparation(self) -> bool:
        """Return true to the first caller, who then has to call `prepare`."""
        is_claimed, self._is_claimed = self._is_claimed, True
        return self.offers_search and not is_claimed

    def prepare(self) -> None:
        """Build what a search needs. Slow: run it in a thread."""
        self.engine.search("x")
        self.engine.warm_up(max_tools=MAX_ENCODED_TOOLS)

    @property
    def mode(self) -> str:
        """The search mode, chosen by the number of tools."""
        if len(self._searchable) <= MAX_ENCODED_TOOLS:
            return "hybrid"
        return "fast" if len(self._searchable) <= MAX_STATIC_TOOLS else "lexical"

    @property
    def engine(self) -> SearchEngine:
        """The search engine over the tools."""
        with self._lock:
            return self._engine

    @property
    def turn_handler(self) -> TurnHandler:
        """The handler that answers calls of the search tool and of deferred tools."""
        with self._lock:
            return self._turn_handler

    @property
    def search_tool(self) -> Tool:
        """The gateway's search tool, under a name that no other tool has."""
        return self.turn_handler.search_tool

    def find(self, name: str) -> IndexedTool | None:
        """Return the tool with this wire name or id."""
        tool = self.turn_handler.find_tool(name)
        return self.tools.get(tool.id) if tool else None

    def find_deferred(self, name: str) -> Tool | None:
        """Return the deferred tool with this wire name or id."""
        indexed = self.find(name)
        return indexed.tool if indexed and indexed.is_deferred else None

    def count_saved_tokens(self, revealed: Iterable[str] = ()) -> int:
        """Return an estimate of the tokens of the deferred tools that are not revealed."""
        return self._deferred_tokens - sum(estimate_entry_tokens(self.deferred[id].wire_entry) for id in revealed)

    @cached_property
    def _deferred_tokens(self) -> int:
        return sum(estimate_entry_tokens(each.wire_entry) for each in self.deferred.values())

    @cached_property
    def _engine(self) -> SearchEngine:
        tools = Catalog(each.tool for each in self._searchable.values())
        return SearchEngine(tools, {self.mode: RANKERS[self.mode]})

    @cached_property
    def _turn_handler(self) -> TurnHandler:
        deferred = tuple(each.tool for each in self.deferred.values())
        catalog = self._engine.catalog
        if len(catalog) < len(self.tools):
            # The names cover all tools, so that the search tool gets a free name.
            catalog = Catalog(each.tool for each in self.tools.values())
        names = ToolNames(catalog, lambda tool: self.tools[tool.id].wire_name)
        return TurnHandler(self._engine, DisclosurePlan((), deferred), names)


class ToolSelection:
    """The deferred tools that one request has revealed, in that order; tools are only appended."""

    def __init__(self, index: ToolIndex) -> None:
        self.index = index
        self._session = Session()
        self._entries: dict[str, Entry] = {}
        self._calls = 0

    @property
    def wire_entries(self) -> list[Entry]:
        """The revealed tools as the upstream is sent them."""
        return list(self._entries.values())

    @property
    def revealed_ids(self) -> list[str]:
        """The ids of the deferred tools that were revealed."""
        return [id for id in self._entries if id in self.index.deferred]

    def is_unrevealed(self, name: str) -> bool:
        """Return whether a tool is deferred and the model has not seen its parameters."""
        tool = self.index.find_deferred(name)
        return tool is not None and tool.id not in self._entries

    def replay_history(self, turns: Iterable[Sequence[ModelAction]]) -> None:
        """Reveal the tools that were revealed in a history."""
        find = self.index.find_deferred
        self._session = Session.from_history(turns, find, start=self._session)
        self._add_revealed()

    def reveal(self, names: Iterable[str]) -> None:
        """Reveal the deferred tools with these names; other names are ignored."""
        tools = [tool for tool in map(self.index.find_deferred, names) if tool]
        self._session = self._session.reveal(tools)
        self._add_revealed()

    def add_client_tool(self, id: str, entry: Entry) -> None:
        """Add a tool that the client defines in its history and not in the request."""
        if id not in self.index.tools:
            self._entries.setdefault(id, entry)

    def handle_calls(self, calls: Sequence[ToolCall], rounds: int) -> Turn:
        """Run the searches among some calls and check the others.

        `rounds` is the number of rounds so far in which the model only searched.
        """
        self._calls += len(calls)
        searches = turn.MAX_SEARCHES if self._calls > MAX_SEARCHES else rounds
        session = replace(self._session, consecutive_searches=searches)
        result = self.index.turn_handler.handle_calls(session, calls)
        self._session = result.session
        self._add_revealed()
        return result

    def _add_revealed(self) -> None:
        for revealed in self._session.revealed:
            self._entries.setdefault(revealed.id, self.index.deferred[revealed.id].wire_entry)


Value = TypeVar("Value")


class _CachedValue(NamedTuple, Generic[Value]):
    entries: Entries
    value: Value
    size_bytes: int


class ToolIndexCache(Generic[Value]):
    """A thread-safe LRU cache of what was built from lists of tools.

    It is limited by the number of values, and by the tools and bytes of all lists together.
    """

    def __init__(self, max_values: int, max_tools: int = MAX_CACHED_TOOLS, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_values = max_values
        self._max_tools = max_tools
        self._max_bytes = max_bytes
        self._cached: dict[Hashable, _CachedValue[Value]] = {}
        self._tools = 0
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, entries: Entries, *settings: Hashable) -> Value | None:
        """Return what was built from these tools with these settings, or None."""
        key = _cache_key(entries, settings)
        with self._lock:
            cached = self._cached.pop(key, None)
            if cached is None:
                return None
            self._cached[key] = cached
        # The key has only the names. Comparing the definitions is several times faster than
        # hashing them.
        return cached.value if cached.entries == entries else None

    def put(self, value: Value, entries: Entries, *settings: Hashable, size_bytes: int) -> None:
        """Store a value, unless it is too large, and evict the least recently used ones."""
        key = _cache_key(entries, settings)
        with self._lock:
            self._remove(key)
            if size_bytes > self._max_bytes or len(entries) > self._max_tools:
                return
            self._cached[key] = _CachedValue(entries, value, size_bytes)
            self._tools += len(entries)
            self._bytes += size_bytes
            while (
                len(self._cached) > self._max_values or self._tools > self._max_tools or self._bytes > self._max_bytes
            ):
                self._remove(next(iter(self._cached)))

    def _remove(self, key: Hashable) -> None:
        cached = self._cached.pop(key, None)
        if cached is not None:
            self._tools -= len(cached.entries)
            self._bytes -= cached.size_bytes


def _cache_key(entries: Entries, settings: tuple[Hashable, ...]) -> Hashable:
    return (*settings, *map(_entry_name, entries))


def _entry_name(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return ""
    function = entry.get("function")
    inner = function.get("name") if isinstance(function, Mapping) else None
    return str(entry.get("name", inner))
