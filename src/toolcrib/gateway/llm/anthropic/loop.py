"""Asking the model, answering its searches, and asking again, until it has an answer for the client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from toolcrib.config.settings import ModelUpstream
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic.rewriter import FINAL_STOPS, Body, Talk, is_call_of_ours, split
from toolcrib.gateway.llm.anthropic.stream import Relay
from toolcrib.gateway.llm.anthropic.usage import Usage
from toolcrib.gateway.llm.api_errors import messages_error
from toolcrib.gateway.llm.endpoint import Exchange
from toolcrib.gateway.llm.gateway import Gateway
from toolcrib.gateway.llm.json_body import read_reply, written
from toolcrib.gateway.llm.response_headers import Saved
from toolcrib.gateway.llm.sse import EventReader, event
from toolcrib.gateway.llm.upstreams import Reply, headers_to_send

_PING: Final = event("ping", b'{"type":"ping"}')
_REPLACED: Final = frozenset({"content-type", "cache-control"})


@dataclass(frozen=True, slots=True)
class Loop:
    """One request of a client, for which an upstream is asked as often as it takes."""

    gateway: Gateway
    exchange: Exchange
    upstream: ModelUpstream
    talk: Talk
    saved: Saved

    async def run(self, *, stream: bool) -> None:
        """Answer the client."""
        waiting = self.talk.waiting()
        results = await self._search(waiting) if waiting else []
        self.talk.add((), results)
        if stream:
            await self._stream(results)
        else:
            await self._complete(results)

    async def _complete(self, results: list[Body]) -> None:
        """The whole message at once."""
        usage = Usage()
        content = list(results)
        first: Body | None = None
        searches = len(results)
        while True:
            reply = await self._ask(again=first is not None)
            body = await reply.read()
            if not reply.ok:
                await self.exchange.answer(reply.status, self._headers(reply), body)
                return
            message = await self.gateway.read_reply(body)
            first = first or message
            usage.add(message.get("usage"))
            sent = message.get("content")
            blocks = [
                self.talk.opened(block)
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
        ends["usage"] = usage.told(searched=searched)
        headers = self._headers(reply, searches=searches)
        await self.exchange.answer(200, headers, written(ends))

    async def _stream(self, results: list[Body]) -> None:
        """The message as it comes."""
        relay = Relay(self.talk, results)
        while True:
            reply = await self._ask(again=relay.begun)
            try:
                if not await self._is_stream(reply, relay):
                    return
                await self._pass(reply, relay)
                if relay.failed:
                    await self.exchange.end()
                    return
                await reply.finish()
            finally:
                await reply.close()
            blocks, reason = relay.end_pass()
            found, stop = await self._step(blocks, reason)
            events = relay.results(found) if found else []
            if stop is not None:
                await self._write([*events, *relay.end(stop or None)])
                await self.exchange.end()
                return
            await self._write(events)

    async def _step(self, blocks: list[Body], reason: str | None) -> tuple[list[Body], str | None]:
        """Answer the searches of a pass: the results to show, and why to stop, if that is so.

        An empty reason is that of an upstream that gives none.
        """
        calls, others = split(self.talk, blocks)
        if not calls or reason in FINAL_STOPS:
            self.talk.add(blocks, ())
            return [], reason or ""
        if others and self.talk.shows_searches:
            # As in the API: the search waits until the client has answered its calls.
            self.talk.add(blocks, ())
            return [], "tool_use"
        results = await self._search(calls)
        self.talk.add(blocks, results)
        return results, "tool_use" if others else self.talk.stop()

    async def _search(self, calls: list[Body]) -> list[Body]:
        return await self.gateway.search(partial(self.talk.answers, calls))

    async def _ask(self, *, again: bool) -> Reply:
        """Ask the upstream. What the client cannot repeat is tried more than once."""
        return await self.gateway.upstreams.send(
            self.upstream,
            self.exchange.method,
            self.exchange.target,
            headers_to_send(self.upstream, self.exchange.headers),
            written(self.talk.request()),
            patient=again,
        )

    async def _is_stream(self, reply: Reply, relay: Relay) -> bool:
        """Whether events follow. If not, the client has been told why."""
        if reply.ok and reply.is_events:
            if not self.exchange.started:
                headers = [
                    *(one for one in self._headers(reply) if one[0] not in _REPLACED),
                    ("content-type", "text/event-stream; charset=utf-8"),
                    ("cache-control", "no-cache"),
                ]
                await self.exchange.start(200, headers)
            return True
        body = await reply.read()
        if not self.exchange.started:
            if reply.ok:
                raise RequestFailed("the upstream was asked for a stream and sent none", 502)
            await self.exchange.answer(reply.status, self._headers(reply), body)
            return False
        await self.exchange.write(event("error", _error_data(reply.status, body)))
        await self.exchange.end()
        return False

    async def _pass(self, reply: Reply, relay: Relay) -> None:
        """Send on what one pass says, as many events together as came together."""
        reader = EventReader()
        exchange = self.exchange

        def take(chunk: bytes) -> bool:
            told: list[Body] = []
            sent: Body = {}
            for one in reader.feed(chunk):
                if one.data != "[DONE]" and not relay.failed:
                    sent = read_reply(one.data)
                    told += relay.feed(sent)
            is_taken = True
            if told:
                # Most events go on as they came, and need not be written anew.
                is_same = (
                    reader.is_exact
                    and len(told) == 1
                    and told[0] is sent
                    and one.name == sent.get("type")
                )
                is_taken = exchange.offer(chunk if is_same else _told(told))
                # From here on there is a message that the client waits for.
                exchange.ping = _PING
            return is_taken and not relay.ended and not relay.failed

        while not await reply.pour(take):
            await exchange.flushed()
            if relay.ended or relay.failed:
                return

    async def _write(self, events: list[Body]) -> None:
        if events:
            await self.exchange.write(_told(events))

    def _visible(self, blocks: list[Body]) -> list[Body]:
        if self.talk.shows_searches:
            return blocks
        return [block for block in blocks if not is_call_of_ours(self.talk, block)]

    def _headers(self, reply: Reply, **more: int) -> list[tuple[str, str]]:
        return [*reply.headers(), *self.saved.headers(**more)]


def _told(events: Iterable[Body]) -> bytes:
    return b"".join([event(str(one.get("type")), written(one)) for one in events])


def _error_data(status: int, body: bytes) -> bytes:
    """An upstream's error as the data of an event: its own words, if they have the API's form."""
    try:
        said: dict[str, Any] = read_reply(body)
    except RequestFailed:
        said = {}
    if said.get("type") == "error" and isinstance(said.get("error"), dict):
        return written(said)
    return written(messages_error(RequestFailed("the upstream failed; try again", status)))
