"""`tools/list` and `tools/call`: the gateway's own tools, and calls for upstream servers."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import anyio

from toolcrib.adapters.plain_json import parse_arguments, repair_surrogates
from toolcrib.config.settings import Detail, ToolSearchConfig
from toolcrib.core import prompts
from toolcrib.core.calls import ToolCall
from toolcrib.core.stubs import render_stub
from toolcrib.core.tool import Tool
from toolcrib.errors import RequestFailed, ToolcribError
from toolcrib.gateway.mcp.server import meta_tools
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.gateway.mcp.server.code_mode import CodeMode, RecordCall
from toolcrib.gateway.mcp.server.item_search import ItemSearch, is_item_name, split_kind
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.server.tool_calls import ToolCaller
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.quotas import ProfileQuotas
from toolcrib.hub.directory import GATEWAY_TOOL_NAMES, DirectoryEntry, format_tool_count
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView, DisclosureMode
from toolcrib.profiles import mcproxy
from toolcrib.search.filters import Where
from toolcrib.search.results import SearchResult
from toolcrib.session.disclosure import parse_limit
from toolcrib.session.session import Session
from toolcrib.session.turn import DEFAULT_LIMIT, MAX_LIMIT, MAX_SUGGESTIONS, render_uncovered

DEFAULT_LISTED_TOOLS: Final = 10
MAX_LISTED_TOOLS: Final = 200
MAX_DESCRIBED_TOOLS: Final = 50
SEARCH_TOOL_NAMES: Final = frozenset({prompts.SEARCH_NAME, mcproxy.SEARCH_TOOL_NAME})
# From the weakest to the strongest; a stronger one may call everything that a weaker one may.
_CALL_NAMES: Final = (prompts.CALL_NAME, *prompts.RISK_CALL_NAMES.values())
_log = logging.getLogger(__name__)


class ToolHandlers:
    """Lists, searches, describes and calls the tools that a client may use."""

    def __init__(
        self, hub: Hub, pool: UpstreamPool, bridge: ServerRequestBridge, record: RecordCall, items: ItemSearch
    ) -> None:
        self._hub = hub
        self._pool = pool
        self.quotas = ProfileQuotas()
        self._caller = ToolCaller(hub, pool, bridge, self.quotas)
        self.code_mode = CodeMode(hub, self._caller, record)
        self.tasks = self._caller.tasks
        self.items = items

    @property
    def _settings(self) -> ToolSearchConfig:
        return self._hub.config.tool_search

    @property
    def _meta_tools(self) -> list[dict[str, Any]]:
        return [*meta_tools.build_call_tools(self._hub.config), *self._extra_tools]

    @property
    def _extra_tools(self) -> list[dict[str, Any]]:
        return [*meta_tools.build_result_tools(self._hub.config), *meta_tools.build_code_tools(self._hub.config)]

    def get_input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return a tool's input schema; the SDK compares it with headers that repeat arguments."""
        entry = self._hub.directory.entries.get(name)
        return None if entry is None else entry.tool.input_schema

    def render_instructions(self, client: ConnectedClient) -> str:
        """Return the instructions for a client; empty while no server is known."""
        view = self._hub.get_view(client.profile)
        unlisted = self._caller.get_unlisted(view)
        mode = view.resolve_mode(client.is_stateless, client.reads_list_once)
        return meta_tools.render_instructions(view, mode, unlisted) if view.entries or unlisted else ""

    async def list_tools(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool list of a client.

        A list of all tools waits for servers that have not listed their tools yet, because many
        clients read the list only once.
        """
        missing = self._find_missing_servers(client, self._hub.get_view(client.profile))
        await self._pool.wait_until_listed(missing)
        # Listed tools are in a new view.
        view = self._hub.get_view(client.profile)
        mode = view.resolve_mode(client.is_stateless, client.reads_list_once)
        if mode == "direct":
            is_final = client.reads_list_once and view.configured_mode == "auto"
            if not is_final or not self._find_missing_servers(client, view):
                return {"tools": [*view.tool_list, *self._extra_tools]}
            # A client that reads the list once can find the tools of late servers only by search.
            search = meta_tools.build_search_tool(view, self._caller.get_unlisted(view), lists_all=True)
            return {"tools": [search, *self._meta_tools, *view.tool_list]}
        if mode == "search":
            search = meta_tools.build_search_tool(view, self._caller.get_unlisted(view))
            visible = view.get_turn_handler(mode).plan.visible_tools
            definitions = (view.entries[tool.id].wire_definition for tool in visible)
            return {"tools": [search, *self._meta_tools, *definitions]}
        entries = self._get_listed_entries(client, view)
        search = meta_tools.build_dynamic_search_tool(view, len(view.entries) - len(entries))
        definitions = (entry.wire_definition for entry in entries)
        return {"tools": [*definitions, search, *self._extra_tools]}

    async def call_tool(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a tool call."""
        view = self._hub.get_view(client.profile)
        mode = view.resolve_mode(client.is_stateless, client.reads_list_once)
        name, arguments = params["name"], params.get("arguments") or {}
        if name == mcproxy.SEARCH_TOOL_NAME and not isinstance(arguments.get("query"), str):
            raise RequestFailed(mcproxy.QUERY_MISSING)
        if name in SEARCH_TOOL_NAMES:
            self.quotas.count_search(view.profile)
        try:
            if name == mcproxy.SEARCH_TOOL_NAME:
                return await self.search_dynamic(client, view, mode, arguments["query"])
            if name == prompts.SEARCH_NAME:
                return await self.search(client, view, arguments)
        except ToolcribError as error:
            return meta_tools.text_result(str(error), is_error=True)
        if name == prompts.DESCRIBE_NAME:
            return self.describe(view, arguments)
        if name == prompts.READ_NAME:
            return await self._caller.large_results.read(client, view, arguments)
        if name == prompts.CODE_NAME and self.code_mode.settings.enabled:
            return await self.code_mode.run(client, view, params)
        if name in _CALL_NAMES:
            call_name, inner = str(name), arguments.get("arguments") or {}
            # Some models write the inner arguments as JSON text.
            if isinstance(inner, str):
                inner = repair_surrogates(inner)
                decoded = parse_arguments(inner)
                inner = inner if decoded is None else decoded
            params = {**params, "name": arguments.get("name", ""), "arguments": inner}
            name = params["name"]
            if not name:
                text = prompts.CALL_NAME_MISSING.format(search=prompts.SEARCH_NAME)
                return meta_tools.text_result(text, is_error=True)
            if isinstance(name, str) and name in GATEWAY_TOOL_NAMES:
                text = prompts.CALL_DIRECTLY.format(name=name, call=call_name)
                return meta_tools.text_result(text, is_error=True)
            if is_item_name(name) and name not in view.entries:
                return await self._open_item(client, view, name, params["arguments"])
            if refusal := self._check_call_tool(view, call_name, str(name)):
                return refusal
            return await self._caller.call(client, view, mode, params, is_listed=False)
        return await self._caller.call(client, view, mode, params)

    def _check_call_tool(self, view: AccessView, call_name: str, name: str) -> dict[str, Any] | None:
        """Return a refusal if a tool has to be called with another of the call tools."""
        entry = view.entries.get(name)
        if entry is None:
            # The call itself explains what is wrong with the name.
            return None
        expected = self._get_call_name(entry) or prompts.CALL_NAME
        stronger = _CALL_NAMES[_CALL_NAMES.index(expected) :]
        if call_name == expected or (expected != prompts.CALL_NAME and call_name in stronger):
            return None
        return meta_tools.text_result(prompts.WRONG_CALL_TOOL.format(name=name, call=expected), is_error=True)

    def _get_call_name(self, entry: DirectoryEntry) -> str:
        """Return the call tool for a tool, or an empty string if there is only one."""
        return "" if self._settings.call_tools == "single" else prompts.RISK_CALL_NAMES[entry.risk]

    async def _open_item(
        self, client: ConnectedClient, view: AccessView, name: str, arguments: object
    ) -> dict[str, Any]:
        """Return the content of a skill, prompt or resource."""
        with self.quotas.track_call(view.profile):
            result = await self.items.open(client, name, arguments if isinstance(arguments, Mapping) else {})
        self.quotas.add_result(view.profile, result)
        entry = DirectoryEntry("", name, {}, Tool(name))
        return await self._caller.large_results.limit_result(client, entry, result, has_schema=False)

    @property
    def _read_call_name(self) -> str:
        return prompts.CALL_NAME if self._settings.call_tools == "single" else prompts.RISK_CALL_NAMES["read"]

    async def search(self, client: ConnectedClient, view: AccessView, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of `search_tools`."""
        query = arguments.get("query")
        if not isinstance(query, str):
            # A tool result, because the model may not see a protocol error.
            return meta_tools.text_result(prompts.QUERY_MISSING, is_error=True)
        query, kind = split_kind(query, arguments.get("kind"))
        limit = parse_limit(arguments, DEFAULT_LIMIT, MAX_LIMIT)
        if kind in meta_tools.ITEM_KINDS:
            self._hub.add_counts(searches=1)
            return await self.items.answer(client, query, kind, limit, self._read_call_name)
        requested = arguments.get("detail")
        detail: Detail = requested if requested in meta_tools.DETAILS else self._settings.detail
        where = Where(
            server=self.resolve_server_id(arguments.get("server")), read_only=arguments.get("read_only") is True
        )
        configured = self._hub.config.servers.values()
        servers = [one.id for one in configured if one.enabled and view.can_see_server(one.name)]
        if where.server and where.server.casefold() not in map(str.casefold, servers):
            text = prompts.UNKNOWN_SERVER.format(
                name=where.server[:100], names=meta_tools.join_names(servers) or "none"
            )
            return meta_tools.text_result(text, is_error=True)
        result = await self._run_search(view, query, limit, where)
        found = self._filter_by_score(view, result)
        is_match = bool(found) and result.confident
        rendered = meta_tools.render_tools(found, detail if is_match else "summary", self._settings.max_result_chars)
        notes: list[str] = []
        if is_match:
            is_single = self._settings.call_tools == "single"
            heading = prompts.GATEWAY_RESULT_COUNT if is_single else prompts.GATEWAY_RESULT_COUNT_BY_RISK
            heading = heading.format(count=format_tool_count(len(found)), call=prompts.CALL_NAME)
            if len(found) == 1:
                heading = heading.replace(", best first, each with", " with")
            if result.uncovered:
                notes.append(render_uncovered(result.uncovered))
            if result.has_more:
                notes.append(prompts.MORE_MATCHES)
            if count := rendered.shortened_count:
                shortened = "1 tool was" if count == 1 else f"{count} tools were"
                notes.append(prompts.SHORTENED_RESULTS.format(count=shortened, describe=prompts.DESCRIBE_NAME))
        else:
            heading = prompts.NO_GOOD_MATCH if found else prompts.NO_MATCH
        if where.read_only:
            unfiltered = await self._run_search(view, query, limit, replace(where, read_only=False))
            if hidden := sum(not hit.tool.read_only for hit in unfiltered):
                notes.append(prompts.NOT_READ_ONLY.format(count=format_tool_count(hidden)))
        best_score = found[0].score if is_match else 0.0
        notes += await self.items.render_hint(client, query, best_score, self._read_call_name)
        notes += self.render_search_notes(view, [tool.entry for tool in found], is_match)
        self._hub.add_counts(searches=1)
        text = "\n\n".join(["\n".join([heading, *rendered.lines]), *notes])
        return meta_tools.build_search_result(rendered, text, [heading, *notes], is_match=is_match)

    async def search_dynamic(
        self, client: ConnectedClient, view: AccessView, mode: DisclosureMode, query: str
    ) -> dict[str, Any]:
        """Return the result of MCProxy's search tool; in dynamic mode, change the client's list."""
        limit = min(self._settings.max_tools_limit or DEFAULT_LISTED_TOOLS, MAX_LISTED_TOOLS)
        nearest: list[meta_tools.FoundTool] = []
        found: list[meta_tools.FoundTool] = []
        has_more = False
        if query.strip():
            result = await self._run_search(view, query, limit, Where(), reads_expressions=True)
            nearest = self._filter_by_score(view, result)
            # Uncertain results do not replace the list.
            found = nearest if result.confident else []
            has_more = result.has_more
        if mode == "dynamic":
            if found:
                extends = self._settings.on_search == "extend"
                listed = self._get_listed_entries(client, view) if extends else []
                session = Session().reveal([entry.tool for entry in listed])
                client.state.tool_session = session.reveal([tool.entry.tool for tool in found])
            # MCProxy sends this notification even if the search found nothing.
            await client.notify("notifications/tools/list_changed", None)
        self._hub.add_counts(searches=1)
        notes = self.render_search_notes(view, [tool.entry for tool in nearest], bool(found))
        if not found:
            heading = mcproxy.NOT_FOUND.format(query=query)
            if nearest:
                names = ", ".join(tool.entry.name for tool in nearest[:MAX_SUGGESTIONS])
                heading = f"{heading} {prompts.NEAREST_NAMES.format(names=names)}"
            lines = [heading]
        else:
            heading = mcproxy.FOUND.format(count=len(found))
            lines = [heading, "", *meta_tools.render_numbered_lines(found, self._settings.max_result_chars)]
            notes = [*([prompts.MORE_MATCHES] if has_more else []), *notes]
        # A definition that does not fit is still in the tool list, or available by name.
        rendered = meta_tools.render_tools(found, "schema", self._settings.max_result_chars)
        text = "\n\n".join(["\n".join(lines), *notes])
        return meta_tools.build_search_result(rendered, text, [heading, *notes], is_match=bool(found))

    def describe(self, view: AccessView, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of `describe_tool`: the definitions of the named tools."""
        requested = arguments.get("names", arguments.get("name"))
        names = [requested] if isinstance(requested, str) else requested
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            return meta_tools.text_result(prompts.NAMES_MISSING, is_error=True)
        turn_handler = view.get_turn_handler("search")
        parts: list[str] = []
        notes: list[str] = []
        definitions: list[dict[str, Any]] = []
        chars_left = self._settings.max_result_chars
        for name in dict.fromkeys(names[:MAX_DESCRIBED_TOOLS]):
            entry = view.entries.get(name)
            if entry is None:
                turn = turn_handler.handle_calls(Session(), (ToolCall("", name, {}),))
                notes.append(self._caller.explain_missing(view, name) or turn.replies[0].text)
                continue
            definition = entry.wire_definition
            text = json.dumps(definition, ensure_ascii=False, separators=(",", ":"))
            if definitions and len(text) > chars_left:
                notes.append(prompts.NO_ROOM_FOR_TOOL.format(name=name))
                continue
            chars_left -= len(text)
            definitions.append(definition)
            parts.append(text)
            notes += meta_tools.render_warnings([entry])
        result = meta_tools.text_result("\n\n".join([*parts, *notes]), is_error=not definitions)
        return {**result, "structuredContent": {"notes": notes, "tools": definitions}}

    def render_search_notes(
        self,
        view: AccessView,
        entries: list[DirectoryEntry],
        is_match: bool,
        wording: Mapping[str, str] = meta_tools.MODEL_WORDING,
    ) -> list[str]:
        """Return the notes of a search result: unreachable servers, quarantined tools and so on."""
        found_servers = {entry.server for entry in entries}
        quarantined = {
            tools.server.name: view.list_quarantined(tools)
            for tools in view.directory.servers
            if not is_match or tools.server.name in found_servers
        }
        return meta_tools.render_notes(
            entries,
            self._pool.unreachable_servers(),
            {server: names for server, names in quarantined.items() if names},
            {} if is_match else self._caller.get_unlisted(view),
            {} if is_match else view.unusable_servers,
            wording=wording,
        )

    def _find_missing_servers(self, client: ConnectedClient, view: AccessView) -> list[str]:
        """Return the servers whose tools a complete list would lack."""
        mode = view.resolve_mode(client.is_stateless, client.reads_list_once)
        unlisted = self._pool.unlisted_servers() if mode == "direct" else ()
        return [name for name in unlisted if view.may_use_server(name)]

    def _get_listed_entries(self, client: ConnectedClient, view: AccessView) -> list[DirectoryEntry]:
        """Return a client's list in dynamic mode: the initial tools, or those it has searched for."""
        session = client.state.tool_session
        handler = view.get_turn_handler("dynamic" if session is None else "search")
        visible = list(handler.plan.visible_tools)
        if session is not None:
            visible += session.visible_tools(handler.engine.catalog, handler.is_allowed)
        return [view.entries[id] for id in dict.fromkeys(tool.id for tool in visible)]

    async def _run_search(
        self, view: AccessView, query: str, limit: int, where: Where, *, reads_expressions: bool = False
    ) -> SearchResult:
        """Search in a thread. With `reads_expressions`, an expression matches exactly, as in MCProxy."""

        def run() -> SearchResult:
            result = view.search_expression(query, limit, where) if reads_expressions else None
            return view.search(query, limit, where) if result is None else result

        started = time.perf_counter()
        # A search takes milliseconds of CPU; a thread keeps the event loop free.
        result = await anyio.to_thread.run_sync(run)
        if self._settings.debug:
            values = {
                "query": query,
                "size": len(view.entries),
                "before": len(result),
                "after": len(self._filter_by_score(view, result)),
                "milliseconds": round((time.perf_counter() - started) * 1000),
            }
            for line in mcproxy.DEBUG_LINES:
                _log.info(line.format(**values))
        return result

    def resolve_server_id(self, name: object) -> str:
        """Return the alias of the server with this name, which is its id in the index."""
        server = self._hub.config.servers.get(name) if isinstance(name, str) else None
        return server.id if server else str(name or "")

    def _filter_by_score(self, view: AccessView, result: SearchResult) -> list[meta_tools.FoundTool]:
        threshold = self._settings.search_threshold
        entries = [(view.entries[hit.tool.id], hit.score) for hit in result if hit.score >= threshold]
        has_stubs = self.code_mode.settings.enabled
        return [
            meta_tools.FoundTool(entry, score, self._get_call_name(entry), render_stub(entry.tool) if has_stubs else "")
            for entry, score in entries
        ]
