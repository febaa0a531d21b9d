"""Which search of a client led to which call: what the gateway learns from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolcrib.gateway.mcp.server.session import Visitor
from toolcrib.hub.directory import Entry
from toolcrib.hub.hub import Service
from toolcrib.search.feedback.trail import Trail
from toolcrib.session.session import SessionTable

# Callers whose requests stand alone, and whose latest searches are remembered all the same.
MAX_CALLERS: Final = 1_000


class Attention:
    """Follows the searches and calls of clients, each by itself.

    A client that began with a handshake is followed as long as its connection lasts. Others are
    known by their key and profile alone.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._trails: SessionTable[Trail] = SessionTable(MAX_CALLERS)

    def searched(self, client: Visitor, query: str, found: Iterable[Entry]) -> None:
        """A client was told of these tools."""
        if self._service.config.tool_search.learn:
            self._keep(client, self._trail(client).searched(query, (one.name for one in found)))

    def called(self, client: Visitor, entry: Entry, succeeded: bool) -> None:
        """A client has called a tool, which answered."""
        if not self._service.config.tool_search.learn:
            return
        trail, use = self._trail(client).called(entry.name, succeeded)
        if use is not None:
            self._keep(client, trail)
            self._service.note_use(client.profile, client.caller, use)

    def _trail(self, client: Visitor) -> Trail:
        if client.lasts:
            return client.shown.trail
        return self._trails.get(_alone(client)) or Trail()

    def _keep(self, client: Visitor, trail: Trail) -> None:
        if client.lasts:
            client.shown.trail = trail
        else:
            self._trails.put(_alone(client), trail)


def _alone(client: Visitor) -> str:
    return f"{client.profile or ''}\0{client.caller}"
