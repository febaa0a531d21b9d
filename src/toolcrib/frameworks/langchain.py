"""LangChain: agent middleware, for `create_agent(…, middleware=[ToolcribMiddleware()])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NotRequired, TypedDict, Unpack

from langchain.agents.middleware.types import (
    AgentMiddleware,
    ContextT,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
    ToolCallRequest,
)
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime
from langgraph.types import Command

from toolcrib.core.rights import AllowedTools, check_callback_result, resolve_callback_result
from toolcrib.core.tool import Tool
from toolcrib.frameworks.langchain_model import LangChainToolReader, ModelStep, append_note
from toolcrib.frameworks.tool_index import AllowedCallback, FrameworkOptions, FrameworkToolIndex


class ToolcribState(TypedDict):
    """The addition to an agent's state: the stored session with the revealed tools."""

    toolcrib: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class ToolcribMiddleware(AgentMiddleware[ToolcribState, ContextT, Any]):
    """Show the model a search tool and the tools it found; the agent keeps all its tools.

    Revealed tools are part of the agent's state, so a thread with a checkpointer keeps them.
    `allowed` returns, for the runtime of a run, the tools that it may use.
    """

    state_schema = ToolcribState

    def __init__(
        self, *, allowed: AllowedCallback[Runtime[Any]] | None = None, **options: Unpack[FrameworkOptions]
    ) -> None:
        super().__init__()
        self.tools: list[BaseTool] = []
        self._allowed = allowed
        self._index = FrameworkToolIndex(**options)
        self._reader = LangChainToolReader()

    def wrap_model_call(
        self, request: ModelRequest[ContextT], handler: Callable[[ModelRequest[ContextT]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Send the revealed tools of this conversation and answer its searches."""
        allowed = check_callback_result(self._allowed(request.runtime)) if self._allowed else None
        step = self._start_step(request, self._read_tools(request), allowed)
        return _build_response(step, handler(_override_tools(request, step)))

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[Any]]],
    ) -> ExtendedModelResponse[Any]:
        """Do the same as `wrap_model_call` in an event loop."""
        pairs = self._read_tools(request)
        allowed = None
        if self._allowed:
            allowed = await resolve_callback_result(self._allowed(request.runtime), [tool for tool, _ in pairs])
        step = self._start_step(request, pairs, allowed)
        return _build_response(step, await handler(_override_tools(request, step)))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Add the names of evicted tools to the result of the tool that replaced them."""
        return append_note(request, handler(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """Do the same as `wrap_tool_call` in an event loop."""
        return append_note(request, await handler(request))

    def _read_tools(self, request: ModelRequest[ContextT]) -> list[tuple[Tool, BaseTool]]:
        return [(self._reader.read_tool(tool), tool) for tool in request.tools if isinstance(tool, BaseTool)]

    def _start_step(
        self, request: ModelRequest[ContextT], pairs: list[tuple[Tool, BaseTool]], allowed: AllowedTools | None
    ) -> ModelStep:
        return ModelStep(
            self._index,
            {tool.id: langchain_tool for tool, langchain_tool in pairs},
            [tool for tool, _ in pairs],
            allowed,
            request.state.get("toolcrib"),
        )


def _override_tools(request: ModelRequest[ContextT], step: ModelStep) -> ModelRequest[ContextT]:
    """Return the request with the tools of the step; tools that the provider runs are kept."""
    hosted = [tool for tool in request.tools if not isinstance(tool, BaseTool)]
    return request.override(tools=[*hosted, *step.tools])


def _build_response(step: ModelStep, response: ModelResponse[Any]) -> ExtendedModelResponse[Any]:
    """Return the response with Toolcrib's own tool results; the agent runs the other calls."""
    result = response.result
    answered_ids = [message.tool_call_id for message in result if isinstance(message, ToolMessage)]
    reply = next((message for message in result if isinstance(message, AIMessage)), AIMessage(""))
    messages, stored = step.answer_calls(reply, answered_ids)
    return ExtendedModelResponse(
        ModelResponse([*result, *messages], response.structured_response), Command(update={"toolcrib": stored})
    )
