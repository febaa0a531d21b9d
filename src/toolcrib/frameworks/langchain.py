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

from toolcrib.frameworks.langchain_model import LangChainToolReader, ModelStep, append_note
from toolcrib.frameworks.tool_index import FrameworkOptions, FrameworkToolIndex
from toolcrib.search.engine import AllowedTools


class ToolcribState(TypedDict):
    """What the middleware adds to an agent's state: what its model was shown, as a stored session."""

    toolcrib: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class ToolcribMiddleware(AgentMiddleware[ToolcribState, ContextT, Any]):
    """The model sees a search tool and the tools it has found; the agent keeps all its tools.

    What was found is part of the agent's state, so a thread that a checkpointer keeps goes on with
    it. `allowed` says, of a run's context, which of the tools it may use.
    """

    state_schema = ToolcribState

    def __init__(
        self,
        *,
        allowed: Callable[[Runtime[Any]], AllowedTools | None] | None = None,
        **options: Unpack[FrameworkOptions],
    ) -> None:
        super().__init__()
        self.tools: list[BaseTool] = []
        self._allowed = allowed
        self._index = FrameworkToolIndex(**options)
        self._reader = LangChainToolReader()

    def wrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], ModelResponse[Any]],
    ) -> ExtendedModelResponse[Any]:
        """Send what this conversation was shown; answer its searches."""
        step = self._start_step(request)
        return _build_response(step, handler(_override_tools(request, step)))

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[Any]]],
    ) -> ExtendedModelResponse[Any]:
        """The same for an agent that runs on an event loop."""
        step = self._start_step(request)
        return _build_response(step, await handler(_override_tools(request, step)))

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Tell with a tool's result what was put away to make room for it."""
        return append_note(request, handler(request))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """The same for an agent that runs on an event loop."""
        return append_note(request, await handler(request))

    def _start_step(self, request: ModelRequest[ContextT]) -> ModelStep:
        listed = [
            (self._reader.read_tool(tool), tool)
            for tool in request.tools
            if isinstance(tool, BaseTool)
        ]
        return ModelStep(
            self._index,
            {tool.id: given for tool, given in listed},
            [tool for tool, _ in listed],
            self._allowed and self._allowed(request.runtime),
            request.state.get("toolcrib"),
        )


def _override_tools(request: ModelRequest[ContextT], step: ModelStep) -> ModelRequest[ContextT]:
    """The request with the step's tools. Those that the provider runs are not ours to hold back."""
    hosted = [tool for tool in request.tools if not isinstance(tool, BaseTool)]
    return request.override(tools=[*hosted, *step.tools])


def _build_response(step: ModelStep, response: ModelResponse[Any]) -> ExtendedModelResponse[Any]:
    """The reply with the results that are ours; the agent runs what is left."""
    done = [one.tool_call_id for one in response.result if isinstance(one, ToolMessage)]
    reply = next((one for one in response.result if isinstance(one, AIMessage)), AIMessage(""))
    messages, stored = step.answer_calls(reply, done)
    return ExtendedModelResponse(
        ModelResponse([*response.result, *messages], response.structured_response),
        Command(update={"toolcrib": stored}),
    )
