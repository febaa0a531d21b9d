"""`/v1/responses`."""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import quote, unquote

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway, request_owner, uses_native_search
from toolcrib.gateway.llm.json_body import parse_request_body
from toolcrib.gateway.llm.openai_responses import items, tools
from toolcrib.gateway.llm.openai_responses.rewriter import ResponsesRewriter
from toolcrib.gateway.llm.openai_responses.stream import ResponsesStream
from toolcrib.gateway.llm.openai_responses.tools import ResponsesToolIndex, build_responses_index
from toolcrib.gateway.llm.openai_service import OpenAiRequest, OpenAiService
from toolcrib.gateway.llm.response_headers import UPSTREAM_HEADER, ResponseHeaders
from toolcrib.gateway.llm.response_ids import ResponseIdMap, ResponseIdObserver, ResponseLocation

STORED_PATH: Final = "/v1/responses/"
UNKNOWN_LOCATION: Final = (
    "this gateway does not know which upstream has this response, or has forgotten it; "
    "name it in the header {header}: {names}"
)


class ResponsesEndpoint:
    """Responses through a gateway."""

    def __init__(self, gateway: LlmGateway) -> None:
        self._gateway = gateway
        self._service: OpenAiService[ResponsesToolIndex] = OpenAiService(
            gateway, lambda rack: rack.tools
        )
        self._upstreams = [one for one in gateway.settings.upstreams if one.api == "openai"]
        self._issued = ResponseIdMap()

    async def create_response(self, exchange: HttpExchange) -> None:
        """The model's next response."""
        request = await self._service.read_request(exchange)
        if uses_native_search(request.switch, "openai", request.model):
            await self._service.forward(request, "native", self._build_observer(request))
            return
        talk = await self._build_rewriter(request)
        if talk is None:
            await self._service.forward(request, "off", self._build_observer(request))
            return
        await self._service.answer(request, talk, ResponsesStream(talk))

    async def handle_stored(self, exchange: HttpExchange) -> None:
        """What has to do with stored responses: the upstream's own."""
        target = exchange.target
        path, mark, query = target.partition("?")
        id, slash, rest = path.removeprefix(STORED_PATH).partition("/")
        place = self._issued.find(request_owner(exchange), unquote(id))
        upstream = await self._gateway.run_for_request(
            exchange, partial(self._choose_upstream, exchange, place)
        )
        if place is not None and place.upstream == upstream.name:
            target = f"{STORED_PATH}{quote(place.id, safe='')}{slash}{rest}{mark}{query}"
        saved = ResponseHeaders(upstream.name, "off")
        await self._gateway.forward(exchange, upstream, saved, target=target)

    def _choose_upstream(
        self, exchange: HttpExchange, place: ResponseLocation | None
    ) -> LlmUpstreamConfig:
        """Where a request goes that may name no model: never to one that its key is not for."""
        named = self._gateway.find_named_upstream(exchange, self._upstreams)
        if named is not None:
            return named
        if len(self._upstreams) == 1:
            return self._upstreams[0]
        if place is not None:
            return next(one for one in self._upstreams if one.name == place.upstream)
        model = ""
        if exchange.method == "POST" and exchange.body:
            model = str_or_empty(parse_request_body(exchange.body).get("model"))
        if model or not self._upstreams:
            return self._gateway.upstreams.match_model("openai", model)
        names = ", ".join(one.name for one in self._upstreams)
        raise RequestFailed(UNKNOWN_LOCATION.format(header=UPSTREAM_HEADER, names=names), 404)

    def _build_observer(self, request: OpenAiRequest) -> ResponseIdObserver | None:
        """Sees the id of a response go by, where several upstreams may have stored it."""
        if len(self._upstreams) < 2:
            return None
        note = partial(self._issued.record, request_owner(request.exchange), request.upstream.name)
        return ResponseIdObserver(note)

    async def _build_rewriter(self, request: OpenAiRequest) -> ResponsesRewriter | None:
        """The talk of a request; None if there is nothing to do for us."""
        body, entries = request.body, request.tool_entries
        said = [] if isinstance(body.get("input"), str) else dicts_or_empty(body.get("input"))
        if not request.is_well_formed("input"):
            return None
        asked = tools.uses_tool_search(entries) or items.uses_tool_search(said)
        if body.get("background") is True:
            if asked:
                raise RequestFailed(
                    "tool search cannot run in the background here; send background=false",
                    param="background",
                )
            return None
        chosen = _restricts_tools(body.get("tool_choice"))
        if not asked and (not entries or chosen or request.switch == "off"):
            return None
        disclosure = None if request.switch == "off" else self._service.disclosure_for(request)
        rack = await self._service.get_tool_index(
            request, lambda: build_responses_index(entries, disclosure)
        )
        if not asked and not rack.tools.deferred:
            return None
        note = partial(self._issued.record, request_owner(request.exchange), request.upstream.name)
        recall, rounds = self._service.memory_for(request), self._service.max_rounds
        return await self._service.build_rewriter(
            request, partial(ResponsesRewriter, body, rack, recall, rounds, note)
        )


def _restricts_tools(choice: object) -> bool:
    """Whether the client has picked among its tools itself."""
    return isinstance(choice, dict) and choice.get("type") == "allowed_tools"
