"""An MCP server with tool search, and the tools of MCP servers in a Toolcrib.

Run it with `pip install toolcrib mcp`, as a server on standard input and output:

    python examples/on_mcp.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from mcp import Client
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

from toolcrib import Toolcrib
from toolcrib.core.calls import CallResult
from toolcrib.demo import office
from toolcrib.toolcrib import ToolcribSession

Context = ServerRequestContext[Any]


def build_server(tools: Iterable[object]) -> Server[Any]:
    """Return a server that lists two tools: one that searches, one that calls.

    The list never changes, as newer versions of MCP require.
    """
    session = Toolcrib(tools).session(style="dispatch")

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[Tool.model_validate(tool) for tool in session.tools("mcp")])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        # `handle` waits for the tool; a thread keeps the event loop free.
        _, response = await asyncio.to_thread(session.handle, "mcp", params)
        return CallToolResult.model_validate(response["result"])

    return Server("office", on_list_tools=list_tools, on_call_tool=call_tool)


async def collect_tools(clients: dict[str, Client]) -> Toolcrib:
    """Return a Toolcrib with the tools of several servers."""
    listings = [{"server": name, "tools": (await client.list_tools()).tools} for name, client in clients.items()]
    return Toolcrib(listings)


async def call_pending(session: ToolcribSession, clients: dict[str, Client]) -> dict[str, CallResult]:
    """Return the servers' answers to the pending calls, for `session.answer`."""
    answers = {}
    for task in session.pending:
        client = clients[task.tool.server]
        result = await client.call_tool(task.tool.name, dict(task.arguments))
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        answers[task.call.id] = CallResult("\n".join(texts), result.is_error or False)
    return answers


async def main() -> None:
    """Serve the office tools on standard input and output."""
    server = build_server(office.tools())
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
