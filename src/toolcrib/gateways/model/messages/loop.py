"""Asking the model, answering its searches, and asking again, until it has an answer for the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from toolcrib.config.settings import ModelUpstream
from toolcrib.errors import RequestFailed
from toolcrib.gateways.model.body import read_reply, written
from toolcrib.gateways.model.door import Exchange
from toolcrib.gateways.model.fault import messages_error
from toolcrib.gateways.model.gateway import Gateway
from toolcrib.gateways.model.messages.relay import Relay
from toolcrib.gateways.model.messages.talk import FINAL_STOPS, Body, Talk, is_call_of_ours, split
from toolcrib.gateways.model.messages.usage import Usage
from toolcrib.gateways.model.saved import Saved
from toolcrib.gateways.model.sse import EventReader, event
from toolcrib.gateways.model.upstream import Reply, headers_to_send

# Clients give up on a stream that is silent for some minutes.
PING_SECONDS: Final = 15.0
DRAIN_SECONDS: Final = 0.1

_PING: Final = event("ping", b'{"type":"ping"}')
_REPLACED: Final = frozenset({"content-type", "cache-control"})

Result = TypeVar("Result")


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
            reply = await self._pinging(relay, self._ask(again=relay.begun))
            try:
                if not await self._is_stream(reply, relay):
                    return
                async for events in self._events(reply, relay):
                    await self._write(events)
                    if relay.failed:
                        await self.exchange.end()
                        return
            finally:
                await reply.close()
            blocks, reason = relay.end_pass()
            found, stop = await self._pinging(relay, self._step(blocks, reason))
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

    async def _events(self, reply: Reply, relay: Relay) -> AsyncIterator[list[Body]]:
        """The events for the client, as many together as came together."""
        reader = EventReader()
        chunks = reply.chunks()
        while True:
            chunk = await self._pinging(relay, anext(chunks, None))
            if chunk is None:
                return
            told: list[Body] = []
            for one in reader.feed(chunk):
                if one.data != "[DONE]" and not relay.failed:
                    told += relay.feed(read_reply(one.data))
            if told:
                yield told
            if relay.ended:
                await _drained(chunks)
                return

    async def _write(self, events: Iterable[Body]) -> None:
        chunk = b"".join(event(str(one.get("type")), written(one)) for one in events)
        if chunk:
            await self.exchange.write(chunk)

    async def _pinging(self, relay: Relay, work: Awaitable[Result]) -> Result:
        """Wait for something, and tell the client from time to time that it is not forgotten."""
        task = asyncio.ensure_future(work)
        try:
            while True:
                done, _ = await asyncio.wait((task,), timeout=PING_SECONDS)
                if done:
                    return task.result()
                if relay.begun:
                    await self.exchange.write(_PING)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _visible(self, blocks: list[Body]) -> list[Body]:
        if self.talk.shows_searches:
            return blocks
        return [block for block in blocks if not is_call_of_ours(self.talk, block)]

    def _headers(self, reply: Reply, **more: int) -> list[tuple[str, str]]:
        return [*reply.headers(), *self.saved.headers(**more)]


async def _drained(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end, which is near, so that the connection can be used again."""
    with suppress(RequestFailed, TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while await anext(chunks, None) is not None:
                pass


def _error_data(status: int, body: bytes) -> bytes:
    """An upstream's error as the data of an event: its own words, if they have the API's form."""
    try:
        said: dict[str, Any] = read_reply(body)
    except RequestFailed:
        said = {}
    if said.get("type") == "error" and isinstance(said.get("error"), dict):
        return written(said)
    return written(messages_error(RequestFailed("the upstream failed; try again", status)))
