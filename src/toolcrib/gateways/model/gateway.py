"""What all APIs of the model gateway share: upstreams, toolsets, reveals, threads to search in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar, cast, get_args

from toolcrib.config.settings import ModelGateway, ModelUpstream, SearchForModel
from toolcrib.core.hosted import Provider, hosting_provider
from toolcrib.core.session import SessionTable
from toolcrib.errors import RequestFailed
from toolcrib.gateways.model.door import MAX_BODY_BYTES, SWITCH_HEADER, Exchange
from toolcrib.gateways.model.saved import Saved
from toolcrib.gateways.model.sse import WholeEvents
from toolcrib.gateways.model.toolset import Toolset, Toolsets, Way
from toolcrib.gateways.model.upstream import Upstreams, headers_to_send

SEARCH_THREADS: Final = 4
PREPARE_AFTER_SECONDS: Final = 0.03

Result = TypeVar("Result")
# Which switch a client's key comes with, by the principal's name.
Switches = Mapping[str, SearchForModel]


class Gateway:
    """The model gateway, between `open` and `close`."""

    def __init__(
        self,
        settings: ModelGateway,
        *,
        switches: Switches | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.settings = settings
        self.max_body_bytes = max_body_bytes
        self.upstreams = Upstreams(settings)
        self.toolsets = Toolsets(settings.engine_cache)
        # The names of the tools that conversations were shown, oldest first.
        self.reveals: SessionTable[tuple[str, ...]] = SessionTable(settings.max_conversations)
        self._switches = dict(switches or {})
        self._searching: ThreadPoolExecutor | None = None
        self._preparing: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Make the pool of connections and the threads."""
        await self.upstreams.open()
        self._searching = ThreadPoolExecutor(SEARCH_THREADS, "toolcrib-search")
        self._preparing = ThreadPoolExecutor(1, "toolcrib-prepare")

    async def close(self) -> None:
        """Close every connection and wait for the threads."""
        await self.upstreams.close()
        for threads in (self._searching, self._preparing):
            if threads is not None:
                await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        self._searching = self._preparing = None

    async def search(self, work: Callable[[], Result]) -> Result:
        """Do what may take long in a thread, so that nobody else waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self._searching, work)

    def prepare(self, toolset: Toolset, *ways: Way) -> None:
        """Make a toolset ready while the model is still thinking of its first search."""
        if ways and toolset.claim():
            self.beforehand(partial(toolset.prepare, *ways))

    def beforehand(self, work: Callable[[], None]) -> None:
        """Do something in a thread, for which nobody waits."""
        # A little later: threads share one interpreter, and the request should go out first.
        loop = asyncio.get_running_loop()
        loop.call_later(PREPARE_AFTER_SECONDS, self._prepare, work)

    def _prepare(self, work: Callable[[], None]) -> None:
        if self._preparing is not None:
            self._preparing.submit(work)

    def switch(self, exchange: Exchange, upstream: ModelUpstream) -> SearchForModel:
        """How tool search is switched: by the request's header, else its key, else the upstream."""
        asked = exchange.header(SWITCH_HEADER).strip().lower()
        if not asked:
            name = getattr(exchange.principal, "name", "")
            return self._switches.get(name, upstream.tool_search)
        if asked not in get_args(SearchForModel):
            known = ", ".join(get_args(SearchForModel))
            raise RequestFailed(f"{SWITCH_HEADER}: {asked[:40]!r} is not one of {known}")
        return cast(SearchForModel, asked)

    async def pass_on(self, exchange: Exchange, upstream: ModelUpstream, saved: Saved) -> None:
        """Ask an upstream what the client asked, byte for byte, and answer what it answers."""
        headers = headers_to_send(upstream, exchange.headers, as_sent=True)
        reply = await self.upstreams.send(
            upstream, exchange.method, exchange.target, headers, exchange.body
        )
        try:
            if not reply.is_events:
                pieces = []
                while piece := await reply.raw():
                    pieces.append(piece)
                body = b"".join(pieces)
                headers = [*reply.headers(as_sent=True), *saved.headers()]
                await exchange.answer(reply.status, headers, body)
                return
            # Decoded, where that can be: half an event can only be told from a whole one so.
            as_sent = not reply.is_readable
            await exchange.start(reply.status, [*reply.headers(as_sent=as_sent), *saved.headers()])
            if as_sent:
                while piece := await reply.raw():
                    await exchange.write(piece)
            else:
                whole = WholeEvents()

                def take(chunk: bytes) -> bool:
                    events = whole.feed(chunk)
                    return not events or exchange.offer(events)

                while not await reply.pour(take):
                    await exchange.flushed()
                await exchange.write(whole.rest())
            await exchange.end()
        finally:
            await reply.close()


def is_native(switch: SearchForModel, provider: Provider, model: str) -> bool:
    """Whether a model's own provider searches, so that nothing is to be touched."""
    return switch == "native" or (switch == "auto" and hosting_provider(model) == provider)
