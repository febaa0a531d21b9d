"""LangGraph: the graph of an agent over a registry of tools, in place of langgraph-bigtool's."""

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

from toolcrib.core.rights import AllowedTools, check_callback_result, resolve_callback_result
from toolcrib.frameworks.langchain_model import LangChainToolReader, ModelStep, append_note
from toolcrib.frameworks.tool_index import AllowedCallback, FrameworkOptions, FrameworkToolIndex


class ToolcribGraphState(TypedDict):
    """The messages, and the stored session with the revealed tools."""

    messages: Annotated[list[AnyMessage], add_messages]
    toolcrib: NotRequired[dict[str, Any]]


def create_agent(
    llm: BaseChatModel,
    tool_registry: Mapping[str, BaseTool | Callable[..., Any]] | Iterable[BaseTool | Callable[..., Any]],
    *,
    allowed: AllowedCallback[Runtime[Any]] | None = None,
    **options: Unpack[FrameworkOptions],
) -> StateGraph[ToolcribGraphState, Any, ToolcribGraphState, ToolcribGraphState]:
    """Return the graph of an agent that searches a registry for its tools; call `compile` on it.

    Revealed tools are part of the graph's state, so a thread with a checkpointer keeps them.
    `allowed` returns, for the runtime of a run, the tools that it may use.
    """
    registered = tool_registry.values() if isinstance(tool_registry, Mapping) else tool_registry
    tools = [item if isinstance(item, BaseTool) else tool(item) for item in registered]
    model = _ModelNode(llm, tools, allowed, FrameworkToolIndex(**options))
    graph = StateGraph(ToolcribGraphState)
    graph.add_node("agent", RunnableLambda(model.reply, model.areply, name="agent"))
    graph.add_node("tools", ToolNode(tools, wrap_tool_call=_run_tool, awrap_tool_call=_arun_tool))
    graph.set_entry_point("agent")
    graph.add_conditional_edges("agent", _route_after_reply, ["agent", "tools", END])
    graph.add_edge("tools", "agent")
    return graph


class _ModelNode:
    """The node that calls the model."""

    def __init__(
        self,
        llm: BaseChatModel,
        tools: Iterable[BaseTool],
        allowed: AllowedCallback[Runtime[Any]] | None,
        index: FrameworkToolIndex,
    ) -> None:
        reader = LangChainToolReader()
        pairs = [(reader.read_tool(tool), tool) for tool in tools]
        self._llm = llm
        self._tools = [tool for tool, _ in pairs]
        self._langchain_tools = {tool.id: langchain_tool for tool, langchain_tool in pairs}
        self._allowed = allowed
        self._index = index

    def reply(self, state: ToolcribGraphState, config: RunnableConfig) -> dict[str, Any]:
        allowed = check_callback_result(self._allowed(get_runtime())) if self._allowed else None
        step = self._start_step(state, allowed)
        reply = self._llm.bind_tools(step.tools).invoke(state["messages"], config)
        return _build_update(step, reply)

    async def areply(self, state: ToolcribGraphState, config: RunnableConfig) -> dict[str, Any]:
        allowed = await resolve_callback_result(self._allowed(get_runtime()), self._tools) if self._allowed else None
        step = self._start_step(state, allowed)
        reply = await self._llm.bind_tools(step.tools).ainvoke(state["messages"], config)
        return _build_update(step, reply)

    def _start_step(self, state: ToolcribGraphState, allowed: AllowedTools | None) -> ModelStep:
        return ModelStep(self._index, self._langchain_tools, self._tools, allowed, state.get("toolcrib"))


def _build_update(step: ModelStep, reply: AIMessage) -> dict[str, Any]:
    messages, stored = step.answer_calls(reply)
    return {"messages": [reply, *messages], "toolcrib": stored}


def _run_tool(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
) -> ToolMessage | Command[Any]:
    return append_note(request, execute(request))


async def _arun_tool(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
) -> ToolMessage | Command[Any]:
    return append_note(request, await execute(request))


def _route_after_reply(state: ToolcribGraphState) -> str | list[Send]:
    """Return the next node: the tools that were called, the model again, or the end."""
    answered_ids: set[str] = set()
    for message in reversed(state["messages"]):
        if isinstance(message, AIMessage):
            open_calls = [call for call in message.tool_calls if call["id"] not in answered_ids]
            if open_calls:
                return [Send("tools", [call]) for call in open_calls]
            return "agent" if message.tool_calls else END
        if isinstance(message, ToolMessage):
            answered_ids.add(message.tool_call_id)
    return END
