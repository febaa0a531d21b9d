"""Forward a response of an upstream to the client, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

from toolcrib.gateway.llm.endpoint import HttpExchange, ResponseHeaders
from toolcrib.gateway.llm.sse import EventBuffer
from toolcrib.gateway.llm.upstream.http_messages import UpstreamResponse
from toolcrib.gateway.llm.usage import UsageReader

# Called with each piece of a response before it is sent to the client.
ResponseObserver = Callable[[bytes], None]


async def forward_response(
    exchange: HttpExchange,
    response: UpstreamResponse,
    added_headers: ResponseHeaders,
    usage: UsageReader,
    observer: ResponseObserver | None,
) -> None:
    """Forward a response byte for byte. The gateway has asked the upstream not to compress it."""
    try:
        # Events are decoded if possible, because their ends are only visible in decoded bytes.
        keep_encoding = not (response.is_event_stream and response.is_decodable)
        headers = [*response.forwarded_headers(keep_encoding=keep_encoding), *added_headers.render()]
        if not response.is_event_stream:
            pieces = []
            while piece := await response.read_raw_chunk():
                pieces.append(piece)
            body = b"".join(pieces)
            if response.is_success:
                usage.read_body(body)
                if observer:
                    observer(body)
            await exchange.send_response(response.status, headers, body)
            return
        await exchange.start_response(response.status, headers)
        if keep_encoding:
            while piece := await response.read_raw_chunk():
                await exchange.write(piece)
        else:
            buffer = EventBuffer()
            read = response.read_chunk if response.is_encoded else response.read_raw_chunk
            while chunk := await read():
                if events := buffer.push_chunk(chunk):
                    usage.read_events(events)
                    if observer:
                        observer(events)
                    await exchange.write(events)
            await exchange.write(buffer.take_rest())
        await exchange.end_response()
    finally:
        await response.close()
