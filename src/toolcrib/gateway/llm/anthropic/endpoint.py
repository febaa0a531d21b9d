"""`/v1/messages` and `/v1/messages/count_tokens`.

Requests with tool search that the API would refuse are refused with the messages of the API.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from toolcrib.adapters.plain_json import dict_or_empty
from toolcrib.core import prompts
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic.history import (
    SEARCH_RESULT,
    SERVER_ID,
    find_pending_searches,
    is_reference,
    is_search_result,
    is_search_use,
    iter_blocks,
)
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
    strip_deferral,
)
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import TOOLS_LIMIT_CODE, LlmGateway
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.request import LlmRequest
from toolcrib.gateway.llm.search_loop import answer_request, build_response_headers
from toolcrib.gateway.llm.tools.tool_index import ToolIndex
from toolcrib.profiles.claude import (
    VARIANTS,
    RequestRefusal,
    find_refusal,
    is_search_tool,
    referenced_tool_names,
    uses_tool_search,
)

STALE_HEADER: Final = "x-toolcrib-stale-references"
NOT_UNIQUE: Final = "tools: Tool names must be unique."
BAD_NAME: Final = "tools.{place}.custom.name: String should match pattern '{pattern}'"
BAD_SEARCH_NAME: Final = "tools.{place}.{type}.name: Input should be '{name}'"
TOO_MANY: Final = "{count:,} tools have defer_loading; the limit is {limit:,}"
ORPHAN: Final = (
    "messages.{at}.content.{place}: unexpected `tool_use_id` found in `{type}` blocks: {id}. "
    "Each `{type}` block must have a corresponding `server_tool_use` block before it."
)
DANGLING: Final = "`{name}` tool use with id `{id}` was found without a corresponding `{type}` block"
DROPPED: Final = " but no `{name}` tool was provided"
ANSWERED: Final = (
    "messages.{at}.content.{place}: `tool_result` is for client tools; `{id}` is the id of a "
    "server tool, whose result the API makes itself"
)
MIXED: Final = (
    "messages.{at}.content.{place}: `tool_reference` blocks cannot be mixed with other blocks in "
    "one `tool_result`; put text into blocks after all results"
)
MISSING_KEY: Final = "messages.{at}.content.{place}.server_tool_use.input: `{name}` takes `{key}`, which is missing"
THREADS_HOST: Final = "api.anthropic.com"
# Clients send the whole conversation after an error with this code.
THREAD_CODE: Final = "thread_unsupported_request"
NO_THREADS: Final = "thread: threads are not supported for this request; send the whole conversation without `thread`"
_SEARCH_SUCCESS: Final = "tool_search_tool_search_result"
_STALE: Final = {"type": "text", "text": prompts.STALE_REFERENCES}
# MCP clients send names of up to 128 characters.
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


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
    response = await gateway.send_request(request, serialize_json(rewriter.next_request()))
    body = await response.read()
    added_headers = build_response_headers(request, rewriter).render()
    headers = [*response.forwarded_headers(), *added_headers]
    await exchange.send_response(response.status, headers, body)


async def _rewrite_or_forward(gateway: LlmGateway, request: LlmRequest) -> MessagesRewriter | None:
    """Return the rewriter of a request, or None after forwarding a request that needs none."""
    is_threaded = request.body.get("thread") is not None
    # Other servers ignore `thread`, and a later turn fails.
    if is_threaded and urlsplit(request.upstream.url).hostname != THREADS_HOST:
        raise RequestFailed(NO_THREADS, code=THREAD_CODE)
    if request.uses_native_search("anthropic"):
        await gateway.forward_request(request, "native")
        return None
    tools = request.body.get("tools")
    entries = tools if isinstance(tools, list) else []
    needs_search = uses_tool_search(request.body) or any(map(has_deferred_tools, entries))
    index = None if needs_search else await _get_transparent_index(gateway, request, entries)
    if is_threaded and (needs_search or (index is not None and index.deferred)):
        raise RequestFailed(NO_THREADS, code=THREAD_CODE)
    if needs_search:
        return await _build_server_search(gateway, request, entries)
    if index is None or not index.deferred:
        if any(isinstance(entry, dict) and "defer_loading" in entry for entry in entries):
            request.exchange.body = serialize_json({**request.body, "tools": list(map(strip_deferral, entries))})
        await gateway.forward_request(request, "off", plan=index.plan if index else None)
        return None
    return await gateway.build_rewriter(request, index, TransparentSearchRewriter)


async def _build_server_search(gateway: LlmGateway, request: LlmRequest, entries: list[Any]) -> ServerSearchRewriter:
    body, tools = await gateway.run_for_request(request.exchange, partial(_check, gateway, request))
    ranking, rounds = request.upstream.search, gateway.settings.max_rounds
    index = await gateway.get_tool_index(
        entries, partial(build_search_index, tools, ranking), "messages", "search", ranking
    )
    rewriter = await gateway.run_for_request(
        request.exchange, partial(ServerSearchRewriter, body, tools, index, ranking, rounds)
    )
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


async def _get_transparent_index(gateway: LlmGateway, request: LlmRequest, entries: list[Any]) -> ToolIndex | None:
    """Return the index of a request that does not know tool search, or None if it is forwarded."""
    if request.switch == "off" or not isinstance(request.body.get("messages"), list):
        return None
    if not list_deferrable(request.body):
        return None
    gateway.check_tool_count(request)
    exposure = gateway.exposure_for(request)
    build = partial(build_transparent_index, request.body, exposure)
    return await gateway.get_tool_index(entries, build, "messages", "transparent", exposure)


def check_request(body: Mapping[str, Any], tools: MessagesTools, max_tools: int) -> None:
    """Raise the error of the API if the API would refuse the request."""
    refusal = find_refusal(body) or next(_find_problems(body, tools, max_tools), None)
    if refusal is not None:
        raise RequestFailed(refusal.message, code=refusal.code)


def drop_stale_references(body: Mapping[str, Any], tools: MessagesTools) -> dict[str, Any]:
    """Return a request without references to tools that it no longer has."""
    known = {str(entry.get("name")) for entry in tools.searchable}
    if all(name in known for name in referenced_tool_names(body)):
        return dict(body)
    messages = [
        {**message, "content": [_prune_references(block, known) for block in message["content"]]}
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        else message
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


def _find_problems(body: Mapping[str, Any], tools: MessagesTools, max_tools: int) -> Iterator[RequestRefusal]:
    yield from _find_tool_problems(tools, max_tools)
    yield from _find_history_problems(body)
    pending = find_pending_searches(body)
    is_continued = not pending or _is_continuation(body["messages"], pending)
    for block in pending.values():
        if not is_continued or str(block.get("name")) not in tools.search_names:
            yield _refuse_dangling(block, tools)


def _find_tool_problems(tools: MessagesTools, max_tools: int) -> Iterator[RequestRefusal]:
    names: list[str] = []
    for place, entry in enumerate(tools.entries):
        if not isinstance(entry, dict):
            continue
        if is_search_tool(entry):
            variant = VARIANTS[str(entry["type"])]
            if entry.get("name") != variant.name:
                yield RequestRefusal(BAD_SEARCH_NAME.format(place=place, type=entry["type"], name=variant.name))
        name = entry.get("name")
        if isinstance(name, str):
            names.append(name)
        if str(name) in tools.deferred and not _NAME.fullmatch(str(name)):
            yield RequestRefusal(BAD_NAME.format(place=place, pattern=f"^{_NAME.pattern}$"))
    if len(names) != len(set(names)):
        yield RequestRefusal(NOT_UNIQUE)
    count = len(tools.deferred_names)
    if count > max_tools:
        yield RequestRefusal(TOO_MANY.format(count=count, limit=max_tools), TOOLS_LIMIT_CODE)


def _find_history_problems(body: Mapping[str, Any]) -> Iterator[RequestRefusal]:
    uses: dict[str, Mapping[str, Any]] = {}
    for at, place, block in iter_blocks(body.get("messages")):
        location = {"at": at, "place": place}
        if is_search_use(block):
            uses[str(block.get("id"))] = block
        elif is_search_result(block):
            id = str(block.get("tool_use_id"))
            if id not in uses:
                yield RequestRefusal(ORPHAN.format(type=SEARCH_RESULT, id=id, **location))
            elif dict_or_empty(block.get("content")).get("type") == _SEARCH_SUCCESS:
                yield from _find_missing_key(uses[id], location)
        elif block.get("type") == "tool_result":
            id = str(block.get("tool_use_id"))
            if id.startswith(SERVER_ID):
                yield RequestRefusal(ANSWERED.format(id=id, **location))
            are_references = [is_reference(part) for part in _as_list(block.get("content"))]
            if any(are_references) and not all(are_references):
                yield RequestRefusal(MIXED.format(**location))


def _find_missing_key(use: Mapping[str, Any], location: Mapping[str, int]) -> Iterator[RequestRefusal]:
    variant = VARIANTS[str(use.get("name"))]
    key = variant.keys[0]
    if key not in dict_or_empty(use.get("input")):
        yield RequestRefusal(MISSING_KEY.format(name=variant.name, key=key, **location))


def _refuse_dangling(block: Mapping[str, Any], tools: MessagesTools) -> RequestRefusal:
    name = str(block.get("name"))
    text = DANGLING.format(name=name, id=block.get("id"), type=SEARCH_RESULT)
    return RequestRefusal(text if name in tools.search_names else text + DROPPED.format(name=name))


def _is_continuation(messages: list[Any], pending: Collection[str]) -> bool:
    """Return whether the history ends in the turn of the pending searches.

    Only results of client tools may follow that turn.
    """
    if _block_ids(messages[-1:]).issuperset(pending):
        return True
    content = messages[-1].get("content") if isinstance(messages[-1], dict) else None
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, dict) and part.get("type") == "tool_result" for part in content)
        and _block_ids(messages[-2:-1]).issuperset(pending)
    )


def _block_ids(messages: list[Any]) -> set[str]:
    return {str(block.get("id")) for _, _, block in iter_blocks(messages)}


def _prune_references(block: Any, known: set[str]) -> Any:
    """Return a block without its references to unknown tools."""
    if not isinstance(block, dict):
        return block
    content = block.get("content")
    if is_search_result(block) and isinstance(content, dict):
        references = _as_list(content.get("tool_references"))
        rest = [part for part in references if not _is_stale(part, known)]
        return {**block, "content": {**content, "tool_references": rest}}
    if block.get("type") == "tool_result" and isinstance(content, list):
        rest = [part for part in content if not _is_stale(part, known)]
        # The API refuses an empty result.
        return {**block, "content": rest or [_STALE]}
    return block


def _is_stale(part: Any, known: set[str]) -> bool:
    return is_reference(part) and str(part.get("tool_name")) not in known


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
