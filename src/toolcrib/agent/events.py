"""What happens while an agent works, for those who want to show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolcrib.agent.provider import Spent
from toolcrib.core.calls import Call
from toolcrib.session.turn import Task


@dataclass(frozen=True, slots=True)
class Said:
    """The model has said some words; more may follow."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """The model has called a tool, or searched for some."""

    call: Call


@dataclass(frozen=True, slots=True)
class Answered:
    """A call has been answered."""

    call: Call
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The model is done, or waits for what is `pending`: calls that are the program's to answer.

    `messages` are the whole conversation in the provider's words, to go on with.
    """

    text: str
    messages: list[dict[str, Any]] = field(repr=False)
    steps: int
    spent: Spent
    pending: tuple[Task, ...] = ()


Event = Said | Called | Answered | Finished
