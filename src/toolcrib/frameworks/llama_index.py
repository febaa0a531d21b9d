"""LlamaIndex: `FunctionAgent(…, tool_retriever=ToolcribRetriever([…]))`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from llama_index.core.objects import ObjectRetriever
from llama_index.core.schema import QueryType
from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolMetadata, ToolOutput, adapt_to_async_tool

from toolcrib.core.calls import ToolCall
from toolcrib.core.rights import AllowedTools
from toolcrib.core.tool import Tool
from toolcrib.frameworks.tool_index import FrameworkToolIndex, IndexOptions
from toolcrib.session.turn import TurnHandler

DEFAULT_LIMIT = 5


class ToolcribRetriever(ObjectRetriever[BaseTool]):
    """Return the tools that fit the user's message, and two tools that search and call the others.

    A retriever is shared by all runs of an agent and has no state. `allowed` are the tools that may be
    used.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]],
        *,
        limit: int = DEFAULT_LIMIT,
        allowed: AllowedTools | None = None,
        **options: Unpack[IndexOptions],
    ) -> None:
        llama_tools = (tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool) for tool in tools)
        self._tools = {tool.metadata.get_name(): tool for tool in llama_tools}
        self._core_tools = [
            Tool(tool.metadata.get_name(), tool.metadata.description, tool.metadata.get_parameters_dict())
            for tool in self._tools.values()
        ]
        self._limit = limit
        self._allowed = allowed
        self._index = FrameworkToolIndex(**options)

    def retrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Return the pinned tools, the search tools, and the tools for a message."""
        query = str_or_query_bundle if isinstance(str_or_query_bundle, str) else str_or_query_bundle.query_str
        handler = self._index.build_turn_handler(self._core_tools, self._allowed, style="dispatch")
        visible = [self._tools[tool.id] for tool in handler.start_session().visible_tools(handler.engine.catalog)]
        if not handler.own_tools:
            return visible
        found = handler.search(query, self._limit) if query.strip() else ()
        fitting = [self._tools[hit.tool.id] for hit in found if hit.tool.id not in {t.metadata.name for t in visible}]
        search, execute = handler.own_tools
        own = [_RetrieverTool(search, handler, self._tools), _RetrieverTool(execute, handler, self._tools)]
        return [*own, *visible, *(fitting if found and found.confident else [])]

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """Do the same as `retrieve` in an event loop."""
        return self.retrieve(str_or_query_bundle)


class _RetrieverTool(AsyncBaseTool):
    """The search tool or the execute tool of the dispatch style."""

    def __init__(self, tool: Tool, handler: TurnHandler, tools: dict[str, BaseTool]) -> None:
        self._handler = handler
        self._tools = tools
        self._metadata = _ToolMetadata(tool)

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, **arguments: Any) -> ToolOutput:
        """Answer a search, or call a tool."""
        task = self._resolve(arguments)
        return task if isinstance(task, ToolOutput) else task[0].call(**task[1])

    async def acall(self, **arguments: Any) -> ToolOutput:
        """Do the same as `call` in an event loop."""
        task = self._resolve(arguments)
        return task if isinstance(task, ToolOutput) else await task[0].acall(**task[1])

    def _resolve(self, arguments: dict[str, Any]) -> ToolOutput | tuple[AsyncBaseTool, dict[str, Any]]:
        call = ToolCall("", self._metadata.get_name(), arguments)
        turn = self._handler.handle_calls(self._handler.start_session(), [call])
        if turn.tasks:
            [task] = turn.tasks
            return adapt_to_async_tool(self._tools[task.tool.id]), dict(task.arguments)
        [reply] = turn.replies
        return ToolOutput(
            content=reply.text, tool_name=call.name, raw_input=arguments, raw_output=reply.text, is_error=reply.is_error
        )


class _ToolMetadata(ToolMetadata):
    """Metadata with a JSON Schema instead of a pydantic model."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(tool.description, tool.name, None)
        self._parameters = dict(tool.input_schema)

    def get_parameters_dict(self) -> dict[str, Any]:
        return self._parameters

    @property
    def fn_schema_str(self) -> str:
        return json.dumps(self._parameters)
