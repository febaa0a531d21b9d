"""`/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from toolcrib.gateway.llm.anthropic.rewriter import (
    MessagesRewriter,
    TransparentSearchRewriter,
    build_transparent_index,
    list_deferrable,
)
from toolcrib.gateway.llm.anthropic.server_search import ServerSearchRewriter
from toolcrib.gateway.llm.anthropic.stream import MessagesStream
from toolcrib.gateway.llm.anthropic.tools import (
    MessagesTools,
    build_search_index,
    has_deferred_tools,
    parse_tools,
)
from toolcrib.gateway.llm.anthropic.validation import (
    MAX_TOOLS_BYTES,
    check_request,
    check_size,
    drop_stale_references,
)
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway, LlmRequest
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.search_loop import answer_request, build_response_headers
from toolcrib.gateway.llm.tool_index import estimate_entry_tokens
from toolcrib.gateway.llm.upstreams import build_upstream_headers
from toolcrib.profiles.claude import uses_tool_search

STALE_HEADER: Final = "x-toolcrib-stale-references"


async def create_message(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Answer `/v1/messages`."""
    request = await gateway.read_request(exchange, "messages")
    rewriter = await _rewrite_or_forward(gateway, request)
    if rewriter is not None:
        await answer_request(gateway, request, rewriter, MessagesStream(rewriter))


async def count_tokens(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Answer `/v1/messages/count_tokens` for the request that the model would be sent."""
    request = await gateway.read_request(exchange, "messages")
    rewriter = await _rewrite_or_forward(gateway, request)
    if rewriter is None:
        return
    response = await gateway.upstreams.send(
        request.upstream,
        exchange.method,
        exchange.target,
        build_upstream_headers(request.upstream, exchange.headers),
        serialize_json(rewriter.next_request()),
    )
    body = await response.read()
    added_headers = build_response_headers(request, rewriter).render()
    headers = [*response.forwarded_headers(), *added_headers]
    await exchange.send_response(response.status, headers, body)


async def _rewrite_or_forward(gateway: LlmGateway, request: LlmRequest) -> MessagesRewriter | None:
    """Return the rewriter of a request, or None after forwarding a request that needs none."""
    if request.uses_native_search("anthropic"):
        await gateway.forward_request(request, "native")
        return None
    tools = request.body.get("tools")
    entries = tools if isinstance(tools, list) else []
    if uses_tool_search(request.body) or any(map(has_deferred_tools, entries)):
        return await _build_server_search(gateway, request, entries)
    if _needs_transparent_search(gateway, request, entries):
        return await _build_transparent_search(gateway, request, entries)
    await gateway.forward_request(request, "off")
    return None


async def _build_server_search(
    gateway: LlmGateway, request: LlmRequest, entries: list[Any]
) -> ServerSearchRewriter:
    body, tools = await gateway.run_for_request(request.exchange, partial(_check, gateway, request))
    ranking, rounds = request.upstream.search, gateway.settings.max_rounds
    index = await gateway.get_tool_index(
        entries, partial(build_search_index, tools, ranking), "messages", "search", ranking
    )
    rewriter = await gateway.run_for_request(
        request.exchange, partial(ServerSearchRewriter, body, tools, index, ranking, rounds)
    )
    # The tools are part of the body, so only a large body can have too large tools.
    if len(request.exchange.body) > MAX_TOOLS_BYTES:
        check_size(rewriter.sent_entries)
    if pending := rewriter.list_pending_searches():
        rewriter.add_results((), await gateway.run_search(partial(rewriter.run_searches, pending)))
    return rewriter


def _check(gateway: LlmGateway, request: LlmRequest) -> tuple[dict[str, Any], MessagesTools]:
    """Return the validated body and its tools."""
    body, tools = request.body, parse_tools(request.body)
    if request.exchange.get_header(STALE_HEADER) == "drop":
        body = drop_stale_references(body, tools)
    check_request(body, tools, gateway.settings.max_tools)
    return body, tools


async def _build_transparent_search(
    gateway: LlmGateway, request: LlmRequest, entries: list[Any]
) -> TransparentSearchRewriter:
    choice = request.body.get("tool_choice")
    forced = str(choice.get("name")) if isinstance(choice, dict) else ""
    index = await gateway.get_tool_index(
        entries, partial(build_transparent_index, request.body), "messages", "transparent", forced
    )
    memory, rounds = gateway.memory_for(request), gateway.settings.max_rounds
    return await gateway.run_for_request(
        request.exchange, partial(TransparentSearchRewriter, request.body, index, memory, rounds)
    )


def _needs_transparent_search(gateway: LlmGateway, request: LlmRequest, entries: list[Any]) -> bool:
    """Return whether a request has enough tools to defer some without being asked to."""
    deferrable = list_deferrable(request.body) if request.switch in ("auto", "on") else []
    settings = gateway.settings
    if not deferrable or request.switch == "on" or len(entries) >= settings.threshold_tools:
        return bool(deferrable)
    return sum(map(estimate_entry_tokens, deferrable)) >= settings.threshold_tokens
