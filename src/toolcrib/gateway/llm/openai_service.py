"""What both of OpenAI's APIs do with a request, whatever they make of its tools."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from toolcrib.adapters.plain_json import objects
from toolcrib.config.settings import ModelUpstream, SearchForModel
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.conversation_memory import Memory, Recall
from toolcrib.gateway.llm.endpoint import Exchange
from toolcrib.gateway.llm.gateway import Gateway, Watch, owner
from toolcrib.gateway.llm.json_body import read_object
from toolcrib.gateway.llm.response_headers import Saved, Treatment
from toolcrib.gateway.llm.search_loop import Rounds, Streamed, Talk
from toolcrib.gateway.llm.tool_cache import Kept, weighed
from toolcrib.gateway.llm.tool_index import Entry, Shelf
from toolcrib.session.disclosure import Activation, Disclosure

Made = TypeVar("Made")
Begun = TypeVar("Begun")


@dataclass(frozen=True, slots=True)
class Request:
    """A request: where it goes, and how tool search is switched for it."""

    exchange: Exchange
    upstream: ModelUpstream
    switch: SearchForModel
    body: dict[str, Any]

    @property
    def tools(self) -> list[Entry]:
        """The tools it brings."""
        return list(objects(self.body.get("tools")))

    def is_well_formed(self, history: str) -> bool:
        """Whether tools and history are lists of objects, or the history a text.

        What is not is the upstream's to judge.
        """
        said = self.body.get(history) or []
        listed = (self.body.get("tools") or [], [] if isinstance(said, str) else said)
        return all(isinstance(one, list) and len(objects(one)) == len(one) for one in listed)

    @property
    def model(self) -> str:
        """The model that is asked."""
        return str(self.body.get("model", ""))

    @property
    def streams(self) -> bool:
        """Whether the answer is to be streamed."""
        return self.body.get("stream") is True


class Service(Generic[Made]):
    """What one API keeps between requests. `shelf` finds the shelf in what is made of the tools."""

    def __init__(self, gateway: Gateway, shelf: Callable[[Made], Shelf]) -> None:
        self._gateway = gateway
        self._shelf = shelf
        self._kept: Kept[Made] = Kept(gateway.settings.engine_cache)
        self._memory = Memory(gateway.settings.max_conversations)

    @property
    def max_rounds(self) -> int:
        """How often a model may search for one answer."""
        return self._gateway.settings.max_rounds

    async def read(self, exchange: Exchange) -> Request:
        """The request of a client."""
        return await self._gateway.read(exchange, partial(self._read, exchange))

    async def begun(self, request: Request, talk: Callable[[], Begun]) -> Begun:
        """A talk about a request, made in a thread where its history is long."""
        return await self._gateway.read(request.exchange, talk)

    def _read(self, exchange: Exchange) -> Request:
        body = read_object(exchange.body)
        upstream = self._gateway.upstreams.choose("openai", str(body.get("model", "")))
        switch = self._gateway.switch(exchange, upstream)
        return Request(exchange, upstream, switch, body)

    def recall(self, request: Request) -> Recall:
        """What is remembered for the client of a request."""
        return Recall(self._memory, owner(request.exchange), request.upstream.name)

    def disclosure(self, request: Request) -> Disclosure:
        """From how many tools on some are held back, where the client does not say."""
        if request.switch == "on":
            return Disclosure(Activation(tools=1))
        settings = self._gateway.settings
        return Disclosure(Activation(settings.threshold_tools, settings.threshold_tokens))

    async def made(self, request: Request, make: Callable[[], Made], *settings: Hashable) -> Made:
        """What is made of a request's tools, from before where it brings the same ones."""
        most, tools = self._gateway.settings.max_tools, request.tools
        if len(tools) > most:
            raise RequestFailed(
                f"the request has {len(tools):,} tools; the limit is {most:,}", param="tools"
            )
        known = self._kept.get(tools, request.switch, *settings)
        if known is None:
            known = await self._gateway.search(lambda: self._looked_up(make()))
            size = await self._gateway.search(partial(weighed, tools))
            self._kept.put(known, tools, request.switch, *settings, size_bytes=size)
        return known

    async def pass_on(
        self, request: Request, treatment: Treatment, watch: Watch | None = None
    ) -> None:
        """Leave a request to the upstream, untouched."""
        saved = Saved(request.upstream.name, treatment)
        await self._gateway.pass_on(request.exchange, request.upstream, saved, watch=watch)

    async def answer(self, request: Request, talk: Talk, stream: Streamed) -> None:
        """Answer a request through its talk; `stream` is for those who want a stream."""
        desk = talk.desk
        shelf, revealed = desk.shelf, desk.revealed
        if shelf.claim():
            self._gateway.beforehand(shelf.prepare)
        count = len(shelf.front) + len(shelf.held)
        shown = len(shelf.front) + len(revealed)
        saved = Saved(
            request.upstream.name, talk.treatment, count, shown, shelf.saved_tokens(revealed)
        )
        self._gateway.treated(saved)
        rounds = Rounds(self._gateway, request.exchange, request.upstream, saved)
        await (rounds.stream(talk, stream) if request.streams else rounds.whole(talk))

    def _looked_up(self, made: Made) -> Made:
        """With its names and tokens known, which takes a thread some time."""
        shelf = self._shelf(made)
        if shelf.held:
            shelf.saved_tokens()
            shelf.held_tool("")
        return made
