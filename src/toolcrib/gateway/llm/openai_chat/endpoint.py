"""`/v1/chat/completions`, its `tools` and their search index.

OpenAI has no tool search in this API. Some servers have an extension, which the gateway supports: a
tool sets `defer_loading`, next to its function or inside it, and a result refers to tools with
`tool_reference` parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from toolcrib.adapters.openai_chat import tools_from_wire
from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool, RequestFailed
from toolcrib.gateway.llm.endpoint import HttpExchange, Treatment
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.openai_chat.rewriter import ChatRewriter, has_references
from toolcrib.gateway.llm.openai_chat.stream import ChatStream
from toolcrib.gateway.llm.request import LlmRequest
from toolcrib.gateway.llm.search_loop import answer_request
from toolcrib.gateway.llm.tools.exposure import Exposure, is_discovery_tool
from toolcrib.gateway.llm.tools.tool_index import Entry, ToolIndex, build_exposed_index, index_entries, split_entries

_DEFER_FIELD: Final = "defer_loading"


async def create_completion(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Answer `/v1/chat/completions`."""
    request = await gateway.read_request(exchange, "openai")
    if request.switch == "native":
        await gateway.forward_request(request, "native")
        return
    index = await _get_index(gateway, request)
    if index is None or index.plan.style == "all":
        _strip_deferral(request)
        await gateway.forward_request(request, "off", plan=index.plan if index else None)
        return
    treatment: Treatment = "search" if uses_tool_search(request.tool_entries) else "transparent"
    rewriter = await gateway.build_rewriter(request, index, partial(ChatRewriter, treatment=treatment))
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
    exposure = gateway.exposure_for(request)
    build = partial(build_transparent_index, entries, exposure)
    return await gateway.get_tool_index(entries, build, "chat", exposure)


def is_search_entry(entry: Entry) -> bool:
    """Return whether an entry asks for tool search by the server, in any known form."""
    type = str_or_empty(entry.get("type")).rpartition(":")[2]
    return type == "tool_search" or type.startswith("tool_search_tool_")


def is_deferred_entry(entry: Entry) -> bool:
    """Return whether an entry is deferred."""
    function = dict_or_empty(entry.get("function"))
    return entry.get(_DEFER_FIELD) is True or function.get(_DEFER_FIELD) is True


def uses_tool_search(entries: Sequence[Entry]) -> bool:
    """Return whether a request uses the extension."""
    return any(is_deferred_entry(entry) or is_search_entry(entry) for entry in entries)


def build_deferred_index(entries: Sequence[Entry], *, client_loads: bool) -> ToolIndex:
    """Build the index of a request that marks its deferred tools.

    The gateway searches, unless the client has loaded tools (`client_loads`) or has a search tool.
    """
    parsed = list(index_entries(_parse_entries(entries)))
    deferred = {each.tool.id for _, each in parsed if each and is_deferred_entry(each.client_entry)}
    always_sent, tools = split_entries(parsed, deferred)
    functions = [dict_or_empty(entry.get("function")) for entry in always_sent]
    client_searches = client_loads or any(
        is_discovery_tool(str_or_empty(each.get("name")), dict_or_empty(each.get("parameters"))) for each in functions
    )
    offers_search = any(map(is_search_entry, entries)) or not client_searches
    return ToolIndex(always_sent, tools, offers_search=offers_search)


def build_transparent_index(entries: Iterable[Entry], exposure: Exposure) -> ToolIndex:
    """Build the index of a request that does not know tool search."""
    return build_exposed_index(_parse_entries(entries), exposure)


def _strip_deferral(request: LlmRequest) -> None:
    """Remove `defer_loading` from a request, because few upstreams support it."""
    entries = request.tool_entries
    sent = list(map(_without_deferral, entries))
    if sent != entries:
        request.exchange.body = serialize_json({**request.body, "tools": sent})


def _parse_entries(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Entry, Tool | None]]:
    """Yield the entries without deferral, as they are, and as tools. Search tools are left out."""
    return (
        (_without_deferral(entry), entry, _parse_function(entry)) for entry in entries if not is_search_entry(entry)
    )


def _parse_function(entry: Entry) -> Tool | None:
    if entry.get("type") != "function" or not isinstance(entry.get("function"), dict):
        return None
    try:
        (tool,) = tools_from_wire(entry)
    except InvalidTool:
        return None
    return tool


def _without_deferral(entry: Entry) -> Entry:
    function = dict_or_empty(entry.get("function"))
    if _DEFER_FIELD not in entry and _DEFER_FIELD not in function:
        return entry
    sent: dict[str, Any] = {name: value for name, value in entry.items() if name != _DEFER_FIELD}
    if _DEFER_FIELD in function:
        sent["function"] = {name: value for name, value in function.items() if name != _DEFER_FIELD}
    return sent
