"""A server with every MCP feature, for the official conformance suite.

The suite prescribes its tools, prompts and resources and how each behaves.

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

from tests.support.everything.features import (
    IMAGE,
    NAME,
    PICTURE,
    PROMPTS,
    RESOURCES,
    TOOLS,
    Context,
    Result,
    bus,
    field,
    form,
    input_required,
    input_responses,
    is_stateless,
    resource,
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
    kind = next((item["mimeType"] for item in RESOURCES if item["uri"] == uri), "application/json")
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
    options = params.arguments or {}
    content: list[Mapping[str, Any]] = [{"type": "text", "text": f"Prompt with {options}."}]
    if params.name == "test_input_required_result_prompt":
        context = field(input_responses(params).get("user_context"), "context")
        if context is None:
            question = form("What context should the prompt use?", context=NAME)
            return input_required({"user_context": question})
        content = [{"type": "text", "text": str(context)}]
    if params.name == "test_prompt_with_image":
        content.insert(0, IMAGE)
    if params.name == "test_prompt_with_embedded_resource":
        content.insert(0, resource(str(options.get("resourceUri")), "Embedded."))
    return {"messages": [{"role": "user", "content": item} for item in content]}


async def complete(ctx: Context, params: types.CompleteRequestParams) -> Any:
    return {"completion": {"values": ["test1", "test2"], "total": 2, "hasMore": False}}


async def nothing(ctx: Context, params: Any) -> Any:
    return {}


def with_result_type(handler: Handler, *, cacheable: bool = False) -> Handler:
    """Return the handler with the fields that results need without a handshake."""

    async def answer(ctx: Context, params: Any) -> Any:
        result = await handler(ctx, params)
        if not is_stateless(ctx):
            return result
        hints = {"ttlMs": 0, "cacheScope": "private"} if cacheable else {}
        return {"resultType": "complete", **hints, **result}

    return answer


class Events(EventStore):
    """Stores the events of each stream, for clients that reconnect."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str:
        stream = self._events[int(last_event_id) - 1][0]
        for number, (stream_id, message) in enumerate(self._events, 1):
            if stream_id == stream and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Everything(Server[Any]):
    """The SDK's server, announcing that its lists may change."""

    def create_initialization_options(self, *args: Any, **options: Any) -> Any:
        return super().create_initialization_options(NotificationOptions(True, True, True))


def find_schema(name: str) -> Mapping[str, Any] | None:
    """Return a tool's schema, to check headers that repeat its arguments."""
    schema: Mapping[str, Any] | None = TOOLS[name][0]["inputSchema"] if name in TOOLS else None
    return schema


SERVER: Final = Everything(
    "everything",
    version="1",
    get_tool_input_schema=find_schema,
    on_list_tools=with_result_type(list_tools, cacheable=True),
    on_call_tool=with_result_type(call_tool),
    on_list_resources=with_result_type(list_resources, cacheable=True),
    on_list_resource_templates=with_result_type(list_templates, cacheable=True),
    on_read_resource=with_result_type(read_resource, cacheable=True),
    on_subscribe_resource=nothing,
    on_unsubscribe_resource=nothing,
    on_list_prompts=with_result_type(list_prompts, cacheable=True),
    on_get_prompt=with_result_type(get_prompt),
    on_completion=with_result_type(complete),
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
        # Another parser, if installed, would leave white space around header values.
        uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", http="h11")
