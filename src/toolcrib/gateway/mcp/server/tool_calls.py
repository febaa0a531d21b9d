"""Calls of tools, passed on to the servers whose they are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from toolcrib.core import prompts
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.server.client import Client
from toolcrib.gateway.mcp.server.search_results import said
from toolcrib.gateway.mcp.server.server_requests import Bridge
from toolcrib.gateway.mcp.server.tool_handlers import Counter, Errand
from toolcrib.gateway.mcp.upstream.pool import Fleet
from toolcrib.hub.definitions import outweighs
from toolcrib.hub.hub import Service


class Calls:
    """Has a client's calls answered, at the counter or by a server."""

    def __init__(self, service: Service, counter: Counter, fleet: Fleet, bridge: Bridge) -> None:
        self._service = service
        self._counter = counter
        self._fleet = fleet
        self._bridge = bridge

    async def tools_call(self, client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a search, or pass a call on to the server whose tool it is."""
        answer = await self._counter.tools_call(client, params)
        return await self._passed(client, answer) if isinstance(answer, Errand) else answer

    async def _passed(self, client: Client, errand: Errand) -> dict[str, Any]:
        entry, params = errand
        upstream = self._fleet.upstreams.get(entry.server)
        if upstream is None:
            return said(f"{entry.server} is no longer configured", is_error=True)
        sent = {**params, "name": entry.remote_name}
        meta = client.meta
        sent = {**sent, "_meta": meta} if meta else {k: v for k, v in sent.items() if k != "_meta"}
        annotations = entry.tool.annotations
        may_repeat = entry.tool.read_only or annotations.get("idempotentHint") is True
        begun = time.monotonic()
        try:
            result = await self._bridge.answered(
                upstream, "tools/call", sent, client, may_repeat=may_repeat
            )
        except ServerUnavailable as fault:
            self._service.note_call(entry.name, False, time.monotonic() - begun)
            return said(str(fault), is_error=True)
        succeeded = result.get("isError") is not True
        self._service.note_call(entry.name, succeeded, time.monotonic() - begun)
        limit = upstream.server.max_result_bytes
        if outweighs(result, limit):
            return said(prompts.TOO_LARGE.format(name=entry.name, limit=limit), is_error=True)
        return result
