"""`/v1/responses` and the paths of stored responses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.endpoint import UPSTREAM_HEADER, HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.json_body import parse_request_body, parse_upstream_body
from toolcrib.gateway.llm.openai_responses import items, tools
from toolcrib.gateway.llm.openai_responses.rewriter import ResponsesRewriter
from toolcrib.gateway.llm.openai_responses.stream import ResponsesStream
from toolcrib.gateway.llm.openai_responses.tools import ResponsesToolIndex, build_responses_index
from toolcrib.gateway.llm.request import LlmRequest, request_owner
from toolcrib.gateway.llm.search_loop import answer_request
from toolcrib.gateway.llm.sse import SseParser

STORED_PATH: Final = "/v1/responses/"
UNKNOWN_LOCATION: Final = (
    "the gateway does not know which upstream has this response; name the upstream in the header {header}: {names}"
)
# The id of a response is in one of the first events of its stream.
MAX_INSPECTED_EVENTS: Final = 16

Owner = tuple[str, ...]


class ResponseLocation(NamedTuple):
    """The name of an upstream, and its id of a response."""

    upstream: str
    id: str


class ResponseIdMap:
    """The locations of the responses that clients have received. Each client sees only its own."""

    def __init__(self, memory: ConversationMemory) -> None:
        self._memory = memory

    def record(self, owner: Owner, upstream: str, client_id: str, upstream_id: str = "") -> None:
        """Record a response; `upstream_id` is needed if it differs from the client's id."""
        if client_id:
            location = [upstream, upstream_id or client_id]
            ScopedMemory(self._memory, owner).put(location, client_id)

    def find(self, owner: Owner, client_id: str) -> ResponseLocation | None:
        """Return the location of a response, or None if this client has received no such id."""
        location = ScopedMemory(self._memory, owner).get(client_id)
        return ResponseLocation(*location) if location else None


class ResponseIdObserver:
    """Calls `on_id` with the id of a response, found in its body or in its first events."""

    def __init__(self, on_id: Callable[[str], None]) -> None:
        self._on_id = on_id
        self._parser = SseParser()
        self._left = MAX_INSPECTED_EVENTS

    def __call__(self, piece: bytes) -> None:
        """Inspect the next piece of a response."""
        if self._left <= 0:
            return
        try:
            if piece.lstrip().startswith(b"{"):
                self._inspect(piece)
            else:
                for data in self._parser.parse_chunk(piece):
                    self._inspect(data)
        except RequestFailed:
            # Invalid JSON is forwarded to the client as it is.
            self._left = 0

    def _inspect(self, data: bytes | str) -> None:
        self._left -= 1
        body = parse_upstream_body(data)
        response = body.get("response")
        id = str_or_empty((response if isinstance(response, dict) else body).get("id"))
        if id and self._left >= 0:
            self._left = 0
            self._on_id(id)


class ResponsesEndpoint:
    """The Responses API. It remembers which upstream has stored a response."""

    def __init__(self, gateway: LlmGateway) -> None:
        self._gateway = gateway
        self._ids = ResponseIdMap(gateway.response_ids)

    @property
    def _upstreams(self) -> list[LlmUpstreamConfig]:
        return [each for each in self._gateway.settings.upstreams if each.api == "openai"]

    async def create_response(self, exchange: HttpExchange) -> None:
        """Answer `/v1/responses`."""
        gateway = self._gateway
        request = await gateway.read_request(exchange, "openai")
        on_response = partial(self._ids.record, request.owner, request.upstream.name)
        # With a single upstream it is always clear where a response is stored.
        observer = ResponseIdObserver(on_response) if len(self._upstreams) > 1 else None
        if request.uses_native_search("openai"):
            await gateway.forward_request(request, "native", observer)
            return
        index = await self._get_index(request)
        if index is None or (index.plan.style == "all" and not self._uses_tool_search(request)):
            await gateway.forward_request(request, "off", observer, index.plan if index else None)
            return
        rewriter = await gateway.build_rewriter(request, index, partial(ResponsesRewriter, on_response=on_response))
        await answer_request(gateway, request, rewriter, ResponsesStream(rewriter))

    async def handle_stored(self, exchange: HttpExchange) -> None:
        """Forward a request about a stored response to the upstream that has it."""
        target = exchange.target
        path, mark, query = target.partition("?")
        id, slash, rest = path.removeprefix(STORED_PATH).partition("/")
        location = self._ids.find(request_owner(exchange), unquote(id))
        upstream = await self._gateway.run_for_request(exchange, partial(self._choose_upstream, exchange, location))
        if location is not None and location.upstream == upstream.name:
            target = f"{STORED_PATH}{quote(location.id, safe='')}{slash}{rest}{mark}{query}"
        await self._gateway.forward(exchange, upstream, target=target)

    def _choose_upstream(self, exchange: HttpExchange, location: ResponseLocation | None) -> LlmUpstreamConfig:
        """Return the upstream of a request that may have no model.

        The credentials of the client must never be sent to an upstream that they are not for.
        """
        upstreams = self._upstreams
        stored = [each for each in upstreams if location is not None and each.name == location.upstream]
        if named := self._gateway.find_named_upstream(exchange, upstreams):
            return named
        if stored or len(upstreams) == 1:
            return (stored or upstreams)[0]
        model = ""
        if exchange.method == "POST" and exchange.body:
            model = str_or_empty(parse_request_body(exchange.body).get("model"))
        if model or not upstreams:
            return self._gateway.upstreams.find_route("openai", model).upstream
        names = ", ".join(each.name for each in upstreams)
        raise RequestFailed(UNKNOWN_LOCATION.format(header=UPSTREAM_HEADER, names=names), 404)

    async def _get_index(self, request: LlmRequest) -> ResponsesToolIndex | None:
        """Return the index of a request, or None if the request needs no tool search."""
        body, entries = request.body, request.tool_entries
        if not request.is_well_formed("input"):
            return None
        uses_search = self._uses_tool_search(request)
        if body.get("background") is True:
            if uses_search:
                raise RequestFailed(
                    "the gateway cannot run tool search in the background; send background=false", param="background"
                )
            return None
        if not uses_search and (not entries or request.restricts_tools or request.switch == "off"):
            return None
        gateway = self._gateway
        gateway.check_tool_count(request)
        exposure = None if request.switch == "off" else gateway.exposure_for(request)
        build = partial(build_responses_index, entries, exposure)
        return await gateway.get_tool_index(entries, build, "responses", exposure)

    def _uses_tool_search(self, request: LlmRequest) -> bool:
        """Return whether the client uses tool search."""
        history = dicts_or_empty(request.body.get("input"))
        return tools.uses_tool_search(request.tool_entries) or items.uses_tool_search(history)
