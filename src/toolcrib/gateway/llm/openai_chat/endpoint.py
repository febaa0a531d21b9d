"""`/v1/chat/completions`."""

from __future__ import annotations

from functools import partial

from toolcrib.adapters.plain_json import objects
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import Exchange
from toolcrib.gateway.llm.gateway import Gateway
from toolcrib.gateway.llm.openai_chat.history import has_references
from toolcrib.gateway.llm.openai_chat.rewriter import Talk
from toolcrib.gateway.llm.openai_chat.stream import Stream
from toolcrib.gateway.llm.openai_chat.tools import asks_for_search, deferring_shelf, sparing_shelf
from toolcrib.gateway.llm.openai_service import Request, Service
from toolcrib.gateway.llm.response_headers import Treatment
from toolcrib.gateway.llm.tool_index import Shelf


class Completions:
    """Chat completions through a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._service: Service[Shelf] = Service(gateway, lambda shelf: shelf)

    async def create(self, exchange: Exchange) -> None:
        """The model's next message."""
        request = await self._service.read(exchange)
        if request.switch == "native":
            await self._service.pass_on(request, "native")
            return
        talk = await self._talk(request)
        if talk is None:
            await self._service.pass_on(request, "off")
            return
        await self._service.answer(request, talk, Stream(talk))

    async def _talk(self, request: Request) -> Talk | None:
        """The talk of a request; None if there is nothing to do for us."""
        body, tools = request.body, request.tools
        messages = objects(body.get("messages"))
        if not messages or not request.is_well_formed("messages"):
            return None
        asked = asks_for_search(tools)
        if body.get("n") not in (None, 1):
            if asked:
                raise RequestFailed("tool search answers one choice at a time; send n=1", param="n")
            return None
        if asked:
            loads = has_references(messages)
            shelf = await self._service.made(
                request, lambda: deferring_shelf(tools, client_loads=loads), "deferring", loads
            )
        else:
            chosen = _is_chosen_by_client(body.get("tool_choice"))
            if not tools or chosen or request.switch == "off":
                return None
            disclosure = self._service.disclosure(request)
            shelf = await self._service.made(
                request, lambda: sparing_shelf(tools, disclosure), "sparing"
            )
            if not shelf.held:
                return None
        recall = self._service.recall(request)
        treatment: Treatment = "search" if asked else "transparent"
        rounds = self._service.max_rounds
        return await self._service.begun(
            request, partial(Talk, body, shelf, recall, rounds, treatment)
        )


def _is_chosen_by_client(choice: object) -> bool:
    """Whether the client has picked among its tools itself."""
    return isinstance(choice, dict) and choice.get("type") == "allowed_tools"
