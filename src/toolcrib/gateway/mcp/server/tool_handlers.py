"""The counter: which tools a client is shown, and what a search finds for it.

It needs neither the SDK nor a server: the first answers do not wait for either.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import anyio

from toolcrib.config.settings import Detail, ToolSearchConfig
from toolcrib.core import prompts
from toolcrib.core.calls import ToolCall
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import RequestFailed, ToolcribError
from toolcrib.gateway.mcp.server.meta_tools import (
    CONSTANT_TOOLS,
    build_dynamic_search_tool,
    build_search_tool,
)
from toolcrib.gateway.mcp.server.search_results import (
    DETAILS,
    ResultPage,
    format_tool_count,
    render_found_tools,
    render_notes,
    render_numbered_tools,
    render_unlisted_servers,
    text_result,
)
from toolcrib.gateway.mcp.server.session import ClientSession
from toolcrib.hub.directory import GATEWAY_TOOL_NAMES, DirectoryEntry
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView, DisclosureMode
from toolcrib.profiles import mcproxy
from toolcrib.search.filters import Where
from toolcrib.search.results import SearchResult
from toolcrib.session.session import Session
from toolcrib.session.turn import DEFAULT_LIMIT, MAX_LIMIT, MAX_SUGGESTIONS, render_uncovered

DEFAULT_LISTED_TOOLS: Final = 10
MAX_LISTED_TOOLS: Final = 200
MAX_DESCRIBED_TOOLS: Final = 50
_log = logging.getLogger(__name__)


class ServerStatus(Protocol):
    """How the servers are doing."""

    def unreachable_servers(self) -> dict[str, str]:
        """The servers that cannot be reached, and why."""

    def unlisted_servers(self) -> dict[str, str]:
        """The servers whose tools nobody has seen yet, and why; no reason while they start."""


class UpstreamCall(NamedTuple):
    """A call that is a server's to answer: the tool, and what it is sent."""

    entry: DirectoryEntry
    params: Mapping[str, Any]


