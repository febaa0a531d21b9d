"""Which search of a client led to which call: what the gateway learns from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request

from toolcrib.core.session import SessionTable
from toolcrib.core.trail import Trail
from toolcrib.gateways.guard import ANYONE
from toolcrib.gateways.mcp.client import Client
from toolcrib.service.directory import Entry
from toolcrib.service.service import Service

# Callers whose requests stand alone, and whose latest searches are remembered all the same.
MAX_CALLERS: Final = 1_000
_STATE: Final = "toolcrib.trail"


class Attention:
    """Follows the searches and calls of clients, each by itself.

    A client that began with a handshake is followed as long as its connection lasts. Others are
    known by their key and profile alone.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._trails: SessionTable[Trail] = SessionTable(MAX_CALLERS)

    def searched(self, client: Client, query: str, found: Iterable[Entry]) -> None:
        """A client was told of these tools."""
        if self._service.config.tool_search.learn:
            self._keep(client, self._trail(client).searched(query, (one.name for one in found)))

    def called(self, client: Client, entry: Entry, succeeded: bool) -> None:
        """A client has called a tool, which answered."""
        if not self._service.config.tool_search.learn:
            return
        trail, use = self._trail(client).called(entry.name, succeeded)
        if use is not None:
            self._keep(client, trail)
            self._service.note_use(client.profile, caller(client), use)

    def _trail(self, client: Client) -> Trail:
        if _lasts(client):
            trail = client.connection.state.get(_STATE)
            return trail if isinstance(trail, Trail) else Trail()
        return self._trails.get(_alone(client)) or Trail()

    def _keep(self, client: Client, trail: Trail) -> None:
        if _lasts(client):
            client.connection.state[_STATE] = trail
        else:
            self._trails.put(_alone(client), trail)


def caller(client: Client) -> str:
    """Whose key a request came with; nobody's where no keys are asked for."""
    request = client.ctx.request
    state = request.scope.get("state", {}) if isinstance(request, Request) else {}
    principal = state.get("principal", ANYONE)
    return "" if principal is ANYONE else str(principal.name)


def _lasts(client: Client) -> bool:
    """Whether its connection outlasts the request."""
    return not client.is_modern and client.connection.client_params is not None


def _alone(client: Client) -> str:
    return f"{client.profile or ''}\0{caller(client)}"
