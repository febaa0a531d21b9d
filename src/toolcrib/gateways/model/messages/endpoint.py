"""The two paths of the Messages API."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from toolcrib.config.settings import ModelUpstream, SearchForModel
from toolcrib.gateways.model.body import read_object, written
from toolcrib.gateways.model.door import Exchange
from toolcrib.gateways.model.gateway import Gateway, is_native, owner
from toolcrib.gateways.model.messages.check import (
    MAX_SHOWN_BYTES,
    check,
    check_size,
    without_stale_references,
)
from toolcrib.gateways.model.messages.hidden_search import (
    HiddenSearch,
    conversation_key,
    deferrable,
)
from toolcrib.gateways.model.messages.listing import defers, listing, tools_from_entry
from toolcrib.gateways.model.messages.loop import Loop
from toolcrib.gateways.model.messages.server_search import ServerSearch
from toolcrib.gateways.model.saved import Saved, Treatment
from toolcrib.gateways.model.toolset import Toolset, Way
from toolcrib.gateways.model.upstream import headers_to_send
from toolcrib.profiles.claude import BM25, REGEX, uses_tool_search

STALE_HEADER: Final = "x-toolcrib-stale-references"

_log = logging.getLogger(__name__)


async def create(gateway: Gateway, exchange: Exchange) -> None:
    """`/v1/messages`: the model's next message."""
    body = read_object(exchange.body)
    upstream = gateway.upstreams.choose("messages", str(body.get("model", "")))
    treated = await _treated(gateway, exchange, upstream, body)
    if isinstance(treated, Saved):
        await gateway.pass_on(exchange, upstream, treated)
        return
    talk, saved = treated
    await Loop(gateway, exchange, upstream, talk, saved).run(stream=body.get("stream") is True)


async def count(gateway: Gateway, exchange: Exchange) -> None:
    """`/v1/messages/count_tokens`: how many tokens the model would be sent."""
    body = read_object(exchange.body)
    upstream = gateway.upstreams.choose("messages", str(body.get("model", "")))
    treated = await _treated(gateway, exchange, upstream, body)
    if isinstance(treated, Saved):
        await gateway.pass_on(exchange, upstream, treated)
        return
    talk, saved = treated
    waiting = talk.waiting()
    if waiting:
        talk.add((), await gateway.search(partial(talk.answers, waiting)))
    reply = await gateway.upstreams.send(
        upstream,
        exchange.method,
        exchange.target,
        headers_to_send(upstream, exchange.headers),
        written(talk.request()),
    )
    answer = await reply.read()
    await exchange.answer(reply.status, [*reply.headers(), *saved.headers()], answer)


async def _treated(
    gateway: Gateway, exchange: Exchange, upstream: ModelUpstream, body: dict[str, Any]
) -> Saved | tuple[ServerSearch | HiddenSearch, Saved]:
    """What is to be done about tool search: nothing, or the talk that does it."""
    switch = gateway.switch(exchange, upstream)
    if is_native(switch, "anthropic", str(body.get("model", ""))):
        return Saved(upstream.name, "native")
    tools = body.get("tools")
    if uses_tool_search(body) or any(map(defers, tools if isinstance(tools, list) else ())):
        return _server_search(gateway, exchange, upstream, body)
    hidden = await _hidden_search(gateway, exchange, upstream, body, switch)
    return hidden or Saved(upstream.name, "off")


def _server_search(
    gateway: Gateway, exchange: Exchange, upstream: ModelUpstream, body: dict[str, Any]
) -> tuple[ServerSearch, Saved]:
    listed = listing(body)
    if exchange.header(STALE_HEADER) == "drop":
        body = without_stale_references(body, listed)
    check(body, listed, gateway.settings.max_tools)
    toolset = gateway.toolsets.get(listed.searchable, tools_from_entry)
    gateway.prepare(toolset, *_ways(listed.searches, upstream))
    rounds = gateway.settings.max_rounds
    talk = ServerSearch(body, listed, toolset, upstream.search, rounds)
    shown = talk.shown
    # The tools are part of the body, so they cannot be too large where that is not.
    if len(exchange.body) > MAX_SHOWN_BYTES:
        check_size(shown)
    return talk, _saved(upstream, "search", toolset, shown)


async def _hidden_search(
    gateway: Gateway,
    exchange: Exchange,
    upstream: ModelUpstream,
    body: dict[str, Any],
    switch: SearchForModel,
) -> tuple[HiddenSearch, Saved] | None:
    settings = gateway.settings
    entries = deferrable(body) if switch in ("auto", "on") else []
    if not entries:
        return None
    toolset = gateway.toolsets.get(entries, tools_from_entry)
    is_large = (
        switch == "on"
        or len(body["tools"]) >= settings.threshold_tools
        or sum(toolset.tokens) >= settings.threshold_tokens
    )
    if not is_large:
        return None
    key = conversation_key(body, upstream.name, *owner(exchange))
    revealed = gateway.reveals.get(key) or ()
    remember = partial(gateway.reveals.put, key)
    make = partial(HiddenSearch, body, toolset, revealed, remember, settings.max_rounds)
    talk = await gateway.search(make)
    gateway.prepare(toolset, "meaning")
    return talk, _saved(upstream, "transparent", toolset, talk.shown)


def _ways(searches: Iterable[str], upstream: ModelUpstream) -> list[Way]:
    ways: list[Way] = []
    if REGEX in searches:
        ways.append("pattern")
    if BM25 in searches:
        ways.append("words" if upstream.search == "exact" else "meaning")
    return ways


def _saved(
    upstream: ModelUpstream, treatment: Treatment, toolset: Toolset, shown: list[Any]
) -> Saved:
    names = {str(entry.get("name")) for entry in shown if isinstance(entry, Mapping)}
    held = [
        tokens
        for entry, tokens in zip(toolset.entries, toolset.tokens, strict=True)
        if str(entry.get("name")) not in names
    ]
    saved = Saved(upstream.name, treatment, len(held) + len(shown), len(shown), sum(held))
    _log.info(
        "messages to %s: %s, %d of %d tools shown, about %d tokens saved",
        upstream.name,
        treatment,
        saved.shown,
        saved.tools,
        saved.tokens,
    )
    return saved
