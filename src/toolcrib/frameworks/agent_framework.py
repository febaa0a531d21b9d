"""Microsoft Agent Framework: `Agent(…, context_providers=[ToolcribProvider([…])])`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from agent_framework import (
    AgentSession,
    ContextProvider,
    FunctionInvocationContext,
    FunctionTool,
    SessionContext,
    SupportsAgentRun,
    normalize_tools,
)

from toolcrib.core.calls import ToolCall
from toolcrib.core.rights import resolve_callback_result
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.frameworks.tool_index import AllowedCallback, FrameworkOptions, FrameworkToolIndex
from toolcrib.session.session import Session
from toolcrib.session.turn import TurnHandler

_SESSION_KEY = "session"


class ToolcribProvider(ContextProvider):
    """Show the model a search tool and the tools it found.

    Pass the tools to the provider instead of the agent. Revealed tools are part of the agent's
    session. `allowed` returns, for a session, the tools that it may use.
    """

    def __init__(
        self,
        tools: Sequence[FunctionTool | Callable[..., Any]],
        *,
        source_id: str = "toolcrib",
        allowed: AllowedCallback[AgentSession] | None = None,
        **options: Unpack[FrameworkOptions],
    ) -> None:
        super().__init__(source_id)
        self._tools = {tool.name: tool for tool in normalize_tools(tools) if isinstance(tool, FunctionTool)}
        self._core_tools = [Tool(tool.name, tool.description, tool.parameters()) for tool in self._tools.values()]
        self._allowed = allowed
        self._index = FrameworkToolIndex(**options)

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Add the search tool and the revealed tools of this session to the run."""
        allowed = None
        if self._allowed:
            allowed = await resolve_callback_result(self._allowed(session), self._core_tools)
        handler = self._index.build_turn_handler(self._core_tools, allowed)
        try:
            current = handler.resume_session(Session.from_dict(state.get(_SESSION_KEY) or {}))
        except InvalidConfig:
            # Nothing is stored yet, or by another version; start a new session.
            current = handler.start_session(self._index.budget)
        state[_SESSION_KEY] = current.to_dict()
        search = _build_search_tool(handler, self._tools, state)
        listed = [self._tools.get(tool.id, search) for tool in handler.tools(current)]
        context.extend_tools(self.source_id, listed)


def _build_search_tool(handler: TurnHandler, tools: dict[str, FunctionTool], state: dict[str, Any]) -> FunctionTool:
    async def search(context: FunctionInvocationContext, **arguments: Any) -> str:
        session = Session.from_dict(state[_SESSION_KEY])
        turn = handler.handle_calls(session, [ToolCall("", handler.search_tool.name, arguments)])
        state[_SESSION_KEY] = turn.session.to_dict()
        context.add_tools([tools[tool.id] for tool in handler.tools(turn.session) if tool.id in tools])
        return turn.replies[0].text

    tool = handler.search_tool
    return FunctionTool(name=tool.name, description=tool.description, func=search, input_model=dict(tool.input_schema))
