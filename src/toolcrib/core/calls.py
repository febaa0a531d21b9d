"""Tool calls of a model, and their results."""

from __future__ import annotations

from collections.abc import Mapping
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
