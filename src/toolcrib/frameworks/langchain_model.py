"""One step of a chat model in langchain-core's words, which LangChain and LangGraph share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt.tool_node import ToolCallRequest

from toolcrib.adapters import openai_chat
from toolcrib.core.calls import CallReply, ToolCall
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.frameworks.tool_index import FrameworkToolIndex
from toolcrib.search.engine import AllowedTools
from toolcrib.session.session import Session

MAX_CACHED_TOOLS: Final = 20_000
# Beside the stored session: what the results of the last turn's calls are still to be told with.
_NOTES_KEY: Final = "notes"

ToolResultT = TypeVar("ToolResultT")


class LangChainToolReader:
    """Tools out of langchain-core's, each read once: making a schema of a function is slow."""

    def __init__(self) -> None:
        # The tool is kept beside what was read of it, so that its address is nobody else's.
        self._cache: dict[int, tuple[BaseTool, Tool]] = {}

    def read_tool(self, given: BaseTool) -> Tool:
        """What a tool is to a model. One that its maker wants deferred is held back."""
        known = self._cache.get(id(given))
        if known:
            return known[1]
        function = convert_to_openai_tool(given)["function"]
        deferred = bool((given.extras or {}).get("defer_loading"))
        tool = Tool(
            function["name"],
            function.get("description", ""),
            function.get("parameters"),
            tags=given.tags or (),
            policy="always" if deferred else "automatic",
        )
        if len(self._cache) >= MAX_CACHED_TOOLS:
            self._cache.clear()
        self._cache[id(given)] = given, tool
        return tool


class ModelStep:
    """One request to a model: the tools to send, and what its calls then mean."""

    def __init__(
        self,
        shelf: FrameworkToolIndex,
        tools: Mapping[str, BaseTool],
        listed: Sequence[Tool],
        allowed: AllowedTools | None,
        stored: Mapping[str, Any] | None,
    ) -> None:
        self._turn_handler = shelf.build_turn_handler(listed, allowed)
        try:
            self._session = self._turn_handler.resume_session(Session.from_dict(stored or {}))
        except InvalidConfig:
            # Nothing stored yet, or by another version: a thread must not end for that.
            self._session = self._turn_handler.start_session(shelf.budget)
        self._langchain_tools = tools

    @property
    def tools(self) -> list[BaseTool | dict[str, Any]]:
        """What to bind: our own tools first, then what this conversation was shown, in order."""
        catalog = self._turn_handler.engine.catalog
        shown: list[BaseTool | dict[str, Any]] = []
        for tool in self._turn_handler.tools(self._session):
            # What is not in the catalog is our own, or a stub.
            whole = catalog.get(tool.id) is tool
            shown += (
                [self._langchain_tools[tool.id]] if whole else openai_chat.tools_to_wire([tool])
            )
        return shown

    def answer_calls(
        self, reply: AIMessage, done: Sequence[str] = ()
    ) -> tuple[list[ToolMessage], dict[str, Any]]:
        """The results of those calls that are not for tools to answer, and the session to keep.

        `done` are the ids of calls that have their results already.
        """
        calls = [
            ToolCall(str(call["id"]), call["name"], call["args"])
            for call in reply.tool_calls
            if call["id"] not in done
        ]
        turn = self._turn_handler.handle_calls(self._session, calls)
        notes = {task.call.id: task.note for task in turn.tasks if task.note}
        stored = {**turn.session.to_dict(), **({_NOTES_KEY: notes} if notes else {})}
        return [_to_tool_message(answer) for answer in turn.answers], stored


def append_note(request: ToolCallRequest, result: ToolResultT) -> ToolResultT | ToolMessage:
    """A tool's result, and after it what was put away to make room for the tool.

    One that goes to the user as it is stays as it is, and so does a command to the graph.
    """
    stored = request.state.get("toolcrib") if isinstance(request.state, Mapping) else None
    note = ((stored or {}).get(_NOTES_KEY) or {}).get(request.tool_call["id"])
    for_user = request.tool is not None and request.tool.return_direct
    if not note or for_user or not isinstance(result, ToolMessage):
        return result
    content = result.content
    told: Any = [*content, {"type": "text", "text": note}]
    if isinstance(content, str):
        told = f"{content}\n\n{note}"
    return result.model_copy(update={"content": told})


def _to_tool_message(answer: CallReply) -> ToolMessage:
    return ToolMessage(
        answer.text,
        tool_call_id=answer.call.id,
        name=answer.call.name,
        status="error" if answer.is_error else "success",
    )
