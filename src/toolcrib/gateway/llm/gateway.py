"""What all APIs of the model gateway share: upstreams, toolsets, reveals, threads to search in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar, cast, get_args

from toolcrib.config.settings import LlmGatewayConfig, LlmSearchSwitch, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.conversation_memory import ConversationMemory
from toolcrib.gateway.llm.endpoint import MAX_BODY_BYTES, TOOL_SEARCH_HEADER, HttpExchange
from toolcrib.gateway.llm.json_body import LARGE_BODY_BYTES, parse_upstream_body
from toolcrib.gateway.llm.response_headers import (
    UPSTREAM_HEADER,
    ResponseHeaders,
    sanitize_header_value,
)
from toolcrib.gateway.llm.sse import EventBuffer
from toolcrib.gateway.llm.tool_cache import ToolIndexCache
from toolcrib.gateway.llm.toolset import Entries, EntryParser, SearchableTools, SearchMethod
from toolcrib.gateway.llm.upstreams import CREDENTIAL_HEADERS, LlmUpstreams, build_upstream_headers
from toolcrib.session.hosted_search import Provider, find_hosting_provider

SEARCH_THREADS: Final = 4
READ_THREADS: Final = 2
PREPARE_DELAY_SECONDS: Final = 0.03

Result = TypeVar("Result")
# Which switch a client's key comes with, by the principal's name.
KeySwitches = Mapping[str, LlmSearchSwitch]
# Is told every piece of an answer before the client gets it.
ResponseObserver = Callable[[bytes], None]
# Is told how each request is treated, and what that saves.
OnRequest = Callable[[ResponseHeaders], None]


class LlmGateway:
    """The model gateway, between `open` and `close`."""

    def __init__(
        self,
        settings: LlmGatewayConfig,
        *,
        switches: KeySwitches | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        on_treated: OnRequest | None = None,
    ) -> None:
        self.settings = settings
        self.max_body_bytes = max_body_bytes
        self.upstreams = LlmUpstreams(settings)
        # The names of the tools that conversations were shown, oldest first.
        self.revealed_names = ConversationMemory(settings.max_conversations)
        self._toolsets: ToolIndexCache[SearchableTools] = ToolIndexCache(settings.engine_cache)
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

    async def run_for_request(self, exchange: HttpExchange, work: Callable[[], Result]) -> Result:
        """Make something of a request: at once, or in a thread if others would have to wait."""
        if len(exchange.body) <= LARGE_BODY_BYTES:
            return work()
        # Other threads than those that search: who sends much has to wait for others who do.
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)

    async def parse_upstream_body(self, data: bytes) -> dict[str, Any]:
        """An upstream's answer: at once, or in a thread if it is large."""
        if len(data) <= LARGE_BODY_BYTES:
            return parse_upstream_body(data)
        return await asyncio.get_running_loop().run_in_executor(
            self._reading, partial(parse_upstream_body, data)
        )

    async def run_search(self, work: Callable[[], Result]) -> Result:
        """Do what may take long in a thread, so that nobody else waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self._searching, work)

    def get_searchable_tools(self, entries: Entries, reader: EntryParser) -> SearchableTools:
        """The toolset of these entries; the same one as before, if they are the same as before."""
        known = self._toolsets.get(entries, reader)
        if known is None:
            known = SearchableTools(entries, reader)
            self._toolsets.put(known, entries, reader, size_bytes=known.size_bytes)
        return known

    def prepare(self, toolset: SearchableTools, *ways: SearchMethod) -> None:
        """Make a toolset ready while the model is still thinking of its first search."""
        if ways and toolset.claim_preparation():
            self.run_in_background(partial(toolset.prepare, *ways))

    def run_in_background(self, work: Callable[[], None]) -> None:
        """Do something in a thread, for which nobody waits."""
        # A little later: threads share one interpreter, and the request should go out first.
        loop = asyncio.get_running_loop()
        loop.call_later(PREPARE_DELAY_SECONDS, self._submit_preparation, work)

    def _submit_preparation(self, work: Callable[[], None]) -> None:
        if self._preparing is not None:
            self._preparing.submit(work)

    def resolve_switch(
        self, exchange: HttpExchange, upstream: LlmUpstreamConfig
    ) -> LlmSearchSwitch:
        """How tool search is switched: by the request's header, else its key, else the upstream."""
        asked = exchange.get_header(TOOL_SEARCH_HEADER).strip().lower()
        if not asked:
            name = getattr(exchange.principal, "name", "")
            return self._switches.get(name, upstream.tool_search)
        if asked not in get_args(LlmSearchSwitch):
            known = ", ".join(get_args(LlmSearchSwitch))
            raise RequestFailed(f"{TOOL_SEARCH_HEADER}: {asked[:40]!r} is not one of {known}")
        return cast(LlmSearchSwitch, asked)

    def report_request(self, saved: ResponseHeaders) -> None:
        """A request is treated so; whoever counts is told."""
        if self._on_treated is not None:
            self._on_treated(saved)

    def find_named_upstream(
        self, exchange: HttpExchange, known: Sequence[LlmUpstreamConfig]
    ) -> LlmUpstreamConfig | None:
        """Which of these upstreams a request names in its header; None if it names none."""
        name = exchange.get_header(UPSTREAM_HEADER).strip()
        if not name:
            return None
        found = next(
            (one for one in known if name in (one.name, sanitize_header_value(one.name))), None
        )
        if found is None:
            names = ", ".join(one.name for one in known)
            raise RequestFailed(
                f"{UPSTREAM_HEADER}: there is no {name[:100]!r} here; there is {names}", 404
            )
        return found

    async def forward(
        self,
        exchange: HttpExchange,
        upstream: LlmUpstreamConfig,
        saved: ResponseHeaders,
        *,
        target: str = "",
        watch: ResponseObserver | None = None,
    ) -> None:
        """Ask an upstream what the client asked, byte for byte, and answer what it answers.

        `target` is another path to ask for; a `watch` sees the answer go by, which is not encoded then.
        """
        self.report_request(saved)
        headers = build_upstream_headers(upstream, exchange.headers, keep_encoding=watch is None)
        reply = await self.upstreams.send(
            upstream, exchange.method, target or exchange.target, headers, exchange.body
        )
        try:
            if not reply.is_event_stream:
                pieces = []
                while piece := await reply.read_raw_chunk():
                    pieces.append(piece)
                body = b"".join(pieces)
                if watch and reply.is_success:
                    watch(body)
                headers = [*reply.forwarded_headers(keep_encoding=True), *saved.render()]
                await exchange.send_response(reply.status, headers, body)
                return
            # Decoded, where that can be: half an event can only be told from a whole one so.
            as_sent = not reply.is_decodable
            await exchange.start_response(
                reply.status, [*reply.forwarded_headers(keep_encoding=as_sent), *saved.render()]
            )
            if as_sent:
                while piece := await reply.read_raw_chunk():
                    await exchange.write(piece)
            else:
                buffer = EventBuffer()
                while chunk := await reply.read_chunk():
                    if events := buffer.push_chunk(chunk):
                        if watch:
                            watch(events)
                        await exchange.write(events)
                await exchange.write(buffer.take_rest())
            await exchange.end_response()
        finally:
            await reply.close()


def request_owner(exchange: HttpExchange) -> tuple[str, ...]:
    """Whose a request is: the key that let it in, and those that it brings for an upstream."""
    brought = sorted(
        f"{name} {value}" for name, value in exchange.headers if name in CREDENTIAL_HEADERS
    )
    principal = exchange.principal
    return (getattr(principal, "name", ""), getattr(principal, "profile", None) or "", *brought)


def uses_native_search(switch: LlmSearchSwitch, provider: Provider, model: str) -> bool:
    """Whether a model's own provider searches, so that nothing is to be touched."""
    return switch == "native" or (switch == "auto" and find_hosting_provider(model) == provider)
