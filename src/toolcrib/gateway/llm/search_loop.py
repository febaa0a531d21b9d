"""Asking an upstream until the answer is one for the client, whole or as a stream."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, Protocol

from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.http_messages import UpstreamResponse
from toolcrib.gateway.llm.json_body import parse_upstream_body, serialize_json
from toolcrib.gateway.llm.response_headers import ResponseHeaders, Treatment
from toolcrib.gateway.llm.sse import SseEvent, SseParser
from toolcrib.gateway.llm.tool_index import ToolSelection
from toolcrib.gateway.llm.upstreams import build_upstream_headers

Body = dict[str, Any]

_DONE: Final = "[DONE]"
# A comment, which every reader of events passes over.
_PING_COMMENT: Final = b": searching\n\n"
_log = logging.getLogger(__name__)


class RequestRewriter(Protocol):
    """One request and its rounds; nothing in it is sent or received."""

    rounds: int
    searches: int
    selection: ToolSelection

    @property
    def treatment(self) -> Treatment:
        """What is done for the client."""

    def next_request(self) -> Body:
        """The next request to the upstream."""

    def handle_reply(self, reply: Body) -> Body | None:
        """What the client is answered; None if the upstream is to be asked again."""


class ReplyStream(Protocol):
    """The same, as a stream of events."""

    @property
    def needs_search(self) -> bool:
        """Whether `search` is to be called before the next event."""

    @property
    def is_ended(self) -> bool:
        """Whether the upstream has ended the round."""

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow in this round."""

    def handle_event(self, event: Body) -> Iterable[Body]:
        """What to send of an event of the upstream's."""

    def run_search(self) -> list[Body]:
        """What comes of the search. This takes its time."""

    def finish_round(self) -> list[Body] | None:
        """What ends the answer; None if the upstream is to be asked again. This takes its time."""

    def encode_event(self, event: Body) -> bytes:
        """An event as it is sent."""

    def encode_error(self, fault: RequestFailed, said: object) -> bytes:
        """How a stream ends that broke off; `said` is the upstream's own error, if it has one."""

    def encode_end(self) -> bytes:
        """What follows the last event."""


class SearchLoop:
    """One exchange with a client, and what the upstream is asked for it."""

    def __init__(
        self,
        gateway: LlmGateway,
        exchange: HttpExchange,
        upstream: LlmUpstreamConfig,
        saved: ResponseHeaders,
    ) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._upstream = upstream
        self._saved = saved
        self._headers = build_upstream_headers(upstream, exchange.headers)

    async def run_whole(self, talk: RequestRewriter) -> None:
        """Answer at once."""
        while True:
            reply = await self._send_request(talk)
            data = await reply.read()
            if not reply.is_success:
                await self._exchange.send_response(
                    reply.status, self._response_headers(reply, talk), data
                )
                return
            said = await self._gateway.parse_upstream_body(data)
            answer = await self._gateway.run_search(partial(talk.handle_reply, said))
            if answer is not None:
                await self._exchange.send_response(
                    reply.status, self._response_headers(reply, talk), serialize_json(answer)
                )
                self._log_outcome(talk)
                return

    async def run_streamed(self, talk: RequestRewriter, stream: ReplyStream) -> None:
        """Answer piece by piece; what the client may have at once, it gets at once."""
        try:
            while True:
                reply = await self._send_request(talk)
                try:
                    if not await self._start_stream(talk, stream, reply):
                        return
                    await self._stream_round(stream, reply)
                finally:
                    await reply.close()
                last = await self._gateway.run_search(stream.finish_round)
                if last is not None:
                    await self._write_events(stream, last, stream.encode_end())
                    await self._exchange.end_response()
                    self._log_outcome(talk)
                    return
        except RequestFailed as fault:
            if not self._exchange.has_started:
                raise
            await self._exchange.write(stream.encode_error(fault, None))
            await self._exchange.end_response()

    async def _send_request(self, talk: RequestRewriter) -> UpstreamResponse:
        # A client can ask again while it has got nothing; in later rounds only we can.
        return await self._gateway.upstreams.send(
            self._upstream,
            "POST",
            self._exchange.target,
            self._headers,
            serialize_json(talk.next_request()),
            retry_transient=talk.rounds > 0,
        )

    async def _start_stream(
        self, talk: RequestRewriter, stream: ReplyStream, reply: UpstreamResponse
    ) -> bool:
        """Whether a stream of the upstream's has begun; if not, the client was told why."""
        if reply.is_success and reply.is_event_stream:
            if not self._exchange.has_started:
                await self._exchange.start_response(
                    reply.status, self._response_headers(reply, talk)
                )
                self._exchange.ping = _PING_COMMENT
            return True
        data = await reply.read()
        if not self._exchange.has_started:
            if reply.is_success:
                raise RequestFailed("the upstream did not answer with a stream of events", 502)
            await self._exchange.send_response(
                reply.status, self._response_headers(reply, talk), data
            )
            return False
        said = _parse_upstream_error(data)
        fault = RequestFailed(f"the upstream answered with status {reply.status}", reply.status)
        await self._exchange.write(stream.encode_error(fault, said))
        await self._exchange.end_response()
        return False

    async def _stream_round(self, stream: ReplyStream, reply: UpstreamResponse) -> None:
        """Send on what a round says, to its end."""
        parser = SseParser()
        waiting: deque[SseEvent] = deque()
        while chunk := await reply.read_chunk():
            waiting.extend(parser.parse_chunk(chunk))
            is_done = await self._handle_events(stream, waiting)
            while stream.needs_search:
                # The client has received everything before the search.
                await self._write_events(stream, await self._gateway.run_search(stream.run_search))
                is_done = await self._handle_events(stream, waiting)
            if is_done or stream.is_final:
                await reply.discard_rest()
                break
        if not stream.is_ended:
            raise RequestFailed("the upstream broke off its answer; try again", 502)

    async def _handle_events(self, stream: ReplyStream, waiting: deque[SseEvent]) -> bool:
        """Forward the events up to the next search; return whether the upstream's stream ended."""
        forwarded: list[Body] = []
        is_done = False
        while waiting and not stream.needs_search:
            data = waiting.popleft().data
            if data == _DONE:
                is_done = True
            else:
                forwarded += stream.handle_event(parse_upstream_body(data))
        await self._write_events(stream, forwarded)
        return is_done

    async def _write_events(
        self, stream: ReplyStream, events: Iterable[Body], closing: bytes = b""
    ) -> None:
        data = b"".join([*map(stream.encode_event, events), closing])
        if data:
            await self._exchange.write(data)

    def _response_headers(
        self, reply: UpstreamResponse, talk: RequestRewriter
    ) -> list[tuple[str, str]]:
        counts = {"rounds": talk.rounds, "searches": talk.searches} if talk.rounds else {}
        return [*reply.forwarded_headers(), *self._saved.render(**counts)]

    def _log_outcome(self, talk: RequestRewriter) -> None:
        saved = self._saved
        _log.info(
            "%s: %d of %d tools shown, %d tokens saved, %d searches in %d more rounds",
            saved.treatment,
            saved.revealed_count,
            saved.tool_count,
            saved.saved_tokens,
            talk.searches,
            talk.rounds,
        )


def _parse_upstream_error(data: bytes) -> object:
    """The error in an upstream's answer, if that is what it holds."""
    try:
        return parse_upstream_body(data).get("error")
    except RequestFailed:
        return None
