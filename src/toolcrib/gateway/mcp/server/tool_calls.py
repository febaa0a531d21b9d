"""Calls of tools, passed on to the servers whose they are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from toolcrib.core import prompts
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.search_results import text_result
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.server.tool_handlers import ToolHandlers, UpstreamCall
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.hub.definitions import exceeds_size
from toolcrib.hub.hub import Hub


class ToolCalls:
    """Has a client's calls answered, at the counter or by a server."""

    def __init__(
        self, service: Hub, counter: ToolHandlers, fleet: UpstreamPool, bridge: ServerRequestBridge
    ) -> None:
        self._hub = service
        self._tool_handlers = counter
        self._pool = fleet
        self._bridge = bridge

    async def call_tool(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a search, or pass a call on to the server whose tool it is."""
        answer = await self._tool_handlers.handle_call(client, params)
        return (
            await self._forward_call(client, answer) if isinstance(answer, UpstreamCall) else answer
        )

    async def _forward_call(self, client: ConnectedClient, errand: UpstreamCall) -> dict[str, Any]:
        entry, params = errand
        upstream = self._pool.servers.get(entry.server)
        if upstream is None:
            return text_result(f"{entry.server} is no longer configured", is_error=True)
        sent = {**params, "name": entry.remote_name}
        meta = client.forwarded_meta
        sent = {**sent, "_meta": meta} if meta else {k: v for k, v in sent.items() if k != "_meta"}
        annotations = entry.tool.annotations
        may_repeat = entry.tool.read_only or annotations.get("idempotentHint") is True
        begun = time.monotonic()
        try:
            result = await self._bridge.forward_request(
                upstream, "tools/call", sent, client, may_repeat=may_repeat
            )
        except ServerUnavailable as fault:
            self._hub.record_call(entry.name, False, time.monotonic() - begun)
            return text_result(str(fault), is_error=True)
        succeeded = result.get("isError") is not True
        self._hub.record_call(entry.name, succeeded, time.monotonic() - begun)
        limit = upstream.config.max_result_bytes
        if exceeds_size(result, limit):
            return text_result(
                prompts.RESULT_TOO_LARGE.format(name=entry.name, limit=limit), is_error=True
            )
        return result
