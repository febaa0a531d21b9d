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

from toolcrib.config.settings import Detail, ToolSearch
from toolcrib.core import prompts
from toolcrib.core.calls import Call
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import RequestFailed, ToolcribError
from toolcrib.gateway.mcp.server.meta_tools import CONSTANT_TOOLS, listed_search_tool, search_tool
from toolcrib.gateway.mcp.server.search_results import (
    DETAILS,
    Page,
    counted,
    found_text,
    listed_text,
    notes,
    said,
    unseen_texts,
)
from toolcrib.gateway.mcp.server.session import Visitor
from toolcrib.hub.directory import OWN_NAMES, Entry
from toolcrib.hub.hub import Service
from toolcrib.hub.view import ShownMode, View
from toolcrib.profiles import mcproxy
from toolcrib.search.filters import Where
from toolcrib.search.results import SearchResult
from toolcrib.session.session import Session
from toolcrib.session.turn import LIMIT, MAX_LIMIT, NEAREST, unserved_text

LISTED_LIMIT: Final = 10
MAX_LISTED: Final = 200
MAX_DESCRIBED: Final = 50
_log = logging.getLogger(__name__)


class Servers(Protocol):
    """How the servers are doing."""

    def trouble(self) -> dict[str, str]:
        """The servers that cannot be reached, and why."""

    def unseen(self) -> dict[str, str]:
        """The servers whose tools nobody has seen yet, and why; no reason while they start."""


class Errand(NamedTuple):
    """A call that is a server's to answer: the tool, and what it is sent."""

    entry: Entry
    params: Mapping[str, Any]


