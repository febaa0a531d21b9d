"""Which upstream has stored a response, and under which id.

If an entry is lost, the client has to name the upstream in a header.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.json_body import parse_upstream_body
from toolcrib.gateway.llm.sse import SseParser

MAX_RESPONSE_IDS: Final = 50_000
# The id of a response is in one of the first events of its stream.
MAX_INSPECTED_EVENTS: Final = 16

Owner = tuple[str, ...]


class ResponseLocation(NamedTuple):
    """The name of an upstream, and its id of a response."""

    upstream: str
    id: str


class ResponseIdMap:
    """The locations of the responses that clients have received. Each client sees only its own."""

    def __init__(self, max_ids: int = MAX_RESPONSE_IDS) -> None:
        self._memory = ConversationMemory(max_ids)

    def record(self, owner: Owner, upstream: str, client_id: str, upstream_id: str = "") -> None:
        """Record a response; `upstream_id` is needed if it differs from the client's id."""
        if client_id:
            location = [upstream, upstream_id or client_id]
            ScopedMemory(self._memory, owner).put(location, client_id)

    def find(self, owner: Owner, client_id: str) -> ResponseLocation | None:
        """Return the location of a response, or None if this client has received no such id."""
        location = ScopedMemory(self._memory, owner).get(client_id)
        return ResponseLocation(*location) if location else None


class ResponseIdObserver:
    """Calls `on_id` with the id of a response, found in its body or in its first events."""

    def __init__(self, on_id: Callable[[str], None]) -> None:
        self._on_id = on_id
        self._parser = SseParser()
        self._left = MAX_INSPECTED_EVENTS

    def __call__(self, piece: bytes) -> None:
        """Inspect the next piece of a response."""
        if self._left <= 0:
            return
        try:
            if piece.lstrip().startswith(b"{"):
                self._inspect(piece)
            else:
                for event in self._parser.parse_chunk(piece):
                    self._inspect(event.data)
        except RequestFailed:
            # Invalid JSON is forwarded to the client as it is.
            self._left = 0

    def _inspect(self, data: bytes | str) -> None:
        self._left -= 1
        body = parse_upstream_body(data)
        response = body.get("response")
        id = str_or_empty((response if isinstance(response, dict) else body).get("id"))
        if id and self._left >= 0:
            self._left = 0
            self._on_id(id)
