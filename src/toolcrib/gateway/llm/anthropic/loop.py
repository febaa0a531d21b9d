"""Asking the model, answering its searches, and asking again, until it has an answer for the client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic.rewriter import (
    FINAL_STOPS,
    Body,
    MessagesRewriter,
    is_gateway_search,
    split_calls,
)
from toolcrib.gateway.llm.anthropic.stream import MessagesStream
from toolcrib.gateway.llm.anthropic.usage import MessagesUsage
from toolcrib.gateway.llm.api_errors import render_messages_error
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.http_messages import UpstreamResponse
from toolcrib.gateway.llm.json_body import parse_upstream_body, serialize_json
from toolcrib.gateway.llm.response_headers import ResponseHeaders
from toolcrib.gateway.llm.sse import SseParser, format_event
from toolcrib.gateway.llm.upstreams import build_upstream_headers

_PING: Final = format_event("ping", b'{"type":"ping"}')
_REPLACED: Final = frozenset({"content-type", "cache-control"})


@dataclass(frozen=True, slots=True)
class MessagesSearchLoop:
    """One request of a client, for which an upstream is asked as often as it takes."""

    gateway: LlmGateway
    exchange: HttpExchange
    upstream: LlmUpstreamConfig
    talk: MessagesRewriter
    saved: ResponseHeaders

    async def run(self, *, stream: bool) -> None:
        """Answer the client."""
        waiting = self.talk.pending_searches()
        results = await self._search(waiting) if waiting else []
        self.talk.append_round((), results)
        if stream:
            await self._stream(results)
        else:
            await self._complete(results)

    async def _complete(self, results: list[Body]) -> None:
        """The whole message at once."""
        usage = MessagesUsage()
        content = list(results)
        first: Body | None = None
        searches = len(results)
        while True:
            reply = await self._ask(again=first is not None)
            body = await reply.read()
            if not reply.is_success:
                await self.exchange.send_response(reply.status, self._headers(reply), body)
                return
            message = await self.gateway.parse_upstream_body(body)
            first = first or message
            usage.add_round(message.get("usage"))
            sent = message.get("content")
            blocks = [
                self.talk.convert_block(block)
                for block in (sent if isinstance(sent, list) else ())
                if isinstance(block, dict)
            ]
            reason = message.get("stop_reason")
            found, stop = await self._step(blocks, reason if isinstance(reason, str) else None)
            content += self._visible(blocks)
            content += found if self.talk.shows_searches else []
            searches += len(found)
            if stop is not None:
                break
        ends = {**message, "content": content, "stop_reason": stop or None}
        ends["id"] = first.get("id", message.get("id"))
        searched = bool(searches) and self.talk.shows_searches
        ends["usage"] = usage.render(searched=searched)
        headers = self._headers(reply, searches=searches)
        await self.exchange.send_response(200, headers, serialize_json(ends))

    async def _stream(self, results: list[Body]) -> None:
        """The message as it comes."""
        relay = MessagesStream(self.talk, results)
        while True:
            reply = await self._ask(again=relay.has_started)
            try:
                if not await self._is_stream(reply, relay):
                    return
                await self._pass(reply, relay)
                if relay.has_failed:
                    await self.exchange.end_response()
                    return
                await reply.discard_rest()
            finally:
                await reply.close()
            blocks, reason = relay.end_pass()
            found, stop = await self._step(blocks, reason)
            events = relay.render_results(found) if found else []
            if stop is not None:
                await self._write([*events, *relay.render_end(stop or None)])
                await self.exchange.end_response()
                return
            await self._write(events)

    async def _step(self, blocks: list[Body], reason: str | None) -> tuple[list[Body], str | None]:
        """Answer the searches of a pass: the results to show, and why to stop, if that is so.

        An empty reason is that of an upstream that gives none.
        """
        calls, others = split_calls(self.talk, blocks)
        if not calls or reason in FINAL_STOPS:
            self.talk.append_round(blocks, ())
            return [], reason or ""
        if others and self.talk.shows_searches:
            # As in the API: the search waits until the client has answered its calls.
            self.talk.append_round(blocks, ())
            return [], "tool_use"
        results = await self._search(calls)
        self.talk.append_round(blocks, results)
        return results, "tool_use" if others else self.talk.stop_reason()

    async def _search(self, calls: list[Body]) -> list[Body]:
        return await self.gateway.run_search(partial(self.talk.run_searches, calls))

    async def _ask(self, *, again: bool) -> UpstreamResponse:
        """Ask the upstream. What the client cannot repeat is tried more than once."""
        return await self.gateway.upstreams.send(
            self.upstream,
            self.exchange.method,
            self.exchange.target,
            build_upstream_headers(self.upstream, self.exchange.headers),
            serialize_json(self.talk.next_request()),
            retry_transient=again,
        )

    async def _is_stream(self, reply: UpstreamResponse, relay: MessagesStream) -> bool:
        """Whether events follow. If not, the client has been told why."""
        if reply.is_success and reply.is_event_stream:
            if not self.exchange.has_started:
                headers = [
                    *(one for one in self._headers(reply) if one[0] not in _REPLACED),
                    ("content-type", "text/event-stream; charset=utf-8"),
                    ("cache-control", "no-cache"),
                ]
                await self.exchange.start_response(200, headers)
            return True
        body = await reply.read()
        if not self.exchange.has_started:
            if reply.is_success:
                raise RequestFailed("the upstream was asked for a stream and sent none", 502)
            await self.exchange.send_response(reply.status, self._headers(reply), body)
            return False
        await self.exchange.write(format_event("error", _error_data(reply.status, body)))
        await self.exchange.end_response()
        return False

    async def _pass(self, reply: UpstreamResponse, relay: MessagesStream) -> None:
        """Send on what one pass says, as many events together as came together."""
        parser = SseParser()
        while chunk := await reply.read_chunk():
            told: list[Body] = []
            sent: Body = {}
            for one in parser.parse_chunk(chunk):
                if one.data != "[DONE]" and not relay.has_failed:
                    sent = parse_upstream_body(one.data)
                    told += relay.handle_event(sent)
            if told:
                # Most events are not changed and need not be serialized again.
                is_same = (
                    parser.is_single_event
                    and len(told) == 1
                    and told[0] is sent
                    and one.name == sent.get("type")
                )
                await self.exchange.write(chunk if is_same else _told(told))
                # The client has received the start of the message and waits for the rest.
                self.exchange.ping = _PING
            if relay.has_ended or relay.has_failed:
                return

    async def _write(self, events: list[Body]) -> None:
        if events:
            await self.exchange.write(_told(events))

    def _visible(self, blocks: list[Body]) -> list[Body]:
        if self.talk.shows_searches:
            return blocks
        return [block for block in blocks if not is_gateway_search(self.talk, block)]

    def _headers(self, reply: UpstreamResponse, **more: int) -> list[tuple[str, str]]:
        return [*reply.forwarded_headers(), *self.saved.render(**more)]


def _told(events: Iterable[Body]) -> bytes:
    return b"".join([format_event(str(one.get("type")), serialize_json(one)) for one in events])


def _error_data(status: int, body: bytes) -> bytes:
    """An upstream's error as the data of an event: its own words, if they have the API's form."""
    try:
        said: dict[str, Any] = parse_upstream_body(body)
    except RequestFailed:
        said = {}
    if said.get("type") == "error" and isinstance(said.get("error"), dict):
        return serialize_json(said)
    return serialize_json(
        render_messages_error(RequestFailed("the upstream failed; try again", status))
    )
