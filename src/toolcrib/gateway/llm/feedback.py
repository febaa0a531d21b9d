"""What the clients of the model gateway teach it by use, each for itself.

A search is answered inside; the model then calls a tool, and a later request brings what came of
it. That is evidence for the tool, for this client alone. Clients' tools come with their requests:
they are known by a digest of what they say of themselves, and their names are not kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

from toolcrib.adapters.wire import wire_named
from toolcrib.core.calls import Exchange as Exchanged
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidMessage
from toolcrib.gateway.llm.endpoint import Exchange
from toolcrib.gateway.llm.json_body import written
from toolcrib.gateway.llm.toolset import Toolset
from toolcrib.hub.feedback import Lessons
from toolcrib.search.engine import SearchEngine
from toolcrib.search.feedback.experience import Teacher
from toolcrib.search.feedback.trail import Trail
from toolcrib.search.results import SearchResult
from toolcrib.session.session import SessionTable
from toolcrib.session.turn import Conversation
from toolcrib.storage.feedback import HASHED

CIRCLE: Final = "model"
# How much of the end of a history is looked at for what came of the last calls.
MAX_LOOKED_AT: Final = 64
# What a conversation is told apart by.
MAX_OPENING_PARTS: Final = 8
MAX_OPENING_CHARS: Final = 2_000
# Not every API says of a result that it is an error. What begins like one is taken for no success.
_ERRORS: Final = ("error", "exception", "traceback", '{"error"', '{"iserror":true')

# The ids of an engine's tools by what the tools are known by here.
_Ids = Mapping[str, str]


class School:
    """All lessons of the gateway's clients; without `lessons` there are none."""

    def __init__(self, lessons: Lessons | None, most: int) -> None:
        self._lessons = lessons
        self._trails: SessionTable[Trail] = SessionTable(most)
        self._ids: WeakKeyDictionary[SearchEngine, _Ids] = WeakKeyDictionary()
        # Searches are answered in threads.
        self._lock = Lock()

    def lesson(self, exchange: Exchange, wire: str, body: Mapping[str, Any]) -> Lesson | None:
        """The lesson of a request, whose body is in this wire format; None if nothing is learned."""
        if self._lessons is None:
            return None
        whose = (
            str(getattr(exchange.principal, "name", "")),
            exchange.header("authorization"),
            exchange.header("x-api-key"),
        )
        owner = hashlib.blake2b(written(whose), digest_size=16).hexdigest()
        said = body.get("input" if wire == "openai_responses" else "messages")
        history = said if isinstance(said, list) else [said]
        begun = hashlib.blake2b(written([owner, _opening(history)]), digest_size=16).hexdigest()
        return Lesson(self, self._lessons, owner, begun, wire, history)

    def trail(self, conversation: str) -> Trail | None:
        """What a conversation has searched for; None if that is nothing."""
        with self._lock:
            return self._trails.get(conversation)

    def keep(self, conversation: str, trail: Trail) -> None:
        """Remember what a conversation has searched for."""
        with self._lock:
            self._trails.put(conversation, trail)

    def ids(self, engine: SearchEngine) -> _Ids:
        """The ids of an engine's tools, by what they are known by."""
        known = self._ids.get(engine)
        if known is None:
            known = {known_by(tool): tool.id for tool in engine.catalog}
            self._ids[engine] = known
        return known


@dataclass(frozen=True, slots=True)
class Lesson:
    """One request: what its client has taught before, and what it teaches now."""

    school: School
    lessons: Lessons
    owner: str
    conversation: str
    wire: str
    history: list[Any]

    def follow(self, find: Callable[[str], Tool | None]) -> None:
        """Learn from how the last calls went; `find` knows the tools by their names."""
        trail = self.school.trail(self.conversation)
        if trail is None:
            return
        # What is no message, such as an input that is a text, tells of no call.
        told = [one for one in self.history[-MAX_LOOKED_AT:] if isinstance(one, dict)]
        try:
            turns = wire_named(self.wire).turns(told)
        except InvalidMessage:
            return
        for exchange in turns[-1] if turns else ():
            tool = find(exchange.call.name)
            if tool is None or not exchange.text:
                continue
            trail, use = trail.called(known_by(tool), _succeeded(exchange))
            if use is not None:
                self.school.keep(self.conversation, trail)
                self.lessons.note((CIRCLE, self.owner), "", use)

    def attended(self, conversation: Conversation) -> Conversation:
        """A conversation whose searches are taught by this client's use, and teach in turn."""

        def heard(query: str, result: SearchResult) -> None:
            self.searched(query, (hit.tool for hit in result))

        return replace(conversation, engine=self.taught(conversation.engine), heard=heard)

    def best(self, toolset: Toolset) -> Callable[[str, int], list[Tool]]:
        """A toolset's own way to find the best tools, taught in the same way."""

        def best(query: str, limit: int) -> list[Tool]:
            found = toolset.best(query, limit, self.taught(toolset.engine))
            self.searched(query, found)
            return found

        return best

    def searched(self, query: str, found: Iterable[Tool]) -> None:
        """Note a search and what it found."""
        trail = self.school.trail(self.conversation) or Trail()
        self.school.keep(self.conversation, trail.searched(query, map(known_by, found)))

    def taught(self, engine: SearchEngine) -> SearchEngine:
        """An engine with what this client's use has taught; itself, as long as that is nothing."""
        teacher = self.lessons.teacher(CIRCLE, self.owner)
        if self.lessons.known(CIRCLE, self.owner) is None:
            return engine
        return engine.taught_by(_Translated(self.school, teacher, engine))


@dataclass(frozen=True, slots=True)
class _Translated:
    """A teacher who speaks of tools as they are known here, heard by an engine that has their ids."""

    school: School
    teacher: Teacher
    engine: SearchEngine

    def support(self, query: str) -> Mapping[str, float]:
        """The tools that served queries with these words."""
        known = self.teacher.support(query)
        ids = self.school.ids(self.engine) if known else {}
        return {ids[key]: share for key, share in known.items() if key in ids}

    def words_for(self, query: str, tool_id: str) -> Mapping[str, float]:
        """The words that speak for a tool."""
        tool = self.engine.catalog.get(tool_id)
        return self.teacher.words_for(query, known_by(tool)) if tool else {}


def known_by(tool: Tool) -> str:
    """What a client's tool is known by: another one of the same name is another tool."""
    told = written([tool.id, tool.description])
    return HASHED + hashlib.blake2b(told, digest_size=12).hexdigest()


def _opening(history: list[Any]) -> list[str]:
    """How a conversation began, which all its requests have in common; not more than tells it apart."""
    users = (one for one in history if isinstance(one, dict) and one.get("role") == "user")
    content = next(users, {}).get("content", history[0] if history else "")
    parts = content[:MAX_OPENING_PARTS] if isinstance(content, list) else [content]
    texts = (one.get("text") if isinstance(one, dict) else one for one in parts)
    return [one[:MAX_OPENING_CHARS] for one in texts if isinstance(one, str)]


def _succeeded(exchange: Exchanged) -> bool:
    if exchange.is_error:
        return False
    start = exchange.text[:200].lstrip().lower().replace(" ", "")
    return not start.startswith(_ERRORS)
