"""The demo tools as an MCP server on standard input and output."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from toolcrib import __version__
from toolcrib.adapters.mcp import tools_to_wire
from toolcrib.demo import data_tools, number_tools, text_tools
from toolcrib.registry.registry import Registry

INSTRUCTIONS: Final = (
    "Small tools that work without a network: text, numbers, statistics, money, units, dates, lists, "
    "JSON, encodings and colours."
)
_READ_ONLY_ANNOTATIONS: Final = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}


def build_registry() -> Registry:
    """Return a registry of all demo tools: the public functions of the three modules."""
    tools = Registry(timeout_seconds=10)
    for group in (text_tools, number_tools, data_tools):
        for name, function in vars(group).items():
            if inspect.isfunction(function) and function.__module__ == group.__name__ and not name.startswith("_"):
                tools.add(function, annotations=_READ_ONLY_ANNOTATIONS)
    return tools


def build_server() -> Server[Any]:
    """Return the MCP server of the demo."""
    tools = build_registry()
    wire = tools_to_wire(tools.catalog)
    tool_list = types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in wire])

    async def on_list(ctx: ServerRequestContext[Any, Any], params: object) -> types.ListToolsResult:
        return tool_list

    async def on_call(ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments: Mapping[str, Any] = params.arguments or {}
        result = await tools.call_async(params.name, arguments)
        content = types.TextContent(text=result.text)
        return types.CallToolResult(content=[content], is_error=result.is_error)

    return Server(
        "toolcrib-demo", version=__version__, instructions=INSTRUCTIONS, on_list_tools=on_list, on_call_tool=on_call
    )


async def serve() -> None:
    """Serve one client on standard input and output until it disconnects."""
    demo = build_server()
    async with stdio_server() as (read, write):
        await demo.run(read, write, demo.create_initialization_options())
