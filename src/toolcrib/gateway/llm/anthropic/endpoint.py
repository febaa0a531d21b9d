"""The two paths of the Messages API."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from toolcrib.config.settings import LlmSearchSwitch, LlmUpstreamConfig
from toolcrib.gateway.llm.anthropic.loop import MessagesSearchLoop
from toolcrib.gateway.llm.anthropic.server_search import ServerSearchRewriter
from toolcrib.gateway.llm.anthropic.tools import has_deferred_tools, parse_entry, parse_tools
from toolcrib.gateway.llm.anthropic.transparent_search import (
    TransparentSearchRewriter,
    conversation_key,
    list_deferrable,
)
from toolcrib.gateway.llm.anthropic.validation import (
    MAX_TOOLS_BYTES,
    check_request,
    check_size,
    drop_stale_references,
)
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway, request_owner, uses_native_search
from toolcrib.gateway.llm.json_body import parse_request_body, serialize_json
from toolcrib.gateway.llm.response_headers import ResponseHeaders, Treatment
from toolcrib.gateway.llm.toolset import SearchableTools, SearchMethod
from toolcrib.gateway.llm.upstreams import build_upstream_headers
from toolcrib.profiles.claude import BM25, REGEX, uses_tool_search

STALE_HEADER: Final = "x-toolcrib-stale-references"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _ParsedRequest:
    """A request, and what is to be done about tool search.

    That is a talk, or tools to hold back in one, or nothing. `ways` is how the tools will be searched.
    """

    body: dict[str, Any]
    upstream: LlmUpstreamConfig
    saved: ResponseHeaders
    rewriter: ServerSearchRewriter | None = None
    toolset: SearchableTools | None = None
    methods: tuple[SearchMethod, ...] = ()


async def create_message(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """`/v1/messages`: the model's next message."""
    read = await gateway.run_for_request(exchange, partial(_parse_request, gateway, exchange))
    talk, saved = await _build_rewriter(gateway, exchange, read)
    if talk is None:
        await gateway.forward(exchange, read.upstream, saved)
        return
    gateway.report_request(saved)
    loop = MessagesSearchLoop(gateway, exchange, read.upstream, talk, saved)
    await loop.run(stream=read.body.get("stream") is True)


