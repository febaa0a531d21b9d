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

from toolcrib.adapters.history import History
from toolcrib.adapters.plain_json import arguments_from_text
from toolcrib.core.calls import Call, Exchange
from toolcrib.core.catalog import Catalog
from toolcrib.core.prompts import SEARCH_NAME
from toolcrib.core.tool import Tool
from toolcrib.frameworks.tool_index import Shelf
from toolcrib.search.engine import Allowed, SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import Conversation, Turn

# Pydantic AI keeps the usual name to itself where tools wait for a capability to be loaded.
OTHER_SEARCH_NAME: Final = "find_tools"

_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


@dataclass
class ToolcribCapability(AbstractCapability[AgentDepsT]):
    """The model sees a search tool and the tools it has found; the agent keeps all its tools.

    What was found is read from the message history, so a run with `message_history` goes on with
    it. `allowed` says, of a run's context, which of the tools it may use; `disclosure`, `budget`
    and `engine` are as in every framework.
    """

    allowed: Callable[[RunContext[AgentDepsT]], Allowed | None] | None = None
    disclosure: Disclosure | None = None
    budget: int | None = None
    engine: Callable[[Catalog], SearchEngine] = SearchEngine
    _shelf: Shelf = field(init=False, repr=False)
    # What is listed in the step a run is at. Every run has a capability of its own, see `for_run`.
    _now: Conversation | None = field(init=False, repr=False, default=None)
    # The reply whose calls are being run, and what they mean.
    _meant: tuple[ModelMessage, Turn] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._shelf = Shelf(disclosure=self.disclosure, budget=self.budget, engine=self.engine)

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> Self:
        """One of its own for a run. The shelf is that of all runs."""
        own = replace(self)
        own._shelf = self._shelf
        return own

    def get_wrapper_toolset(
        self, toolset: AbstractToolset[AgentDepsT]
    ) -> AbstractToolset[AgentDepsT]:
        """The agent's tools, and the one that searches them."""
        return _Searchable(toolset, self)

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send only what this conversation was shown; the agent can still run the rest."""
        if self._now is None:
            return request_context
        parameters = request_context.model_request_parameters
        given = {tool.name: tool for tool in parameters.function_tools}
        shown = [
            _shown(given[tool.id], tool)
            for tool in self._now.tools(self._session(self._now, ctx.messages))
            if tool.id in given
        ]
        own = {tool.name for tool in self._now.own_tools}
        others = [name for name in given if name not in own and not self._now.find(name)]
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
        search = tools and self._now and tools.get(self._now.search_tool.name)
        if tools and search:
            for call in response.tool_calls:
                if call.tool_name not in tools:
                    named = replace(search.tool_def, name=call.tool_name)
                    tools[call.tool_name] = replace(search, tool_def=named)
        return response

    def listed(
        self, ctx: RunContext[AgentDepsT], tools: Iterable[ToolDefinition], search_name: str
    ) -> Conversation:
        """The rules for a step in which there are these tools."""
        allowed = self.allowed and self.allowed(ctx)
        now = self._shelf.conversation(map(_tool, tools), allowed)
        self._now = replace(now, search_name=search_name)
        return self._now

    def answer(self, ctx: RunContext[AgentDepsT], name: str, arguments: dict[str, Any]) -> str:
        """What a call means that no tool of the agent is to answer."""
        call = Call(ctx.tool_call_id or "", name, arguments)
        answers = self._turn(ctx, call).answers
        return next(answer.text for answer in answers if answer.call.id == call.id)

    def note(self, ctx: RunContext[AgentDepsT], name: str, arguments: dict[str, Any]) -> str:
        """What the model is to be told beside the result of a tool; nothing if that is nothing."""
        if self._shelf.budget is None:
            return ""
        call = Call(ctx.tool_call_id or "", name, arguments)
        tasks = self._turn(ctx, call).tasks
        return next((task.note for task in tasks if task.call.id == call.id), "")

    def _turn(self, ctx: RunContext[AgentDepsT], call: Call) -> Turn:
        """What the calls of the reply mean in which this one is."""
        assert self._now, "tools are listed before they are called"
        # The calls of this very turn stand last, without results yet.
        before = [*ctx.messages]
        reply = before.pop() if before and isinstance(before[-1], ModelResponse) else None
        if self._meant and self._meant[0] is reply:
            return self._meant[1]
        calls = _calls(reply) if isinstance(reply, ModelResponse) else []
        is_whole = any(one.id == call.id for one in calls)
        turn = self._now.turn(self._session(self._now, before), calls if is_whole else [call])
        if reply is not None and is_whole:
            self._meant = reply, turn
        return turn

    def _session(self, now: Conversation, messages: Iterable[ModelMessage]) -> Session:
        return now.replayed(_turns(messages), self._shelf.budget)


@dataclass
class _Searchable(WrapperToolset[AgentDepsT]):
    """The tools of an agent together with the search tool, which answers for itself."""

    capability: ToolcribCapability

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        tools = await self.wrapped.get_tools(ctx)
        kept = {name: tool for name, tool in tools.items() if not _is_loadable(tool.tool_def)}
        name = SEARCH_NAME if len(kept) == len(tools) else OTHER_SEARCH_NAME
        now = self.capability.listed(ctx, [tool.tool_def for tool in kept.values()], name)
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
            elif now.find(name):
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
            return self.capability.answer(ctx, name, tool_args)
        result = await self.wrapped.call_tool(name, tool_args, ctx, tool)
        note = self.capability.note(ctx, name, tool_args)
        return _noted(result, note) if note else result


def _is_loadable(tool: ToolDefinition) -> bool:
    """Whether a tool waits for a capability to be loaded: that is not ours to decide."""
    return tool.defer_loading and tool.capability_id is not None


def _tool(given: ToolDefinition) -> Tool:
    return Tool(
        given.name,
        given.description or "",
        given.parameters_json_schema,
        policy="always" if given.defer_loading else "automatic",
    )


def _shown(given: ToolDefinition, tool: Tool) -> ToolDefinition:
    """A definition as far as it is to be seen: whole, or without parameters."""
    schema = tool.input_schema
    if schema == given.parameters_json_schema:
        return given
    return replace(given, parameters_json_schema=schema, strict=False)


def _noted(result: Any, note: str) -> Any:
    """A tool's result with a note: after its text, or as Pydantic AI has it for what is no text."""
    if isinstance(result, str):
        return f"{result}\n\n{note}"
    whole = result if isinstance(result, ToolReturn) else ToolReturn(result)
    if isinstance(whole.return_value, str):
        return replace(whole, return_value=f"{whole.return_value}\n\n{note}")
    said = [whole.content] if isinstance(whole.content, str) else whole.content or ()
    return replace(whole, content=[*said, note])


def _calls(reply: ModelResponse) -> list[Call]:
    return [
        Call(call.tool_call_id, call.tool_name, arguments_from_text(call.args))
        for call in reply.tool_calls
    ]


def _turns(messages: Iterable[ModelMessage]) -> list[list[Exchange]]:
    """What the model called, turn by turn, and what came back."""
    history = History()
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    text = part.content if isinstance(part.content, str) else ""
                    history.result(part.tool_call_id, text)
        else:
            history.turn(_calls(message))
    return history.turns
