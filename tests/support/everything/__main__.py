"""A server that can do everything, for the official conformance suite to be run against.

The suite names its tools, prompts and resources and says how each behaves.

    python -m tests.support.everything [PORT]    on standard input and output without a port
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from tests.support.everything.shelf import (
    IMAGE,
    NAME,
    PICTURE,
    PROMPTS,
    RESOURCES,
    TOOLS,
    Context,
    Result,
    answers,
    bus,
    field,
    form,
    is_modern,
    resource,
    wanted,
)

Handler = Callable[[Context, Any], Awaitable[Any]]


async def list_tools(ctx: Context, params: Any) -> Any:
    return {"tools": [definition for definition, _ in TOOLS.values()]}


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Any:
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await TOOLS[params.name][1](ctx, params)


async def list_resources(ctx: Context, params: Any) -> Any:
    return {"resources": list(RESOURCES)}


async def list_templates(ctx: Context, params: Any) -> Any:
    template = {"uriTemplate": "test://template/{id}/data", "name": "Template"}
    return {"resourceTemplates": [template]}


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> Any:
    uri = params.uri
    kind = next((one["mimeType"] for one in RESOURCES if one["uri"] == uri), "application/json")
    body: Result = {"uri": uri, "mimeType": kind}
    if kind == "image/png":
        return {"contents": [{**body, "blob": PICTURE}]}
    if kind == "text/plain":
        return {"contents": [{**body, "text": f"The text of {uri}."}]}
    if uri.startswith("test://template/"):
        id = uri.split("/")[3]
        return {"contents": [{**body, "text": json.dumps({"id": id, "templateTest": True})}]}
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


async def list_prompts(ctx: Context, params: Any) -> Any:
    return {"prompts": list(PROMPTS)}


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Any:
    given = params.arguments or {}
    content: list[Mapping[str, Any]] = [{"type": "text", "text": f"Prompt with {given}."}]
    if params.name == "test_input_required_result_prompt":
        context = field(answers(params).get("user_context"), "context")
        if context is None:
            question = form("What context should the prompt use?", context=NAME)
            return wanted({"user_context": question})
        content = [{"type": "text", "text": str(context)}]
    if params.name == "test_prompt_with_image":
        content.insert(0, IMAGE)
    if params.name == "test_prompt_with_embedded_resource":
        content.insert(0, resource(str(given.get("resourceUri")), "Embedded."))
    return {"messages": [{"role": "user", "content": one} for one in content]}


async def complete(ctx: Context, params: types.CompleteRequestParams) -> Any:
    return {"completion": {"values": ["test1", "test2"], "total": 2, "hasMore": False}}


async def nothing(ctx: Context, params: Any) -> Any:
    return {}


def stamped(handler: Handler, *, cacheable: bool = False) -> Handler:
    """The same with what results have to say without a handshake."""

    async def answer(ctx: Context, params: Any) -> Any:
        result = await handler(ctx, params)
        if not is_modern(ctx):
            return result
        hints = {"ttlMs": 0, "cacheScope": "private"} if cacheable else {}
        return {"resultType": "complete", **hints, **result}

    return answer


class Events(EventStore):
    """What was sent on which stream, for clients that come back."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str:
        stream = self._events[int(last_event_id) - 1][0]
        for number, (of, message) in enumerate(self._events, 1):
            if of == stream and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Everything(Server[Any]):
    """The SDK's server, which says that its lists may change."""

    def create_initialization_options(self, *args: Any, **given: Any) -> Any:
        return super().create_initialization_options(NotificationOptions(True, True, True))


def schema_of(name: str) -> Mapping[str, Any] | None:
    """A tool's schema, for the check of headers that repeat its arguments."""
    schema: Mapping[str, Any] | None = TOOLS[name][0]["inputSchema"] if name in TOOLS else None
    return schema


SERVER: Final = Everything(
    "everything",
    version="1",
    get_tool_input_schema=schema_of,
    on_list_tools=stamped(list_tools, cacheable=True),
    on_call_tool=stamped(call_tool),
    on_list_resources=stamped(list_resources, cacheable=True),
    on_list_resource_templates=stamped(list_templates, cacheable=True),
    on_read_resource=stamped(read_resource, cacheable=True),
    on_subscribe_resource=nothing,
    on_unsubscribe_resource=nothing,
    on_list_prompts=stamped(list_prompts, cacheable=True),
    on_get_prompt=stamped(get_prompt),
    on_completion=stamped(complete),
    on_set_logging_level=nothing,
    on_subscriptions_listen=ListenHandler(bus),
)


async def serve_stdio() -> None:
    """Serve one client on standard input and output."""
    async with stdio_server() as (read, write):
        await SERVER.run(read, write, SERVER.create_initialization_options())


if __name__ == "__main__":
    if len(sys.argv) == 1:
        anyio.run(serve_stdio)
    else:
        import uvicorn

        app = SERVER.streamable_http_app(event_store=Events(), retry_interval=100)
        # Not the parser that leaves white space around the values of headers, if that is installed.
        uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", http="h11")
