"""`/v1/chat/completions`."""

from __future__ import annotations

from functools import partial

from toolcrib.adapters.plain_json import dicts_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import HttpExchange, Treatment
from toolcrib.gateway.llm.gateway import LlmGateway, LlmRequest
from toolcrib.gateway.llm.openai_chat.rewriter import ChatRewriter, has_references
from toolcrib.gateway.llm.openai_chat.stream import ChatStream
from toolcrib.gateway.llm.openai_chat.tools import (
    build_deferred_index,
    build_transparent_index,
    uses_tool_search,
)
from toolcrib.gateway.llm.search_loop import answer_request
from toolcrib.gateway.llm.tool_index import ToolIndex


async def create_completion(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Answer `/v1/chat/completions`."""
    request = await gateway.read_request(exchange, "openai")
    if request.switch == "native":
        await gateway.forward_request(request, "native")
        return
    index = await _get_index(gateway, request)
    if index is None:
        await gateway.forward_request(request, "off")
        return
    treatment: Treatment = "search" if uses_tool_search(request.tool_entries) else "transparent"
    memory, rounds = gateway.memory_for(request), gateway.settings.max_rounds
    rewriter = await gateway.run_for_request(
        exchange, partial(ChatRewriter, request.body, index, memory, rounds, treatment)
    )
    await answer_request(gateway, request, rewriter, ChatStream(rewriter))


async def _get_index(gateway: LlmGateway, request: LlmRequest) -> ToolIndex | None:
    """Return the index of a request, or None if the request needs no tool search."""
    body, entries = request.body, request.tool_entries
    messages = dicts_or_empty(body.get("messages"))
    if not messages or not request.is_well_formed("messages"):
        return None
    is_deferred = uses_tool_search(entries)
    if body.get("n") not in (None, 1):
        if is_deferred:
            raise RequestFailed("tool search supports a single choice; send n=1", param="n")
        return None
    if is_deferred:
        gateway.check_tool_count(request)
        loads = has_references(messages)
        build = partial(build_deferred_index, entries, client_loads=loads)
        return await gateway.get_tool_index(entries, build, "chat", "deferred", loads)
    if not entries or request.restricts_tools or request.switch == "off":
        return None
    gateway.check_tool_count(request)
    build = partial(build_transparent_index, entries, gateway.disclosure_for(request))
    index = await gateway.get_tool_index(entries, build, "chat", request.switch)
    return index if index.deferred else None
