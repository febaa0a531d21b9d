"""`run_code`: scripts of clients, with the rights, validation, audit and approvals of each call."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final

import anyio

from toolcrib.code.sandbox import CodeSandbox, ScriptLimits, parse_text_result
from toolcrib.code.script import MAX_APPROVAL_ROUNDS, ScriptCall, ScriptRun
from toolcrib.config.settings import CodeModeConfig
from toolcrib.core import prompts
from toolcrib.core.stubs import build_paths, render_stub, unwrap_result
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.errors import CallRefused, InvalidArguments, ScriptFailed, ToolcribError, ToolFailed
from toolcrib.gateway.mcp.results.document import get_content, get_part_text
from toolcrib.gateway.mcp.server.approvals import describe_calls
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.meta_tools import render_warnings, text_result
from toolcrib.gateway.mcp.server.tool_calls import ToolCaller, ValidCall
from toolcrib.hub.directory import DirectoryEntry
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView
from toolcrib.search.filters import Where
from toolcrib.session.turn import MAX_LIMIT

MAX_WAITING_SCRIPTS: Final = 100
_MAX_SHOWN_CALLS: Final = 50
_CODE_ENTRY: Final = DirectoryEntry("", prompts.CODE_NAME, {}, Tool(prompts.CODE_NAME))

RecordCall = Callable[[ConnectedClient, str, Mapping[str, Any], Mapping[str, Any], float], Awaitable[None]]


@dataclass
class ClientScriptHost:
    """Runs the calls of one client's script."""

    client: ConnectedClient
    view: AccessView
    caller: ToolCaller
    record: RecordCall

    @cached_property
    def _paths(self) -> dict[tuple[str, str], Tool]:
        return build_paths(entry.tool for entry in self.view.entries.values())

    def find_tool(self, server: str, name: str) -> Tool:
        tool = self._paths.get((server, name))
        if tool is not None:
            return tool
        names = [f"tools.{one}.{tool}" for one, tool in self._paths]
        raise CallRefused(
            self.caller.explain_missing(self.view, f"{server}{SERVER_SEPARATOR}{name}")
            or self.caller.explain_missing(self.view, name)
            or _explain_unknown(f"tools.{server}.{name}", names)
        )

    def find_tool_by_name(self, name: str) -> Tool:
        if isinstance(name, str) and name in self.view.entries:
            return self.view.entries[name].tool
        explanation = self.caller.explain_missing(self.view, str(name))
        raise CallRefused(explanation or _explain_unknown(str(name), list(self.view.entries)))

    def validate(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        call = self.caller.validate(self.view, "search", tool.id, arguments)
        if not isinstance(call, ValidCall):
            raise InvalidArguments(_get_text(call))
        return call.arguments

    def needs_approval(self, tool: Tool) -> bool:
        return self.caller.approvals.needs_approval(self.view, self.view.entries[tool.id])

    async def call(self, call: ScriptCall) -> Any:
        started = time.perf_counter()
        # A script needs the result, so a server must not create a task.
        client = replace(self.client, handles_tasks=False)
        result = await self.caller.forward(client, ValidCall(self.view.entries[call.tool.id], call.arguments), {})
        params = {"name": call.tool.id, "arguments": call.arguments}
        await self.record(self.client, "tools/call", params, result, started)
        if result.get("resultType") == "input_required":
            raise CallRefused(
                f"{call.tool.id} asks the user for input, which is not possible in a script; call it directly"
            )
        if result.get("isError") is True:
            raise ToolFailed(_get_text(result))
        structured = result.get("structuredContent")
        return unwrap_result(structured) if structured is not None else parse_text_result(_get_text(result))

    async def search(self, query: str, limit: int) -> list[dict[str, Any]]:
        self.caller.quotas.count_search(self.view.profile)
        limit = min(max(limit if isinstance(limit, int) else 1, 1), MAX_LIMIT)
        try:
            result = await anyio.to_thread.run_sync(self.view.search, str(query), limit, Where())
        except ToolcribError as error:
            raise CallRefused(str(error)) from None
        found = []
        for hit in result:
            tool = {"name": hit.tool.id, "call": render_stub(hit.tool), "description": hit.tool.description[:500]}
            if warnings := render_warnings([self.view.entries[hit.tool.id]]):
                tool["warning"] = " ".join(warnings)
            found.append(tool)
        return found


class CodeMode:
    """Answers `run_code`."""

    def __init__(self, hub: Hub, caller: ToolCaller, record: RecordCall) -> None:
        self._hub = hub
        self._caller = caller
        self._record = record
        self._sandbox = CodeSandbox()
        # Scripts of stateless clients that wait for an approval, by token.
        self._waiting: OrderedDict[str, tuple[str, ScriptRun]] = OrderedDict()

    @property
    def settings(self) -> CodeModeConfig:
        """The settings of code mode."""
        return self._hub.config.code_mode

    async def close(self) -> None:
        """Stop the interpreter processes."""
        await self._sandbox.close()

    async def run(self, client: ConnectedClient, view: AccessView, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a script: the value of its last expression."""
        arguments = params.get("arguments")
        code = arguments.get("code") if isinstance(arguments, Mapping) else None
        if not isinstance(code, str) or not code.strip():
            return text_result(prompts.CODE_MISSING, is_error=True)
        host = ClientScriptHost(client, view, self._caller, self._record)
        owner, script = self._waiting.pop(str(params.get("requestState")), ("", None))
        if script is None or owner != client.owner:
            script = ScriptRun(host, self.settings.max_calls)
        script.host = host
        if script.pending:
            if refusal := await self._approve(client, params, code, script):
                return refusal
            script.approve_pending()
        self._hub.add_counts(scripts=1)
        return await self._run_rounds(client, params, code, script)

    async def _run_rounds(
        self, client: ConnectedClient, params: Mapping[str, Any], code: str, script: ScriptRun
    ) -> dict[str, Any]:
        settings = self.settings
        limits = ScriptLimits(
            settings.max_seconds, settings.total_seconds, settings.max_memory_bytes, settings.max_calls
        )
        for _ in range(MAX_APPROVAL_ROUNDS):
            try:
                result = text_result((await self._sandbox.run(code, script, limits)).render())
            except ScriptFailed as error:
                result = text_result(prompts.SCRIPT_FAILED.format(reason=error), is_error=True)
            if not script.pending:
                return await self._caller.large_results.limit_result(client, _CODE_ENTRY, result, has_schema=False)
            # The errors of a script with placeholders are not meaningful.
            if refusal := await self._approve(client, params, code, script):
                return refusal
            script.approve_pending()
        return text_result(prompts.TOO_MANY_APPROVALS.format(count=MAX_APPROVAL_ROUNDS), is_error=True)

    async def _approve(
        self, client: ConnectedClient, params: Mapping[str, Any], code: str, script: ScriptRun
    ) -> dict[str, Any] | None:
        """Ask for the pending calls of a script; return None if the user approves them."""
        entries = self._hub.get_view(client.profile).entries
        calls = [(entries[call.tool.id], call.arguments) for call in script.pending if call.tool.id in entries]
        more = len(calls) - _MAX_SHOWN_CALLS
        shown = describe_calls(calls[:_MAX_SHOWN_CALLS]) + (f"\nand {more} more" if more > 0 else "")
        count = "1 call" if len(calls) == 1 else f"{len(calls)} calls"
        message = prompts.SCRIPT_APPROVAL_MESSAGE.format(count=count, calls=shown)
        subject = [code, [call.key for call in script.pending]]
        refusal = await self._caller.approvals.request_approval(client, params, message, subject)
        if refusal is not None and refusal.get("resultType") == "input_required":
            self._waiting[str(refusal["requestState"])] = (client.owner, script)
            while len(self._waiting) > MAX_WAITING_SCRIPTS:
                self._waiting.popitem(last=False)
        return refusal


def _get_text(result: Mapping[str, Any]) -> str:
    return "\n".join(text for part in get_content(result) if (text := get_part_text(part)) is not None)


def _explain_unknown(name: str, names: list[str]) -> str:
    nearest = get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f" {prompts.NEAREST_NAMES.format(names=', '.join(nearest))}" if nearest else ""
    return f"{prompts.UNKNOWN_TOOL.format(name=name)}{hint} {prompts.SEARCH_IN_CODE}"
