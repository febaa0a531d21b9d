"""Every server started once and looked at: the half of a diagnosis that needs them to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
import httpx2

from toolcrib.config.checks import ConfigFinding, Severity
from toolcrib.config.settings import GatewayConfig, ServerConfig
from toolcrib.core.token_count import count_tool_tokens
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.gateway.mcp.admin.diagnosis import diagnose_server
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.startup import OnServerStart, report_server_starts
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.directory import DirectoryEntry, ServerTools
from toolcrib.hub.hub import Hub
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store

LARGE_DEFINITION_TOKENS: Final = 10_000
MAX_LISTED_PROBLEMS: Final = 5
_PROBE_TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What was seen of one server."""

    server: str
    is_running: bool
    protocol: str = ""
    tools: int = 0
    tokens: int = 0
    findings: list[ConfigFinding] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `toolcrib doctor --json` prints it, without the findings."""
        return {
            "server": self.server,
            "is_up": self.is_running,
            "protocol": self.protocol,
            "tools": self.tools,
            "tokens": self.tokens,
        }


async def check_servers(
    config: GatewayConfig, pins: Mapping[str, Iterable[Pin]], on_started: OnServerStart
) -> list[ServerReport]:
    """Start every server of a configuration, see what it says, and stop it again.

    Nothing is kept. `pins` are what was approved of the servers' tools so far.
    """
    eager = {name: replace(server, start="eager") for name, server in config.servers.items()}
    service = Hub(replace(config, servers=eager), open_store("sqlite://"))
    for server, of_server in pins.items():
        service.store.put_pins(server, of_server)
    fleet = UpstreamPool(service, _ignore_event, _ignore_event)
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(fleet.run)
            await report_server_starts(fleet, on_started)
            reports = await _build_reports(fleet)
            tasks.cancel_scope.cancel()
    finally:
        service.close()
    return reports


async def _build_reports(fleet: UpstreamPool) -> list[ServerReport]:
    shelves = {shelf.server.name: shelf for shelf in fleet.hub.directory.servers}
    claimed = fleet.hub.directory.entries
    reports: list[ServerReport] = []
    for name, upstream in fleet.servers.items():
        if upstream.connection is None:
            status = await _fetch_http_status(upstream.config)
            said = upstream.stderr_tail.lines
            fault = diagnose_server(upstream.config, upstream.error, said, status)
            reports.append(ServerReport(name, False, findings=[fault]))
            continue
        shelf = shelves.get(name) or ServerTools(upstream.config)
        reports.append(_build_report(upstream, shelf, claimed))
    return reports


def _build_report(
    upstream: UpstreamServer, shelf: ServerTools, claimed: Mapping[str, DirectoryEntry]
) -> ServerReport:
    tokens = sum(count_tool_tokens(entry.tool) for entry in shelf.entries)
    protocol = upstream.connection.protocol if upstream.connection else ""
    found = [
        *_find_unusable_tools(shelf),
        *_find_quarantined_tools(shelf),
        *_find_suspicious_tools(shelf),
        *_find_name_conflicts(shelf, claimed),
        *_find_large_definitions(shelf, tokens),
    ]
    return ServerReport(upstream.name, True, protocol, len(shelf.entries), tokens, found)


def _find_unusable_tools(shelf: ServerTools) -> Iterable[ConfigFinding]:
    name = shelf.server.name
    if not shelf.entries and not shelf.quarantined and not shelf.problems:
        cure = "check `toolsAllowed` and `toolsBlocked`, or remove the server"
        yield ConfigFinding("warning", "it has no tools", cure, name)
    for fault in shelf.problems[:MAX_LISTED_PROBLEMS]:
        yield ConfigFinding("warning", fault, "tell its makers; the other tools are used", name)
    if (more := len(shelf.problems) - MAX_LISTED_PROBLEMS) > 0:
        yield ConfigFinding("warning", f"{more} more tools cannot be used", "tell its makers", name)
    if shelf.repaired_tools:
        more = len(shelf.repaired_tools) - 1
        also = f", and so are {more} more" if more else ""
        yield ConfigFinding("note", f"{shelf.repaired_tools[0]}{also}", "tell its makers", name)


def _find_quarantined_tools(shelf: ServerTools) -> Iterable[ConfigFinding]:
    if shelf.quarantined:
        what = f"{_join_with_verb(shelf.quarantined)} held back until a person has approved the definition"
        cure = f"look at the change and approve it: toolcrib approve {shelf.server.name}"
        yield ConfigFinding("warning", what, cure, shelf.server.name)


def _find_suspicious_tools(shelf: ServerTools) -> Iterable[ConfigFinding]:
    for entry in shelf.entries:
        for found in entry.findings[:1]:
            severity: Severity = "warning" if found.severity == "high" else "note"
            what = f"{entry.remote_name}, {found.location}: {found.message}"
            cure = 'read the definition; `"toolsBlocked"` keeps a tool out'
            yield ConfigFinding(severity, what, cure, shelf.server.name)


def _find_name_conflicts(
    shelf: ServerTools, claimed: Mapping[str, DirectoryEntry]
) -> Iterable[ConfigFinding]:
    server = shelf.server
    prefix = f"{server.alias or server.name}{SERVER_SEPARATOR}"
    cut = [one.name for one in shelf.entries if not one.name.endswith(one.remote_name)]
    if cut:
        what = f"the names of {len(cut)} tools are too long or unusual, and are changed: "
        cure = f'give it a shorter "alias" than {prefix.removesuffix(SERVER_SEPARATOR)}'
        yield ConfigFinding("note", what + _join_names(cut), cure, server.name)
    taken = [one.name for one in shelf.entries if claimed.get(one.name, one).server != server.name]
    if taken:
        what = (
            f"the names of {len(taken)} tools are taken by an earlier server: {_join_names(taken)}"
        )
        yield ConfigFinding("warning", what, 'give it an "alias" of its own', server.name)


def _find_large_definitions(shelf: ServerTools, tokens: int) -> Iterable[ConfigFinding]:
    if tokens >= LARGE_DEFINITION_TOKENS:
        what = f"its definitions weigh about {tokens:,} tokens"
        cure = 'leave them to the search ("mode": "search"), or narrow them with "toolsAllowed"'
        yield ConfigFinding("note", what, cure, shelf.server.name)


async def _fetch_http_status(server: ServerConfig) -> int | None:
    """What the address of a server answers to a first message, if it is one and answers at all."""
    if not server.url:
        return None
    hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream", **server.headers}
    try:
        async with httpx2.AsyncClient(timeout=_PROBE_TIMEOUT_SECONDS) as client:
            if server.transport == "sse":
                request = client.build_request("GET", server.url, headers=accept)
            else:
                request = client.build_request("POST", server.url, json=hello, headers=accept)
            response = await client.send(request, stream=True)
            await response.aclose()
            return response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
        return None


def _join_with_verb(names: Iterable[str]) -> str:
    names = list(names)
    return f"{_join_names(names)} {'is' if len(names) == 1 else 'are'}"


def _join_names(names: list[str]) -> str:
    more = len(names) - MAX_LISTED_PROBLEMS
    shown = ", ".join(names[:MAX_LISTED_PROBLEMS])
    return f"{shown} and {more} more" if more > 0 else shown


async def _ignore_event(*what: Any) -> None:
    """Nobody is there to be told."""
