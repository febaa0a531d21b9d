"""The interface between the agent and a provider: send a request, build the reply from its chunks.

A provider calls the official client it is given, sync or async; no SDK is imported here. Requests
are streamed unless the provider is created with `stream=False`. A `ReplyBuilder` assembles the
chunks of a stream into the reply that the API returns without streaming.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from toolcrib.errors import InvalidConfig

Message = dict[str, Any]
StopReason = Literal["done", "calls", "again"] | str


@dataclass(frozen=True, slots=True)
class AgentTokenUsage:
    """Token counts as reported by the provider."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: AgentTokenUsage) -> AgentTokenUsage:
        return AgentTokenUsage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, Any], inputs: Collection[str], outputs: Collection[str]
    ) -> AgentTokenUsage:
        """Sum the named fields of a provider's usage object; missing and null counts are zero."""
        return cls(sum(counts.get(field) or 0 for field in inputs), sum(counts.get(field) or 0 for field in outputs))


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One request to the model: messages and tools in the provider's format."""

    messages: list[Message]
    tools: list[Message]
    system: str = ""


class ReplyBuilder(Protocol):
    """A reply that is built from the chunks of a stream, or from one complete response."""

    def add_chunk(self, chunk: dict[str, Any]) -> str:
        """Add a chunk of the stream and return the text in it."""

    def set_reply(self, reply: dict[str, Any]) -> str:
        """Set the complete reply of a request without streaming and return its text."""

    @property
    def reply(self) -> dict[str, Any]:
        """The reply in the form the API returns without streaming."""

    @property
    def text(self) -> str:
        """The text of the reply."""

    @property
    def usage(self) -> AgentTokenUsage:
        """The tokens used by the request."""

    @property
    def stop_reason(self) -> StopReason:
        """Why the reply ended.

        "done", "calls" (the model called tools), "again" (the same request has to be repeated), or
        the provider's reason for an incomplete reply.
        """


class Provider(Protocol):
    """A model behind a provider's official client."""

    wire: str
    streams: bool

    def user_message(self, task: str) -> Message:
        """Return a task as a message of the user."""

    def send(self, request: AgentRequest) -> Any:
        """Return the response, or the stream to iterate; an awaitable of it for async clients."""

    def new_reply(self) -> ReplyBuilder:
        """Return an empty reply builder."""


class ClientProvider:
    """The base class of the providers: client, request options and the provider's own tools.

    `reserved` names the request fields that the agent sets itself.
    """

    def __init__(self, client: Any, stream: bool, options: dict[str, Any], reserved: Collection[str]) -> None:
        for name in reserved:
            if name in options:
                raise InvalidConfig(f"{name!r} is set by the agent; leave it out of the options")
        self.streams = stream
        self._client = client
        self._hosted_tools = list(options.pop("tools", ()))
        self._options = options

    def user_message(self, task: str) -> Message:
        """Return a task as a message of the user."""
        return {"role": "user", "content": task}

    def _all_tools(self, request: AgentRequest) -> list[Message]:
        return [*self._hosted_tools, *request.tools]
