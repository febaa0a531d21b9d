"""The wire formats by name: how tools go out in each, and how calls and results go both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from toolcrib.adapters import anthropic, gemini, mcp, openai_chat, openai_responses
from toolcrib.core.calls import CallReply, PastCall, ToolCall
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig

JsonObjects = list[dict[str, Any]]
SearchMode = Literal["ours", "client", "hosted"]


@dataclass(frozen=True, slots=True)
class WireFormat:
    """One provider's format. `hosted` and `client` are for those that know of deferred tools.

    `hosted`: the tools where the provider searches. `client`: the tools where we search, and answer
    in the provider's own shape; they take our own tools, those shown, and those held back. `loaded`:
    what the provider's own search has found in a reply.
    """

    name: str
    tools_to_wire: Callable[[Iterable[Tool]], JsonObjects]
    calls_from_wire: Callable[[object], list[ToolCall]]
    reply_to_messages: Callable[[object], JsonObjects]
    answers_to_wire: Callable[[Sequence[CallReply]], JsonObjects]
    turns_from_wire: Callable[[Iterable[object]], list[list[PastCall]]]
    hosted_search_to_wire: Callable[[Iterable[Tool], Iterable[Tool]], JsonObjects] | None = None
    client_search_to_wire: (
        Callable[[Sequence[Tool], Iterable[Tool], Iterable[Tool]], JsonObjects] | None
    ) = None
    client_answers_to_wire: Callable[[Sequence[CallReply]], JsonObjects] | None = None
    loaded_names_from_wire: Callable[[object], list[str]] | None = None


def _anthropic_client_search(
    own: Sequence[Tool], shown: Iterable[Tool], held: Iterable[Tool]
) -> JsonObjects:
    return [*anthropic.tools_to_wire([*own, *shown]), *anthropic.deferred_tools_to_wire(held)]


def _openai_client_search(
    own: Sequence[Tool], shown: Iterable[Tool], held: Iterable[Tool]
) -> JsonObjects:
    # What is held back need not be declared: a search answers with whole definitions.
    searches = [openai_responses.search_tool_to_wire(tool) for tool in own]
    return [*openai_responses.tools_to_wire(shown), *searches]


WIRE_FORMATS: Final[tuple[WireFormat, ...]] = (
    WireFormat(
        "anthropic",
        anthropic.tools_to_wire,
        anthropic.calls_from_wire,
        anthropic.reply_to_messages,
        anthropic.answers_to_wire,
        anthropic.turns_from_wire,
        anthropic.hosted_search_to_wire,
        _anthropic_client_search,
        partial(anthropic.answers_to_wire, as_references=True),
        anthropic.loaded_names_from_wire,
    ),
    WireFormat(
        "openai_chat",
        openai_chat.tools_to_wire,
        openai_chat.calls_from_wire,
        openai_chat.reply_to_messages,
        openai_chat.answers_to_wire,
        openai_chat.turns_from_wire,
    ),
    WireFormat(
        "openai_responses",
        openai_responses.tools_to_wire,
        openai_responses.calls_from_wire,
        openai_responses.reply_to_messages,
        openai_responses.answers_to_wire,
        openai_responses.turns_from_wire,
        openai_responses.hosted_search_to_wire,
        _openai_client_search,
        openai_responses.answers_to_wire,
        openai_responses.loaded_names_from_wire,
    ),
    WireFormat(
        "gemini",
        gemini.tools_to_wire,
        gemini.calls_from_wire,
        gemini.reply_to_messages,
        gemini.answers_to_wire,
        gemini.turns_from_wire,
    ),
    WireFormat(
        "mcp",
        mcp.tools_to_wire,
        mcp.calls_from_wire,
        mcp.reply_to_messages,
        mcp.answers_to_wire,
        mcp.turns_from_wire,
    ),
)


def get_wire_format(name: str) -> WireFormat:
    """The wire format of a name."""
    for wire in WIRE_FORMATS:
        if wire.name == name:
            return wire
    known = ", ".join(wire.name for wire in WIRE_FORMATS)
    raise InvalidConfig(f"no wire format {name!r}; the formats are {known}")
