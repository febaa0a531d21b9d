"""The wire formats by name: how tools go out in each, and how calls and results go both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from toolcrib.adapters import anthropic, gemini, mcp, openai_chat, openai_responses
from toolcrib.core.calls import Answer, Call, Exchange
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig

Entries = list[dict[str, Any]]
Search = Literal["ours", "client", "hosted"]


@dataclass(frozen=True, slots=True)
class Wire:
    """One provider's format. `hosted` and `client` are for those that know of deferred tools.

    `hosted`: the tools where the provider searches. `client`: the tools where we search, and answer
    in the provider's own shape; they take our own tools, those shown, and those held back. `loaded`:
    what the provider's own search has found in a reply.
    """

    name: str
    tools: Callable[[Iterable[Tool]], Entries]
    calls: Callable[[object], list[Call]]
    reply: Callable[[object], Entries]
    answers: Callable[[Sequence[Answer]], Entries]
    turns: Callable[[Iterable[object]], list[list[Exchange]]]
    hosted: Callable[[Iterable[Tool], Iterable[Tool]], Entries] | None = None
    client: Callable[[Sequence[Tool], Iterable[Tool], Iterable[Tool]], Entries] | None = None
    client_answers: Callable[[Sequence[Answer]], Entries] | None = None
    loaded: Callable[[object], list[str]] | None = None


def _anthropic_client(own: Sequence[Tool], shown: Iterable[Tool], held: Iterable[Tool]) -> Entries:
    return [*anthropic.tools_to_wire([*own, *shown]), *anthropic.deferred_to_wire(held)]


def _openai_client(own: Sequence[Tool], shown: Iterable[Tool], held: Iterable[Tool]) -> Entries:
    # What is held back need not be declared: a search answers with whole definitions.
    searches = [openai_responses.client_search_to_wire(tool) for tool in own]
    return [*openai_responses.tools_to_wire(shown), *searches]


WIRES: Final[tuple[Wire, ...]] = (
    Wire(
        "anthropic",
        anthropic.tools_to_wire,
        anthropic.calls_from_wire,
        anthropic.reply_to_messages,
        anthropic.answers_to_wire,
        anthropic.turns_from_wire,
        anthropic.hosted_to_wire,
        _anthropic_client,
        partial(anthropic.answers_to_wire, native=True),
        anthropic.loaded_from_wire,
    ),
    Wire(
        "openai_chat",
        openai_chat.tools_to_wire,
        openai_chat.calls_from_wire,
        openai_chat.reply_to_messages,
        openai_chat.answers_to_wire,
        openai_chat.turns_from_wire,
    ),
    Wire(
        "openai_responses",
        openai_responses.tools_to_wire,
        openai_responses.calls_from_wire,
        openai_responses.reply_to_messages,
        openai_responses.answers_to_wire,
        openai_responses.turns_from_wire,
        openai_responses.hosted_to_wire,
        _openai_client,
        openai_responses.answers_to_wire,
        openai_responses.loaded_from_wire,
    ),
    Wire(
        "gemini",
        gemini.tools_to_wire,
        gemini.calls_from_wire,
        gemini.reply_to_messages,
        gemini.answers_to_wire,
        gemini.turns_from_wire,
    ),
    Wire(
        "mcp",
        mcp.tools_to_wire,
        mcp.calls_from_wire,
        mcp.reply_to_messages,
        mcp.answers_to_wire,
        mcp.turns_from_wire,
    ),
)


def wire_named(name: str) -> Wire:
    """The wire format of a name."""
    for wire in WIRES:
        if wire.name == name:
            return wire
    known = ", ".join(wire.name for wire in WIRES)
    raise InvalidConfig(f"no wire format {name!r}; the formats are {known}")
