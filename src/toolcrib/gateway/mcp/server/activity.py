"""Records the requests of MCP clients: audit rows, sent tokens, and the activity of each client."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

import anyio
from pydantic_core import to_json
from starlette.requests import Request

from toolcrib.core import prompts
from toolcrib.core.token_count import count_tool_tokens, estimate_tokens
from toolcrib.errors import UnknownProfile
from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.mcp.server.client import ConnectedClient
from toolcrib.hub.hub import Hub
from toolcrib.hub.view import AccessView, DisclosureMode
from toolcrib.profiles.mcproxy import SEARCH_TOOL_NAME
from toolcrib.storage.audit import AuditAction, AuditOutcome, AuditRow

# The tokens of lists are counted later in batches, so that clients do not wait for it.
MAX_PENDING_RESPONSES: Final = 1_000
# Over this number, the client that was idle for longest is dropped.
MAX_CLIENTS: Final = 1_000
MAX_RECORDED_HITS: Final = 20
MAX_ERROR_CHARS: Final = 500
_SEARCH_NAMES: Final = frozenset({prompts.SEARCH_NAME, SEARCH_TOOL_NAME})
_CALL_NAMES: Final = frozenset({prompts.CALL_NAME, *prompts.RISK_CALL_NAMES.values()})
_FOUND_ACTIONS: Final = ("search", "describe")


@dataclass
class ClientActivity:
    """What one client has done and was sent since it was first seen."""

    key: str
    profile: str
    client: str
    version: str
    protocol: str
    session: str
    first_seen: float
    last_seen: float = 0.0
    calls: int = 0
    searches: int = 0
    errors: int = 0
    lists: int = 0
    tokens_full: int = 0
    tokens_sent: int = 0
    mode: str = ""
    mode_reason: str = ""
    # The definitions of the last list.
    shown: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Response:
    """A response to a client."""

    activity: ClientActivity
    view: AccessView
    request_id: str
    seconds: float
    at: float = field(default_factory=time.time)
    action: AuditAction = "call"
    outcome: AuditOutcome = "ok"
    server: str = ""
    tool: str = ""
    request_bytes: int = 0
    result_bytes: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    # The listed definitions, or the content of a search result, whose tokens are counted.
    sent: list[Any] = field(default_factory=list)
    tokens: tuple[int, int] | None = None

    def count_tokens(self) -> tuple[int, int]:
        """Return the tokens of all tools, for a list, and the tokens that were sent."""
        if self.tokens is None:
            if self.action == "list":
                self.tokens = (self.view.total_tokens, _count_list_tokens(self.view, self.sent))
            else:
                self.tokens = (0, _count_json_tokens(self.sent) if self.action in _FOUND_ACTIONS else 0)
        return self.tokens

    def complete_row(self, row: AuditRow) -> AuditRow:
        """Return the row of a list with its tokens."""
        full, sent = self.count_tokens()
        return replace(row, details={**row.details, "tokens_full": full, "tokens_sent": sent})


class ActivityRecorder:
    """Records requests on the event loop, before they are answered. The tokens of lists are counted in `flush`."""

    def __init__(self, hub: Hub, audit: AuditLog) -> None:
        self._hub = hub
        self._audit = audit
        self._pending: list[_Response] = []
        self._lock = Lock()
        self._clients: OrderedDict[tuple[str, ...], ClientActivity] = OrderedDict()

    def list_clients(self) -> list[ClientActivity]:
        """Return the clients, the one that was seen last first."""
        return list(reversed(self._clients.values()))

    def add_client(self, client: ConnectedClient) -> None:
        """Add a client that has connected."""
        self._find_client(client).last_seen = time.time()

    async def record_response(
        self, client: ConnectedClient, method: str, params: Mapping[str, Any], result: Mapping[str, Any], started: float
    ) -> None:
        """Record the response to `tools/list` or `tools/call`; `started` is of `time.perf_counter`."""
        if method not in ("tools/list", "tools/call"):
            return
        try:
            view = self._hub.get_view(client.profile)
        except UnknownProfile:
            # A reload has just removed the profile.
            return
        seconds = time.perf_counter() - started
        response = _Response(self._find_client(client), view, _get_request_id(client), seconds)
        if method == "tools/list":
            response.action, response.sent = "list", result["tools"]
        else:
            self._describe_call(response, client, params, result)
        self._update_client(response, client)
        if response.action == "list":
            self._audit.record_request(_build_row(response), response.complete_row)
            with self._lock:
                self._pending.append(response)
            if len(self._pending) >= MAX_PENDING_RESPONSES:
                await anyio.to_thread.run_sync(self.flush)
            return
        _, sent = response.count_tokens()
        if sent:
            response.activity.tokens_sent += sent
            response.details["tokens_sent"] = sent
            self._hub.add_counts(tokens_found=sent, tokens_saved=-sent)
        self._audit.record_request(_build_row(response))

    def record_refusal(self, client: ConnectedClient, params: Mapping[str, Any], error: Exception) -> None:
        """Record a call that was refused with a protocol error."""
        activity = self._find_client(client)
        activity.errors += 1
        name = params.get("name")
        self._audit.record_request(
            AuditRow(
                "call",
                "refused",
                key=activity.key,
                profile=activity.profile,
                client=activity.client,
                session=activity.session,
                tool=name[:200] if isinstance(name, str) else "",
                request_id=_get_request_id(client),
                details={"error": str(error)[:MAX_ERROR_CHARS]},
            )
        )

    def flush(self) -> None:
        """Count the tokens of the lists that were sent. Thread-safe."""
        with self._lock:
            pending, self._pending = self._pending, []
        for response in pending:
            full, sent = response.count_tokens()
            response.activity.tokens_full += full
            response.activity.tokens_sent += sent
            self._hub.add_counts(listings=1, tokens_of_all=full, tokens_listed=sent, tokens_saved=full - sent)

    def _describe_call(
        self, response: _Response, client: ConnectedClient, params: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        name, arguments = params.get("name"), params.get("arguments") or {}
        entries = response.view.entries
        if name in _CALL_NAMES and name not in entries:
            name, arguments = arguments.get("name"), arguments.get("arguments") or {}
        response.tool = name[:200] if isinstance(name, str) else ""
        entry = entries.get(response.tool)
        content = result.get("content")
        if result.get("isError") is True:
            response.outcome = "error"
            response.details["error"] = _first_text(content)[:MAX_ERROR_CHARS]
        if entry is not None:
            response.server = entry.server
        elif name in _SEARCH_NAMES or name == prompts.DESCRIBE_NAME:
            self._describe_search(response, arguments, result)
        elif response.outcome == "error":
            response.outcome = "refused"
        if not self._audit.settings.enabled:
            return
        response.request_bytes, response.result_bytes = _count_json_bytes(arguments), _count_json_bytes(content)
        if response.action == "call" and self._audit.records_content(client.profile):
            response.details["arguments"] = arguments
            text = _first_text(content)
            response.details["result"] = text or json.dumps(result.get("structuredContent"), default=str)

    def _describe_search(self, response: _Response, arguments: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        response.action = "describe" if response.tool == prompts.DESCRIBE_NAME else "search"
        response.sent = result.get("content") or []
        structured = result.get("structuredContent") or {}
        if response.action == "search":
            response.details["query"] = arguments.get("query")
            response.details["confident"] = structured.get("confident", False)
        tools = structured.get("tools") or []
        response.details["hits"] = [tool["name"] for tool in tools[:MAX_RECORDED_HITS] if "name" in tool]

    def _find_client(self, client: ConnectedClient) -> ClientActivity:
        """Return the activity of a client, which is known by its session or by its key and name."""
        key = client.principal.name if client.principal.key_hash else ""
        name, version = _identify_client(client)
        session = client.state.id if client.state.has_session else ""
        identity = (session,) if session else (key, client.profile or "", name)
        activity = self._clients.get(identity)
        if activity is None:
            activity = ClientActivity(
                key, client.profile or "", name, version, client.ctx.protocol_version or "", session, time.time()
            )
            self._clients[identity] = activity
            while len(self._clients) > MAX_CLIENTS:
                self._clients.popitem(last=False)
        # During the handshake the name is not known yet.
        activity.client, activity.version = name, version
        self._clients.move_to_end(identity)
        return activity

    def _update_client(self, response: _Response, client: ConnectedClient) -> None:
        activity = response.activity
        activity.last_seen = response.at
        activity.calls += response.action == "call"
        activity.searches += response.action == "search"
        activity.errors += response.outcome != "ok"
        if response.action == "list":
            activity.lists += 1
            activity.shown = response.sent
            mode = response.view.resolve_mode(client.is_stateless, client.reads_list_once)
            activity.mode = mode
            activity.mode_reason = explain_mode(response.view, mode, client)


def explain_mode(view: AccessView, mode: DisclosureMode, client: ConnectedClient) -> str:
    """Return why a client gets a disclosure mode."""
    configured, limit, count = view.configured_mode, view.settings.max_tools_limit, len(view.entries)
    if configured not in ("auto", "dynamic"):
        return f'the mode is set to "{configured}"'
    if not limit:
        return "maxToolsLimit is 0, so all tools are listed"
    if count <= limit:
        return f"{count:,} tools are not more than maxToolsLimit, {limit:,}"
    exceeds = f"{count:,} tools are more than maxToolsLimit, {limit:,}"
    if client.is_stateless:
        return f"{exceeds}; the list of this protocol revision may not change between requests"
    if mode == "search":
        return f"{exceeds}; this client reads the list once"
    return f"{exceeds}; this client reads a list that changed"


def _count_list_tokens(view: AccessView, tools: list[dict[str, Any]]) -> int:
    entries = ((view.entries.get(tool["name"]), tool) for tool in tools)
    return sum(count_tool_tokens(entry.tool) if entry else _count_json_tokens(tool) for entry, tool in entries)


def _count_json_tokens(value: object) -> int:
    return estimate_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _build_row(response: _Response) -> AuditRow:
    details = response.details
    if response.action == "list":
        details = {"tools": len(response.sent), "mode": response.activity.mode}
    activity = response.activity
    return AuditRow(
        response.action,
        response.outcome,
        response.at,
        activity.key,
        "",
        activity.profile,
        activity.client,
        activity.session,
        response.server,
        response.tool,
        round(response.seconds, 6),
        response.request_bytes,
        response.result_bytes,
        response.request_id,
        details,
    )


def _identify_client(client: ConnectedClient) -> tuple[str, str]:
    """Return the name and version of a client, from MCP or from its HTTP header."""
    params = client.connection.client_params
    if params is not None:
        return params.client_info.name[:80], params.client_info.version[:40]
    request = client.ctx.request
    agent = request.headers.get("user-agent", "") if isinstance(request, Request) else ""
    name, _, version = agent.split(" ")[0].partition("/")
    return name[:80], version[:40]


def _get_request_id(client: ConnectedClient) -> str:
    request = client.ctx.request
    state: Mapping[str, Any] = request.scope.get("state", {}) if isinstance(request, Request) else {}
    return str(state.get("request_id", ""))


def _first_text(content: object) -> str:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, Mapping) and isinstance(block.get("text"), str):
            return str(block["text"])
    return ""


def _count_json_bytes(value: object) -> int:
    """Return how many bytes a value takes as JSON."""
    try:
        return len(to_json(value, inf_nan_mode="null"))
    except ValueError:
        # A lone surrogate cannot be encoded.
        return len(repr(value))