async def count_tokens(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """`/v1/messages/count_tokens`: how many tokens the model would be sent."""
    read = await gateway.run_for_request(exchange, partial(_parse_request, gateway, exchange))
    talk, saved = await _build_rewriter(gateway, exchange, read)
    if talk is None:
        await gateway.forward(exchange, read.upstream, saved)
        return
    waiting = talk.pending_searches()
    if waiting:
        talk.append_round((), await gateway.run_search(partial(talk.run_searches, waiting)))
    reply = await gateway.upstreams.send(
        read.upstream,
        exchange.method,
        exchange.target,
        build_upstream_headers(read.upstream, exchange.headers),
        serialize_json(talk.next_request()),
    )
    answer = await reply.read()
    await exchange.send_response(
        reply.status, [*reply.forwarded_headers(), *saved.render()], answer
    )


def _parse_request(gateway: LlmGateway, exchange: HttpExchange) -> _ParsedRequest:
    """Read a request. May take long, if it is large."""
    body = parse_request_body(exchange.body)
    upstream = gateway.upstreams.match_model("messages", str(body.get("model", "")))
    switch = gateway.resolve_switch(exchange, upstream)
    if uses_native_search(switch, "anthropic", str(body.get("model", ""))):
        return _ParsedRequest(body, upstream, ResponseHeaders(upstream.name, "native"))
    tools = body.get("tools")
    if uses_tool_search(body) or any(
        map(has_deferred_tools, tools if isinstance(tools, list) else ())
    ):
        return _parse_server_search(gateway, exchange, upstream, body)
    toolset = _find_deferrable_tools(gateway, body, switch)
    ways: tuple[SearchMethod, ...] = ("meaning",) if toolset else ()
    return _ParsedRequest(
        body, upstream, ResponseHeaders(upstream.name, "off"), toolset=toolset, methods=ways
    )


async def _build_rewriter(
    gateway: LlmGateway, exchange: HttpExchange, read: _ParsedRequest
) -> tuple[ServerSearchRewriter | TransparentSearchRewriter | None, ResponseHeaders]:
    """The talk of a request, if there is to be one, and what it saves."""
    if read.toolset is None:
        return None, read.saved
    if read.rewriter is not None:
        gateway.prepare(read.toolset, *read.methods)
        return read.rewriter, read.saved
    key = conversation_key(read.body, read.upstream.name, *request_owner(exchange))
    revealed = gateway.revealed_names.get(key) or ()
    remember = partial(gateway.revealed_names.put, key)
    rounds = gateway.settings.max_rounds
    hidden = await gateway.run_search(
        partial(TransparentSearchRewriter, read.body, read.toolset, revealed, remember, rounds)
    )
    gateway.prepare(read.toolset, *read.methods)
    return hidden, _response_headers(
        read.upstream, "transparent", read.toolset, hidden.revealed_client_entries
    )


def _parse_server_search(
    gateway: LlmGateway, exchange: HttpExchange, upstream: LlmUpstreamConfig, body: dict[str, Any]
) -> _ParsedRequest:
    listed = parse_tools(body)
    if exchange.get_header(STALE_HEADER) == "drop":
        body = drop_stale_references(body, listed)
    check_request(body, listed, gateway.settings.max_tools)
    toolset = gateway.get_searchable_tools(listed.searchable, parse_entry)
    rounds = gateway.settings.max_rounds
    talk = ServerSearchRewriter(body, listed, toolset, upstream.search, rounds)
    shown = talk.revealed_entries
    # The tools are part of the body, so they cannot be too large where that is not.
    if len(exchange.body) > MAX_TOOLS_BYTES:
        check_size(shown)
    saved = _response_headers(upstream, "search", toolset, shown)
    return _ParsedRequest(
        body, upstream, saved, talk, toolset, _search_methods(listed.search_names, upstream)
    )


def _find_deferrable_tools(
    gateway: LlmGateway, body: dict[str, Any], switch: LlmSearchSwitch
) -> SearchableTools | None:
    """The tools that a client is spared who knows nothing of tool search; None if there are few."""
    settings = gateway.settings
    entries = list_deferrable(body) if switch in ("auto", "on") else []
    if not entries:
        return None
    toolset = gateway.get_searchable_tools(entries, parse_entry)
    is_large = (
        switch == "on"
        or len(body["tools"]) >= settings.threshold_tools
        or sum(toolset.entry_tokens) >= settings.threshold_tokens
    )
    return toolset if is_large else None


def _search_methods(
    searches: Iterable[str], upstream: LlmUpstreamConfig
) -> tuple[SearchMethod, ...]:
    ways: list[SearchMethod] = []
    if REGEX in searches:
        ways.append("pattern")
    if BM25 in searches:
        ways.append("words" if upstream.search == "exact" else "meaning")
    return tuple(ways)


def _response_headers(
    upstream: LlmUpstreamConfig, treatment: Treatment, toolset: SearchableTools, shown: list[Any]
) -> ResponseHeaders:
    names = {str(entry.get("name")) for entry in shown if isinstance(entry, Mapping)}
    held = [
        tokens
        for entry, tokens in zip(toolset.entries, toolset.entry_tokens, strict=True)
        if str(entry.get("name")) not in names
    ]
    saved = ResponseHeaders(upstream.name, treatment, len(held) + len(shown), len(shown), sum(held))
    _log.info(
        "messages to %s: %s, %d of %d tools shown, about %d tokens saved",
        upstream.name,
        treatment,
        saved.revealed_count,
        saved.tool_count,
        saved.saved_tokens,
    )
    return saved
