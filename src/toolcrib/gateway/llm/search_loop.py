"""Asking an upstream until the answer is one for the client, whole or as a stream."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, Protocol

from toolcrib.config.settings import ModelUpstream
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import Exchange
from toolcrib.gateway.llm.gateway import Gateway
from toolcrib.gateway.llm.json_body import read_reply, written
from toolcrib.gateway.llm.response_headers import Saved, Treatment
from toolcrib.gateway.llm.sse import Event, EventReader
from toolcrib.gateway.llm.tool_index import Desk
from toolcrib.gateway.llm.upstreams import Reply, headers_to_send

Body = dict[str, Any]

_DONE: Final = "[DONE]"
# A comment, which every reader of events passes over.
_STILL_HERE: Final = b": searching\n\n"
_log = logging.getLogger(__name__)


class Talk(Protocol):
    """One request and its rounds; nothing in it is sent or received."""

    rounds: int
    searches: int
    desk: Desk

    @property
    def treatment(self) -> Treatment:
        """What is done for the client."""

    def body(self) -> Body:
        """The next request to the upstream."""

    def reply(self, reply: Body) -> Body | None:
        """What the client is answered; None if the upstream is to be asked again."""


class Streamed(Protocol):
    """The same, as a stream of events."""

    @property
    def wants_search(self) -> bool:
        """Whether `search` is to be called before the next event."""

    @property
    def is_ended(self) -> bool:
        """Whether the upstream has ended the round."""

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow in this round."""

    def event(self, event: Body) -> Iterable[Body]:
        """What to send of an event of the upstream's."""

    def search(self) -> list[Body]:
        """What comes of the search. This takes its time."""

    def end(self) -> list[Body] | None:
        """What ends the answer; None if the upstream is to be asked again. This takes its time."""

    def written(self, event: Body) -> bytes:
        """An event as it is sent."""

    def error(self, fault: RequestFailed, said: object) -> bytes:
        """How a stream ends that broke off; `said` is the upstream's own error, if it has one."""

    def closing(self) -> bytes:
        """What follows the last event."""


class Rounds:
    """One exchange with a client, and what the upstream is asked for it."""

    def __init__(
        self, gateway: Gateway, exchange: Exchange, upstream: ModelUpstream, saved: Saved
    ) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._upstream = upstream
        self._saved = saved
        self._headers = headers_to_send(upstream, exchange.headers)

    async def whole(self, talk: Talk) -> None:
        """Answer at once."""
        while True:
            reply = await self._ask(talk)
            data = await reply.read()
            if not reply.ok:
                await self._exchange.answer(reply.status, self._told(reply, talk), data)
                return
            said = await self._gateway.read_reply(data)
            answer = await self._gateway.search(partial(talk.reply, said))
            if answer is not None:
                await self._exchange.answer(reply.status, self._told(reply, talk), written(answer))
                self._log(talk)
                return

    async def stream(self, talk: Talk, stream: Streamed) -> None:
        """Answer piece by piece; what the client may have at once, it gets at once."""
        try:
            while True:
                reply = await self._ask(talk)
                try:
                    if not await self._began(talk, stream, reply):
                        return
                    await self._pass(stream, reply)
                finally:
                    await reply.close()
                last = await self._gateway.search(stream.end)
                if last is not None:
                    await self._write(stream, last, stream.closing())
                    await self._exchange.end()
                    self._log(talk)
                    return
        except RequestFailed as fault:
            if not self._exchange.started:
                raise
            await self._exchange.write(stream.error(fault, None))
            await self._exchange.end()

    async def _ask(self, talk: Talk) -> Reply:
        # A client can ask again while it has got nothing; in later rounds only we can.
        return await self._gateway.upstreams.send(
            self._upstream,
            "POST",
            self._exchange.target,
            self._headers,
            written(talk.body()),
            patient=talk.rounds > 0,
        )

    async def _began(self, talk: Talk, stream: Streamed, reply: Reply) -> bool:
        """Whether a stream of the upstream's has begun; if not, the client was told why."""
        if reply.ok and reply.is_events:
            if not self._exchange.started:
                await self._exchange.start(reply.status, self._told(reply, talk))
                self._exchange.ping = _STILL_HERE
            return True
        data = await reply.read()
        if not self._exchange.started:
            if reply.ok:
                raise RequestFailed("the upstream did not answer with a stream of events", 502)
            await self._exchange.answer(reply.status, self._told(reply, talk), data)
            return False
        said = _error(data)
        fault = RequestFailed(f"the upstream answered with status {reply.status}", reply.status)
        await self._exchange.write(stream.error(fault, said))
        await self._exchange.end()
        return False

    async def _pass(self, stream: Streamed, reply: Reply) -> None:
        """Send on what a round says, to its end."""
        reader, exchange = EventReader(), self._exchange
        waiting: deque[Event] = deque()
        is_done = False

        def take(chunk: bytes) -> bool:
            """Send on all events up to the next search."""
            nonlocal is_done
            waiting.extend(reader.feed(chunk))
            out: list[Body] = []
            while waiting and not stream.wants_search:
                data = waiting.popleft().data
                if data == _DONE:
                    is_done = True
                else:
                    out += stream.event(read_reply(data))
            told = b"".join(map(stream.written, out))
            is_taken = not told or exchange.offer(told)
            return is_taken and not (stream.wants_search or is_done or stream.is_final)

        while not await reply.pour(take):
            await exchange.flushed()
            while stream.wants_search:
                # The client has had what comes before it.
                await self._write(stream, await self._gateway.search(stream.search))
                take(b"")
                await exchange.flushed()
            if is_done or stream.is_final:
                await reply.finish()
                break
        if not stream.is_ended:
            raise RequestFailed("the upstream broke off its answer; try again", 502)

    async def _write(self, stream: Streamed, events: Iterable[Body], closing: bytes = b"") -> None:
        data = b"".join([*map(stream.written, events), closing])
        if data:
            await self._exchange.write(data)

    def _told(self, reply: Reply, talk: Talk) -> list[tuple[str, str]]:
        counts = {"rounds": talk.rounds, "searches": talk.searches} if talk.rounds else {}
        return [*reply.headers(), *self._saved.headers(**counts)]

    def _log(self, talk: Talk) -> None:
        saved = self._saved
        _log.info(
            "%s: %d of %d tools shown, %d tokens saved, %d searches in %d more rounds",
            saved.treatment,
            saved.shown,
            saved.tools,
            saved.tokens,
            talk.searches,
            talk.rounds,
        )


def _error(data: bytes) -> object:
    """The error in an upstream's answer, if that is what it holds."""
    try:
        return read_reply(data).get("error")
    except RequestFailed:
        return None
