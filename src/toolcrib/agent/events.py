"""What happens while an agent works, for those who want to show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolcrib.agent.provider import AgentTokenUsage
from toolcrib.core.calls import ToolCall
from toolcrib.session.turn import ToolTask


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The model has said some words; more may follow."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model has called a tool, or searched for some."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """A call has been answered."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class AgentFinished:
    """The model is done, or waits for what is `pending`: calls that are the program's to answer.

    `messages` are the whole conversation in the provider's words, to go on with.
    """

    text: str
    messages: list[dict[str, Any]] = field(repr=False)
    steps: int
    usage: AgentTokenUsage
    pending: tuple[ToolTask, ...] = ()


AgentEvent = TextDelta | ToolCalled | ToolAnswered | AgentFinished
