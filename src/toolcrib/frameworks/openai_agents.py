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
from toolcrib.frameworks.tool_index import FrameworkToolIndex
from toolcrib.search.engine import AllowedTools, SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import TurnHandler


@dataclass
class ToolcribAgent(Agent[TContext]):
    """The model sees a search tool and the tools it has found; the agent keeps all its tools.

    What was found is read from the run's items, so a run that is given those of an earlier one, or
    a session of the SDK, goes on with it. `allowed` says, of a run's context, which of the tools it
    may use; `disclosure`, `budget` and `engine` are as in every framework.
    """

    allowed: Callable[[RunContextWrapper[TContext]], AllowedTools | None] | None = None
    disclosure: Disclosure | None = None
    budget: int | None = None
    engine: Callable[[Catalog], SearchEngine] = SearchEngine

    def __post_init__(self) -> None:
        super().__post_init__()
        self._index = FrameworkToolIndex(
            disclosure=self.disclosure, budget=self.budget, engine=self.engine
        )
        self._runs: WeakKeyDictionary[RunContextWrapper[Any], _AgentRun] = WeakKeyDictionary()
        agent: Any = self
        if not isinstance(agent.model, _FilteringModel):
            agent.model = _FilteringModel(agent.model)

    async def get_all_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """All tools of the agent that this run may use, and the one that searches them."""
        given = await super().get_all_tools(run_context)
        allowed = self.allowed and self.allowed(run_context)
        listed = [_to_core_tool(one) for one in given if isinstance(one, FunctionTool)]
        run = self._runs.setdefault(run_context, _AgentRun(self._index))
        run.turn_handler = self._index.build_turn_handler(listed, allowed)
        usable = [
            one
            for one in given
            if not isinstance(one, FunctionTool) or run.turn_handler.find_tool(one.name)
        ]
        return [*(_RunSearchTool.create(own, run) for own in run.turn_handler.own_tools), *usable]

    def run_config(self, base: RunConfig | None = None) -> RunConfig:
        """Settings for `Runner.run` under which a model is told what was wrong with its call.

        Without them, a call to a tool that does not exist ends the run with a ModelBehaviorError,
        and arguments that do not fit are answered without saying which.
        """
        return replace(
            base or RunConfig(),
            tool_not_found_behavior="return_error_to_model",
            tool_error_formatter=self._format_tool_error,
        )

    def _format_tool_error(self, fault: ToolErrorFormatterArgs[Any]) -> str | None:
        """Our answer to a call; without one, the SDK's own words stand."""
        # What the SDK hands over is another wrapper of the same run; what it spends is the same.
        usage = fault.run_context.usage
        runs = [run for context, run in [*self._runs.items()] if context.usage is usage]
        return next(
            (run.answers[fault.call_id] for run in runs if fault.call_id in run.answers), None
        )


class _AgentRun:
    """One run: what it has been shown, and the answers to the calls of its last turn."""

    def __init__(self, shelf: FrameworkToolIndex) -> None:
        self._budget = shelf.budget
        self.turn_handler: TurnHandler
        self.session: Session | None = None
        self.answers: dict[str, str] = {}
        self.notes: dict[str, str] = {}

    def prepare_turn(self, items: Iterable[object], is_whole: bool) -> Session:
        """The session before a turn. Where the provider keeps the items, ours is from this run."""
        if self.session is None or is_whole:
            turns = openai_responses.turns_from_wire(items)
            self.session = self.turn_handler.replay_history(turns, self._budget)
            self.notes = (
                self.turn_handler.eviction_notes(turns, self._budget) if self._budget else {}
            )
        return self.session

    def record_reply(self, reply: object) -> None:
        """Find out what the calls of a reply mean."""
        session = self.session or self.turn_handler.start_session(self._budget)
        turn = self.turn_handler.handle_calls(session, openai_responses.calls_from_wire(reply))
        self.session = turn.session
        self.answers = {answer.call.id: answer.text for answer in turn.answers}
        self.notes |= {task.call.id: task.note for task in turn.tasks if task.note}

    def answer_search(self, call: ToolCall) -> str:
        """The answer to a search. A run that was resumed has not seen the reply it was in."""
        known = self.answers.get(call.id)
        if known is None:
            turn = self.turn_handler.handle_calls(
                self.turn_handler.start_session(self._budget), [call]
            )
            known = turn.answers[0].text
        return known


