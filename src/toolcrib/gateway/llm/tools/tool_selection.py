"""The deferred tools that are revealed to the model of one request, and the handling of its calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from toolcrib.adapters.plain_json import dicts_or_empty, join_texts, str_or_empty
from toolcrib.core import prompts
from toolcrib.core.calls import PastCall, ToolCall
from toolcrib.gateway.llm.tools.tool_index import Entry, ToolIndex
from toolcrib.session import turn
from toolcrib.session.session import ModelAction, Session
from toolcrib.session.turn import Turn

# Calls that the gateway handles for one response, over all rounds.
MAX_SEARCHES: Final = 64


class ToolSelection:
    """The deferred tools that are revealed to the model of one request, in the order in which they were found.

    In reveal style, their definitions are in the list of tools; in dispatch style, they are in the history.
    """

    def __init__(self, index: ToolIndex) -> None:
        self.index = index
        self._session = Session()
        self._entries: dict[str, Entry] = {}
        self._defined: dict[str, None] = {}
        self._prefetched: set[str] = set()
        self._calls = 0

    @property
    def wire_entries(self) -> list[Entry]:
        """The tools that are sent after those that are always sent: stubs, then revealed tools."""
        stubs = (stub for id, stub in self.index.stubs.items() if id not in self._entries)
        return [*stubs, *self._entries.values()]

    @property
    def revealed_ids(self) -> list[str]:
        """The ids of the deferred tools whose definitions are sent to the model."""
        return [id for id in {**self._entries, **self._defined} if id in self.index.deferred]

    def is_unrevealed(self, name: str) -> bool:
        """Return whether a tool is deferred and is not in the list of tools."""
        tool = self.index.find_deferred(name)
        return tool is not None and tool.id not in self._entries

    def is_intercepted(self, name: str) -> bool:
        """Return whether the gateway handles a call: a search, or a call of a tool that is not listed."""
        own = self.index.own_tools
        return any(name == tool.name for tool in own) or self.is_unrevealed(name)

    def replay_history(self, turns: Iterable[Sequence[ModelAction]]) -> None:
        """Reveal the tools that were revealed in a history."""
        find = self.index.find_deferred
        self._session = Session.from_history(turns, find, start=self._session)
        self._add_revealed()

    def replay_calls(self, turns: Iterable[Sequence[PastCall]]) -> None:
        """Record the tools that the calls of a history have revealed."""
        if not self.index.is_dispatch:
            self.replay_history(self.index.turn_handler.actions_from_history(turns))
            return
        search = self.index.search_tool.name
        results = (past.text for calls in turns for past in calls if past.call.name == search)
        names = (name for text in results for name in _parse_defined_names(text))
        self._defined.update((tool.id, None) for tool in map(self.index.find_deferred, names) if tool)

    def prefetch(self, text: str) -> str:
        """Return a text with the definitions of the tools that fit a message with high confidence, or an empty text.

        Call it for each message of the user, in order, because each definition is sent only once.
        """
        index = self.index
        tools = [tool for tool in index.find_for_message(text) if tool.id not in self._prefetched]
        if not tools:
            return ""
        self._prefetched.update(tool.id for tool in tools)
        self._defined.update((tool.id, None) for tool in tools)
        definitions = [
            {"name": index.tools[tool.id].wire_name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in tools
        ]
        rendered = json.dumps(definitions, ensure_ascii=False, separators=(",", ":"))
        return prompts.PREFETCHED_TOOLS.format(execute=index.call_tool.name, tools=rendered)

    def add_prefetched(self, message: dict[str, Any], part_type: str) -> dict[str, Any]:
        """Return a message of the user with the prefetched definitions."""
        content = message.get("content")
        is_question = message.get("role") == "user"
        text = self.prefetch(join_texts(content) or str_or_empty(content)) if is_question else ""
        if not text:
            return message
        if isinstance(content, str):
            return {**message, "content": f"{content}\n\n{text}"}
        return {**message, "content": [*dicts_or_empty(content), {"type": part_type, "text": text}]}

    def reveal(self, names: Iterable[str]) -> None:
        """Reveal the deferred tools with these names; other names are ignored."""
        tools = [tool for tool in map(self.index.find_deferred, names) if tool]
        self._session = self._session.reveal(tools)
        self._add_revealed()

    def restore(self, ids: Iterable[str]) -> None:
        """Record the tools that `revealed_ids` had after an earlier request."""
        if self.index.is_dispatch:
            self._defined.update((id, None) for id in ids)
        else:
            self.reveal(ids)

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
        handler = self.index.turn_handler
        if self._defined:
            handler = replace(handler, defined_ids=frozenset(self._defined))
        result = handler.handle_calls(session, calls)
        self._session = result.session
        if self.index.is_dispatch:
            self._defined.update((tool.id, None) for reply in result.replies for tool in reply.found_tools)
        self._add_revealed()
        return result

    def _add_revealed(self) -> None:
        for revealed in self._session.revealed:
            self._entries.setdefault(revealed.id, self.index.deferred[revealed.id].wire_entry)


def _parse_defined_names(text: str) -> list[str]:
    """Return the names of the tools that the result of a search defines."""
    try:
        found = dicts_or_empty(json.loads(text)["found"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    return [str(entry.get("name")) for entry in found if "input_schema" in entry]
