"""What all APIs of the model gateway share: upstreams, toolsets, reveals, threads to search in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar, cast, get_args

from toolcrib.config.settings import ModelGateway, ModelUpstream, SearchForModel
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.conversation_memory import Memory
from toolcrib.gateway.llm.endpoint import MAX_BODY_BYTES, SWITCH_HEADER, Exchange
from toolcrib.gateway.llm.json_body import LARGE_BYTES, read_reply
from toolcrib.gateway.llm.response_headers import UPSTREAM_HEADER, Saved, printable
from toolcrib.gateway.llm.sse import WholeEvents
from toolcrib.gateway.llm.tool_cache import Kept
from toolcrib.gateway.llm.toolset import Entries, Reader, Toolset, Way
from toolcrib.gateway.llm.upstreams import KEY_HEADERS, Upstreams, headers_to_send
from toolcrib.session.hosted_search import Provider, hosting_provider

SEARCH_THREADS: Final = 4
READ_THREADS: Final = 2
PREPARE_AFTER_SECONDS: Final = 0.03

Result = TypeVar("Result")
# Which switch a client's key comes with, by the principal's name.
Switches = Mapping[str, SearchForModel]
# Is told every piece of an answer before the client gets it.
Watch = Callable[[bytes], None]
# Is told how each request is treated, and what that saves.
OnTreated = Callable[[Saved], None]


class Gateway:
    """The model gateway, between `open` and `close`."""

    def __init__(
        self,
        settings: ModelGateway,
        *,
        switches: Switches | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        on_treated: OnTreated | None = None,
    ) -> None:
        self.settings = settings
        self.max_body_bytes = max_body_bytes
        self.upstreams = Upstreams(settings)
        # The names of the tools that conversations were shown, oldest first.
        self.reveals = Memory(settings.max_conversations)
        self._toolsets: Kept[Toolset] = Kept(settings.engine_cache)
        self._switches = dict(switches or {})
        self._on_treated = on_treated
        self._searching: ThreadPoolExecutor | None = None
        self._reading: ThreadPoolExecutor | None = None
        self._preparing: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Make the pool of connections and the threads."""
        await self.upstreams.open()
        self._searching = ThreadPoolExecutor(SEARCH_THREADS, "toolcrib-search")
        self._reading = ThreadPoolExecutor(READ_THREADS, "toolcrib-read")
        self._preparing = ThreadPoolExecutor(1, "toolcrib-prepare")

    async def close(self) -> None:
        """Close every connection and wait for the threads."""
        await self.upstreams.close()
        for threads in (self._searching, self._reading, self._preparing):
            if threads is not None:
                await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        self._searching = self._reading = self._preparing = None

    async def read(self, exchange: Exchange, work: Callable[[], Result]) -> Result:
        """Make something of a request: at once, or in a thread if others would have to wait."""
        if len(exchange.body) <= LARGE_BYTES:
            return work()
        # Other threads than those that search: who sends much has to wait for others who do.
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)

    async def read_reply(self, data: bytes) -> dict[str, Any]:
        """An upstream's answer: at once, or in a thread if it is large."""
        if len(data) <= LARGE_BYTES:
            return read_reply(data)
        return await asyncio.get_running_loop().run_in_executor(
            self._reading, partial(read_reply, data)
        )

    async def search(self, work: Callable[[], Result]) -> Result:
        """Do what may take long in a thread, so that nobody else waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self._searching, work)

    def toolset(self, entries: Entries, reader: Reader) -> Toolset:
        """The toolset of these entries; the same one as before, if they are the same as before."""
        known = self._toolsets.get(entries, reader)
        if known is None:
            known = Toolset(entries, reader)
            self._toolsets.put(known, entries, reader, size_bytes=known.size_bytes)
        return known

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

    def treated(self, saved: Saved) -> None:
        """A request is treated so; whoever counts is told."""
        if self._on_treated is not None:
            self._on_treated(saved)

    def named(self, exchange: Exchange, known: Sequence[ModelUpstream]) -> ModelUpstream | None:
        """Which of these upstreams a request names in its header; None if it names none."""
        name = exchange.header(UPSTREAM_HEADER).strip()
        if not name:
            return None
        found = next((one for one in known if name in (one.name, printable(one.name))), None)
        if found is None:
            names = ", ".join(one.name for one in known)
            raise RequestFailed(
                f"{UPSTREAM_HEADER}: there is no {name[:100]!r} here; there is {names}", 404
            )
        return found

    async def pass_on(
        self,
        exchange: Exchange,
        upstream: ModelUpstream,
        saved: Saved,
        *,
        target: str = "",
        watch: Watch | None = None,
    ) -> None:
        """Ask an upstream what the client asked, byte for byte, and answer what it answers.

        `target` is another path to ask for; a `watch` sees the answer go by, which is not encoded then.
        """
        self.treated(saved)
        headers = headers_to_send(upstream, exchange.headers, as_sent=watch is None)
        reply = await self.upstreams.send(
            upstream, exchange.method, target or exchange.target, headers, exchange.body
        )
        try:
            if not reply.is_events:
                pieces = []
                while piece := await reply.raw():
                    pieces.append(piece)
                body = b"".join(pieces)
                if watch and reply.ok:
                    watch(body)
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
                    if not events:
                        return True
                    if watch:
                        watch(events)
                    return exchange.offer(events)

                while not await reply.pour(take):
                    await exchange.flushed()
                await exchange.write(whole.rest())
            await exchange.end()
        finally:
            await reply.close()


def owner(exchange: Exchange) -> tuple[str, ...]:
    """Whose a request is: the key that let it in, and those that it brings for an upstream."""
    brought = sorted(f"{name} {value}" for name, value in exchange.headers if name in KEY_HEADERS)
    principal = exchange.principal
    return (getattr(principal, "name", ""), getattr(principal, "profile", None) or "", *brought)


def is_native(switch: SearchForModel, provider: Provider, model: str) -> bool:
    """Whether a model's own provider searches, so that nothing is to be touched."""
    return switch == "native" or (switch == "auto" and hosting_provider(model) == provider)
