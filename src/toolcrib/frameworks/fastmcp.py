"""FastMCP: a search transform, in place of its `BM25SearchTransform`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

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
from toolcrib.core.catalog import Catalog
from toolcrib.frameworks.tool_index import FrameworkToolIndex
from toolcrib.search.engine import SearchEngine
from toolcrib.session.disclosure import Disclosure, DisclosurePlan
from toolcrib.session.turn import MAX_LIMIT, TurnHandler


class ToolcribSearchTransform(BaseSearchTransform):
    """Clients see the pinned tools, a search tool, and one that calls what was found.

    That list never changes, as newer versions of MCP demand. A hidden tool may still be called by
    its own name. Search and call reach what FastMCP's own rules let this client see, and no more.
    The parameters are those of `BM25SearchTransform`; `disclosure` and `engine` are as in every
    framework.
    """

    def __init__(
        self,
        *,
        max_results: int = 5,
        always_visible: list[str] | None = None,
        search_tool_name: str = prompts.SEARCH_NAME,
        call_tool_name: str = "call_tool",
        search_result_serializer: SearchResultSerializer | None = None,
        disclosure: Disclosure | None = None,
        engine: Callable[[Catalog], SearchEngine] = SearchEngine,
    ) -> None:
        super().__init__(
            max_results=max_results,
            always_visible=always_visible,
            search_tool_name=search_tool_name,
            call_tool_name=call_tool_name,
            search_result_serializer=search_result_serializer,
        )
        chosen = disclosure or Disclosure()
        pinned = replace(chosen, pinned=chosen.pinned | self._always_visible)
        self._index = FrameworkToolIndex(disclosure=pinned, engine=engine)

    async def transform_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """What a client is listed: everything where that is little, else what is pinned."""
        newest = dedupe_with_versions(tools, lambda tool: tool.name)
        plan = self._index.build_turn_handler(map(_to_core_tool, newest)).plan
        if not plan.is_active:
            return tools
        pinned = {tool.name for tool in plan.visible_tools}
        shown = [tool for tool in tools if tool.name in pinned]
        return [*shown, self._make_search_tool(), self._make_call_tool()]

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
        named = prompts.EXECUTE_TOOL_DESCRIPTION.format(search=self._search_tool_name)
        return _TransformTool(
            name=self._call_tool_name,
            description=prompts.EXECUTE_DESCRIPTION.format(search=self._search_tool_name),
            parameters={
                **_object_schema(
                    name={"type": "string", "description": named},
                    arguments={"type": "object", "description": prompts.EXECUTE_INPUT_DESCRIPTION},
                ),
                "required": ["name"],
            },
            action=self._call_tool,
        )

    async def _answer_search(self, arguments: dict[str, Any]) -> ToolResult:
        """Answer a search with whole definitions."""
        catalog = await self.get_tool_catalog(get_context())
        answer = self._run_search(catalog, {"limit": self._max_results, **arguments})
        if answer.is_error:
            raise ToolError(answer.text)
        found = _select_found(catalog, answer)
        # Nothing found is said in words: an empty list says neither that nor what to do.
        return ToolResult(await self._render_results(found) if found else answer.text)

    async def _call_tool(self, arguments: dict[str, Any]) -> ToolResult:
        """ToolCall a tool that this client may see."""
        context = get_context()
        name, given = str(arguments.get("name", "")), arguments.get("arguments") or {}
        conversation = self._build_turn_handler(await self.get_tool_catalog(context))
        meant = ToolCall("", name, given if isinstance(given, dict) else None)
        turn = conversation.handle_calls(conversation.start_session(), [meant])
        for answer in turn.answers:
            if answer.is_error:
                raise ToolError(answer.text)
            return ToolResult(answer.text)
        return await context.fastmcp.call_tool(turn.tasks[0].tool.name, given)

    async def _search(self, tools: Sequence[Tool], query: str) -> Sequence[Tool]:
        return _select_found(
            tools, self._run_search(tools, {"query": query, "limit": self._max_results})
        )

    def _run_search(self, tools: Sequence[Tool], arguments: dict[str, Any]) -> CallReply:
        conversation = self._build_turn_handler(tools)
        call = ToolCall("", "", arguments, is_search=True)
        [answer] = conversation.handle_calls(conversation.start_session(), [call]).answers
        return answer

    def _build_turn_handler(self, tools: Sequence[Tool]) -> TurnHandler:
        """The rules for a client that sees these tools.

        Others may see more, and be told to search where this one has little to search for. Who is
        listed a search tool is not asked here: whoever calls it is answered.
        """
        held = DisclosurePlan((), tuple(map(_to_core_tool, tools)))
        conversation = self._index.build_turn_handler(held.deferred_tools)
        return replace(conversation, plan=held, search_name=self._search_tool_name)


class _TransformTool(Tool):
    """A tool of ours, of which FastMCP need not read a function's signature."""

    action: Callable[[dict[str, Any]], Awaitable[ToolResult]] = Field(exclude=True)

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Do it."""
        return await self.action(arguments)


def _object_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _select_found(tools: Sequence[Tool], answer: CallReply) -> list[Tool]:
    given = {tool.name: tool for tool in tools}
    return [given[tool.name] for tool in answer.found_tools]


def _to_core_tool(given: Tool) -> core.Tool:
    annotations = given.annotations.model_dump(exclude_none=True) if given.annotations else None
    return core.Tool(
        given.name,
        given.description or "",
        given.parameters,
        title=given.title or "",
        tags=sorted(given.tags),
        annotations=annotations,
        output_schema=given.output_schema,
    )
