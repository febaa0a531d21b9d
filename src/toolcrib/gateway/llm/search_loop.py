"""Send a request to an upstream, run the searches of the reply, and repeat until the reply is final.

The loop is the same for all APIs. A `RequestRewriter` builds the requests and interprets the replies; a
`ReplyStream` does the same for a reply that is streamed. Neither does any I/O.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from toolcrib.adapters.plain_json import str_or_empty
from toolcrib.core.calls import CallReply, ToolCall
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import ResponseHeaders, Treatment
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.json_body import parse_upstream_body, serialize_json
from toolcrib.gateway.llm.request import LlmRequest
from toolcrib.gateway.llm.sse import SseParser, format_event
from toolcrib.gateway.llm.tools.tool_index import ToolIndex
from toolcrib.gateway.llm.tools.tool_selection import ToolSelection
from toolcrib.gateway.llm.tracing import RequestMeasurement
from toolcrib.gateway.llm.upstream.http_messages import UpstreamResponse
from toolcrib.gateway.llm.usage import parse_usage
from toolcrib.session.turn import ToolTask

Body = dict[str, Any]
Result = TypeVar("Result")

_DONE: Final = "[DONE]"
_log = logging.getLogger(__name__)


class RequestRewriter(ABC):
    """One request of a client, over all its rounds with the upstream."""

    # What the gateway does for this request.
    treatment: Treatment
    _selection: ToolSelection

    def __init__(self, body: Body, index: ToolIndex, max_rounds: int) -> None:
        self.index = index
        self.rounds = 0
        self.searches = 0
        self._body = body
        self._max_rounds = max_rounds
        self._usage: Any = None

    @property
    def revealed_ids(self) -> list[str]:
        """The ids of the deferred tools that the model is sent."""
        return self._selection.revealed_ids

    @property
    def usage(self) -> Any:
        """The usage of all rounds, as the client gets it; None if the upstream reports none."""
        return self._usage

    def add_usage(self, report: object, /) -> None:
        """Add the usage of one round."""
        self._usage = sum_usage(self._usage, report)

    def answer_calls(self, calls: Sequence[ToolCall]) -> tuple[list[CallReply], dict[int, ToolTask]]:
        """Run the searches of a round; return the replies for the model, and the tasks for the client.

        The tasks are keyed by the identity of their call, because some upstreams send no ids. After the last
        round, only calls of the gateway's own tools get a reply.
        """
        turn = self._selection.handle_calls(calls, self.rounds)
        tasks = {id(task.call): task for task in turn.tasks}
        if self.rounds >= self._max_rounds:
            own_names = {tool.name for tool in self.index.own_tools}
            return [reply for reply in turn.replies if reply.call.name in own_names], tasks
        self.rounds += 1
        self.searches += sum(self.index.offers_search and call.name == self.index.search_tool.name for call in calls)
        return list(turn.replies), tasks

    @abstractmethod
    def next_request(self) -> Body:
        """Return the body to send to the upstream next."""

    @abstractmethod
    def has_searches(self, reply: Body) -> bool:
        """Return whether `handle_reply` will search, and so has to run in a thread."""

    @abstractmethod
    def handle_reply(self, reply: Body) -> Body | None:
        """Return the reply for the client, or None if the upstream has to be asked again."""


class ReplyStream(ABC):
    """The streamed replies to one request of a client, over all its rounds."""

    # What keeps an idle connection open; empty while nothing may be sent.
    ping = b""
    # Whether the round that was finished last is the last one.
    is_complete = False
    _has_failed = False

    @property
    def needs_search(self) -> bool:
        """Whether `run_search` has to be called before the next event."""
        return False

    @property
    @abstractmethod
    def is_ended(self) -> bool:
        """Whether the upstream has ended the round, or has failed."""

    @property
    @abstractmethod
    def is_final(self) -> bool:
        """Whether no event can follow in this round."""

    @property
    def has_final_searches(self) -> bool:
        """Whether `finish_round` will search, and so has to run in a thread."""
        return False

    @abstractmethod
    def handle_event(self, event: Body) -> Iterable[Body]:
        """Return the events for the client that follow from an event of the upstream."""

    def run_search(self) -> list[Body]:
        """Run the search that is due and return its events. Slow: run it in a thread."""
        return []

    @abstractmethod
    def finish_round(self) -> list[Body]:
        """End the round, run the searches that are left, and return its last events."""

    def encode_event(self, event: Body) -> bytes:
        """Return an event as bytes."""
        return format_event(str_or_empty(event.get("type")), serialize_json(event))

    @abstractmethod
    def encode_error(self, error: RequestFailed, upstream_body: Body | None) -> bytes:
        """Return the event that ends a stream after an error.

        `upstream_body` is the response of the upstream, if it has caused the error.
        """

    def encode_end(self) -> bytes:
        """Return what follows the last event."""
        return b""


class ChunkStream(ReplyStream):
    """A stream of chunks without names, one of which has the reason for the end of the round."""

    # A comment, which every parser of events ignores.
    ping = b": searching\n\n"
    _reason: Any = None

    @property
    def is_ended(self) -> bool:
        return self._reason is not None or self._has_failed

    @property
    def is_final(self) -> bool:
        """Whether the upstream has failed; after a reason the usage may follow."""
        return self._has_failed

    def encode_event(self, event: Body) -> bytes:
        return format_event("", serialize_json(event))


def sum_usage(left: object, right: object) -> Any:
    """Return the sum of two usage reports, field by field.

    Numbers are added and lists are joined. For any other value the right one is used, unless it is
    None.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return {key: sum_usage(left.get(key), right.get(key)) for key in {**left, **right}}
    if isinstance(left, list) and isinstance(right, list):
        return left + right
    if _is_number(left) and _is_number(right):
        return left + right  # type: ignore[operator]
    return left if right is None else right


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def build_response_headers(request: LlmRequest, rewriter: RequestRewriter) -> ResponseHeaders:
    """Return the headers that describe what the gateway does for a request."""
    index, revealed = rewriter.index, rewriter.revealed_ids
    always_sent = len(index.always_sent)
    return ResponseHeaders(
        request.upstream.name,
        rewriter.treatment,
        always_sent + len(index.deferred),
        always_sent + len(revealed),
        index.count_saved_tokens(revealed),
        None if rewriter.treatment == "search" else index.plan,
    )


