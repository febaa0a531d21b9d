"""Tool calls of a model, and their results, alone and in a message history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from toolcrib.core.tool import Tool


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model made it. `arguments` is None if the model did not send a JSON object.

    `is_search` is set if the provider has a separate type of call for tool search, `namespace` if it
    names the group of tools that the name belongs to.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    is_search: bool = False
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a tool as text. The text of an error tells the model what to do."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class CallReply:
    """The reply to one call. `found_tools` are the tools that a search revealed."""

    call: ToolCall
    text: str
    is_error: bool = False
    found_tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call in a conversation history, with its result if the history still contains it.

    `names` are the tools that the result refers to in the provider's format. `is_error` is set if
    the provider's format marks errors. `is_hosted_search` is set for a search that the provider ran
    itself, which also reveals tools.
    """

    call: ToolCall
    text: str = ""
    names: tuple[str, ...] = ()
    is_error: bool = False
    is_hosted_search: bool = False


@runtime_checkable
class ToolRunner(Protocol):
    """Runs tools, such as a registry of Python functions."""

    def has_tool(self, name: str) -> bool:
        """Return whether it runs the tool with this id."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Run a tool. A failure of the tool is returned as an error result."""


class CallHistory:
    """The turns of a message history, built from its first message to its last.

    A result belongs to the latest call with its id, because some clients reuse ids in later turns.
    Calls without an id are matched by name, in the order in which they were made.
    """

    def __init__(self) -> None:
        self.turns: list[list[PastCall]] = []
        self._open_calls: dict[str, list[tuple[int, int]]] = {}

    def add_turn(self, calls: Iterable[ToolCall], loaded_names: Iterable[str] = ()) -> None:
        """Add a turn: the model's calls, and the names of tools its provider loaded before them."""
        turn = [PastCall(call) for call in calls]
        if names := tuple(loaded_names):
            turn.insert(0, PastCall(ToolCall("", "", None), names=names, is_hosted_search=True))
        open_calls: dict[str, list[tuple[int, int]]] = {}
        for position, past_call in enumerate(turn):
            if past_call.is_hosted_search:
                continue
            key = past_call.call.id or past_call.call.name
            open_calls.setdefault(key, []).append((len(self.turns), position))
        self.turns.append(turn)
        self._open_calls |= open_calls

    def add_result(self, key: str, text: str, names: Iterable[str] = (), *, is_error: bool = False) -> None:
        """Add the result of the call with this id, or this name; without such a call, ignore it."""
        positions = self._open_calls.get(key)
        if positions:
            turn, position = positions.pop(0)
            call = self.turns[turn][position].call
            self.turns[turn][position] = PastCall(call, text, tuple(names), is_error)
