"""Google ADK: `Agent(…, tools=[ToolcribToolset([…])])`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from toolcrib.adapters import gemini
from toolcrib.core.calls import ToolCall
from toolcrib.core.rights import resolve_callback_result
from toolcrib.core.tool import Tool
from toolcrib.frameworks.tool_index import AllowedCallback, FrameworkOptions, FrameworkToolIndex
from toolcrib.session.turn import TurnHandler

# A function, a tool or a toolset of ADK.
AdkTool = Any


class ToolcribToolset(BaseToolset):
    """Show the model a search tool and the tools it found; the agent can call all its tools.

    Entries are functions, tools and toolsets of ADK. Revealed tools are read from the contents of the
    session, so nothing else has to be stored. `allowed` returns, for the context of a run, the tools
    that it may use. Tools that Gemini runs, such as Google Search, are always sent.
    """

    def __init__(
        self,
        tools: Sequence[AdkTool],
        *,
        allowed: AllowedCallback[ReadonlyContext | None] | None = None,
        **options: Unpack[FrameworkOptions],
    ) -> None:
        super().__init__()
        self._entries = list(tools)
        self._allowed = allowed
        self._index = FrameworkToolIndex(**options)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return one tool that adds the search tool and the revealed tools to each request."""
        tools = [tool for entry in self._entries for tool in await _resolve_entry(entry, readonly_context)]
        declarations = {tool.name: tool._get_declaration() for tool in tools}
        core_tools = [_to_core_tool(declaration) for declaration in declarations.values() if declaration]
        allowed = None
        if self._allowed:
            allowed = await resolve_callback_result(self._allowed(readonly_context), core_tools)
        handler = self._index.build_turn_handler(core_tools, allowed)
        hosted = [tool for tool in tools if not declarations[tool.name]]
        usable = {tool.name: tool for tool in tools if handler.find_tool(tool.name)}
        return [_SearchTool(handler, usable, hosted, self._index.budget)]

    async def close(self) -> None:
        """Close the toolsets among the entries."""
        for entry in self._entries:
            if isinstance(entry, BaseToolset):
                await entry.close()


class _SearchTool(BaseTool):
    def __init__(
        self, handler: TurnHandler, tools: dict[str, BaseTool], hosted: Sequence[BaseTool], budget: int | None
    ) -> None:
        search_tool = handler.search_tool
        super().__init__(name=search_tool.name, description=search_tool.description)
        self._handler = handler
        self._tools = tools
        self._hosted = hosted
        self._budget = budget

    def _get_declaration(self) -> types.FunctionDeclaration:
        return _to_declaration(self._handler.search_tool)

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        """Declare the tools of this step. The others can be called too, but are not declared."""
        session = self._handler.replay_history(gemini.turns_from_wire(llm_request.contents), self._budget)
        llm_request.tools_dict.update(self._tools)
        declared: list[BaseTool] = []
        for tool in self._handler.tools(session):
            adk_tool = self._tools.get(tool.id)
            if adk_tool is None:
                declared.append(self)
            elif self._handler.engine.catalog.get(tool.id) is tool:
                declared.append(adk_tool)
            else:
                declared.append(_Stub(tool))
        for name in [tool.name for tool in declared]:
            # `append_tools` warns about names that are registered already.
            llm_request.tools_dict.pop(name, None)
        for tool in (*self._hosted, *declared):
            if tool is self or isinstance(tool, _Stub):
                llm_request.append_tools([tool])
            else:
                await tool.process_llm_request(tool_context=tool_context, llm_request=llm_request)
        for stub in declared:
            if isinstance(stub, _Stub):
                llm_request.tools_dict[stub.name] = self._tools[stub.name]

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str]:
        """Return the answer to a search."""
        contents = [event.content for event in tool_context.session.events if event.content]
        session = self._handler.replay_history(gemini.turns_from_wire(contents), self._budget)
        call = ToolCall(tool_context.function_call_id or "", self.name, args)
        return {"output": self._handler.handle_calls(session, [call]).replies[0].text}


class _Stub(BaseTool):
    """Declares a tool without its parameters."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(name=tool.id, description=tool.description)
        self._tool = tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return _to_declaration(self._tool)


async def _resolve_entry(entry: AdkTool, context: ReadonlyContext | None) -> Iterable[BaseTool]:
    if isinstance(entry, BaseToolset):
        return await entry.get_tools_with_prefix(context)
    return [entry if isinstance(entry, BaseTool) else FunctionTool(entry)]


def _to_core_tool(declaration: types.FunctionDeclaration) -> Tool:
    [tool] = gemini.tools_from_wire({"functionDeclarations": [declaration.model_dump(mode="json", exclude_none=True)]})
    return tool


def _to_declaration(tool: Tool) -> types.FunctionDeclaration:
    return types.FunctionDeclaration(
        name=tool.id, description=tool.description, parameters_json_schema=dict(tool.input_schema)
    )
