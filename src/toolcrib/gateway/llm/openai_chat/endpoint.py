"""`/v1/chat/completions`."""

from __future__ import annotations

from functools import partial

from toolcrib.adapters.plain_json import dicts_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.openai_chat.history import has_references
from toolcrib.gateway.llm.openai_chat.rewriter import ChatRewriter
from toolcrib.gateway.llm.openai_chat.stream import ChatStream
from toolcrib.gateway.llm.openai_chat.tools import (
    build_deferred_index,
    build_transparent_index,
    uses_tool_search,
)
from toolcrib.gateway.llm.openai_service import OpenAiRequest, OpenAiService
from toolcrib.gateway.llm.response_headers import Treatment
from toolcrib.gateway.llm.tool_index import ToolIndex


class ChatCompletions:
    """Chat completions through a gateway."""

    def __init__(self, gateway: LlmGateway) -> None:
        self._service: OpenAiService[ToolIndex] = OpenAiService(gateway, lambda shelf: shelf)

    async def create_completion(self, exchange: HttpExchange) -> None:
        """The model's next message."""
        request = await self._service.read_request(exchange)
        if request.switch == "native":
            await self._service.forward(request, "native")
            return
        talk = await self._build_rewriter(request)
        if talk is None:
            await self._service.forward(request, "off")
            return
        await self._service.answer(request, talk, ChatStream(talk))

    async def _build_rewriter(self, request: OpenAiRequest) -> ChatRewriter | None:
        """The talk of a request; None if there is nothing to do for us."""
        body, tools = request.body, request.tool_entries
        messages = dicts_or_empty(body.get("messages"))
        if not messages or not request.is_well_formed("messages"):
            return None
        asked = uses_tool_search(tools)
        if body.get("n") not in (None, 1):
            if asked:
                raise RequestFailed("tool search answers one choice at a time; send n=1", param="n")
            return None
        if asked:
            loads = has_references(messages)
            shelf = await self._service.get_tool_index(
                request, lambda: build_deferred_index(tools, client_loads=loads), "deferring", loads
            )
        else:
            chosen = _restricts_tools(body.get("tool_choice"))
            if not tools or chosen or request.switch == "off":
                return None
            disclosure = self._service.disclosure_for(request)
            shelf = await self._service.get_tool_index(
                request, lambda: build_transparent_index(tools, disclosure), "sparing"
            )
            if not shelf.deferred:
                return None
        recall = self._service.memory_for(request)
        treatment: Treatment = "search" if asked else "transparent"
        rounds = self._service.max_rounds
        return await self._service.build_rewriter(
            request, partial(ChatRewriter, body, shelf, recall, rounds, treatment)
        )


def _restricts_tools(choice: object) -> bool:
    """Whether the client has picked among its tools itself."""
    return isinstance(choice, dict) and choice.get("type") == "allowed_tools"
