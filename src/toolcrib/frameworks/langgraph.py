"""LangGraph: an agent's graph over a registry of tools, in place of langgraph-bigtool's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, NotRequired, TypedDict, Unpack

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Command, Send

from toolcrib.frameworks.langchain_model import Reader, Step, noted
from toolcrib.frameworks.tool_index import Options, Shelf
from toolcrib.search.engine import Allowed


class State(TypedDict):
    """The messages, and what the model has been shown, as a stored session."""

    messages: Annotated[list[AnyMessage], add_messages]
    toolcrib: NotRequired[dict[str, Any]]


def create_agent(
    llm: BaseChatModel,
    tool_registry: Mapping[str, BaseTool | Callable[..., Any]]
    | Iterable[BaseTool | Callable[..., Any]],
    *,
    allowed: Callable[[Runtime[Any]], Allowed | None] | None = None,
    **options: Unpack[Options],
) -> StateGraph[State, Any, State, State]:
    """The graph of an agent that searches a registry for its tools; `compile` it.

    What was found is part of the graph's state, so a thread that a checkpointer keeps goes on with
    it. `allowed` says, of a run's context, which of the tools it may use.
    """
    given = tool_registry.values() if isinstance(tool_registry, Mapping) else tool_registry
    tools = [one if isinstance(one, BaseTool) else tool(one) for one in given]
    model = _Model(llm, tools, allowed, Shelf(**options))
    graph = StateGraph(State)
    graph.add_node("agent", RunnableLambda(model.reply, model.areply, name="agent"))
    graph.add_node("tools", ToolNode(tools, wrap_tool_call=_run, awrap_tool_call=_arun))
    graph.set_entry_point("agent")
    graph.add_conditional_edges("agent", _next, ["agent", "tools", END])
    graph.add_edge("tools", "agent")
    return graph


class _Model:
    """The node in which the model is asked."""

    def __init__(
        self,
        llm: BaseChatModel,
        tools: Iterable[BaseTool],
        allowed: Callable[[Runtime[Any]], Allowed | None] | None,
        shelf: Shelf,
    ) -> None:
        reader = Reader()
        listed = [(reader.tool(one), one) for one in tools]
        self._llm = llm
        self._listed = [one for one, _ in listed]
        self._given = {one.id: given for one, given in listed}
        self._allowed = allowed
        self._shelf = shelf

    def reply(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        step = self._step(state)
        reply = self._llm.bind_tools(step.tools).invoke(state["messages"], config)
        return _update(step, reply)

    async def areply(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        step = self._step(state)
        reply = await self._llm.bind_tools(step.tools).ainvoke(state["messages"], config)
        return _update(step, reply)

    def _step(self, state: State) -> Step:
        allowed = self._allowed and self._allowed(get_runtime())
        return Step(self._shelf, self._given, self._listed, allowed, state.get("toolcrib"))


def _update(step: Step, reply: AIMessage) -> dict[str, Any]:
    messages, stored = step.answered(reply)
    return {"messages": [reply, *messages], "toolcrib": stored}


def _run(
    request: ToolCallRequest,
    execute: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
) -> ToolMessage | Command[Any]:
    return noted(request, execute(request))


async def _arun(
    request: ToolCallRequest,
    execute: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
) -> ToolMessage | Command[Any]:
    return noted(request, await execute(request))


def _next(state: State) -> str | list[Send]:
    """Where to go after a reply: to the tools it calls, back to the model, or to the end."""
    answered: set[str] = set()
    for message in reversed(state["messages"]):
        if isinstance(message, AIMessage):
            waiting = [call for call in message.tool_calls if call["id"] not in answered]
            if waiting:
                return [Send("tools", [call]) for call in waiting]
            return "agent" if message.tool_calls else END
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
    return END
