"""The two paths of the Messages API."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from toolcrib.config.settings import ModelUpstream, SearchForModel
from toolcrib.gateway.llm.anthropic.loop import Loop
from toolcrib.gateway.llm.anthropic.server_search import ServerSearch
from toolcrib.gateway.llm.anthropic.tools import defers, listing, tools_from_entry
from toolcrib.gateway.llm.anthropic.transparent_search import (
    HiddenSearch,
    conversation_key,
    deferrable,
)
from toolcrib.gateway.llm.anthropic.validation import (
    MAX_SHOWN_BYTES,
    check,
    check_size,
    without_stale_references,
)
from toolcrib.gateway.llm.endpoint import Exchange
from toolcrib.gateway.llm.gateway import Gateway, is_native, owner
from toolcrib.gateway.llm.json_body import read_object, written
from toolcrib.gateway.llm.response_headers import Saved, Treatment
from toolcrib.gateway.llm.toolset import Toolset, Way
from toolcrib.gateway.llm.upstreams import headers_to_send
from toolcrib.profiles.claude import BM25, REGEX, uses_tool_search

STALE_HEADER: Final = "x-toolcrib-stale-references"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Read:
    """A request, and what is to be done about tool search.

    That is a talk, or tools to hold back in one, or nothing. `ways` is how the tools will be searched.
    """

    body: dict[str, Any]
    upstream: ModelUpstream
    saved: Saved
    talk: ServerSearch | None = None
    toolset: Toolset | None = None
    ways: tuple[Way, ...] = ()


async def create(gateway: Gateway, exchange: Exchange) -> None:
    """`/v1/messages`: the model's next message."""
    read = await gateway.read(exchange, partial(_read, gateway, exchange))
    talk, saved = await _talk(gateway, exchange, read)
    if talk is None:
        await gateway.pass_on(exchange, read.upstream, saved)
        return
    gateway.treated(saved)
    loop = Loop(gateway, exchange, read.upstream, talk, saved)
    await loop.run(stream=read.body.get("stream") is True)


async def count(gateway: Gateway, exchange: Exchange) -> None:
    """`/v1/messages/count_tokens`: how many tokens the model would be sent."""
    read = await gateway.read(exchange, partial(_read, gateway, exchange))
    talk, saved = await _talk(gateway, exchange, read)
    if talk is None:
        await gateway.pass_on(exchange, read.upstream, saved)
        return
    waiting = talk.waiting()
    if waiting:
        talk.add((), await gateway.search(partial(talk.answers, waiting)))
    reply = await gateway.upstreams.send(
        read.upstream,
        exchange.method,
        exchange.target,
        headers_to_send(read.upstream, exchange.headers),
        written(talk.request()),
    )
    answer = await reply.read()
    await exchange.answer(reply.status, [*reply.headers(), *saved.headers()], answer)


def _read(gateway: Gateway, exchange: Exchange) -> _Read:
    """Read a request. May take long, if it is large."""
    body = read_object(exchange.body)
    upstream = gateway.upstreams.choose("messages", str(body.get("model", "")))
    switch = gateway.switch(exchange, upstream)
    if is_native(switch, "anthropic", str(body.get("model", ""))):
        return _Read(body, upstream, Saved(upstream.name, "native"))
    tools = body.get("tools")
    if uses_tool_search(body) or any(map(defers, tools if isinstance(tools, list) else ())):
        return _server_search(gateway, exchange, upstream, body)
    toolset = _to_hold_back(gateway, body, switch)
    ways: tuple[Way, ...] = ("meaning",) if toolset else ()
    return _Read(body, upstream, Saved(upstream.name, "off"), toolset=toolset, ways=ways)


async def _talk(
    gateway: Gateway, exchange: Exchange, read: _Read
) -> tuple[ServerSearch | HiddenSearch | None, Saved]:
    """The talk of a request, if there is to be one, and what it saves."""
    if read.toolset is None:
        return None, read.saved
    if read.talk is not None:
        gateway.prepare(read.toolset, *read.ways)
        return read.talk, read.saved
    key = conversation_key(read.body, read.upstream.name, *owner(exchange))
    revealed = gateway.reveals.get(key) or ()
    remember = partial(gateway.reveals.put, key)
    rounds = gateway.settings.max_rounds
    hidden = await gateway.search(
        partial(HiddenSearch, read.body, read.toolset, revealed, remember, rounds)
    )
    gateway.prepare(read.toolset, *read.ways)
    return hidden, _saved(read.upstream, "transparent", read.toolset, hidden.shown_of_client)


def _server_search(
    gateway: Gateway, exchange: Exchange, upstream: ModelUpstream, body: dict[str, Any]
) -> _Read:
    listed = listing(body)
    if exchange.header(STALE_HEADER) == "drop":
        body = without_stale_references(body, listed)
    check(body, listed, gateway.settings.max_tools)
    toolset = gateway.toolset(listed.searchable, tools_from_entry)
    rounds = gateway.settings.max_rounds
    talk = ServerSearch(body, listed, toolset, upstream.search, rounds)
    shown = talk.shown
    # The tools are part of the body, so they cannot be too large where that is not.
    if len(exchange.body) > MAX_SHOWN_BYTES:
        check_size(shown)
    saved = _saved(upstream, "search", toolset, shown)
    return _Read(body, upstream, saved, talk, toolset, _ways(listed.searches, upstream))


def _to_hold_back(gateway: Gateway, body: dict[str, Any], switch: SearchForModel) -> Toolset | None:
    """The tools that a client is spared who knows nothing of tool search; None if there are few."""
    settings = gateway.settings
    entries = deferrable(body) if switch in ("auto", "on") else []
    if not entries:
        return None
    toolset = gateway.toolset(entries, tools_from_entry)
    is_large = (
        switch == "on"
        or len(body["tools"]) >= settings.threshold_tools
        or sum(toolset.tokens) >= settings.threshold_tokens
    )
    return toolset if is_large else None


def _ways(searches: Iterable[str], upstream: ModelUpstream) -> tuple[Way, ...]:
    ways: list[Way] = []
    if REGEX in searches:
        ways.append("pattern")
    if BM25 in searches:
        ways.append("words" if upstream.search == "exact" else "meaning")
    return tuple(ways)


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
