"""Scripts in the sessions of the library (style `code`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from toolcrib.code.sandbox import CodeSandbox, ScriptLimits, parse_text_result
from toolcrib.code.script import ScriptCall, ScriptRun
from toolcrib.core import prompts
from toolcrib.core.calls import CallReply, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.rights import AllowedTools, build_rights
from toolcrib.core.stubs import build_paths, render_stub
from toolcrib.core.tool import Tool
from toolcrib.core.validation import find_problems
from toolcrib.errors import CallRefused, InvalidArguments, ScriptFailed, ToolFailed
from toolcrib.search.engine import SearchEngine
from toolcrib.session.turn import MAX_LIMIT, ToolTask


class TaskRunner(Protocol):
    """What scripts need of a `Toolcrib`."""

    @property
    def engine(self) -> SearchEngine: ...

    @property
    def catalog(self) -> Catalog: ...

    def can_run(self, tool: Tool) -> bool:
        """Return whether a runner runs this tool."""

    def run(self, task: ToolTask) -> CallReply:
        """Run one call."""

    async def run_async(self, task: ToolTask) -> CallReply:
        """Run one call in an event loop."""


class ScriptRunner:
    """Runs the calls of one session: scripts in a sandbox, all others as `Toolcrib` does."""

    def __init__(self, toolcrib: TaskRunner, allowed: AllowedTools | None) -> None:
        self._toolcrib = toolcrib
        self._allowed = allowed

    def can_run(self, tool: Tool) -> bool:
        """Return whether a call is a script, or a runner runs it."""
        return self._is_script(tool) or self._toolcrib.can_run(tool)

    def run(self, task: ToolTask) -> CallReply:
        """Run one call. A script gets a thread with an event loop."""
        if not self._is_script(task.tool):
            return self._toolcrib.run(task)
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(asyncio.run, self._run_script(task)).result()

    async def run_async(self, task: ToolTask) -> CallReply:
        """Run one call in an event loop."""
        return await (self._run_script(task) if self._is_script(task.tool) else self._toolcrib.run_async(task))

    def _is_script(self, tool: Tool) -> bool:
        # Other tools are in the catalog.
        return tool.id not in self._toolcrib.catalog

    async def _run_script(self, task: ToolTask) -> CallReply:
        sandbox = CodeSandbox()
        try:
            limits = ScriptLimits()
            script = ScriptRun(_SessionScriptHost(self._toolcrib, self._allowed), limits.calls)
            outcome = await sandbox.run(task.arguments["code"], script, limits)
            return task.build_reply(outcome.render())
        except ScriptFailed as error:
            return task.build_reply(prompts.SCRIPT_FAILED.format(reason=error), is_error=True)
        finally:
            await sandbox.close()


class _SessionScriptHost:
    """Runs the calls of a script with the rights of its session."""

    def __init__(self, toolcrib: TaskRunner, allowed: AllowedTools | None) -> None:
        self._toolcrib = toolcrib
        self._allowed = allowed
        rights = build_rights(allowed)
        self._tools = [tool for tool in toolcrib.catalog if rights.is_allowed(tool)]
        self._paths = build_paths(self._tools)

    def find_tool(self, server: str, name: str) -> Tool:
        tool = self._paths.get((server, name))
        if tool is None:
            raise CallRefused(f"{prompts.UNKNOWN_TOOL.format(name=f'tools.{server}.{name}')} {prompts.SEARCH_IN_CODE}")
        return tool

    def find_tool_by_name(self, name: str) -> Tool:
        """Return the tool with this id."""
        tool = next((tool for tool in self._tools if name in (tool.id, tool.name)), None)
        if tool is None:
            raise CallRefused(f"{prompts.UNKNOWN_TOOL.format(name=name)} {prompts.SEARCH_IN_CODE}")
        return tool

    def validate(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if problems := find_problems(tool.input_schema, arguments):
            raise InvalidArguments("\n".join([prompts.INVALID_ARGUMENTS.format(name=tool.id), *problems]))
        return arguments

    def needs_approval(self, tool: Tool) -> bool:
        """Return False: the hooks of a registry decide about each call."""
        return False

    async def call(self, call: ScriptCall) -> Any:
        if not self._toolcrib.can_run(call.tool):
            raise CallRefused(f"{call.tool.id} has no function here, so a script cannot call it")
        reply = await self._toolcrib.run_async(
            ToolTask(ToolCall("", call.tool.name, dict(call.arguments)), call.tool, call.arguments)
        )
        if reply.is_error:
            raise ToolFailed(reply.text)
        return parse_text_result(reply.text)

    async def search(self, query: str, limit: int) -> list[dict[str, Any]]:
        found = self._toolcrib.engine.search(query, limit=min(max(limit, 1), MAX_LIMIT), allowed=self._allowed)
        return [
            {"name": hit.tool.id, "call": render_stub(hit.tool), "description": hit.tool.description} for hit in found
        ]
