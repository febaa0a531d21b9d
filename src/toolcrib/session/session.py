"""The tools that one conversation has been shown.

A session is an immutable value: each method returns the next one. Its list grows only at the end,
so a prompt cache keeps its prefix. A tool leaves the list only if it is removed or changed, may no
longer be used, or is evicted to stay within the token budget. The budget is a hard limit: a tool that
does not fit is not revealed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

from toolcrib.core.catalog import Catalog
from toolcrib.core.rights import ToolPredicate, allow_all
from toolcrib.core.token_count import ToolTokenCounter, count_tool_tokens
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig

MAX_SESSIONS: Final = 4_096
MAX_FINGERPRINTS: Final = 10_000
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RevealedTool:
    """A tool in the list of a session.

    `fingerprint` identifies its definition, `last_used` is the session's clock at its last use.
    """

    id: str
    fingerprint: str
    tokens: int
    last_used: int
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class ModelAction:
    """An action in a history: a search that found tools, the use of a tool, or a load.

    A load is a search by the provider itself.
    """

    type: Literal["search", "use", "load"]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """The tools that one conversation has been shown, in the order in which they were revealed.

    Attributes:
        budget_tokens: The limit for all tools that are sent; None means unlimited.
        reserved_tokens: The tokens of tools that are sent besides, such as the search tool.
        evicted: The ids of the tools that the last action evicted.
        consecutive_searches: The number of turns in a row in which the model only searched.
        clock: The number of actions so far.
    """

    revealed: tuple[RevealedTool, ...] = ()
    budget_tokens: int | None = None
    evicted: tuple[str, ...] = ()
    consecutive_searches: int = 0
    clock: int = 0
    reserved_tokens: int = 0

    @property
    def fixed_tokens(self) -> int:
        """The tokens that are always sent: those of pinned tools, and the reserved ones."""
        return self.reserved_tokens + sum(entry.tokens for entry in self.revealed if entry.is_pinned)

    @property
    def unpinned_tokens(self) -> int:
        """The tokens of the tools that are not pinned."""
        return sum(entry.tokens for entry in self.revealed if not entry.is_pinned)

    def pin(self, tools: Iterable[Tool], count: ToolTokenCounter = count_tool_tokens) -> Session:
        """Return the session with these tools revealed and never evicted. New ones are appended."""
        return self._add(tools, True, count)._evict(self.clock + 1)

    def reveal(self, tools: Iterable[Tool], count: ToolTokenCounter = count_tool_tokens) -> Session:
        """Return the session with those of these tools revealed that fit into the budget.

        The least recently used tools are evicted for them. If none fits, the session is unchanged.
        """
        fitting = self.select_fitting(tools, count)
        if not fitting:
            return self
        later = replace(self, clock=self.clock + 1, evicted=())._add(fitting, False, count)
        return later._evict(later.clock)

    def select_fitting(self, tools: Iterable[Tool], count: ToolTokenCounter = count_tool_tokens) -> list[Tool]:
        """Return those of these tools that fit into the budget together, if others are evicted."""
        if self.budget_tokens is None:
            return list(tools)
        room = self.budget_tokens - self.fixed_tokens
        pinned = {entry.id for entry in self.revealed if entry.is_pinned}
        fitting: list[Tool] = []
        for tool in tools:
            cost = 0 if tool.id in pinned else count(tool)
            if cost <= room:
                fitting.append(tool)
                room -= cost
        return fitting

    def is_revealed(self, tool: Tool) -> bool:
        """Return whether a tool is in the list of the session."""
        return any(entry.id == tool.id for entry in self.revealed)

    def refit(self, tools: Iterable[Tool], pinned: Collection[str], count: ToolTokenCounter) -> Session:
        """Return the session with its tools counted again, of which those with these ids are pinned.

        `tools` are the definitions of its tools. The least recently used ones are evicted if the
        budget is exceeded.
        """
        costs = {tool.id: 0 if self.budget_tokens is None else count(tool) for tool in tools}
        entries = (
            replace(entry, tokens=costs[entry.id], is_pinned=entry.id in pinned)
            for entry in self.revealed
            if entry.id in costs
        )
        return replace(self, revealed=tuple(entries), evicted=())._evict(self.clock + 1)

    def visible_tools(self, catalog: Catalog, is_allowed: ToolPredicate = allow_all) -> tuple[Tool, ...]:
        """Return the revealed tools that are unchanged in the catalog and allowed."""
        tools = ((entry, catalog.get(entry.id)) for entry in self.revealed)
        return tuple(tool for entry, tool in tools if tool and is_allowed(tool) and _is_same(entry, tool))

    def drop_stale(self, catalog: Catalog, is_allowed: ToolPredicate = allow_all) -> Session:
        """Return the session without tools that were removed or changed, or are not allowed."""
        ids = {tool.id for tool in self.visible_tools(catalog, is_allowed)}
        if len(ids) == len(self.revealed):
            return self
        return replace(self, revealed=tuple(entry for entry in self.revealed if entry.id in ids))

    def end_turn(self, only_searched: bool) -> Session:
        """Return the session after a turn of the model."""
        searches = self.consecutive_searches + 1 if only_searched else 0
        return replace(self, consecutive_searches=searches)

    @classmethod
    def from_history(
        cls,
        turns: Iterable[Sequence[ModelAction]],
        find: Callable[[str], Tool | None],
        *,
        start: Session | None = None,
        count: ToolTokenCounter = count_tool_tokens,
    ) -> Session:
        """Return the session after a history, turn by turn. `find` returns the tool of a name.

        Tools that the history no longer mentions are not revealed.
        """
        session = start or cls()
        for actions in turns:
            for action in actions:
                tools = [tool for tool in map(find, action.names) if tool]
                session = session.reveal(tools, count) if tools else session
            types = {action.type for action in actions} - {"load"}
            session = session.end_turn(types == {"search"})
        return session

    def to_dict(self) -> dict[str, Any]:
        """Return the session as JSON, to be restored with `from_dict`."""
        revealed = [
            {"id": entry.id, "fingerprint": entry.fingerprint, "tokens": entry.tokens, "used": entry.last_used}
            | ({"pinned": True} if entry.is_pinned else {})
            for entry in self.revealed
        ]
        return {
            "version": VERSION,
            "shown": revealed,
            "budget_tokens": self.budget_tokens,
            "searches": self.consecutive_searches,
            "clock": self.clock,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Session:
        """Return a stored session. Tools that have changed since are dropped by `visible_tools`."""
        try:
            if stored["version"] != VERSION:
                raise InvalidConfig(
                    f"the stored session has version {stored['version']!r}, not {VERSION}; start a new session"
                )
            session = cls(
                tuple(map(_parse_revealed, stored["shown"])),
                stored["budget_tokens"],
                consecutive_searches=stored["searches"],
                clock=stored["clock"],
            )
        except (KeyError, TypeError) as error:
            raise InvalidConfig("this is not the dictionary that `save` returned; start a new session") from error
        numbers = [session.consecutive_searches, session.clock, session.budget_tokens or 0]
        numbers += [number for entry in session.revealed for number in (entry.tokens, entry.last_used)]
        texts = [text for entry in session.revealed for text in (entry.id, entry.fingerprint)]
        if not all(isinstance(number, int) for number in numbers) or not all(isinstance(text, str) for text in texts):
            raise InvalidConfig("not a stored session: a field has a wrong type; start a new session")
        return session

    def _add(self, tools: Iterable[Tool], is_pinned: bool, count: ToolTokenCounter) -> Session:
        entries = {entry.id: entry for entry in self.revealed}
        for tool in tools:
            known = entries.get(tool.id)
            if known and _is_same(known, tool):
                # Replacing a value keeps its place in the list.
                entries[tool.id] = replace(known, last_used=self.clock, is_pinned=known.is_pinned or is_pinned)
                continue
            entries.pop(tool.id, None)
            cost = 0 if self.budget_tokens is None else count(tool)
            entries[tool.id] = RevealedTool(tool.id, _fingerprint(tool), cost, self.clock, is_pinned)
        return replace(self, revealed=tuple(entries.values()))

    def _evict(self, clock: int) -> Session:
        """Return the session within its budget. Only tools last used before `clock` are evicted."""
        if self.budget_tokens is None:
            return self
        excess = self.fixed_tokens + self.unpinned_tokens - self.budget_tokens
        evicted: list[str] = []
        older = [entry for entry in self.revealed if not entry.is_pinned and entry.last_used < clock]
        # Sorting is stable: of equally old ones, the one revealed first is evicted first.
        for entry in sorted(older, key=lambda entry: entry.last_used):
            if excess > 0:
                evicted.append(entry.id)
                excess -= entry.tokens
        kept = tuple(entry for entry in self.revealed if entry.id not in evicted)
        return replace(self, revealed=kept, evicted=tuple(evicted))


def _parse_revealed(stored: object) -> RevealedTool:
    if not isinstance(stored, Mapping):
        raise TypeError(f"a tool is an object, not {type(stored).__name__}")
    if unknown := stored.keys() - {"id", "fingerprint", "tokens", "used", "pinned"}:
        raise TypeError(f"unknown field {min(unknown)!r}")
    return RevealedTool(
        stored["id"], stored["fingerprint"], stored["tokens"], stored["used"], stored.get("pinned", False)
    )


def _is_same(entry: RevealedTool, tool: Tool) -> bool:
    return entry.fingerprint == _fingerprint(tool)


@lru_cache(maxsize=MAX_FINGERPRINTS)
def _fingerprint(tool: Tool) -> str:
    return tool.fingerprint


Value = TypeVar("Value")


class SessionTable(Generic[Value]):
    """Sessions by key, up to a limit.

    Beyond it the least recently used sessions are dropped; with `evicts="oldest"`, those that were
    created first.
    """

    def __init__(
        self, max_sessions: int = MAX_SESSIONS, evicts: Literal["least_recently_used", "oldest"] = "least_recently_used"
    ) -> None:
        if max_sessions < 1:
            raise InvalidConfig(f"max_sessions must be at least 1, not {max_sessions}")
        self._max_sessions = max_sessions
        self._is_lru = evicts == "least_recently_used"
        self._sessions: dict[str, Value] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: str) -> Value | None:
        """Return the session of a key, or None."""
        session = self._sessions.get(key)
        if session is not None and self._is_lru:
            self._sessions[key] = self._sessions.pop(key)
        return session

    def put(self, key: str, session: Value) -> None:
        """Store a session."""
        if self._is_lru:
            self._sessions.pop(key, None)
        self._sessions[key] = session
        while len(self._sessions) > self._max_sessions:
            del self._sessions[next(iter(self._sessions))]
