"""A server for `benchmarks.mcp` with any number of tools that return their input.

python -m benchmarks.echo_server NUMBER
"""

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

Context = Any


def definition(number: int) -> dict[str, Any]:
    """Return a tool about as large as a real one."""
    about = f"Echo a text through channel {number}, with its length and the time it came in. "
    text = {"type": "string", "description": "What to echo, up to a thousand characters."}
    count = {"type": "integer", "minimum": 1, "maximum": 9, "description": "How often to echo it."}
    return {
        "name": f"echo_{number}",
        "description": about * 3,
        "inputSchema": {
            "type": "object",
            "properties": {"text": text, "times": count, "label": text, "channel": text},
            "required": ["text"],
        },
        "annotations": {"readOnlyHint": True},
    }


def server(tools: int) -> Server[Any]:
    """Return a server with this number of tools."""
    listed = [types.Tool.model_validate(definition(number)) for number in range(tools)]

    async def list_tools(ctx: Context, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = str((params.arguments or {}).get("text"))
        return types.CallToolResult(content=[types.TextContent(text=text)])

    return Server("echo", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def main(tools: int) -> None:
    """Serve one client on standard input and output."""
    echo = server(tools)
    async with stdio_server() as (read, write):
        await echo.run(read, write, echo.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]))
