"""OpenAI Agents SDK: `ToolcribAgent` in place of `Agent`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from agents import Agent, FunctionTool, RunConfig, RunContextWrapper, TContext, Tool
from agents.items import ModelResponse, TResponseInputItem, TResponseStreamEvent
from agents.models.interface import Model
from agents.models.multi_provider import MultiProvider
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.run_config import ToolErrorFormatterArgs
from agents.tool_context import ToolContext

from toolcrib.adapters import openai_responses
from toolcrib.adapters.plain_json import parse_arguments
from toolcrib.core import tool as core
from toolcrib.core.calls import ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.rights import resolve_callback_result
from toolcrib.frameworks.tool_index import AllowedCallback, FrameworkToolIndex
from toolcrib.search.engine import SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import TurnHandler


@dataclass
class ToolcribAgent(Agent[TContext]):
    """Show the model a search tool and the tools it found; the agent keeps all its tools.

    Revealed tools are read from the items of the run, so a run that continues from earlier items,
    or from a session of the SDK, keeps them. `allowed` returns, for the context of a run, the tools
    that it may use; `disclosure`, `budget` and `engine` are the same for every framework.
    """

    allowed: AllowedCallback[RunContextWrapper[TContext]] | None = None
    disclosure: Disclosure | None = None
    budget: int | None = None
    engine: Callable[[Catalog], SearchEngine] = SearchEngine

    def __post_init__(self) -> None:
        super().__post_init__()
        self._index = FrameworkToolIndex(
            disclosure=self.disclosure, budget=self.budget, engine=self.engine, wire="openai_responses"
        )
        self._runs: WeakKeyDictionary[RunContextWrapper[Any], _AgentRun] = WeakKeyDictionary()
        agent: Any = self
        if not isinstance(agent.model, _FilteringModel):
            agent.model = _FilteringModel(agent.model)

    async def get_all_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """Return all tools that this run may use, and the search tool."""
        agent_tools = await super().get_all_tools(run_context)
        core_tools = [_to_core_tool(tool) for tool in agent_tools if isinstance(tool, FunctionTool)]
        allowed = await resolve_callback_result(self.allowed(run_context), core_tools) if self.allowed else None
        run = self._runs.setdefault(run_context, _AgentRun(self._index))
        run.turn_handler = self._index.build_turn_handler(core_tools, allowed)
        usable = [
            tool for tool in agent_tools if not isinstance(tool, FunctionTool) or run.turn_handler.find_tool(tool.name)
        ]
        return [*(_RunSearchTool.create(search_tool, run) for search_tool in run.turn_handler.own_tools), *usable]

    def run_config(self, base: RunConfig | None = None) -> RunConfig:
        """Return settings for `Runner.run` that send errors of calls to the model.

        Without them, a call to an unknown tool ends the run with a ModelBehaviorError, and the
        answer to invalid arguments does not name the field.
        """
        return replace(
            base or RunConfig(),
            tool_not_found_behavior="return_error_to_model",
            tool_error_formatter=self._format_tool_error,
        )

    def _format_tool_error(self, error: ToolErrorFormatterArgs[Any]) -> str | None:
        """Return Toolcrib's answer to a call; None keeps the text of the SDK."""
        # The SDK passes another wrapper of the same run; both share the usage object.
        usage = error.run_context.usage
        runs = [run for context, run in [*self._runs.items()] if context.usage is usage]
        return next((run.answers[error.call_id] for run in runs if error.call_id in run.answers), None)


class _AgentRun:
    """The state of one run: its session, and the answers to the calls of its last turn."""

    def __init__(self, index: FrameworkToolIndex) -> None:
        self._budget = index.budget
        self.turn_handler: TurnHandler
        self.session: Session | None = None
        self.answers: dict[str, str] = {}
        self.notes: dict[str, str] = {}

    def prepare_turn(self, items: Iterable[object], is_complete: bool) -> Session:
        """Return the session before a turn, rebuilt if all items of the conversation are given."""
        if self.session is None or is_complete:
            turns = openai_responses.turns_from_wire(items)
            self.session = self.turn_handler.replay_history(turns, self._budget)
            self.notes = self.turn_handler.eviction_notes(turns, self._budget) if self._budget else {}
        return self.session

    def record_reply(self, reply: object) -> None:
        """Resolve the calls of a reply."""
        session = self.session or self.turn_handler.start_session(self._budget)
        turn = self.turn_handler.handle_calls(session, openai_responses.calls_from_wire(reply))
        self.session = turn.session
        self.answers = {answer.call.id: answer.text for answer in turn.replies}
        self.notes |= {task.call.id: task.note for task in turn.tasks if task.note}

    def answer_search(self, call: ToolCall) -> str:
        """Return the answer to a search, also in a resumed run that has not seen the reply."""
        answer = self.answers.get(call.id)
        if answer is None:
            turn = self.turn_handler.handle_calls(self.turn_handler.start_session(self._budget), [call])
            answer = turn.replies[0].text
        return answer


