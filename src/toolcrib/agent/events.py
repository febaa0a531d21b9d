"""Events that an agent emits while it works, for example to display them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolcrib.agent.provider import AgentTokenUsage
from toolcrib.core.calls import ToolCall
from toolcrib.session.turn import ToolTask


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the model's text; more may follow."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model called a tool, or searched for tools."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """A call was answered with this text."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class AgentFinished:
    """The model is done, or waits for the `pending` calls, which the program has to answer.

    `messages` is the whole conversation in the provider's format, to continue from.
    """

    text: str
    messages: list[dict[str, Any]] = field(repr=False)
    steps: int
    usage: AgentTokenUsage
    pending: tuple[ToolTask, ...] = ()


AgentEvent = TextDelta | ToolCalled | ToolAnswered | AgentFinished
