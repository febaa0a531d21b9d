"""An MCP server whose tools are searched for, and a client's tools in a crib.

Run it with `pip install toolcrib mcp`, as a server on standard input and output:

    python -m examples.on_mcp
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from mcp import Client
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from examples import office
from toolcrib import Toolcrib
from toolcrib.core.calls import CallResult
from toolcrib.toolcrib import ToolcribSession

Context = ServerRequestContext[Any]


def server(tools: Iterable[object]) -> Server[Any]:
    """A server that lists two tools, whatever it has: one that searches, one that calls.

    The list never changes, as the newest MCP wants it, and as clients cache it.
    """
    session = Toolcrib(tools).session(style="dispatch")

    async def list_tools(
        context: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[Tool.model_validate(one) for one in session.tools("mcp")])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        # Our functions run in threads; this only keeps the loop free while they do.
        _, response = await asyncio.to_thread(session.handle, "mcp", params)
        return CallToolResult.model_validate(response["result"])

    return Server("office", on_list_tools=list_tools, on_call_tool=call_tool)


async def crib_of(clients: dict[str, Client]) -> Toolcrib:
    """The tools of several servers in one crib, each under its server's name."""
    listings = [
        {"server": name, "tools": (await client.list_tools()).tools}
        for name, client in clients.items()
    ]
    return Toolcrib(listings)


async def results(session: ToolcribSession, clients: dict[str, Client]) -> dict[str, CallResult]:
    """What the servers answer to the calls that are pending, for `session.answer`."""
    answers = {}
    for task in session.pending:
        client = clients[task.tool.server]
        came = await client.call_tool(task.tool.name, dict(task.arguments))
        words = [block.text for block in came.content if isinstance(block, TextContent)]
        answers[task.call.id] = CallResult("\n".join(words), came.is_error or False)
    return answers


async def main() -> None:
    """Serve the office."""
    served = server(office.tools())
    async with stdio_server() as (reading, writing):
        await served.run(reading, writing, served.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
