"""Parse and format server-sent events."""

from __future__ import annotations

from typing import Final, NamedTuple

from toolcrib.errors import RequestFailed

MAX_EVENT_BYTES: Final = 16 << 20

_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_END: Final = 3


class SseEvent(NamedTuple):
    """One event; the name may be empty."""

    name: str
    data: str


class SseParser:
    """Parses events from chunks of any size. It buffers at most one event of `max_event_bytes`."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._partial_line: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0
        self._at_start = True

    def parse_chunk(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that end within this chunk."""
        if not (self._partial_line or self._data or self._name or self._at_start):
            complete = _parse_single_event(chunk)
            if complete is not None:
                return [complete]
        self._size += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            # Joining the chunks only at the end of a line avoids quadratic time.
            self._partial_line.append(chunk)
            self._check_size()
            return []
        lines = b"".join((*self._partial_line, chunk)).splitlines(keepends=True)
        # A carriage return at the end may belong to a line end of two bytes.
        self._partial_line = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        events: list[SseEvent] = []
        for line in lines:
            self._parse_line(line.rstrip(b"\r\n"), events)
        if events:
            self._size = sum(map(len, self._partial_line)) + sum(map(len, self._data))
        self._check_size()
        return events

    def _parse_line(self, line: bytes, events: list[SseEvent]) -> None:
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
            raise _size_error(self._max_event_bytes)


class EventBuffer:
    """Passes bytes on in complete events."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._buffered: list[bytes] = []
        self._size = 0
        self._tail = b""

    def push_chunk(self, chunk: bytes) -> bytes:
        """Return the bytes up to the end of the last complete event."""
        if not self._buffered and chunk.endswith(b"\n\n"):
            return chunk
        seen = self._tail + chunk
        cut = max(seen.rfind(end) + len(end) if end in seen else 0 for end in _EVENT_ENDS)
        if not cut:
            self._buffer(chunk, seen)
            return b""
        cut -= len(self._tail)
        complete = b"".join((*self._buffered, chunk[:cut]))
        self._buffered, self._size, self._tail = [], 0, b""
        if cut < len(chunk):
            self._buffer(chunk[cut:], chunk[cut:])
        return complete

    def take_rest(self) -> bytes:
        """Return the bytes of an incomplete event at the end of the stream."""
        return b"".join(self._buffered)

    def _buffer(self, data: bytes, seen: bytes) -> None:
        self._buffered.append(data)
        self._size += len(data)
        self._tail = seen[-_LONGEST_END:]
        if self._size > self._max_event_bytes:
            raise _size_error(self._max_event_bytes)


def _parse_single_event(chunk: bytes) -> SseEvent | None:
    """Return the event of a chunk that is exactly one event in the usual form, or None."""
    if not chunk.endswith(b"\n\n") or b"\r" in chunk:
        return None
    head, _, data = chunk[:-2].rpartition(b"\n")
    if not data.startswith(b"data: ") or b"\n" in head or not (not head or head[:7] == b"event: "):
        return None
    try:
        return SseEvent(head[7:].decode(), data[6:].decode())
    except UnicodeDecodeError:
        return None


def _size_error(max_event_bytes: int) -> RequestFailed:
    return RequestFailed(f"the upstream sent an event of more than {max_event_bytes:,} bytes", 502)


def format_event(name: str, data: bytes) -> bytes:
    """Return an event as bytes. The data must be a single line."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + data + b"\n\n"


class JsonArrayEncoder:
    """Converts the events of a stream to the elements of a JSON array."""

    def __init__(self) -> None:
        self._parser = SseParser()
        self._separator = b"["

    def encode(self, events: bytes) -> bytes:
        """Return the elements of some events; comments, which keep a connection open, become white space."""
        parts: list[bytes] = []
        for event in self._parser.parse_chunk(events):
            parts += (self._separator, event.data.encode())
            self._separator = b",\r\n"
        return b"".join(parts) or (b"\n" if events else b"")

    def finish(self) -> bytes:
        """Return the end of the array."""
        return b"[]" if self._separator == b"[" else b"]"
