"""The wire formats by name."""

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
    """The conversions of one provider's format.

    The last four fields are None for formats without deferred tools. `hosted_search_to_wire` takes
    the visible and the deferred tools, for searches by the provider. `client_search_to_wire` takes
    Toolcrib's own tools, the visible and the deferred ones; then Toolcrib searches, and
    `client_answers_to_wire` answers in the provider's search format. `loaded_names_from_wire`
    returns the names that the provider's own search loaded in a reply.
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
    own_tools: Sequence[Tool], visible: Iterable[Tool], deferred: Iterable[Tool]
) -> JsonObjects:
    return [
        *anthropic.tools_to_wire([*own_tools, *visible]),
        *anthropic.deferred_tools_to_wire(deferred),
    ]


def _openai_client_search(
    own_tools: Sequence[Tool], visible: Iterable[Tool], deferred: Iterable[Tool]
) -> JsonObjects:
    # Deferred tools are not declared: the answer to a search has their full definitions.
    searches = [openai_responses.search_tool_to_wire(tool) for tool in own_tools]
    return [*openai_responses.tools_to_wire(visible), *searches]


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
    """Return the wire format with this name."""
    for wire_format in WIRE_FORMATS:
        if wire_format.name == name:
            return wire_format
    known = ", ".join(wire_format.name for wire_format in WIRE_FORMATS)
    raise InvalidConfig(f"no wire format {name!r}; the formats are {known}")