class Counter:
    """Shows and finds the tools of one service."""

    def __init__(self, service: Service, servers: Servers) -> None:
        self._service = service
        self._servers = servers

    @property
    def _settings(self) -> ToolSearch:
        return self._service.config.tool_search

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """A tool's schema, for the check of headers that repeat its arguments."""
        entry = self._service.directory.entries.get(name)
        return None if entry is None else entry.tool.input_schema

    def awaited(self, client: Visitor) -> list[str]:
        """The servers whose tools a list would lack, as nobody has seen them yet.

        Many clients read the list once, and where all tools are in it nothing is searched for.
        """
        view, mode = self._seen_by(client)
        unseen = self._servers.unseen() if mode == "direct" else ()
        return [name for name in unseen if view.may_hold(name)]

    async def tools_list(self, client: Visitor, params: Mapping[str, Any]) -> dict[str, Any]:
        """The tools this client is shown now."""
        view, mode = self._seen_by(client)
        if mode == "direct":
            is_last = client.list_is_frozen and self._wanted(view) == "auto"
            if not is_last or not self.awaited(client):
                return {"tools": view.listing}
            # What comes later can only be searched for by a client that never looks again.
            search = search_tool(view, self._unseen(view), lists_all=True)
            return {"tools": [search, *CONSTANT_TOOLS, *view.listing]}
        if mode == "search":
            shown = view.conversation(mode).plan.shown
            own = [search_tool(view, self._unseen(view)), *CONSTANT_TOOLS]
            return {"tools": [*own, *(view.entries[tool.id].listed for tool in shown)]}
        entries = self._listed_now(client, view)
        search = listed_search_tool(view, len(view.entries) - len(entries))
        return {"tools": [*(entry.listed for entry in entries), search]}

    async def tools_call(
        self, client: Visitor, params: Mapping[str, Any]
    ) -> dict[str, Any] | Errand:
        """Answer a search, or say what is to be called."""
        view, mode = self._seen_by(client)
        name, arguments = params["name"], params.get("arguments") or {}
        if name == mcproxy.SEARCH_TOOL and not isinstance(arguments.get("query"), str):
            raise RequestFailed(mcproxy.QUERY_MISSING)
        try:
            if name == mcproxy.SEARCH_TOOL:
                return await self._search_listed(client, view, mode, arguments)
            if name == prompts.SEARCH_NAME:
                return await self._search(client, view, arguments)
        except ToolcribError as fault:
            return said(str(fault), is_error=True)
        if name == prompts.DESCRIBE_NAME:
            return self._describe(view, arguments)
        if name == prompts.CALL_NAME:
            inner = arguments.get("arguments")
            params = {**params, "name": arguments.get("name", ""), "arguments": inner or {}}
            name, arguments = params["name"], params["arguments"]
            if isinstance(name, str) and name in OWN_NAMES:
                text = prompts.CALL_ITSELF.format(name=name, call=prompts.CALL_NAME)
                return said(text, is_error=True)
        conversation = view.conversation(mode)
        call = Call("", str(name), arguments if isinstance(arguments, Mapping) else None)
        turn = conversation.turn(Session(), (call,))
        if turn.answers:
            unseen = None if call.name in view.entries else self._unseen_owner(view, call.name)
            return said(unseen or turn.answers[0].text, is_error=True)
        (task,) = turn.tasks
        entry = view.entries[task.tool.id]
        return Errand(entry, {**params, "arguments": task.arguments})

    def _seen_by(self, client: Visitor) -> tuple[View, ShownMode]:
        view = self._service.view(client.profile)
        return view, view.mode(self._wanted(view), client.is_modern, client.list_is_frozen)

    def _wanted(self, view: View) -> str:
        return view.profile.mode or self._settings.mode

    def _unseen_owner(self, view: View, name: str) -> str | None:
        """Why a tool is not known, if it is by its name one of a server that nobody has seen."""
        for server, why in self._unseen(view).items():
            if name.startswith(f"{self._server_id(server)}{SERVER_SEPARATOR}"):
                return unseen_texts({server: why})[0]
        return None

    def _unseen(self, view: View) -> dict[str, str]:
        unseen = self._servers.unseen()
        return {name: why for name, why in unseen.items() if view.sees_server(name)}

    def _listed_now(self, client: Visitor, view: View) -> list[Entry]:
        """The list of this client: what it was shown from the start, or what it has searched for."""
        session = client.shown.session
        conversation = view.conversation("dynamic" if session is None else "search")
        shown = {tool.id: tool for tool in conversation.plan.shown}
        if session is not None:
            for tool in session.visible(conversation.engine.catalog, conversation.may_use):
                shown.setdefault(tool.id, tool)
        return [view.entries[id] for id in shown]

    async def _search(
        self, client: Visitor, view: View, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        query = arguments.get("query")
        if not isinstance(query, str):
            # A model reads the result of a call; errors of the protocol may never reach it.
            return said(prompts.QUERY_MISSING, is_error=True)
        limit = _whole(arguments.get("limit"), LIMIT)
        given = arguments.get("detail")
        detail: Detail = given if given in DETAILS else self._settings.detail
        where = Where(
            server=self._server_id(arguments.get("server")),
            read_only=arguments.get("read_only") is True,
        )
        result = await self._found(view, query, limit, where)
        entries = self._kept(view, result)
        fits = bool(entries) and result.confident
        page = Page(self._settings.max_result_chars)
        says: list[str] = []
        if fits:
            says.append(found_text(entries, detail, page, prompts.CALL_NAME))
            if result.unserved:
                says.append(unserved_text(result.unserved))
            if result.more:
                says.append(prompts.MORE_FIT)
        elif entries:
            says.append(prompts.NOTHING_FITS)
            says.append("\n".join(page.line(entry, "summary") for entry in entries))
        else:
            says.append(prompts.NOTHING_FOUND)
        if page.shortened and fits:
            says.append(
                prompts.SHORTENED.format(count=page.shortened, describe=prompts.DESCRIBE_NAME)
            )
        if where.read_only:
            others = await self._found(view, query, limit, replace(where, read_only=False))
            left_out = sum(not hit.tool.read_only for hit in others)
            says += [prompts.LEFT_OUT.format(count=counted(left_out))] if left_out else []
        says += self.notes(view, entries, fits)
        answer = said("\n\n".join(says))
        answer["structuredContent"] = {"tools": page.tools, "confident": fits}
        self._service.count(searches=1)
        return answer

    async def _search_listed(
        self, client: Visitor, view: View, mode: ShownMode, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """A search whose finds take the place of the client's list, or join it."""
        query: str = arguments["query"]
        limit = min(self._settings.max_tools_limit or LISTED_LIMIT, MAX_LISTED)
        near: list[Entry] = []
        entries: list[Entry] = []
        if query.strip():
            result = await self._found(view, query, limit, Where())
            near = self._kept(view, result)
            # What is only the nearest there is does not take the place of a list.
            entries = near if result.confident else []
        if mode == "dynamic":
            if entries:
                extends = self._settings.on_search == "extend"
                before = [entry.tool for entry in self._listed_now(client, view)] if extends else []
                found = [entry.tool for entry in entries]
                client.shown.session = Session().reveal(before).reveal(found)
            # Also where nothing was found: MCProxy's clients wait for it.
            await client.tell("notifications/tools/list_changed", None)
        self._service.count(searches=1)
        if not entries:
            names = ", ".join(entry.name for entry in near[:NEAREST])
            says = [mcproxy.NOT_FOUND.format(query=query)]
            says += [prompts.NEAREST.format(names=names)] if names else []
            return said("\n\n".join([" ".join(says), *self.notes(view, near, False)]))
        page = Page(self._settings.max_result_chars)
        heading = mcproxy.FOUND.format(count=len(entries))
        says = [listed_text(heading, entries, page), *self.notes(view, entries, True)]
        answer = said("\n\n".join(says))
        answer["structuredContent"] = {"tools": page.tools, "confident": True}
        return answer

    async def _found(self, view: View, query: str, limit: int, where: Where) -> SearchResult:
        begun = time.perf_counter()
        # Reading a query takes some milliseconds, and other clients are waiting too.
        result = await anyio.to_thread.run_sync(view.search, query, limit, where)
        if self._settings.debug:
            kept = len(self._kept(view, result))
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

    def _server_id(self, name: object) -> str:
        """What a server is called inside: the alias of the one that answers call by its name."""
        server = self._service.config.servers.get(name) if isinstance(name, str) else None
        return server.alias or server.name if server else str(name or "")

    def _kept(self, view: View, result: SearchResult) -> list[Entry]:
        least = self._settings.search_threshold
        return [view.entries[hit.tool.id] for hit in result if hit.score >= least]

    def notes(self, view: View, entries: list[Entry], fits: bool) -> list[str]:
        """What is to be said of a search besides its finds, above all where nothing fits."""
        found = {entry.server for entry in entries}
        waiting = {
            shelf.server.name: len(view.held(shelf))
            for shelf in view.directory.shelves
            if not fits or shelf.server.name in found
        }
        waiting = {server: count for server, count in waiting.items() if count}
        unseen = {} if fits else self._unseen(view)
        unusable = {} if fits else view.unusable
        return notes(entries, self._servers.trouble(), waiting, unseen, unusable)

    def _describe(self, view: View, arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = arguments.get("names", arguments.get("name"))
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            return said(prompts.NAMES_MISSING, is_error=True)
        conversation = view.conversation("search")
        parts: list[str] = []
        described: list[dict[str, Any]] = []
        left = self._settings.max_result_chars
        for name in dict.fromkeys(names[:MAX_DESCRIBED]):
            entry = view.entries.get(name)
            if entry is None:
                turn = conversation.turn(Session(), (Call("", name, {}),))
                parts.append(turn.answers[0].text)
                continue
            text = json.dumps(entry.listed, ensure_ascii=False, separators=(",", ":"))
            if described and len(text) > left:
                parts.append(prompts.NO_ROOM.format(name=name))
                continue
            left -= len(text)
            described.append(entry.listed)
            parts.append(text)
        answer = said("\n\n".join(parts), is_error=not described)
        answer["structuredContent"] = {"tools": described}
        return answer


def _whole(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return default
    return min(max(value, 1), MAX_LIMIT)
