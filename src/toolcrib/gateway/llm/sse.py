"""Server-sent events, read piece by piece and written."""

from __future__ import annotations

from typing import Final, NamedTuple

from toolcrib.errors import RequestFailed

MAX_EVENT_BYTES: Final = 16 << 20

_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_END: Final = 3


class SseEvent(NamedTuple):
    """One event: its name, empty where it has none, and its data."""

    name: str
    data: str


class SseParser:
    """Events from bytes, in whatever pieces they come.

    It keeps no more than one event, and that may not be larger than `max_event_bytes`.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0
        self._at_start = True

    def parse_chunk(self, chunk: bytes) -> list[SseEvent]:
        """The events that are complete with these bytes."""
        if not (self._pieces or self._data or self._name or self._at_start):
            whole = _whole_event(chunk)
            if whole is not None:
                return [whole]
        self._size += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            # Joined only once the line ends: joining a long line with every piece is quadratic.
            self._pieces.append(chunk)
            self._check_size()
            return []
        lines = b"".join((*self._pieces, chunk)).splitlines(keepends=True)
        # A carriage return at the end may be the first half of a line end.
        self._pieces = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        events: list[SseEvent] = []
        for line in lines:
            self._line(line.rstrip(b"\r\n"), events)
        if events:
            self._size = sum(map(len, self._pieces)) + sum(map(len, self._data))
        self._check_size()
        return events

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                name = self._name.decode("utf-8", "replace")
                events.append(SseEvent(name, b"\n".join(self._data).decode("utf-8", "replace")))
            self._name, self._data = b"", []
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value

    def _check_size(self) -> None:
        if self._size > self._max_event_bytes:
            raise _too_large(self._max_event_bytes)


class EventBuffer:
    """The same bytes, held back where an event is not complete: half of one helps nobody."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._held: list[bytes] = []
        self._size = 0
        self._tail = b""

    def push_chunk(self, chunk: bytes) -> bytes:
        """As many bytes as make whole events."""
        if not self._held and chunk.endswith(b"\n\n"):
            return chunk
        seen = self._tail + chunk
        cut = max(seen.rfind(end) + len(end) if end in seen else 0 for end in _EVENT_ENDS)
        if not cut:
            self._hold(chunk, seen)
            return b""
        cut -= len(self._tail)
        whole = b"".join((*self._held, chunk[:cut]))
        self._held, self._size, self._tail = [], 0, b""
        if cut < len(chunk):
            self._hold(chunk[cut:], chunk[cut:])
        return whole

    def take_rest(self) -> bytes:
        """What is left at the end."""
        return b"".join(self._held)

    def _hold(self, piece: bytes, seen: bytes) -> None:
        self._held.append(piece)
        self._size += len(piece)
        self._tail = seen[-_LONGEST_END:]
        if self._size > self._max_event_bytes:
            raise _too_large(self._max_event_bytes)


def _whole_event(chunk: bytes) -> SseEvent | None:
    """The event that a chunk is, if it is just one and in the form that nearly all have."""
    if not chunk.endswith(b"\n\n") or b"\r" in chunk:
        return None
    head, _, data = chunk[:-2].rpartition(b"\n")
    if not data.startswith(b"data: ") or b"\n" in head or not (not head or head[:7] == b"event: "):
        return None
    try:
        return SseEvent(head[7:].decode(), data[6:].decode())
    except UnicodeDecodeError:
        return None


def _too_large(max_event_bytes: int) -> RequestFailed:
    return RequestFailed(f"the upstream sent an event of more than {max_event_bytes:,} bytes", 502)


def format_event(name: str, data: bytes) -> bytes:
    """One event as it is sent; without a name, only its data. The data is JSON, on one line."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + data + b"\n\n"
