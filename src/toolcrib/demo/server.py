"""The demo's tools as an MCP server on standard input and output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from toolcrib import __version__
from toolcrib.adapters.mcp import tools_to_wire
from toolcrib.demo import data_tools, date_tools, number_tools, text_tools
from toolcrib.registry.registry import Registry

INSTRUCTIONS: Final = (
    "Small tools that work without a network: text, numbers, statistics, money, units, dates, lists, "
    "JSON, encodings and colours."
)
_HARMLESS: Final = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}


def build_registry() -> Registry:
    """All tools of the demo."""
    tools = Registry(timeout_seconds=10)
    for group in (text_tools, number_tools, date_tools, data_tools):
        for function in group.TOOLS:
            tools.add(function, annotations=_HARMLESS)
    return tools


def build_server() -> Server[Any]:
    """The demo's server."""
    tools = build_registry()
    wire = tools_to_wire(tools.catalog)
    listed = types.ListToolsResult(tools=[types.Tool.model_validate(one) for one in wire])

    async def on_list(ctx: ServerRequestContext[Any, Any], params: object) -> types.ListToolsResult:
        return listed

    async def on_call(
        ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        given: Mapping[str, Any] = params.arguments or {}
        result = await tools.call_async(params.name, given)
        said = types.TextContent(text=result.text)
        return types.CallToolResult(content=[said], is_error=result.is_error)

    return Server(
        "toolcrib-demo",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=on_list,
        on_call_tool=on_call,
    )


async def serve() -> None:
    """Serve until the client leaves."""
    demo = build_server()
    async with stdio_server() as (read, write):
        await demo.run(read, write, demo.create_initialization_options())
