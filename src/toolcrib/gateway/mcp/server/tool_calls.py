"""Calls of upstream tools: validated, forwarded to their server, and limited in size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from mcp.shared.exceptions import MCPError

from toolcrib.core import prompts
from toolcrib.core.calls import ToolCall
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.server.approvals import CallApprovals, describe_calls, without_answer
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.large_results import LargeResults
from toolcrib.gateway.mcp.server.meta_tools import render_unlisted_servers, text_result
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.server.tasks import TaskRelay, is_task, requires_tasks
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.gateway.quotas import ProfileQuotas
from toolcrib.hub.directory import DirectoryEntry
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView, DisclosureMode
from toolcrib.session.session import Session


class ValidCall(NamedTuple):
    """A call of a tool that the client may use, with valid arguments."""

    entry: DirectoryEntry
    arguments: Mapping[str, Any]


class ToolCaller:
    """Runs the calls of clients."""

    def __init__(self, hub: Hub, pool: UpstreamPool, bridge: ServerRequestBridge, quotas: ProfileQuotas) -> None:
        self._hub = hub
        self.quotas = quotas
        self._pool = pool
        self._bridge = bridge
        self.large_results = LargeResults(hub)
        self.tasks = TaskRelay(hub, pool, bridge, self.large_results)
        self.approvals = CallApprovals(hub)

    async def call(
        self,
        client: ConnectedClient,
        view: AccessView,
        mode: DisclosureMode,
        params: Mapping[str, Any],
        *,
        is_listed: bool = True,
    ) -> dict[str, Any]:
        """Return the result of a call. `is_listed` means that the client knows the tool's definition."""
        call = self.validate(view, mode, params["name"], params.get("arguments") or {})
        if not isinstance(call, ValidCall):
            return call
        entry, subject = call.entry, [call.entry.name, call.arguments]
        needs_approval = self.approvals.needs_approval(view, entry)
        if needs_approval:
            message = prompts.APPROVAL_MESSAGE.format(calls=describe_calls([(entry, call.arguments)]))
            if refusal := await self.approvals.request_approval(client, params, message, subject):
                return refusal
            params = without_answer(params)
        result = await self.forward(client, call, params)
        if needs_approval:
            await self.approvals.remember(client, result, subject)
        if is_task(result):
            return await self.tasks.register(client, entry, result, is_listed=is_listed)
        return await self.large_results.limit_result(client, call.entry, result, has_schema=is_listed)

    def validate(
        self, view: AccessView, mode: DisclosureMode, name: object, arguments: object
    ) -> ValidCall | dict[str, Any]:
        """Return the call, or a result that describes what is wrong with it."""
        call = ToolCall("", str(name), arguments if isinstance(arguments, Mapping) else None)
        turn = view.get_turn_handler(mode).handle_calls(Session(), (call,))
        if turn.replies:
            explanation = "" if call.name in view.entries else self.explain_missing(view, call.name)
            return text_result(explanation or turn.replies[0].text, is_error=True)
        (task,) = turn.tasks
        return ValidCall(view.entries[task.tool.id], task.arguments)

    async def forward(self, client: ConnectedClient, call: ValidCall, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a call to its server and return the result; raise `QuotaExceeded` over the quotas of the profile."""
        entry = call.entry
        server = self._pool.servers.get(entry.server)
        if server is None:
            return text_result(f"{entry.server} is no longer configured", is_error=True)
        params = client.with_meta(
            {**params, "name": entry.remote_name, "arguments": entry.prepare_arguments(call.arguments)}
        )
        may_repeat = entry.tool.read_only or entry.tool.annotations.get("idempotentHint") is True
        profile = self._hub.get_view(client.profile).profile
        started = time.monotonic()
        try:
            with self.quotas.track_call(profile):
                result = await self._send(client, server, params, may_repeat=may_repeat)
        except ServerUnavailable as error:
            self._hub.record_call(entry.name, False, time.monotonic() - started)
            return text_result(str(error), is_error=True)
        succeeded = result.get("isError") is not True
        self._hub.record_call(entry.name, succeeded, time.monotonic() - started)
        self.quotas.add_result(profile, result)
        return result

    async def _send(
        self, client: ConnectedClient, server: UpstreamServer, params: Mapping[str, Any], *, may_repeat: bool
    ) -> dict[str, Any]:
        """Send a call. If its server only runs it as a task and the client has no tasks, wait for the result."""
        try:
            result = await self._bridge.forward_request(server, "tools/call", params, client, may_repeat=may_repeat)
        except MCPError as error:
            if client.supports_tasks or not requires_tasks(error):
                raise
            client = replace(client, handles_tasks=True)
            result = await self._bridge.forward_request(server, "tools/call", params, client, may_repeat=may_repeat)
            return await self.tasks.wait_for_result(client, server, result) if is_task(result) else result
        if is_task(result) and not client.supports_tasks:
            # The server ignores the capabilities of the client.
            return await self.tasks.wait_for_result(replace(client, handles_tasks=True), server, result)
        return result

    def get_unlisted(self, view: AccessView) -> dict[str, str]:
        """Return the servers whose tools are not known yet, each with the reason if it failed."""
        unlisted = self._pool.unlisted_servers()
        return {name: reason for name, reason in unlisted.items() if view.can_see_server(name)}

    def explain_missing(self, view: AccessView, name: str) -> str:
        """Return why a tool is missing: it is quarantined, or its server has not listed its tools yet."""
        if tool := view.find_quarantined(name):
            return prompts.TOOL_QUARANTINED.format(name=tool.name, reason=tool.reason, id=tool.id)
        for server, reason in self.get_unlisted(view).items():
            config = self._hub.config.servers.get(server)
            server_id = config.id if config else server
            if name.startswith(f"{server_id}{SERVER_SEPARATOR}"):
                # A call ends the pause before the next attempt to start the server.
                self._pool.relist([server])
                return render_unlisted_servers({server: reason})[0]
        return ""
