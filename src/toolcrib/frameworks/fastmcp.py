"""FastMCP: a search transform, in place of its `BM25SearchTransform`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context
from fastmcp.server.transforms.search.base import BaseSearchTransform, SearchResultSerializer
from fastmcp.tools.base import Tool, ToolResult
from fastmcp.utilities.versions import dedupe_with_versions
from mcp.types import ToolAnnotations
from pydantic import Field

from toolcrib.core import prompts
from toolcrib.core import tool as core
from toolcrib.core.calls import CallReply, ToolCall
from toolcrib.frameworks.tool_index import FrameworkToolIndex, IndexOptions
from toolcrib.session.disclosure import Disclosure, DisclosurePlan
from toolcrib.session.turn import MAX_LIMIT, TurnHandler


class ToolcribSearchTransform(BaseSearchTransform):
    """Show clients the pinned tools, a search tool, and a tool that calls what was found.

    The list never changes, as newer versions of MCP require. A hidden tool can still be called by
    its own name. Search and call reach only the tools that FastMCP lets this client see. The named
    parameters are those of `BM25SearchTransform`.
    """

    def __init__(
        self,
        *,
        max_results: int = 5,
        always_visible: list[str] | None = None,
        search_tool_name: str = prompts.SEARCH_NAME,
        call_tool_name: str = "call_tool",
        search_result_serializer: SearchResultSerializer | None = None,
        **options: Unpack[IndexOptions],
    ) -> None:
        super().__init__(
            max_results=max_results,
            always_visible=always_visible,
            search_tool_name=search_tool_name,
            call_tool_name=call_tool_name,
            search_result_serializer=search_result_serializer,
        )
        disclosure = options.get("disclosure") or Disclosure()
        options["disclosure"] = replace(disclosure, pinned=disclosure.pinned | self._always_visible)
        self._index = FrameworkToolIndex(**options)

    async def transform_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return all tools if there are few, else the pinned, the search and the call tool."""
        newest = dedupe_with_versions(tools, lambda tool: tool.name)
        plan = self._index.build_turn_handler(map(_to_core_tool, newest)).plan
        if not plan.is_active:
            return tools
        pinned = {tool.name for tool in plan.visible_tools}
        visible = [tool for tool in tools if tool.name in pinned]
        return [*visible, self._make_search_tool(), self._make_call_tool()]

    def _make_search_tool(self) -> Tool:
        limit = prompts.LIMIT_DESCRIPTION.format(most=MAX_LIMIT, default=self._max_results)
        several = {"type": "array", "items": {"type": "string"}}
        return _TransformTool(
            name=self._search_tool_name,
            description=prompts.DISPATCH_DESCRIPTION.format(execute=self._call_tool_name),
            parameters=_object_schema(
                query={"type": "string", "description": prompts.QUERY_DESCRIPTION},
                queries={**several, "description": prompts.QUERIES_DESCRIPTION},
                limit={"type": "integer", "description": limit},
            ),
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True),
            action=self._answer_search,
        )

    def _make_call_tool(self) -> Tool:
        name_description = prompts.EXECUTE_TOOL_DESCRIPTION.format(search=self._search_tool_name)
        return _TransformTool(
            name=self._call_tool_name,
            description=prompts.EXECUTE_DESCRIPTION.format(search=self._search_tool_name),
            parameters={
                **_object_schema(
                    name={"type": "string", "description": name_description},
                    arguments={"type": "object", "description": prompts.EXECUTE_INPUT_DESCRIPTION},
                ),
                "required": ["name"],
            },
            action=self._call_tool,
        )

    async def _answer_search(self, arguments: dict[str, Any]) -> ToolResult:
        """Answer a search with full definitions."""
        catalog = await self.get_tool_catalog(get_context())
        answer = self._run_search(catalog, {"limit": self._max_results, **arguments})
        if answer.is_error:
            raise ToolError(answer.text)
        found = _select_found(catalog, answer)
        # If nothing is found, the answer is text with advice instead of an empty list.
        return ToolResult(await self._render_results(found) if found else answer.text)

    async def _call_tool(self, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool that this client may see."""
        context = get_context()
        name, tool_arguments = str(arguments.get("name", "")), arguments.get("arguments") or {}
        handler = self._build_turn_handler(await self.get_tool_catalog(context))
        call = ToolCall("", name, tool_arguments if isinstance(tool_arguments, dict) else None)
        turn = handler.handle_calls(handler.start_session(), [call])
        for answer in turn.replies:
            if answer.is_error:
                raise ToolError(answer.text)
            return ToolResult(answer.text)
        return await context.fastmcp.call_tool(turn.tasks[0].tool.name, tool_arguments)

    async def _search(self, tools: Sequence[Tool], query: str) -> Sequence[Tool]:
        return _select_found(tools, self._run_search(tools, {"query": query, "limit": self._max_results}))

    def _run_search(self, tools: Sequence[Tool], arguments: dict[str, Any]) -> CallReply:
        handler = self._build_turn_handler(tools)
        call = ToolCall("", "", arguments, is_search=True)
        [answer] = handler.handle_calls(handler.start_session(), [call]).replies
        return answer

    def _build_turn_handler(self, tools: Sequence[Tool]) -> TurnHandler:
        """Return the turn handler for a client that sees these tools.

        All tools count as deferred: every call of the search tool is answered, even if this client
        sees so few tools that the search tool is not in its list.
        """
        plan = DisclosurePlan((), tuple(map(_to_core_tool, tools)))
        handler = self._index.build_turn_handler(plan.deferred_tools)
        return replace(handler, plan=plan, search_name=self._search_tool_name)


class _TransformTool(Tool):
    """A tool with a given schema, for which FastMCP does not read a function's signature."""

    action: Callable[[dict[str, Any]], Awaitable[ToolResult]] = Field(exclude=True)

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the action."""
        return await self.action(arguments)


def _object_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _select_found(tools: Sequence[Tool], answer: CallReply) -> list[Tool]:
    tools_by_name = {tool.name: tool for tool in tools}
    return [tools_by_name[tool.name] for tool in answer.found_tools]


def _to_core_tool(fastmcp_tool: Tool) -> core.Tool:
    annotations = fastmcp_tool.annotations.model_dump(exclude_none=True) if fastmcp_tool.annotations else None
    return core.Tool(
        fastmcp_tool.name,
        fastmcp_tool.description or "",
        fastmcp_tool.parameters,
        title=fastmcp_tool.title or "",
        tags=sorted(fastmcp_tool.tags),
        annotations=annotations,
        output_schema=fastmcp_tool.output_schema,
    )
