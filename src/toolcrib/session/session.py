"""What one conversation has been shown.

A session is a value: each act gives the next one. The list it keeps only grows at its end, so what a
prompt cache has seen stays as it was; a tool leaves it only when it is gone, has changed, may no
longer be used, or has to make room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

from toolcrib.core.catalog import Catalog
from toolcrib.core.token_count import TokenCounter, count_tool_tokens, estimate_tokens
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig

MAX_SESSIONS: Final = 4_096
MAX_FINGERPRINTS: Final = 10_000
VERSION: Final = 1

IsAllowed = Callable[[Tool], bool]


def allow_all(tool: Tool) -> bool:
    """The right to use every tool."""
    return True


@dataclass(frozen=True, slots=True)
class RevealedTool:
    """A tool in the list: which one, in which form, and when it was last of use."""

    id: str
    fingerprint: str
    tokens: int
    last_used: int
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class ModelAction:
    """One thing a model did: a search that found tools of these names, or the use of one tool.

    What its provider found for it is no act of the model; it is a `load`.
    """

    type: Literal["search", "use", "load"]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """The tools one conversation has been shown, in the order of showing.

    `budget_tokens` is for those that are not pinned; `retired` are those that the last act sent
    away; `searches` counts the turns in a row in which the model did nothing but search.
    """

    revealed: tuple[RevealedTool, ...] = ()
    budget_tokens: int | None = None
    evicted: tuple[str, ...] = ()
    consecutive_searches: int = 0
    clock: int = 0

    def pin(self, tools: Iterable[Tool], count: TokenCounter = estimate_tokens) -> Session:
        """With these tools pinned: shown, and never sent away. New ones go to the end."""
        return self._with(tools, True, count)

    def reveal(self, tools: Iterable[Tool], count: TokenCounter = estimate_tokens) -> Session:
        """With these tools shown, and marked as just used; the longest unused make room for them."""
        later = replace(self, clock=self.clock + 1, evicted=())._with(tools, False, count)
        return later._fitted()

    def visible_tools(self, catalog: Catalog, accepts: IsAllowed = allow_all) -> tuple[Tool, ...]:
        """The shown tools as they stand in the catalog: unchanged since, and allowed."""
        tools = ((one, catalog.get(one.id)) for one in self.revealed)
        return tuple(tool for one, tool in tools if tool and accepts(tool) and _is_same(one, tool))

    def drop_stale(self, catalog: Catalog, accepts: IsAllowed = allow_all) -> Session:
        """Without the tools that are gone, were changed, or may no longer be used."""
        kept = {tool.id for tool in self.visible_tools(catalog, accepts)}
        if len(kept) == len(self.revealed):
            return self
        return replace(self, revealed=tuple(one for one in self.revealed if one.id in kept))

    def end_turn(self, only_searched: bool) -> Session:
        """At the end of a turn of the model, in which it did nothing but search, or something else."""
        return replace(
            self, consecutive_searches=self.consecutive_searches + 1 if only_searched else 0
        )

    @classmethod
    def from_history(
        cls,
        turns: Iterable[Sequence[ModelAction]],
        find: Callable[[str], Tool | None],
        *,
        start: Session | None = None,
        count: TokenCounter = estimate_tokens,
    ) -> Session:
        """The session that a history tells of, turn by turn. `find` gives the tool of a name.

        What the history no longer holds is not shown any more; that is never an error.
        """
        session = start or cls()
        for acts in turns:
            for act in acts:
                tools = [tool for tool in map(find, act.names) if tool]
                session = session.reveal(tools, count) if tools else session
            done = [act.type for act in acts if act.type != "load"]
            session = session.end_turn(bool(done) and set(done) == {"search"})
        return session

    def to_dict(self) -> dict[str, Any]:
        """The session as it is stored."""
        shown = [
            {
                "id": one.id,
                "fingerprint": one.fingerprint,
                "tokens": one.tokens,
                "used": one.last_used,
            }
            | ({"pinned": True} if one.is_pinned else {})
            for one in self.revealed
        ]
        return {
            "version": VERSION,
            "shown": shown,
            "budget_tokens": self.budget_tokens,
            "searches": self.consecutive_searches,
            "clock": self.clock,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Session:
        """The session that was stored. What has changed since is left out by `visible`."""
        try:
            if stored["version"] != VERSION:
                raise InvalidConfig(
                    f"the stored session has version {stored['version']!r}, not {VERSION}; begin anew"
                )
            session = cls(
                tuple(RevealedTool(**one) for one in stored["shown"]),
                stored["budget_tokens"],
                consecutive_searches=stored["searches"],
                clock=stored["clock"],
            )
        except (KeyError, TypeError) as fault:
            raise InvalidConfig(f"not a stored session: {fault}; begin anew") from fault
        numbers = [session.consecutive_searches, session.clock, session.budget_tokens or 0]
        numbers += [number for one in session.revealed for number in (one.tokens, one.last_used)]
        texts = [text for one in session.revealed for text in (one.id, one.fingerprint)]
        if not all(isinstance(one, int) for one in numbers) or not all(
            isinstance(one, str) for one in texts
        ):
            raise InvalidConfig("not a stored session: a field has a wrong type; begin anew")
        return session

    def _with(self, tools: Iterable[Tool], pinned: bool, count: TokenCounter) -> Session:
        entries = {one.id: one for one in self.revealed}
        for tool in tools:
            known = entries.get(tool.id)
            if known and _is_same(known, tool):
                # In its place: only the note of its use changes, which nobody is shown.
                entries[tool.id] = replace(
                    known, last_used=self.clock, is_pinned=known.is_pinned or pinned
                )
                continue
            entries.pop(tool.id, None)
            cost = 0 if self.budget_tokens is None else count_tool_tokens(tool, count)
            entries[tool.id] = RevealedTool(tool.id, _fingerprint(tool), cost, self.clock, pinned)
        return replace(self, revealed=tuple(entries.values()))

    def _fitted(self) -> Session:
        """Within the budget, as far as that goes without the tools of this very act."""
        if self.budget_tokens is None:
            return self
        over = sum(one.tokens for one in self.revealed if not one.is_pinned) - self.budget_tokens
        gone: list[str] = []
        older = (one for one in self.revealed if not one.is_pinned and one.last_used < self.clock)
        # Sorting is stable: of those unused for equally long, the one shown first goes first.
        for one in sorted(older, key=lambda one: one.last_used):
            if over > 0:
                gone.append(one.id)
                over -= one.tokens
        kept = tuple(one for one in self.revealed if one.id not in gone)
        return replace(self, revealed=kept, evicted=tuple(gone))


def _is_same(one: RevealedTool, tool: Tool) -> bool:
    return one.fingerprint == _fingerprint(tool)


@lru_cache(maxsize=MAX_FINGERPRINTS)
def _fingerprint(tool: Tool) -> str:
    """A tool's fingerprint, which is asked for every turn and never changes."""
    return tool.fingerprint


Value = TypeVar("Value")


class SessionTable(Generic[Value]):
    """Sessions by their keys, at most so many.

    When there are more, those are forgotten that were not asked for or put in for longest; with
    `forgets="begun"`, those that began first.
    """

    def __init__(
        self, max_sessions: int = MAX_SESSIONS, forgets: Literal["unused", "begun"] = "unused"
    ) -> None:
        if max_sessions < 1:
            raise InvalidConfig(f"max_sessions must be at least 1, not {max_sessions}")
        self._max_sessions = max_sessions
        self._by_use = forgets == "unused"
        self._sessions: dict[str, Value] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: str) -> Value | None:
        """The session of a key, if it is still known."""
        session = self._sessions.get(key)
        if session is not None and self._by_use:
            self._sessions[key] = self._sessions.pop(key)
        return session

    def put(self, key: str, session: Value) -> None:
        """Keep a session."""
        if self._by_use:
            self._sessions.pop(key, None)
        self._sessions[key] = session
        while len(self._sessions) > self._max_sessions:
            del self._sessions[next(iter(self._sessions))]
