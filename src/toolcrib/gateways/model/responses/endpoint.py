"""`/v1/responses`."""

from __future__ import annotations

from toolcrib.adapters.plain import objects
from toolcrib.errors import RequestFailed
from toolcrib.gateways.model.door import Exchange
from toolcrib.gateways.model.gateway import Gateway, is_native
from toolcrib.gateways.model.responses import items, tools
from toolcrib.gateways.model.responses.stream import Stream
from toolcrib.gateways.model.responses.talk import Talk
from toolcrib.gateways.model.responses.tools import Rack, rack_of
from toolcrib.gateways.model.service import Request, Service


class Responses:
    """Responses through a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._service: Service[Rack] = Service(gateway, lambda rack: rack.shelf)

    async def create(self, exchange: Exchange) -> None:
        """The model's next response."""
        request = self._service.read(exchange)
        if is_native(request.switch, "openai", request.model):
            await self._service.pass_on(request, "native")
            return
        talk = await self._talk(request)
        if talk is None:
            await self._service.pass_on(request, "off")
            return
        await self._service.answer(request, talk, Stream(talk))

    async def others(self, exchange: Exchange) -> None:
        """What has to do with stored responses: the upstream's own."""
        await self._service.pass_on_any(exchange)

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
        return Talk(body, rack, self._service.recall(request), self._service.max_rounds)


def _is_chosen_by_client(choice: object) -> bool:
    """Whether the client has picked among its tools itself."""
    return isinstance(choice, dict) and choice.get("type") == "allowed_tools"