async def answer_request(
    gateway: LlmGateway, request: LlmRequest, rewriter: RequestRewriter, stream: ReplyStream
) -> None:
    """Answer a request; `stream` is used if the client asks for a stream."""
    gateway.check_tools_size(request, rewriter.next_request)
    gateway.prepare_index(rewriter.index)
    headers = build_response_headers(request, rewriter)
    gateway.report_request(headers)
    loop = _SearchLoop(gateway, request, rewriter, headers)

    def fill(measurement: RequestMeasurement) -> None:
        measurement.counts = parse_usage(rewriter.usage)
        measurement.searches, measurement.found_tools = rewriter.searches, rewriter.revealed_ids

    with gateway.measure_request(request, headers, fill):
        gateway.check_searches(request.exchange)
        is_answered = await (loop.run_streamed(stream) if request.is_streaming else loop.run_whole())
    if is_answered:
        _log.info(
            "%s, %s: %d of %d tools sent, about %d tokens saved, %d searches in %d more rounds; %s: %s",
            request.upstream.name,
            headers.treatment,
            headers.revealed_count,
            headers.tool_count,
            headers.saved_tokens,
            rewriter.searches,
            rewriter.rounds,
            rewriter.index.plan.style,
            rewriter.index.plan.reason,
        )


class _SearchLoop:
    """The rounds of one request."""

    def __init__(
        self, gateway: LlmGateway, request: LlmRequest, rewriter: RequestRewriter, headers: ResponseHeaders
    ) -> None:
        self._gateway = gateway
        self._request = request
        self._exchange = request.exchange
        self._rewriter = rewriter
        self._added_headers = headers

    async def run_whole(self) -> bool:
        """Answer with one JSON body; return false if it is an error of the upstream."""
        rewriter = self._rewriter
        while True:
            response = await self._send_request()
            data = await response.read()
            if not response.is_success:
                await self._send(response, data)
                return False
            reply = await self._gateway.parse_upstream_body(data)
            answer = await self._run(partial(rewriter.handle_reply, reply), rewriter.has_searches(reply))
            if answer is not None:
                counts = {"rounds": rewriter.rounds, "searches": rewriter.searches}
                await self._send(response, serialize_json(answer), **counts)
                return True

    async def run_streamed(self, stream: ReplyStream) -> bool:
        """Answer with a stream of events; return false if it ends in an error."""
        exchange = self._exchange
        try:
            while not stream.is_complete:
                response = await self._send_request()
                try:
                    if not await self._start_stream(stream, response):
                        return False
                    await self._stream_round(stream, response)
                finally:
                    await response.close()
                events = await self._run(stream.finish_round, stream.has_final_searches)
                await self._write(stream, events, stream.encode_end() if stream.is_complete else b"")
        except RequestFailed as error:
            if not exchange.has_started:
                raise
            await exchange.write(stream.encode_error(error, None))
            await exchange.end_response()
            return False
        await exchange.end_response()
        return True

    async def _run(self, work: Callable[[], Result], in_thread: bool) -> Result:
        return await self._gateway.run_search(work) if in_thread else work()

    async def _send_request(self) -> UpstreamResponse:
        body = self._rewriter.next_request()
        self._exchange.sent_tools = body.get("tools")
        return await self._gateway.send_request(
            self._request,
            serialize_json(body),
            # A client can repeat the first round itself, but none of the later ones.
            retry_transient=self._rewriter.rounds > 0,
        )

    async def _send(self, response: UpstreamResponse, body: bytes, **counts: int) -> None:
        headers = [*response.forwarded_headers(), *self._added_headers.render(**counts)]
        await self._exchange.send_response(response.status, headers, body)

    async def _start_stream(self, stream: ReplyStream, response: UpstreamResponse) -> bool:
        """Return whether the upstream sends a stream; if not, send its error to the client."""
        if response.is_success and response.is_event_stream:
            if not self._exchange.has_started:
                headers = [*response.forwarded_headers(), *self._added_headers.render()]
                if not any(name.lower() == "cache-control" for name, _ in headers):
                    headers.append(("cache-control", "no-cache"))
                await self._exchange.start_response(response.status, headers)
                self._exchange.ping = stream.ping
            return True
        data = await response.read()
        if not self._exchange.has_started:
            if response.is_success:
                raise RequestFailed("the upstream did not answer with a stream of events", 502)
            await self._send(response, data)
            return False
        error = RequestFailed(f"the upstream answered with status {response.status}; try again", response.status)
        await self._exchange.write(stream.encode_error(error, _parse_error(data)))
        await self._exchange.end_response()
        return False

    async def _stream_round(self, stream: ReplyStream, response: UpstreamResponse) -> None:
        """Forward the events of one round, and run the searches between them."""
        parser, is_done = SseParser(), False
        while chunk := await response.read_chunk():
            events = deque(parser.parse_chunk(chunk))
            # A write may wait long for the client.
            del chunk
            while events:
                data, is_done = _handle_events(stream, events)
                if data:
                    await self._exchange.write(data)
                    self._exchange.ping = stream.ping
                if not stream.needs_search:
                    break
                await self._write(stream, await self._gateway.run_search(stream.run_search))
            if is_done or stream.is_final:
                await response.discard_rest()
                break
        if not stream.is_ended:
            raise RequestFailed("the upstream ended its answer in the middle; try again", 502)

    async def _write(self, stream: ReplyStream, events: Iterable[Body], end: bytes = b"") -> None:
        data = b"".join([*map(stream.encode_event, events), end])
        del events
        if data:
            await self._exchange.write(data)


def _handle_events(stream: ReplyStream, events: deque[str]) -> tuple[bytes, bool]:
    """Return the events for the client up to the next search, and whether the upstream's stream is done."""
    output: list[Body] = []
    is_done = False
    while events:
        data = events.popleft()
        if data == _DONE:
            is_done = True
            continue
        output += stream.handle_event(parse_upstream_body(data))
        if events and (stream.needs_search or stream.is_final):
            break
    return b"".join(map(stream.encode_event, output)), is_done


def _parse_error(data: bytes) -> Body | None:
    """Return the error that an upstream has sent, or None if it cannot be read."""
    try:
        return parse_upstream_body(data)
    except RequestFailed:
        return None
