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

from toolcrib.adapters.plain_json import parse_arguments
from toolcrib.core.calls import CallHistory, PastCall, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.prompts import SEARCH_NAME
from toolcrib.core.rights import resolve_callback_result
from toolcrib.core.tool import Tool
from toolcrib.frameworks.tool_index import AllowedCallback, FrameworkToolIndex
from toolcrib.search.engine import SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import Turn, TurnHandler

# Pydantic AI uses the default name itself if there are tools that a capability has to load.
FALLBACK_SEARCH_NAME: Final = "find_tools"

_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


@dataclass
class ToolcribCapability(AbstractCapability[AgentDepsT]):
    """Show the model a search tool and the tools it found; the agent keeps all its tools.

    Revealed tools are read from the message history, so a run with `message_history` keeps them.
    `allowed` returns, for the context of a run, the tools that it may use; `disclosure`, `budget`
    and `engine` are the same for every framework.
    """

    allowed: AllowedCallback[RunContext[AgentDepsT]] | None = None
    disclosure: Disclosure | None = None
    budget: int | None = None
    engine: Callable[[Catalog], SearchEngine] = SearchEngine
    _index: FrameworkToolIndex = field(init=False, repr=False)
    # For the current step of a run; every run has its own capability, see `for_run`.
    _turn_handler: TurnHandler | None = field(init=False, repr=False, default=None)
    # The reply whose calls are being run, and the turn they belong to.
    _current_turn: tuple[ModelMessage, Turn] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._index = FrameworkToolIndex(disclosure=self.disclosure, budget=self.budget, engine=self.engine)

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> Self:
        """Return a copy for one run; all runs share the index."""
        copy = replace(self)
        copy._index = self._index
        return copy

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Return the agent's tools together with the search tool."""
        return _SearchToolset(toolset, self)

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send only the revealed tools of this conversation; the agent can still run the others."""
        if self._turn_handler is None:
            return request_context
        parameters = request_context.model_request_parameters
        definitions = {tool.name: tool for tool in parameters.function_tools}
        handler = self._turn_handler
        session = self._replay_session(handler, ctx.messages)
        revealed = [
            _to_revealed_definition(definitions[tool.id], tool)
            for tool in handler.tools(session)
            if tool.id in definitions
        ]
        own_names = {tool.name for tool in handler.own_tools}
        others = [
            definition
            for name, definition in definitions.items()
            if name not in own_names and not handler.find_tool(name)
        ]
        parameters = replace(parameters, function_tools=[*others, *revealed])
        return replace(request_context, model_request_parameters=parameters)

    async def after_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Route calls to unknown tools to Toolcrib, which answers with the nearest names.

        Pydantic AI would answer with the names of all tools.
        """
        tools = ctx.tool_manager and ctx.tool_manager.tools
        search = tools and self._turn_handler and tools.get(self._turn_handler.search_tool.name)
        if tools and search:
            for call in response.tool_calls:
                if call.tool_name not in tools:
                    definition = replace(search.tool_def, name=call.tool_name)
                    tools[call.tool_name] = replace(search, tool_def=definition)
        return response

    async def start_step(
        self, ctx: RunContext[AgentDepsT], tools: Iterable[ToolDefinition], search_name: str
    ) -> TurnHandler:
        """Build and return the turn handler for a step with these tools."""
        core_tools = list(map(_to_core_tool, tools))
        allowed = await resolve_callback_result(self.allowed(ctx), core_tools) if self.allowed else None
        handler = self._index.build_turn_handler(core_tools, allowed)
        self._turn_handler = replace(handler, search_name=search_name)
        return self._turn_handler

    def answer_call(self, ctx: RunContext[AgentDepsT], name: str, arguments: dict[str, Any]) -> str:
        """Return the answer to a call that no tool of the agent handles."""
        call = ToolCall(ctx.tool_call_id or "", name, arguments)
        answers = self._resolve_turn(ctx, call).replies
        return next(answer.text for answer in answers if answer.call.id == call.id)

    def get_note(self, ctx: RunContext[AgentDepsT], name: str, arguments: dict[str, Any]) -> str:
        """Return the note to add to the result of a tool, or an empty string."""
        if self._index.budget is None:
            return ""
        call = ToolCall(ctx.tool_call_id or "", name, arguments)
        tasks = self._resolve_turn(ctx, call).tasks
        return next((task.note for task in tasks if task.call.id == call.id), "")

    def _resolve_turn(self, ctx: RunContext[AgentDepsT], call: ToolCall) -> Turn:
        """Return the turn of the reply that contains this call."""
        assert self._turn_handler, "tools are listed before they are called"
        # The reply with the calls of this turn is the last message; it has no results yet.
        history = [*ctx.messages]
        reply = history.pop() if history and isinstance(history[-1], ModelResponse) else None
        if self._current_turn and self._current_turn[0] is reply:
            return self._current_turn[1]
        calls = _parse_calls(reply) if isinstance(reply, ModelResponse) else []
        is_in_reply = any(made.id == call.id for made in calls)
        turn = self._turn_handler.handle_calls(
            self._replay_session(self._turn_handler, history), calls if is_in_reply else [call]
        )
        if reply is not None and is_in_reply:
            self._current_turn = reply, turn
        return turn

    def _replay_session(self, handler: TurnHandler, messages: Iterable[ModelMessage]) -> Session:
        return handler.replay_history(_parse_turns(messages), self._index.budget)


