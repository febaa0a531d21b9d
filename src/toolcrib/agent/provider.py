"""What an agent has to know of a provider: how to ask, and how to put a streamed reply together.

Requests are streamed, as that is what a person wants to see, unless a provider is told `stream=False`.
It is given the official client, sync or async, and calls it; nothing here imports an SDK. What comes
back is a stream of chunks, whichever the colour, and an `Assembly` makes of them the reply that the
API would have given at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from toolcrib.errors import InvalidConfig

Message = dict[str, Any]
StopReason = Literal["done", "calls", "again"] | str


@dataclass(frozen=True, slots=True)
class AgentTokenUsage:
    """Tokens that a provider has counted."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: AgentTokenUsage) -> AgentTokenUsage:
        return AgentTokenUsage(
            self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        )

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """What a model is asked, in the provider's words but for the system prompt."""

    messages: list[Message]
    tools: list[Message]
    system: str = ""


class ReplyBuilder(Protocol):
    """A reply in the making."""

    def add_chunk(self, chunk: dict[str, Any]) -> str:
        """Take in a chunk. Gives the words in it."""

    def set_reply(self, reply: dict[str, Any]) -> str:
        """Take in a whole reply, where nothing is streamed. Gives its words."""

    @property
    def reply(self) -> dict[str, Any]:
        """The reply as the API gives it without streaming."""

    @property
    def text(self) -> str:
        """All its words."""

    @property
    def usage(self) -> AgentTokenUsage:
        """What it has cost."""

    @property
    def stop_reason(self) -> StopReason:
        """Why it ended: `done`, `calls`, `again` (ask once more as it is), or what cut it short."""


class Provider(Protocol):
    """A model behind a provider's official client."""

    wire: str
    streams: bool

    def user_message(self, task: str) -> Message:
        """The first message."""

    def send(self, request: AgentRequest) -> Any:
        """The reply, or the stream of one to iterate; with an async client, to be awaited first."""

    def new_reply(self) -> ReplyBuilder:
        """An empty reply."""


def check_options(options: dict[str, Any], reserved: Collection[str]) -> dict[str, Any]:
    """Options of a request, none of which is the agent's own to say."""
    for name in reserved:
        if name in options:
            raise InvalidConfig(
                f"{name!r} of a request is what the agent says; leave it out of the options"
            )
    return options
