"""`/v1/responses`."""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import quote, unquote

from toolcrib.adapters.plain_json import objects, text
from toolcrib.config.settings import ModelUpstream
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import Exchange
from toolcrib.gateway.llm.gateway import Gateway, is_native, owner
from toolcrib.gateway.llm.json_body import read_object
from toolcrib.gateway.llm.openai_responses import items, tools
from toolcrib.gateway.llm.openai_responses.rewriter import Talk
from toolcrib.gateway.llm.openai_responses.stream import Stream
from toolcrib.gateway.llm.openai_responses.tools import Rack, rack_of
from toolcrib.gateway.llm.openai_service import Request, Service
from toolcrib.gateway.llm.response_headers import UPSTREAM_HEADER, Saved
from toolcrib.gateway.llm.response_ids import IdWatch, Issued, Place

STORED: Final = "/v1/responses/"
UNKNOWN_PLACE: Final = (
    "this gateway does not know which upstream has this response, or has forgotten it; "
    "name it in the header {header}: {names}"
)


class Responses:
    """Responses through a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._service: Service[Rack] = Service(gateway, lambda rack: rack.shelf)
        self._upstreams = [one for one in gateway.settings.upstreams if one.api == "openai"]
        self._issued = Issued()

    async def create(self, exchange: Exchange) -> None:
        """The model's next response."""
        request = await self._service.read(exchange)
        if is_native(request.switch, "openai", request.model):
            await self._service.pass_on(request, "native", self._watch(request))
            return
        talk = await self._talk(request)
        if talk is None:
            await self._service.pass_on(request, "off", self._watch(request))
            return
        await self._service.answer(request, talk, Stream(talk))

    async def others(self, exchange: Exchange) -> None:
        """What has to do with stored responses: the upstream's own."""
        target = exchange.target
        path, mark, query = target.partition("?")
        id, slash, rest = path.removeprefix(STORED).partition("/")
        place = self._issued.find(owner(exchange), unquote(id))
        upstream = await self._gateway.read(exchange, partial(self._upstream, exchange, place))
        if place is not None and place.upstream == upstream.name:
            target = f"{STORED}{quote(place.id, safe='')}{slash}{rest}{mark}{query}"
        saved = Saved(upstream.name, "off")
        await self._gateway.pass_on(exchange, upstream, saved, target=target)

    def _upstream(self, exchange: Exchange, place: Place | None) -> ModelUpstream:
        """Where a request goes that may name no model: never to one that its key is not for."""
        named = self._gateway.named(exchange, self._upstreams)
        if named is not None:
            return named
        if len(self._upstreams) == 1:
            return self._upstreams[0]
        if place is not None:
            return next(one for one in self._upstreams if one.name == place.upstream)
        model = ""
        if exchange.method == "POST" and exchange.body:
            model = text(read_object(exchange.body).get("model"))
        if model or not self._upstreams:
            return self._gateway.upstreams.choose("openai", model)
        names = ", ".join(one.name for one in self._upstreams)
        raise RequestFailed(UNKNOWN_PLACE.format(header=UPSTREAM_HEADER, names=names), 404)

    def _watch(self, request: Request) -> IdWatch | None:
        """Sees the id of a response go by, where several upstreams may have stored it."""
        if len(self._upstreams) < 2:
            return None
        note = partial(self._issued.note, owner(request.exchange), request.upstream.name)
        return IdWatch(note)

    async def _talk(self, request: Request) -> Talk | None:
        """The talk of a request; None if there is nothing to do for us."""
        body, entries = request.body, request.tools
        said = [] if isinstance(body.get("input"), str) else objects(body.get("input"))
        if not request.is_well_formed("input"):
            return None
        asked = tools.knows_search(entries) or items.knows_search(said)
        if body.get("background") is True:
            if asked:
                raise RequestFailed(
                    "tool search cannot run in the background here; send background=false",
                    param="background",
                )
            return None
        chosen = _is_chosen_by_client(body.get("tool_choice"))
        if not asked and (not entries or chosen or request.switch == "off"):
            return None
        disclosure = None if request.switch == "off" else self._service.disclosure(request)
        rack = await self._service.made(request, lambda: rack_of(entries, disclosure))
        if not asked and not rack.shelf.held:
            return None
        note = partial(self._issued.note, owner(request.exchange), request.upstream.name)
        recall, rounds = self._service.recall(request), self._service.max_rounds
        return await self._service.begun(request, partial(Talk, body, rack, recall, rounds, note))


def _is_chosen_by_client(choice: object) -> bool:
    """Whether the client has picked among its tools itself."""
    return isinstance(choice, dict) and choice.get("type") == "allowed_tools"
