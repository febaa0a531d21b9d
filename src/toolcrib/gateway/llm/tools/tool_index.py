"""The tools of a request: which the model is sent, and which wait for a search.

An index belongs to a list of tools and is cached for the next request that sends the same list.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from toolcrib.core import prompts
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames, safe_name
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.tools.exposure import Exposure, ExposurePlan
from toolcrib.search.dense.index import MAX_ENCODED_ON_FIT
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.session import turn
from toolcrib.session.disclosure import DisclosurePlan
from toolcrib.session.turn import TurnHandler

Entry = Mapping[str, Any]
Entries = Sequence[Any]

# A list of up to this many tools is encoded before its first search. It is half of what the engine encodes when it
# is fitted (`MAX_ENCODED_ON_FIT`), because a list comes with a request that waits, and may be new in each conversation.
# Lists between the two numbers are searched by static embeddings. In longer lists, a search encodes its best tools.
MAX_ENCODED_TOOLS: Final = 100

# A search loads the tools whose score is at least this share of the best one, and names the others.
MIN_SCORE_SHARE: Final = 0.8
# The tools for a message of the user are sent with it if the message is at most this long, the search
# is this confident, and at most this many tools fit.
MAX_PREFETCH_CHARS: Final = 300
MIN_PREFETCH_CONFIDENCE: Final = 0.99
MAX_PREFETCHED_TOOLS: Final = 3
# Messages whose tools an index remembers.
MAX_CACHED_PREFETCHES: Final = 4_096

# How tools are deferred if the client marks them.
CLIENT_PLAN: Final = ExposurePlan(frozenset(), "reveal", "the client defers tools")

_CHARS_PER_TOKEN: Final = 4
# The fields of a schema in the APIs where it is not `parameters`; Google's client spells it in two ways.
_OWN_SCHEMA_FIELDS: Final = ("input_schema", "parametersJsonSchema", "parameters_json_schema")
# The fields of a definition that a stub does not have.
_SCHEMA_FIELDS: Final = frozenset({*_OWN_SCHEMA_FIELDS, "parameters", "strict", "input_examples", "cache_control"})
_VALID_OPENAI_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Limits of the cache; the bytes are those of the tools as JSON, an index is several times larger.
MAX_CACHED_TOOLS: Final = 200_000
MAX_CACHED_BYTES: Final = 32 << 20

Value = TypeVar("Value")


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

    def render_stub(self) -> Entry:
        """Return the definition as the upstream gets it, without the parameters."""
        outer = {key: value for key, value in self.wire_entry.items() if key not in _SCHEMA_FIELDS}
        function = self.wire_entry.get("function")
        inner = {key: value for key, value in (function or outer).items() if key not in _SCHEMA_FIELDS}
        inner["description"] = shorten_description(self.tool.description)
        schema_field = next((name for name in _OWN_SCHEMA_FIELDS if name in self.wire_entry), "parameters")
        inner[schema_field] = dict(turn.OPEN_SCHEMA)
        return {**outer, "function": inner} if function else inner


def plan_exposure(exposure: Exposure, tools: Iterable[IndexedTool | None]) -> ExposurePlan:
    """Return which of the tools to defer."""
    return exposure.plan([(each.tool, estimate_entry_tokens(each.wire_entry)) for each in tools if each])


def index_entries(entries: Iterable[tuple[Entry, Entry, Tool | None]]) -> Iterator[tuple[Entry, IndexedTool | None]]:
    """Yield entries as the upstream gets them, with their tools. Takes each entry also as the client sent it.

    An entry without a tool, or with an invalid or duplicate name, is left to the upstream.
    """
    seen: set[str] = set()
    for sent, entry, tool in entries:
        if tool is None or tool.id in seen or to_wire_name(tool.id) != tool.id:
            yield sent, None
            continue
        seen.add(tool.id)
        yield sent, IndexedTool(tool, tool.id, sent, entry)


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


def build_exposed_index(entries: Iterable[tuple[Entry, Entry, Tool | None]], exposure: Exposure) -> ToolIndex:
    """Build the index of a request whose client does not know tool search."""
    parsed = list(index_entries(entries))
    plan = plan_exposure(exposure, (each for _, each in parsed))
    return ToolIndex(*split_entries(parsed, plan.deferred_ids), plan)


class ToolIndex:
    """A list of tools and the search engine over them, which is built on first use.

    `always_sent` are the entries that are sent with every request, in this order. `tools` are the tools that could be
    parsed, by id. `plan` has the ids of the deferred tools and how the model gets them. `offers_search` is false if the
    client searches itself. `searches_all` also finds tools that are not deferred.
    """

    def __init__(
        self,
        always_sent: Iterable[Any],
        tools: Iterable[IndexedTool],
        plan: ExposurePlan = CLIENT_PLAN,
        *,
        offers_search: bool = True,
        searches_all: bool = False,
    ) -> None:
        self.always_sent = tuple(always_sent)
        self.plan = plan
        self.tools: Mapping[str, IndexedTool] = {each.tool.id: each for each in tools}
        self.deferred: Mapping[str, IndexedTool] = {
            id: indexed for id, indexed in self.tools.items() if indexed.is_deferred
        }
        self.offers_search = offers_search and bool(self.deferred or searches_all)
        self._searchable = self.tools if searches_all else self.deferred
        self._lock = threading.Lock()
        self._is_claimed = False
        self._prefetched = lru_cache(MAX_CACHED_PREFETCHES)(self._search_for_message)

    def claim_preparation(self) -> bool:
        """Return true to the first caller, who then has to call `prepare`."""
        is_claimed, self._is_claimed = self._is_claimed, True
        return self.offers_search and not is_claimed

    def prepare(self) -> None:
        """Build what a search needs. Slow: run it in a thread."""
        self.engine.search("x")

    @property
    def mode(self) -> str:
        """The search mode, chosen by the number of tools."""
        # The engine would encode every tool of these lists before the first search, which takes seconds.
        return "fast" if MAX_ENCODED_TOOLS < len(self._searchable) <= MAX_ENCODED_ON_FIT else "hybrid"

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

    @property
    def call_tool(self) -> Tool:
        """The tool that calls deferred tools in dispatch style, under a name that no other tool has."""
        return self.turn_handler.execute_tool

    @property
    def own_tools(self) -> tuple[Tool, ...]:
        """The tools that the gateway adds: the search tool, and in dispatch style `call_tool`."""
        return self.turn_handler.own_tools if self.offers_search else ()

    @property
    def is_dispatch(self) -> bool:
        """Whether the list of tools stays the same and `call_tool` calls the deferred tools."""
        return self.plan.style == "dispatch"

    def wrap_call(self, name: str, arguments: object) -> Mapping[str, Any] | None:
        """Return the arguments of `call_tool` for a call in a history, or None if it is not changed."""
        tool = self.find_deferred(name) if self.is_dispatch else None
        return {"tool_name": self.tools[tool.id].wire_name, "tool_input": arguments} if tool else None

    def find_for_message(self, text: str) -> Sequence[Tool]:
        """Return the deferred tools that fit a message of the user with high confidence. Slow: run it in a thread.

        The result depends on the tools and the text alone, so later requests get the same one.
        """
        is_short = 0 < len(text.strip()) <= MAX_PREFETCH_CHARS
        return self._prefetched(text) if is_short and self.plan.prefetches else ()

    def _search_for_message(self, text: str) -> Sequence[Tool]:
        result = self.turn_handler.search(text, turn.DEFAULT_LIMIT)
        if not result.hits or result.confidence < MIN_PREFETCH_CONFIDENCE:
            return ()
        least = result.hits[0].score * MIN_SCORE_SHARE
        tools = tuple(hit.tool for hit in result if hit.score >= least)
        return tools if len(tools) <= MAX_PREFETCHED_TOOLS else ()

    @cached_property
    def stubs(self) -> Mapping[str, Entry]:
        """The deferred tools without their parameters, by id, if the model sees them."""
        if self.plan.tier != "stub":
            return {}
        return {id: indexed.render_stub() for id, indexed in self.deferred.items()}

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
        return TurnHandler(
            self._engine,
            DisclosurePlan((), deferred),
            names,
            style="dispatch" if self.is_dispatch else "reveal",
            execute_name=prompts.CALL_NAME,
            min_score_share=MIN_SCORE_SHARE,
        )


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
        # The key has only the names. Comparing the definitions is several times faster than hashing them.
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
    if not isinstance(entry, dict):
        return ""
    name = entry.get("name")
    if name is None and isinstance(function := entry.get("function"), dict):
        name = function.get("name")
    return str(name)
