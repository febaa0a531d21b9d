"""What both of OpenAI's APIs do with a request, whatever they make of its tools."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from toolcrib.adapters.plain_json import dicts_or_empty
from toolcrib.config.settings import LlmSearchSwitch, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway, ResponseObserver, request_owner
from toolcrib.gateway.llm.json_body import parse_request_body
from toolcrib.gateway.llm.response_headers import ResponseHeaders, Treatment
from toolcrib.gateway.llm.search_loop import ReplyStream, RequestRewriter, SearchLoop
from toolcrib.gateway.llm.tool_cache import ToolIndexCache, measure_bytes
from toolcrib.gateway.llm.tool_index import Entry, ToolIndex
from toolcrib.session.disclosure import Activation, Disclosure

Made = TypeVar("Made")
Begun = TypeVar("Begun")


@dataclass(frozen=True, slots=True)
class OpenAiRequest:
    """A request: where it goes, and how tool search is switched for it."""

    exchange: HttpExchange
    upstream: LlmUpstreamConfig
    switch: LlmSearchSwitch
    body: dict[str, Any]

    @property
    def tool_entries(self) -> list[Entry]:
        """The tools it brings."""
        return list(dicts_or_empty(self.body.get("tools")))

    def is_well_formed(self, history: str) -> bool:
        """Whether tools and history are lists of objects, or the history a text.

        What is not is the upstream's to judge.
        """
        said = self.body.get(history) or []
        listed = (self.body.get("tools") or [], [] if isinstance(said, str) else said)
        return all(isinstance(one, list) and len(dicts_or_empty(one)) == len(one) for one in listed)

    @property
    def model(self) -> str:
        """The model that is asked."""
        return str(self.body.get("model", ""))

    @property
    def is_streaming(self) -> bool:
        """Whether the answer is to be streamed."""
        return self.body.get("stream") is True


class OpenAiService(Generic[Made]):
    """What one API keeps between requests. `shelf` finds the shelf in what is made of the tools."""

    def __init__(self, gateway: LlmGateway, shelf: Callable[[Made], ToolIndex]) -> None:
        self._gateway = gateway
        self._shelf = shelf
        self._kept: ToolIndexCache[Made] = ToolIndexCache(gateway.settings.engine_cache)
        self._memory = ConversationMemory(gateway.settings.max_conversations)

    @property
    def max_rounds(self) -> int:
        """How often a model may search for one answer."""
        return self._gateway.settings.max_rounds

    async def read_request(self, exchange: HttpExchange) -> OpenAiRequest:
        """The request of a client."""
        return await self._gateway.run_for_request(exchange, partial(self._read, exchange))

    async def build_rewriter(self, request: OpenAiRequest, talk: Callable[[], Begun]) -> Begun:
        """A talk about a request, made in a thread where its history is long."""
        return await self._gateway.run_for_request(request.exchange, talk)

    def _read(self, exchange: HttpExchange) -> OpenAiRequest:
        body = parse_request_body(exchange.body)
        upstream = self._gateway.upstreams.match_model("openai", str(body.get("model", "")))
        switch = self._gateway.resolve_switch(exchange, upstream)
        return OpenAiRequest(exchange, upstream, switch, body)

    def memory_for(self, request: OpenAiRequest) -> ScopedMemory:
        """What is remembered for the client of a request."""
        return ScopedMemory(self._memory, request_owner(request.exchange), request.upstream.name)

    def disclosure_for(self, request: OpenAiRequest) -> Disclosure:
        """From how many tools on some are held back, where the client does not say."""
        if request.switch == "on":
            return Disclosure(Activation(tools=1))
        settings = self._gateway.settings
        return Disclosure(Activation(settings.threshold_tools, settings.threshold_tokens))

    async def get_tool_index(
        self, request: OpenAiRequest, make: Callable[[], Made], *settings: Hashable
    ) -> Made:
        """What is made of a request's tools, from before where it brings the same ones."""
        most, tools = self._gateway.settings.max_tools, request.tool_entries
        if len(tools) > most:
            raise RequestFailed(
                f"the request has {len(tools):,} tools; the limit is {most:,}", param="tools"
            )
        known = self._kept.get(tools, request.switch, *settings)
        if known is None:
            known = await self._gateway.run_search(lambda: self._warm_up(make()))
            size = await self._gateway.run_search(partial(measure_bytes, tools))
            self._kept.put(known, tools, request.switch, *settings, size_bytes=size)
        return known

    async def forward(
        self, request: OpenAiRequest, treatment: Treatment, watch: ResponseObserver | None = None
    ) -> None:
        """Leave a request to the upstream, untouched."""
        saved = ResponseHeaders(request.upstream.name, treatment)
        await self._gateway.forward(request.exchange, request.upstream, saved, watch=watch)

    async def answer(
        self, request: OpenAiRequest, talk: RequestRewriter, stream: ReplyStream
    ) -> None:
        """Answer a request through its talk; `stream` is for those who want a stream."""
        desk = talk.selection
        shelf, revealed = desk.index, desk.revealed_ids
        if shelf.claim_preparation():
            self._gateway.run_in_background(shelf.prepare)
        count = len(shelf.always_sent) + len(shelf.deferred)
        shown = len(shelf.always_sent) + len(revealed)
        saved = ResponseHeaders(
            request.upstream.name, talk.treatment, count, shown, shelf.saved_tokens(revealed)
        )
        self._gateway.report_request(saved)
        rounds = SearchLoop(self._gateway, request.exchange, request.upstream, saved)
        await (
            rounds.run_streamed(talk, stream) if request.is_streaming else rounds.run_whole(talk)
        )

    def _warm_up(self, made: Made) -> Made:
        """With its names and tokens known, which takes a thread some time."""
        shelf = self._shelf(made)
        if shelf.deferred:
            shelf.saved_tokens()
            shelf.find_deferred("")
        return made