class ToolHandlers:
    """Shows and finds the tools of one service."""

    def __init__(self, hub: Hub, servers: ServerStatus) -> None:
        self._hub = hub
        self._servers = servers

    @property
    def _settings(self) -> ToolSearchConfig:
        return self._hub.config.tool_search

    def get_input_schema(self, name: str) -> Mapping[str, Any] | None:
        """A tool's schema, for the check of headers that repeat its arguments."""
        entry = self._hub.directory.entries.get(name)
        return None if entry is None else entry.tool.input_schema

    def find_unlisted_servers(self, client: ClientSession) -> list[str]:
        """The servers whose tools a list would lack, as nobody has seen them yet.

        Many clients read the list once, and where all tools are in it nothing is searched for.
        """
        view, mode = self._resolve_view(client)
        unseen = self._servers.unlisted_servers() if mode == "direct" else ()
        return [name for name in unseen if view.may_use_server(name)]

    async def list_tools(self, client: ClientSession, params: Mapping[str, Any]) -> dict[str, Any]:
        """The tools this client is shown now."""
        view, mode = self._resolve_view(client)
        if mode == "direct":
            is_last = client.reads_list_once and self._configured_mode(view) == "auto"
            if not is_last or not self.find_unlisted_servers(client):
                return {"tools": view.tool_list}
            # What comes later can only be searched for by a client that never looks again.
            search = build_search_tool(view, self._visible_unlisted_servers(view), lists_all=True)
            return {"tools": [search, *CONSTANT_TOOLS, *view.tool_list]}
        if mode == "search":
            shown = view.get_turn_handler(mode).plan.visible_tools
            own = [build_search_tool(view, self._visible_unlisted_servers(view)), *CONSTANT_TOOLS]
            return {"tools": [*own, *(view.entries[tool.id].wire_definition for tool in shown)]}
        entries = self._current_entries(client, view)
        search = build_dynamic_search_tool(view, len(view.entries) - len(entries))
        return {"tools": [*(entry.wire_definition for entry in entries), search]}

    async def handle_call(
        self, client: ClientSession, params: Mapping[str, Any]
    ) -> dict[str, Any] | UpstreamCall:
        """Answer a search, or say what is to be called."""
        view, mode = self._resolve_view(client)
        name, arguments = params["name"], params.get("arguments") or {}
        if name == mcproxy.SEARCH_TOOL_NAME and not isinstance(arguments.get("query"), str):
            raise RequestFailed(mcproxy.QUERY_MISSING)
        try:
            if name == mcproxy.SEARCH_TOOL_NAME:
                return await self._search_dynamic(client, view, mode, arguments)
            if name == prompts.SEARCH_NAME:
                return await self._search(client, view, arguments)
        except ToolcribError as fault:
            return text_result(str(fault), is_error=True)
        if name == prompts.DESCRIBE_NAME:
            return self._describe(view, arguments)
        if name == prompts.CALL_NAME:
            inner = arguments.get("arguments")
            params = {**params, "name": arguments.get("name", ""), "arguments": inner or {}}
            name, arguments = params["name"], params["arguments"]
            if isinstance(name, str) and name in GATEWAY_TOOL_NAMES:
                text = prompts.CALL_DIRECTLY.format(name=name, call=prompts.CALL_NAME)
                return text_result(text, is_error=True)
        conversation = view.get_turn_handler(mode)
        call = ToolCall("", str(name), arguments if isinstance(arguments, Mapping) else None)
        turn = conversation.handle_calls(Session(), (call,))
        if turn.answers:
            unseen = (
                None if call.name in view.entries else self._explain_unlisted_owner(view, call.name)
            )
            return text_result(unseen or turn.answers[0].text, is_error=True)
        (task,) = turn.tasks
        entry = view.entries[task.tool.id]
        return UpstreamCall(entry, {**params, "arguments": task.arguments})

    def _resolve_view(self, client: ClientSession) -> tuple[AccessView, DisclosureMode]:
        view = self._hub.get_view(client.profile)
        return view, view.resolve_mode(
            self._configured_mode(view), client.is_stateless, client.reads_list_once
        )

    def _configured_mode(self, view: AccessView) -> str:
        return view.profile.mode or self._settings.mode

    def _explain_unlisted_owner(self, view: AccessView, name: str) -> str | None:
        """Why a tool is not known, if it is by its name one of a server that nobody has seen."""
        for server, why in self._visible_unlisted_servers(view).items():
            if name.startswith(f"{self._resolve_server_id(server)}{SERVER_SEPARATOR}"):
                return render_unlisted_servers({server: why})[0]
        return None

    def _visible_unlisted_servers(self, view: AccessView) -> dict[str, str]:
        unseen = self._servers.unlisted_servers()
        return {name: why for name, why in unseen.items() if view.can_see_server(name)}

    def _current_entries(self, client: ClientSession, view: AccessView) -> list[DirectoryEntry]:
        """The list of this client: what it was shown from the start, or what it has searched for."""
        session = client.state.tool_session
        conversation = view.get_turn_handler("dynamic" if session is None else "search")
        shown = {tool.id: tool for tool in conversation.plan.visible_tools}
        if session is not None:
            for tool in session.visible_tools(conversation.engine.catalog, conversation.is_allowed):
                shown.setdefault(tool.id, tool)
        return [view.entries[id] for id in shown]

    async def _search(
        self, client: ClientSession, view: AccessView, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        query = arguments.get("query")
        if not isinstance(query, str):
            # A model reads the result of a call; errors of the protocol may never reach it.
            return text_result(prompts.QUERY_MISSING, is_error=True)
        limit = _clamp_limit(arguments.get("limit"), DEFAULT_LIMIT)
        given = arguments.get("detail")
        detail: Detail = given if given in DETAILS else self._settings.detail
        where = Where(
            server=self._resolve_server_id(arguments.get("server")),
            read_only=arguments.get("read_only") is True,
        )
        result = await self._run_search(view, query, limit, where)
        entries = self._filter_by_score(view, result)
        fits = bool(entries) and result.is_confident
        page = ResultPage(self._settings.max_result_chars)
        says: list[str] = []
        if fits:
            says.append(render_found_tools(entries, detail, page, prompts.CALL_NAME))
            if result.uncovered:
                says.append(render_uncovered(result.uncovered))
            if result.has_more:
                says.append(prompts.MORE_MATCHES)
        elif entries:
            says.append(prompts.NO_GOOD_MATCH)
            says.append("\n".join(page.render_tool(entry, "summary") for entry in entries))
        else:
            says.append(prompts.NO_MATCH)
        if page.shortened_count and fits:
            says.append(
                prompts.SHORTENED_RESULTS.format(
                    count=page.shortened_count, describe=prompts.DESCRIBE_NAME
                )
            )
        if where.read_only:
            others = await self._run_search(view, query, limit, replace(where, read_only=False))
            left_out = sum(not hit.tool.read_only for hit in others)
            says += (
                [prompts.NOT_READ_ONLY.format(count=format_tool_count(left_out))]
                if left_out
                else []
            )
        says += self.render_search_notes(view, entries, fits)
        answer = text_result("\n\n".join(says))
        answer["structuredContent"] = {"tools": page.tools, "confident": fits}
        self._hub.add_counts(searches=1)
        return answer

    async def _search_dynamic(
        self,
        client: ClientSession,
        view: AccessView,
        mode: DisclosureMode,
        arguments: Mapping[str, Any],
    ) -> dict[str, Any]:
        """A search whose finds take the place of the client's list, or join it."""
        query: str = arguments["query"]
        limit = min(self._settings.max_tools_limit or DEFAULT_LISTED_TOOLS, MAX_LISTED_TOOLS)
        near: list[DirectoryEntry] = []
        entries: list[DirectoryEntry] = []
        if query.strip():
            result = await self._run_search(view, query, limit, Where())
            near = self._filter_by_score(view, result)
            # What is only the nearest there is does not take the place of a list.
            entries = near if result.is_confident else []
        if mode == "dynamic":
            if entries:
                extends = self._settings.on_search == "extend"
                before = (
                    [entry.tool for entry in self._current_entries(client, view)] if extends else []
                )
                found = [entry.tool for entry in entries]
                client.state.tool_session = Session().reveal(before).reveal(found)
            # Also where nothing was found: MCProxy's clients wait for it.
            await client.notify("notifications/tools/list_changed", None)
        self._hub.add_counts(searches=1)
        if not entries:
            names = ", ".join(entry.name for entry in near[:MAX_SUGGESTIONS])
            says = [mcproxy.NOT_FOUND.format(query=query)]
            says += [prompts.NEAREST_NAMES.format(names=names)] if names else []
            return text_result(
                "\n\n".join([" ".join(says), *self.render_search_notes(view, near, False)])
            )
        page = ResultPage(self._settings.max_result_chars)
        heading = mcproxy.FOUND.format(count=len(entries))
        says = [
            render_numbered_tools(heading, entries, page),
            *self.render_search_notes(view, entries, True),
        ]
        answer = text_result("\n\n".join(says))
        answer["structuredContent"] = {"tools": page.tools, "confident": True}
        return answer

    async def _run_search(
        self, view: AccessView, query: str, limit: int, where: Where
    ) -> SearchResult:
        begun = time.perf_counter()
        # Reading a query takes some milliseconds, and other clients are waiting too.
        result = await anyio.to_thread.run_sync(view.search, query, limit, where)
        if self._settings.debug:
            kept = len(self._filter_by_score(view, result))
            lines = mcproxy.DEBUG_LINES
            facts = {
                "query": query,
                "size": len(view.entries),
                "before": len(result),
                "after": kept,
                "milliseconds": round((time.perf_counter() - begun) * 1000),
            }
            for line in lines:
                _log.info(line.format(**facts))
        return result

    def _resolve_server_id(self, name: object) -> str:
        """What a server is called inside: the alias of the one that answers call by its name."""
        server = self._hub.config.servers.get(name) if isinstance(name, str) else None
        return server.alias or server.name if server else str(name or "")

    def _filter_by_score(self, view: AccessView, result: SearchResult) -> list[DirectoryEntry]:
        least = self._settings.search_threshold
        return [view.entries[hit.tool.id] for hit in result if hit.score >= least]

    def render_search_notes(
        self, view: AccessView, entries: list[DirectoryEntry], fits: bool
    ) -> list[str]:
        """What is to be said of a search besides its finds, above all where nothing fits."""
        found = {entry.server for entry in entries}
        waiting = {
            shelf.server.name: len(view.list_quarantined(shelf))
            for shelf in view.directory.servers
            if not fits or shelf.server.name in found
        }
        waiting = {server: count for server, count in waiting.items() if count}
        unseen = {} if fits else self._visible_unlisted_servers(view)
        unusable = {} if fits else view.unusable_servers
        return render_notes(entries, self._servers.unreachable_servers(), waiting, unseen, unusable)

    def _describe(self, view: AccessView, arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = arguments.get("names", arguments.get("name"))
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            return text_result(prompts.NAMES_MISSING, is_error=True)
        conversation = view.get_turn_handler("search")
        parts: list[str] = []
        described: list[dict[str, Any]] = []
        left = self._settings.max_result_chars
        for name in dict.fromkeys(names[:MAX_DESCRIBED_TOOLS]):
            entry = view.entries.get(name)
            if entry is None:
                turn = conversation.handle_calls(Session(), (ToolCall("", name, {}),))
                parts.append(turn.answers[0].text)
                continue
            text = json.dumps(entry.wire_definition, ensure_ascii=False, separators=(",", ":"))
            if described and len(text) > left:
                parts.append(prompts.NO_ROOM_FOR_TOOL.format(name=name))
                continue
            left -= len(text)
            described.append(entry.wire_definition)
            parts.append(text)
        answer = text_result("\n\n".join(parts), is_error=not described)
        answer["structuredContent"] = {"tools": described}
        return answer


def _clamp_limit(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return default
    return min(max(value, 1), MAX_LIMIT)
