"""Pydantic AI: a capability, for `Agent(…, capabilities=[ToolcribCapability()])`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolReturn, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import SchemaValidator, core_schema

from toolcrib.adapters.call_history import CallHistory
from toolcrib.adapters.plain_json import parse_arguments
from toolcrib.core.calls import PastCall, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.prompts import SEARCH_NAME
from toolcrib.core.tool import Tool
from toolcrib.frameworks.tool_index import FrameworkToolIndex
from toolcrib.search.engine import AllowedTools, SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import Turn, TurnHandler

# Pydantic AI keeps the usual name to itself where tools wait for a capability to be loaded.
FALLBACK_SEARCH_NAME: Final = "find_tools"

_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


@dataclass
class ToolcribCapability(AbstractCapability[AgentDepsT]):
    """The model sees a search tool and the tools it has found; the agent keeps all its tools.

    What was found is read from the message history, so a run with `message_history` goes on with
    it. `allowed` says, of a run's context, which of the tools it may use; `disclosure`, `budget`
    and `engine` are as in every framework.
    """

    allowed: Callable[[RunContext[AgentDepsT]], AllowedTools | None] | None = None
    disclosure: Disclosure | None = None
    budget: int | None = None
    engine: Callable[[Catalog], SearchEngine] = SearchEngine
    _index: FrameworkToolIndex = field(init=False, repr=False)
    # What is listed in the step a run is at. Every run has a capability of its own, see `for_run`.
    _turn_handler: TurnHandler | None = field(init=False, repr=False, default=None)
    # The reply whose calls are being run, and what they mean.
    _current_turn: tuple[ModelMessage, Turn] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._index = FrameworkToolIndex(
            disclosure=self.disclosure, budget=self.budget, engine=self.engine
        )

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> Self:
        """One of its own for a run. The shelf is that of all runs."""
        own = replace(self)
        own._index = self._index
        return own

    def get_wrapper_toolset(
        self, toolset: AbstractToolset[AgentDepsT]
    ) -> AbstractToolset[AgentDepsT]:
        """The agent's tools, and the one that searches them."""
        return _SearchToolset(toolset, self)

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send only what this conversation was shown; the agent can still run the rest."""
        if self._turn_handler is None:
            return request_context
        parameters = request_context.model_request_parameters
        given = {tool.name: tool for tool in parameters.function_tools}
        shown = [
            _to_revealed_definition(given[tool.id], tool)
            for tool in self._turn_handler.tools(
                self._replay_session(self._turn_handler, ctx.messages)
            )
            if tool.id in given
        ]
        own = {tool.name for tool in self._turn_handler.own_tools}
        others = [
            name for name in given if name not in own and not self._turn_handler.find_tool(name)
        ]
        sent = replace(parameters, function_tools=[*map(given.__getitem__, others), *shown])
        return replace(request_context, model_request_parameters=sent)

    async def after_model_request(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """See to it that a call to a tool that does not exist is answered with the nearest names.

        Pydantic AI would answer with the names of all tools there are.
        """
        tools = ctx.tool_manager and ctx.tool_manager.tools
        search = tools and self._turn_handler and tools.get(self._turn_handler.search_tool.name)
        if tools and search:
            for call in response.tool_calls:
                if call.tool_name not in tools:
                    named = replace(search.tool_def, name=call.tool_name)
                    tools[call.tool_name] = replace(search, tool_def=named)
        return response

    def start_step(
        self, ctx: RunContext[AgentDepsT], tools: Iterable[ToolDefinition], search_name: str
    ) -> TurnHandler:
        """The rules for a step in which there are these tools."""
        allowed = self.allowed and self.allowed(ctx)
        now = self._index.build_turn_handler(map(_to_core_tool, tools), allowed)
        self._turn_handler = replace(now, search_name=search_name)
        return self._turn_handler

    def answer_call(self, ctx: RunContext[AgentDepsT], name: str, arguments: dict[str, Any]) -> str:
        """What a call means that no tool of the agent is to answer."""
        call = ToolCall(ctx.tool_call_id or "", name, arguments)
        answers = self._resolve_turn(ctx, call).answers
        return next(answer.text for answer in answers if answer.call.id == call.id)

    def get_note(self, ctx: RunContext[AgentDepsT], name: str, arguments: dict[str, Any]) -> str:
        """What the model is to be told beside the result of a tool; nothing if that is nothing."""
        if self._index.budget is None:
            return ""
        call = ToolCall(ctx.tool_call_id or "", name, arguments)
        tasks = self._resolve_turn(ctx, call).tasks
        return next((task.note for task in tasks if task.call.id == call.id), "")

    def _resolve_turn(self, ctx: RunContext[AgentDepsT], call: ToolCall) -> Turn:
        """What the calls of the reply mean in which this one is."""
        assert self._turn_handler, "tools are listed before they are called"
        # The calls of this very turn stand last, without results yet.
        before = [*ctx.messages]
        reply = before.pop() if before and isinstance(before[-1], ModelResponse) else None
        if self._current_turn and self._current_turn[0] is reply:
            return self._current_turn[1]
        calls = _parse_calls(reply) if isinstance(reply, ModelResponse) else []
        is_whole = any(one.id == call.id for one in calls)
        turn = self._turn_handler.handle_calls(
            self._replay_session(self._turn_handler, before), calls if is_whole else [call]
        )
        if reply is not None and is_whole:
            self._current_turn = reply, turn
        return turn

    def _replay_session(self, now: TurnHandler, messages: Iterable[ModelMessage]) -> Session:
        return now.replay_history(_parse_turns(messages), self._index.budget)


@dataclass
class _SearchToolset(WrapperToolset[AgentDepsT]):
    """The tools of an agent together with the search tool, which answers for itself."""

    capability: ToolcribCapability

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        tools = await self.wrapped.get_tools(ctx)
        kept = {
            name: tool
            for name, tool in tools.items()
            if not _is_waiting_for_capability(tool.tool_def)
        }
        name = SEARCH_NAME if len(kept) == len(tools) else FALLBACK_SEARCH_NAME
        now = self.capability.start_step(ctx, [tool.tool_def for tool in kept.values()], name)
        found: dict[str, ToolsetTool[AgentDepsT]] = {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=tool.input_schema,
                ),
                max_retries=1,
                args_validator=_ANY_OBJECT,
            )
            for tool in now.own_tools
        }
        for name, tool in tools.items():
            if name not in kept:
                found[name] = tool
            elif now.find_tool(name):
                # Deferring is done here; Pydantic AI's own tool search would do it once more.
                found[name] = replace(tool, tool_def=replace(tool.tool_def, defer_loading=False))
        return found

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> Any:
        if tool.toolset is self:
            return self.capability.answer_call(ctx, name, tool_args)
        result = await self.wrapped.call_tool(name, tool_args, ctx, tool)
        note = self.capability.get_note(ctx, name, tool_args)
        return _append_note(result, note) if note else result


def _is_waiting_for_capability(tool: ToolDefinition) -> bool:
    """Whether a tool waits for a capability to be loaded: that is not ours to decide."""
    return tool.defer_loading and tool.capability_id is not None


def _to_core_tool(given: ToolDefinition) -> Tool:
    return Tool(
        given.name,
        given.description or "",
        given.parameters_json_schema,
        policy="always" if given.defer_loading else "automatic",
    )


def _to_revealed_definition(given: ToolDefinition, tool: Tool) -> ToolDefinition:
    """A definition as far as it is to be seen: whole, or without parameters."""
    schema = tool.input_schema
    if schema == given.parameters_json_schema:
        return given
    return replace(given, parameters_json_schema=schema, strict=False)


def _append_note(result: Any, note: str) -> Any:
    """A tool's result with a note: after its text, or as Pydantic AI has it for what is no text."""
    if isinstance(result, str):
        return f"{result}\n\n{note}"
    whole = result if isinstance(result, ToolReturn) else ToolReturn(result)
    if isinstance(whole.return_value, str):
        return replace(whole, return_value=f"{whole.return_value}\n\n{note}")
    said = [whole.content] if isinstance(whole.content, str) else whole.content or ()
    return replace(whole, content=[*said, note])


def _parse_calls(reply: ModelResponse) -> list[ToolCall]:
    return [
        ToolCall(call.tool_call_id, call.tool_name, parse_arguments(call.args))
        for call in reply.tool_calls
    ]


def _parse_turns(messages: Iterable[ModelMessage]) -> list[list[PastCall]]:
    """What the model called, turn by turn, and what came back."""
    history = CallHistory()
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    text = part.content if isinstance(part.content, str) else ""
                    history.add_result(part.tool_call_id, text)
        else:
            history.add_turn(_parse_calls(message))
    return history.turns