@dataclass
class _SearchToolset(WrapperToolset[AgentDepsT]):
    """The tools of an agent together with the search tool, which Toolcrib answers."""

    capability: ToolcribCapability

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        tools = await self.wrapped.get_tools(ctx)
        searchable = {name: tool for name, tool in tools.items() if not _is_waiting_for_capability(tool.tool_def)}
        name = SEARCH_NAME if len(searchable) == len(tools) else FALLBACK_SEARCH_NAME
        handler = await self.capability.start_step(ctx, [tool.tool_def for tool in searchable.values()], name)
        toolset_tools: dict[str, ToolsetTool[AgentDepsT]] = {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name, description=tool.description, parameters_json_schema=tool.input_schema
                ),
                max_retries=1,
                args_validator=_ANY_OBJECT,
            )
            for tool in handler.own_tools
        }
        for name, tool in tools.items():
            if name not in searchable:
                toolset_tools[name] = tool
            elif handler.find_tool(name):
                # Toolcrib does the deferral; Pydantic AI's own tool search would defer again.
                toolset_tools[name] = replace(tool, tool_def=replace(tool.tool_def, defer_loading=False))
        return toolset_tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        if tool.toolset is self:
            return self.capability.answer_call(ctx, name, tool_args)
        result = await self.wrapped.call_tool(name, tool_args, ctx, tool)
        note = self.capability.get_note(ctx, name, tool_args)
        return _append_note(result, note) if note else result


def _is_waiting_for_capability(tool: ToolDefinition) -> bool:
    """Return whether a capability has to load the tool; Toolcrib leaves such tools alone."""
    return tool.defer_loading and tool.capability_id is not None


def _to_core_tool(definition: ToolDefinition) -> Tool:
    return Tool(
        definition.name,
        definition.description or "",
        definition.parameters_json_schema,
        policy="always" if definition.defer_loading else "automatic",
    )


def _to_revealed_definition(definition: ToolDefinition, tool: Tool) -> ToolDefinition:
    """Return a definition with its full or stubbed schema."""
    schema = tool.input_schema
    if schema == definition.parameters_json_schema:
        return definition
    return replace(definition, parameters_json_schema=schema, strict=False)


def _append_note(result: Any, note: str) -> Any:
    """Return a tool's result with a note: after its text, or as extra content for other types."""
    if isinstance(result, str):
        return f"{result}\n\n{note}"
    tool_return = result if isinstance(result, ToolReturn) else ToolReturn(result)
    if isinstance(tool_return.return_value, str):
        return replace(tool_return, return_value=f"{tool_return.return_value}\n\n{note}")
    content = [tool_return.content] if isinstance(tool_return.content, str) else tool_return.content or ()
    return replace(tool_return, content=[*content, note])


def _parse_calls(reply: ModelResponse) -> list[ToolCall]:
    return [ToolCall(call.tool_call_id, call.tool_name, parse_arguments(call.args)) for call in reply.tool_calls]


def _parse_turns(messages: Iterable[ModelMessage]) -> list[list[PastCall]]:
    """Return the calls of each turn of a history, with their results."""
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
