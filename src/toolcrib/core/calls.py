"""What passes between a model and its tools: calls, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.core.tool import Tool


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model made it. `arguments` is None where it did not send a JSON object.

    `is_search` is set where the provider has a shape of its own for asking us to search, `namespace`
    where it says in which group of tools the name is meant.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    is_search: bool = False
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a tool gave back, as text; an error is one that the model can act on."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class CallReply:
    """The reply to one call. `found` are the tools that a search revealed, `names` their names."""

    call: ToolCall
    text: str
    is_error: bool = False
    found_tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call found in a history, with what came back, as far as the history still has it.

    `names` are the tools that the reply refers to in the provider's own way. `is_error` is set where
    the provider has a way of saying so. `is_hosted` is set where the provider itself has searched:
    nobody called us, but those tools are known since.
    """

    call: ToolCall
    text: str = ""
    names: tuple[str, ...] = ()
    is_error: bool = False
    is_hosted_search: bool = False


class ToolRunner(Protocol):
    """Something that runs tools, such as a registry of Python functions."""

    def has_tool(self, name: str) -> bool:
        """Whether it runs the tool with this id."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Run it. Failures are results too; only what nobody foresaw raises."""
