"""Every server started once and looked at: the half of a diagnosis that needs them to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
import httpx2

from toolcrib.config.checks import Finding, Severity
from toolcrib.config.settings import Config, Server
from toolcrib.core.token_count import tool_tokens
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.gateway.mcp.admin.diagnosis import diagnose
from toolcrib.gateway.mcp.upstream.pool import Fleet
from toolcrib.gateway.mcp.upstream.startup import OnStarted, tell_starts
from toolcrib.gateway.mcp.upstream.supervisor import Upstream
from toolcrib.hub.directory import Entry, Shelf
from toolcrib.hub.hub import Service
from toolcrib.safety.pin import Pin
from toolcrib.storage import open_store

HEAVY_TOKENS: Final = 10_000
MAX_NAMED: Final = 5
_PROBE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Report:
    """What was seen of one server."""

    server: str
    is_up: bool
    protocol: str = ""
    tools: int = 0
    tokens: int = 0
    findings: list[Finding] = field(default_factory=list)


async def check_up(
    config: Config, pins: Mapping[str, Iterable[Pin]], on_started: OnStarted
) -> list[Report]:
    """Start every server of a configuration, see what it says, and stop it again.

    Nothing is kept. `pins` are what was approved of the servers' tools so far.
    """
    eager = {name: replace(server, start="eager") for name, server in config.servers.items()}
    service = Service(replace(config, servers=eager), open_store("sqlite://"))
    for server, of_server in pins.items():
        service.store.put_pins(server, of_server)
    fleet = Fleet(service, _unheard, _unheard)
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(fleet.run)
            await tell_starts(fleet, on_started)
            reports = await _reports(fleet)
            tasks.cancel_scope.cancel()
    finally:
        service.close()
    return reports


async def _reports(fleet: Fleet) -> list[Report]:
    shelves = {shelf.server.name: shelf for shelf in fleet.service.directory.shelves}
    claimed = fleet.service.directory.entries
    reports: list[Report] = []
    for name, upstream in fleet.upstreams.items():
        if upstream.link is None:
            status = await _http_status(upstream.server)
            said = upstream.complaints.lines
            fault = diagnose(upstream.server, upstream.trouble, said, status)
            reports.append(Report(name, False, findings=[fault]))
            continue
        shelf = shelves.get(name) or Shelf(upstream.server)
        reports.append(_report(upstream, shelf, claimed))
    return reports


def _report(upstream: Upstream, shelf: Shelf, claimed: Mapping[str, Entry]) -> Report:
    tokens = sum(tool_tokens(entry.tool) for entry in shelf.entries)
    protocol = upstream.link.protocol if upstream.link else ""
    found = [
        *_unreadable(shelf),
        *_held(shelf),
        *_suspect(shelf),
        *_names(shelf, claimed),
        *_weight(shelf, tokens),
    ]
    return Report(upstream.name, True, protocol, len(shelf.entries), tokens, found)


def _unreadable(shelf: Shelf) -> Iterable[Finding]:
    name = shelf.server.name
    if not shelf.entries and not shelf.held and not shelf.faults:
        cure = "check `toolsAllowed` and `toolsBlocked`, or remove the server"
        yield Finding("warning", "it has no tools", cure, name)
    for fault in shelf.faults[:MAX_NAMED]:
        yield Finding("warning", fault, "tell its makers; the other tools are used", name)
    if (more := len(shelf.faults) - MAX_NAMED) > 0:
        yield Finding("warning", f"{more} more tools cannot be used", "tell its makers", name)
    if shelf.altered:
        more = len(shelf.altered) - 1
        also = f", and so are {more} more" if more else ""
        yield Finding("note", f"{shelf.altered[0]}{also}", "tell its makers", name)


def _held(shelf: Shelf) -> Iterable[Finding]:
    if shelf.held:
        what = f"{_named(shelf.held)} held back until a person has approved the definition"
        cure = f"look at the change and approve it: toolcrib approve {shelf.server.name}"
        yield Finding("warning", what, cure, shelf.server.name)


def _suspect(shelf: Shelf) -> Iterable[Finding]:
    for entry in shelf.entries:
        for found in entry.findings[:1]:
            severity: Severity = "warning" if found.severity == "high" else "note"
            what = f"{entry.remote_name}, {found.where}: {found.text}"
            cure = 'read the definition; `"toolsBlocked"` keeps a tool out'
            yield Finding(severity, what, cure, shelf.server.name)


def _names(shelf: Shelf, claimed: Mapping[str, Entry]) -> Iterable[Finding]:
    server = shelf.server
    prefix = f"{server.alias or server.name}{SERVER_SEPARATOR}"
    cut = [one.name for one in shelf.entries if not one.name.endswith(one.remote_name)]
    if cut:
        what = f"the names of {len(cut)} tools are too long or unusual, and are changed: "
        cure = f'give it a shorter "alias" than {prefix.removesuffix(SERVER_SEPARATOR)}'
        yield Finding("note", what + _some(cut), cure, server.name)
    taken = [one.name for one in shelf.entries if claimed.get(one.name, one).server != server.name]
    if taken:
        what = f"the names of {len(taken)} tools are taken by an earlier server: {_some(taken)}"
        yield Finding("warning", what, 'give it an "alias" of its own', server.name)


def _weight(shelf: Shelf, tokens: int) -> Iterable[Finding]:
    if tokens >= HEAVY_TOKENS:
        what = f"its definitions weigh about {tokens:,} tokens"
        cure = 'leave them to the search ("mode": "search"), or narrow them with "toolsAllowed"'
        yield Finding("note", what, cure, shelf.server.name)


async def _http_status(server: Server) -> int | None:
    """What the address of a server answers to a first message, if it is one and answers at all."""
    if not server.url:
        return None
    hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream", **server.headers}
    try:
        async with httpx2.AsyncClient(timeout=_PROBE_SECONDS) as client:
            if server.transport == "sse":
                request = client.build_request("GET", server.url, headers=accept)
            else:
                request = client.build_request("POST", server.url, json=hello, headers=accept)
            response = await client.send(request, stream=True)
            await response.aclose()
            return response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
        return None


def _named(names: Iterable[str]) -> str:
    names = list(names)
    return f"{_some(names)} {'is' if len(names) == 1 else 'are'}"


def _some(names: list[str]) -> str:
    more = len(names) - MAX_NAMED
    shown = ", ".join(names[:MAX_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


async def _unheard(*what: Any) -> None:
    """Nobody is there to be told."""
