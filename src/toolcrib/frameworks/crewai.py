"""CrewAI: `Agent(…, tools=build_search_tools([…]))`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from crewai.tools import BaseTool
from crewai.tools import tool as to_crew_tool
from pydantic import BaseModel, Field, PrivateAttr

from toolcrib.core import prompts
from toolcrib.core.calls import ToolCall
from toolcrib.core.rights import AllowedTools
from toolcrib.core.tool import Tool
from toolcrib.frameworks.tool_index import FrameworkToolIndex, IndexOptions
from toolcrib.session.turn import TurnHandler


def build_search_tools(
    tools: Sequence[BaseTool | Callable[..., Any]],
    *,
    allowed: AllowedTools | None = None,
    **options: Unpack[IndexOptions],
) -> list[BaseTool]:
    """Return the pinned tools, and two tools that search and call the others.

    The tools of a crew's agent do not change during a task, so found tools are called through the
    second one. `allowed` are the tools that may be used.
    """
    crew_tools = [tool if isinstance(tool, BaseTool) else to_crew_tool(tool) for tool in tools]
    by_name = {tool.name: tool for tool in crew_tools}
    core_tools = [Tool(tool.name, tool.description, tool.args_schema.model_json_schema()) for tool in by_name.values()]
    index = FrameworkToolIndex(**options)
    handler = index.build_turn_handler(core_tools, allowed, style="dispatch")
    pinned = [by_name[tool.id] for tool in handler.start_session().visible_tools(handler.engine.catalog)]
    if not handler.own_tools:
        return pinned
    search, execute = handler.own_tools
    return [
        _DispatchTool(search, _SearchArguments, handler, by_name),
        _DispatchTool(execute, _ExecuteArguments, handler, by_name),
        *pinned,
    ]


class _SearchArguments(BaseModel):
    query: str = Field(description=prompts.QUERY_DESCRIPTION)
    limit: int = Field(5, description="How many tools to return.")


class _ExecuteArguments(BaseModel):
    tool_name: str = Field(description="The tool's name, as the search returned it.")
    tool_input: dict[str, Any] = Field(description=prompts.EXECUTE_INPUT_DESCRIPTION)


class _DispatchTool(BaseTool):
    """The search tool or the execute tool."""

    name: str = ""
    description: str = ""
    _handler: TurnHandler = PrivateAttr()
    _tools: dict[str, BaseTool] = PrivateAttr()

    def __init__(self, tool: Tool, schema: type[BaseModel], handler: TurnHandler, tools: dict[str, BaseTool]) -> None:
        super().__init__(name=tool.name, description=tool.description, args_schema=schema)
        self._handler = handler
        self._tools = tools

    def _run(self, **arguments: Any) -> Any:
        turn = self._handler.handle_calls(self._handler.start_session(), [ToolCall("", self.name, arguments)])
        if turn.tasks:
            [task] = turn.tasks
            return self._tools[task.tool.id].run(**task.arguments)
        return turn.replies[0].text
