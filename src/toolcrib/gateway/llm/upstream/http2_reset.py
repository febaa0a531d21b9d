"""Reset HTTP/2 streams that are closed before their end.

httpcore2 only forgets such a stream. The upstream would generate, and bill, the rest of the response.
This is the only module that uses private parts of httpcore2; `tests/gateway/llm/upstream/test_http2.py` covers it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import h2.errors
import h2.events
import h2.exceptions
from httpcore2._async import http2

# A connection that does not take a reset frame within this time is not used for further requests.
RESET_TIMEOUT_SECONDS: Final = 1.0


class ResettingHttp2Connection(http2.AsyncHTTP2Connection):
    """A connection that sends RST_STREAM for a stream that is closed before its end."""

    async def _response_closed(self, stream_id: int) -> None:
        try:
            await self._reset_stream(stream_id)
        finally:
            await super()._response_closed(stream_id)

    async def _reset_stream(self, stream_id: int) -> None:
        # Unread data would reduce the window of the connection permanently.
        received = (event for event in self._events.get(stream_id, ()) if isinstance(event, h2.events.DataReceived))
        unread = sum(event.flow_controlled_length or 0 for event in received)
        stream = self._h2_state.streams.get(stream_id)
        with suppress(h2.exceptions.ProtocolError):
            if unread:
                self._h2_state.acknowledge_received_data(unread, stream_id)
            if stream is not None and not stream.closed:
                self._h2_state.reset_stream(stream_id, h2.errors.ErrorCodes.CANCEL)
        async with self._write_lock:
            data = self._h2_state.data_to_send()
            if not data or self._write_exception is not None:
                return
            try:
                await self._network_stream.write(data, RESET_TIMEOUT_SECONDS)
            except Exception as error:
                self._write_exception = error
                self._connection_error = True


def reset_closed_streams() -> None:
    """Let httpcore2 create connections that reset the streams that are closed before their end."""
    http2.AsyncHTTP2Connection = ResettingHttp2Connection  # type: ignore[misc]