@dataclass
class _RunSearchTool(FunctionTool):
    """The search tool of one run: it takes the run to where the model is asked."""

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
    """A model that is sent, of all tools, those which its conversation has been shown."""

    def __init__(self, model: str | Model | None) -> None:
        self._model = model

    @property
    def inner(self) -> Model:
        """The model itself; one that is only named is looked up when it is first needed."""
        if not isinstance(self._model, Model):
            self._model = MultiProvider().get_model(self._model)
        return self._model

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        asked, run = _prepare_request(given, named)
        response = await self.inner.get_response(**asked)
        if run:
            run.record_reply({"output": response.output})
        return response

    async def stream_response(
        self, *given: Any, **named: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        asked, run = _prepare_request(given, named)
        async for event in self.inner.stream_response(**asked):
            if run and event.type == "response.completed":
                run.record_reply(event.response)
            yield event

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return self.inner.get_retry_advice(request)

    async def close(self) -> None:
        await self.inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        # The SDK asks this of the model it ran, which is this one.
        await self.inner._cleanup_on_run_end(owner)


_PARAMETERS = (
    "system_instructions",
    "input",
    "model_settings",
    "tools",
    "output_schema",
    "handoffs",
    "tracing",
)


def _prepare_request(
    given: Iterable[Any], named: Mapping[str, Any]
) -> tuple[dict[str, Any], _AgentRun | None]:
    """A request with the tools that its run was shown, and the run, if it has anything to search."""
    asked = {**dict(zip(_PARAMETERS, given, strict=False)), **named}
    tools: list[Tool] = asked["tools"]
    search = next((one for one in tools if isinstance(one, _RunSearchTool)), None)
    if search is None:
        return asked, None
    items: str | list[TResponseInputItem] = asked["input"]
    kept_elsewhere = asked.get("previous_response_id") or asked.get("conversation_id")
    session = search.run.prepare_turn([] if isinstance(items, str) else items, not kept_elsewhere)
    functions = {one.name: one for one in tools if isinstance(one, FunctionTool)}
    hosted = [one for one in tools if not isinstance(one, FunctionTool)]
    shown = [
        _to_revealed_tool(functions[one.id], one) for one in search.run.turn_handler.tools(session)
    ]
    asked |= {"tools": [*hosted, *shown], "input": _append_notes(items, search.run.notes)}
    return asked, search.run


def _append_notes(
    items: str | list[TResponseInputItem], notes: Mapping[str, str]
) -> str | list[TResponseInputItem]:
    """The items, with what was put away to make room for a tool after the tool's result.

    The SDK has no place for that where tools are run. It follows from the items, so it is the same
    in every request, and the items of the run stay as they are.
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
    # Our own answer to a faulty call says it already.
    return item if note in str(output) else {**item, "output": f"{output}\n\n{note}"}


def _to_core_tool(given: FunctionTool) -> core.Tool:
    return core.Tool(
        given.name,
        given.description,
        given.params_json_schema,
        policy="always" if given.defer_loading else "automatic",
    )


def _to_revealed_tool(given: FunctionTool, tool: core.Tool) -> FunctionTool:
    """A tool as far as it is to be seen: whole, or without parameters; and not deferred once more."""
    schema = tool.input_schema
    if schema != given.params_json_schema:
        return replace(given, params_json_schema=schema, strict_json_schema=False)
    return replace(given, defer_loading=False) if given.defer_loading else given
