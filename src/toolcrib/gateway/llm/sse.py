"""Parse and format server-sent events."""

from __future__ import annotations

import re
from typing import Final

from toolcrib.errors import RequestFailed

MAX_EVENT_BYTES: Final = 16 << 20

_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_END: Final = 3
# A chunk that is exactly one event in the usual form, if it has no carriage return.
_SINGLE_EVENT: Final = re.compile(rb"(?:event: .*\n)?data: (.*)\n\n")


class SseParser:
    """Parses the data of events from chunks of any size. It buffers at most one event of `max_event_bytes`.

    The names of events are ignored, because the data has the type.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._partial_line: list[bytes] = []
        self._data: list[bytes] = []
        self._size = 0
        self._at_start = True

    def parse_chunk(self, chunk: bytes) -> list[str]:
        """Return the data of the events that end within this chunk."""
        # `find` is faster than `in`, which first tries to convert its argument to a number.
        is_simple = not (self._partial_line or self._data or self._at_start) and chunk.find(b"\r") < 0
        if is_simple and (single := _SINGLE_EVENT.fullmatch(chunk)):
            self._size = 0
            return [single[1].decode("utf-8", "replace")]
        self._size += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            # Joining the chunks only at the end of a line avoids quadratic time.
            self._partial_line.append(chunk)
            self._check_size()
            return []
        lines = b"".join((*self._partial_line, chunk)).splitlines(keepends=True)
        # A carriage return at the end may belong to a line end of two bytes.
        self._partial_line = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        events: list[str] = []
        for line in lines:
            self._parse_line(line.rstrip(b"\r\n"), events)
        if events:
            self._size = sum(map(len, self._partial_line)) + sum(map(len, self._data))
        self._check_size()
        return events

    def _parse_line(self, line: bytes, events: list[str]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                events.append(b"\n".join(self._data).decode("utf-8", "replace"))
            self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))

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


def _size_error(max_event_bytes: int) -> RequestFailed:
    return RequestFailed(f"the upstream sent an event of more than {max_event_bytes:,} bytes", 502)


def format_event(name: str, data: bytes) -> bytes:
    """Return an event as bytes. The data must be a single line."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data


class JsonArrayEncoder:
    """Converts the events of a stream to the elements of a JSON array."""

    def __init__(self) -> None:
        self._parser = SseParser()
        self._separator = b"["

    def encode(self, events: bytes) -> bytes:
        """Return the elements of some events; comments, which keep a connection open, become white space."""
        parts: list[bytes] = []
        for data in self._parser.parse_chunk(events):
            parts += (self._separator, data.encode())
            self._separator = b",\r\n"
        return b"".join(parts) or (b"\n" if events else b"")

    def finish(self) -> bytes:
        """Return the end of the array."""
        return b"[]" if self._separator == b"[" else b"]"