@dataclass
class _RunSearchTool(FunctionTool):
    """The search tool of one run; it carries the run to the model wrapper."""

    run: _AgentRun = field(kw_only=True, repr=False)

    @classmethod
    def create(cls, tool: core.Tool, run: _AgentRun) -> _RunSearchTool:
        async def search(context: ToolContext[Any], arguments: str) -> str:
            call = ToolCall(context.tool_call_id, tool.name, parse_arguments(arguments))
            return run.answer_search(call)

        return cls(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.input_schema,
            on_invoke_tool=search,
            strict_json_schema=False,
            run=run,
        )


class _FilteringModel(Model):
    """A model wrapper that sends only the revealed tools of the conversation."""

    def __init__(self, model: str | Model | None) -> None:
        self._model = model

    @property
    def inner(self) -> Model:
        """The wrapped model; a model name is resolved on first use."""
        if not isinstance(self._model, Model):
            self._model = MultiProvider().get_model(self._model)
        return self._model

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        request, run = _prepare_request(args, kwargs)
        response = await self.inner.get_response(**request)
        if run:
            run.record_reply({"output": response.output})
        return response

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        request, run = _prepare_request(args, kwargs)
        async for event in self.inner.stream_response(**request):
            if run and event.type == "response.completed":
                run.record_reply(event.response)
            yield event

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return self.inner.get_retry_advice(request)

    async def close(self) -> None:
        await self.inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        # The SDK calls this on the model it ran, which is this wrapper.
        await self.inner._cleanup_on_run_end(owner)


_PARAMETERS = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")


def _prepare_request(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], _AgentRun | None]:
    """Return the request with only the revealed tools, and its run if there is a search tool."""
    request = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
    tools: list[Tool] = request["tools"]
    search = next((tool for tool in tools if isinstance(tool, _RunSearchTool)), None)
    if search is None:
        return request, None
    items: str | list[TResponseInputItem] = request["input"]
    is_stored_by_provider = request.get("previous_response_id") or request.get("conversation_id")
    session = search.run.prepare_turn([] if isinstance(items, str) else items, not is_stored_by_provider)
    functions = {tool.name: tool for tool in tools if isinstance(tool, FunctionTool)}
    hosted = [tool for tool in tools if not isinstance(tool, FunctionTool)]
    visible = [_to_revealed_tool(functions[tool.id], tool) for tool in search.run.turn_handler.tools(session)]
    request |= {"tools": [*hosted, *visible], "input": _append_notes(items, search.run.notes)}
    return request, search.run


def _append_notes(items: str | list[TResponseInputItem], notes: Mapping[str, str]) -> str | list[TResponseInputItem]:
    """Return the items with the notes about evicted tools after the results of the calls.

    The SDK has no hook for this where tools run. The notes follow from the items, so every request
    has the same text, and the items of the run are not changed.
    """
    if isinstance(items, str) or not notes:
        return items
    return [_append_note(item, notes) for item in items]


def _append_note(item: Any, notes: Mapping[str, str]) -> Any:
    is_result = isinstance(item, Mapping) and item.get("type") == "function_call_output"
    note = notes.get(str(item.get("call_id"))) if is_result else None
    if note is None:
        return item
    output = item.get("output")
    if isinstance(output, list):
        return {**item, "output": [*output, {"type": "input_text", "text": note}]}
    # Toolcrib's own answer to an invalid call already contains the note.
    return item if note in str(output) else {**item, "output": f"{output}\n\n{note}"}


def _to_core_tool(function_tool: FunctionTool) -> core.Tool:
    return core.Tool(
        function_tool.name,
        function_tool.description,
        function_tool.params_json_schema,
        policy="always" if function_tool.defer_loading else "automatic",
    )


def _to_revealed_tool(function_tool: FunctionTool, tool: core.Tool) -> FunctionTool:
    """Return a tool with its full or stubbed schema, and without deferral by the SDK."""
    schema = tool.input_schema
    if schema != function_tool.params_json_schema:
        return replace(function_tool, params_json_schema=schema, strict_json_schema=False)
    return replace(function_tool, defer_loading=False) if function_tool.defer_loading else function_tool
