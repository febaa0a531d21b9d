"""One model step in terms of langchain-core, shared by LangChain and LangGraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt.tool_node import ToolCallRequest

from toolcrib.adapters import openai_chat
from toolcrib.core.calls import CallReply, ToolCall
from toolcrib.core.rights import AllowedTools
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.frameworks.tool_index import FrameworkToolIndex
from toolcrib.session.session import Session

MAX_CACHED_TOOLS: Final = 20_000
# Stored with the session: the notes to append to the results of the last turn's calls.
_NOTES_KEY: Final = "notes"

ToolResultT = TypeVar("ToolResultT")


class LangChainToolReader:
    """Converts langchain-core tools, each only once: building a schema from a function is slow."""

    def __init__(self) -> None:
        # The original is kept too, so that its id is not reused while it is in the cache.
        self._cache: dict[int, tuple[BaseTool, Tool]] = {}

    def read_tool(self, langchain_tool: BaseTool) -> Tool:
        """Return a langchain-core tool as a `Tool`, deferred if its extras say so."""
        cached = self._cache.get(id(langchain_tool))
        if cached:
            return cached[1]
        function = convert_to_openai_tool(langchain_tool)["function"]
        is_deferred = bool((langchain_tool.extras or {}).get("defer_loading"))
        tool = Tool(
            function["name"],
            function.get("description", ""),
            function.get("parameters"),
            tags=langchain_tool.tags or (),
            policy="always" if is_deferred else "automatic",
        )
        if len(self._cache) >= MAX_CACHED_TOOLS:
            self._cache.clear()
        self._cache[id(langchain_tool)] = langchain_tool, tool
        return tool


class ModelStep:
    """One request to a model: the tools to send, and the handling of its calls."""

    def __init__(
        self,
        index: FrameworkToolIndex,
        tools: Mapping[str, BaseTool],
        core_tools: Sequence[Tool],
        allowed: AllowedTools | None,
        stored: Mapping[str, Any] | None,
    ) -> None:
        self._turn_handler = index.build_turn_handler(core_tools, allowed)
        try:
            session = replace(Session.from_dict(stored or {}), budget_tokens=index.budget)
        except InvalidConfig:
            # Nothing is stored yet, or by another version; start a new session.
            self._session = self._turn_handler.start_session(index.budget)
        else:
            self._session = self._turn_handler.resume_session(session)
        self._langchain_tools = tools

    @property
    def tools(self) -> list[BaseTool | dict[str, Any]]:
        """The tools to bind: Toolcrib's own tools, then the revealed tools in order."""
        catalog = self._turn_handler.engine.catalog
        visible: list[BaseTool | dict[str, Any]] = []
        for tool in self._turn_handler.tools(self._session):
            # A tool that is not in the catalog is one of Toolcrib's own, or a stub.
            is_catalog_tool = catalog.get(tool.id) is tool
            visible += [self._langchain_tools[tool.id]] if is_catalog_tool else openai_chat.tools_to_wire([tool])
        return visible

    def answer_calls(
        self, reply: AIMessage, answered_ids: Sequence[str] = ()
    ) -> tuple[list[ToolMessage], dict[str, Any]]:
        """Return the results of the calls that Toolcrib answers, and the session to store.

        `answered_ids` are the ids of calls that already have results.
        """
        calls = [
            ToolCall(str(call["id"]), call["name"], call["args"])
            for call in reply.tool_calls
            if call["id"] not in answered_ids
        ]
        turn = self._turn_handler.handle_calls(self._session, calls)
        notes = {task.call.id: task.note for task in turn.tasks if task.note}
        stored = {**turn.session.to_dict(), **({_NOTES_KEY: notes} if notes else {})}
        return [_to_tool_message(answer) for answer in turn.replies], stored


def append_note(request: ToolCallRequest, result: ToolResultT) -> ToolResultT | ToolMessage:
    """Return a tool's result with the note about evicted tools appended.

    Results that go directly to the user, and commands to the graph, are returned unchanged.
    """
    stored = request.state.get("toolcrib") if isinstance(request.state, Mapping) else None
    note = ((stored or {}).get(_NOTES_KEY) or {}).get(request.tool_call["id"])
    is_for_user = request.tool is not None and request.tool.return_direct
    if not note or is_for_user or not isinstance(result, ToolMessage):
        return result
    content = result.content
    with_note: Any = [*content, {"type": "text", "text": note}]
    if isinstance(content, str):
        with_note = f"{content}\n\n{note}"
    return result.model_copy(update={"content": with_note})


def _to_tool_message(answer: CallReply) -> ToolMessage:
    return ToolMessage(
        answer.text,
        tool_call_id=answer.call.id,
        name=answer.call.name,
        status="error" if answer.is_error else "success",
    )
