"""Where stored responses are: at which upstream, and under which id.

Forgetting one costs the client a header. So it is kept in memory, and is bounded.
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
# A stream names its response at once, or not at all.
MAX_INSPECTED_EVENTS: Final = 16

Owner = tuple[str, ...]


class ResponseLocation(NamedTuple):
    """An upstream's name, and what it calls a response."""

    upstream: str
    id: str


class ResponseIdMap:
    """The places of the responses that clients were given, each known to its owner alone."""

    def __init__(self, most: int = MAX_RESPONSE_IDS) -> None:
        self._memory = ConversationMemory(most)

    def record(self, owner: Owner, upstream: str, known_as: str, id: str = "") -> None:
        """A client was given a response; `id` is the upstream's own, where that is another."""
        if known_as:
            ScopedMemory(self._memory, owner).put([upstream, id or known_as], known_as)

    def find(self, owner: Owner, known_as: str) -> ResponseLocation | None:
        """Where a response is; None if this owner was given none of that id, or it is forgotten."""
        found = ScopedMemory(self._memory, owner).get(known_as)
        return ResponseLocation(*found) if found else None


class ResponseIdObserver:
    """Sees an answer go by, whole or as events, and tells the id of the response in it once."""

    def __init__(self, found: Callable[[str], None]) -> None:
        self._found = found
        self._reader = SseParser()
        self._left = MAX_INSPECTED_EVENTS

    def __call__(self, piece: bytes) -> None:
        """Look at the next piece."""
        if self._left <= 0:
            return
        try:
            is_whole = piece.lstrip().startswith(b"{")
            said = [piece] if is_whole else [one.data for one in self._reader.parse_chunk(piece)]
            for one in said:
                self._inspect(one)
        except RequestFailed:
            # Not for us to judge: the client gets what the upstream sent.
            self._left = 0

    def _inspect(self, said: bytes | str) -> None:
        self._left -= 1
        body = parse_upstream_body(said)
        inner = body.get("response")
        id = str_or_empty(inner.get("id") if isinstance(inner, dict) else body.get("id"))
        if id and self._left >= 0:
            self._left = 0
            self._found(id)
