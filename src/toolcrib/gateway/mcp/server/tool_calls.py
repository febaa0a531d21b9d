"""`tools/call`: run a tool of the gateway, or forward the call to an upstream server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from toolcrib.core import prompts
from toolcrib.core.calls import ToolCall
from toolcrib.errors import RequestFailed, ServerUnavailable, ToolcribError
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.search_results import text_result
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.server.tool_handlers import ToolHandlers
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.hub.definitions import exceeds_size
from toolcrib.hub.directory import GATEWAY_TOOL_NAMES, DirectoryEntry
from toolcrib.hub.hub import Hub
from toolcrib.profiles import mcproxy
from toolcrib.session.session import Session


class ToolCalls:
    """Handles the tool calls of all clients."""

    def __init__(
        self,
        hub: Hub,
        tool_handlers: ToolHandlers,
        pool: UpstreamPool,
        bridge: ServerRequestBridge,
    ) -> None:
        self._hub = hub
        self._tool_handlers = tool_handlers
        self._pool = pool
        self._bridge = bridge

    async def call_tool(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a tool call."""
        handlers = self._tool_handlers
        view = self._hub.get_view(client.profile)
        mode = view.resolve_mode(client.is_stateless, client.reads_list_once)
        name, arguments = params["name"], params.get("arguments") or {}
        if name == mcproxy.SEARCH_TOOL_NAME and not isinstance(arguments.get("query"), str):
            raise RequestFailed(mcproxy.QUERY_MISSING)
        try:
            if name == mcproxy.SEARCH_TOOL_NAME:
                return await handlers.search_dynamic(client, view, mode, arguments["query"])
            if name == prompts.SEARCH_NAME:
                return await handlers.search(view, arguments)
        except ToolcribError as error:
            return text_result(str(error), is_error=True)
        if name == prompts.DESCRIBE_NAME:
            return handlers.describe(view, arguments)
        if name == prompts.CALL_NAME:
            inner = arguments.get("arguments")
            params = {**params, "name": arguments.get("name", ""), "arguments": inner or {}}
            name, arguments = params["name"], params["arguments"]
            if isinstance(name, str) and name in GATEWAY_TOOL_NAMES:
                text = prompts.CALL_DIRECTLY.format(name=name, call=prompts.CALL_NAME)
                return text_result(text, is_error=True)
        call = ToolCall("", str(name), arguments if isinstance(arguments, Mapping) else None)
        turn = view.get_turn_handler(mode).handle_calls(Session(), (call,))
        if turn.replies:
            explanation = (
                "" if call.name in view.entries else handlers.explain_unlisted(view, call.name)
            )
            return text_result(explanation or turn.replies[0].text, is_error=True)
        (task,) = turn.tasks
        entry = view.entries[task.tool.id]
        return await self._forward_call(client, entry, {**params, "arguments": task.arguments})

    async def _forward_call(
        self, client: ConnectedClient, entry: DirectoryEntry, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        server = self._pool.servers.get(entry.server)
        if server is None:
            return text_result(f"{entry.server} is no longer configured", is_error=True)
        params = client.with_meta({**params, "name": entry.remote_name})
        may_repeat = entry.tool.read_only or entry.tool.annotations.get("idempotentHint") is True
        started = time.monotonic()
        try:
            result = await self._bridge.forward_request(
                server, "tools/call", params, client, may_repeat=may_repeat
            )
        except ServerUnavailable as error:
            self._hub.record_call(entry.name, False, time.monotonic() - started)
            return text_result(str(error), is_error=True)
        succeeded = result.get("isError") is not True
        self._hub.record_call(entry.name, succeeded, time.monotonic() - started)
        limit = server.config.max_result_bytes
        if exceeds_size(result, limit):
            text = prompts.RESULT_TOO_LARGE.format(name=entry.name, limit=limit)
            return text_result(text, is_error=True)
        return result
