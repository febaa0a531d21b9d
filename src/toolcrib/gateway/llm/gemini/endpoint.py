"""`/v1beta/models/{model}` with `:generateContent`, `:streamGenerateContent` and `:countTokens`.

Other paths are forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, quote

from toolcrib.adapters.gemini import name_fields, tools_from_wire
from toolcrib.adapters.plain_json import dict_or_empty
from toolcrib.core.tool import Tool
from toolcrib.errors import RequestFailed, ToolcribError
from toolcrib.gateway.llm.endpoint import HttpExchange, Treatment, check_profile_rights
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.gemini.rewriter import GeminiRewriter, list_declarations
from toolcrib.gateway.llm.gemini.stream import GeminiStream
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.models import list_models
from toolcrib.gateway.llm.request import LlmRequest
from toolcrib.gateway.llm.search_loop import answer_request, build_response_headers
from toolcrib.gateway.llm.sse import JsonArrayEncoder
from toolcrib.gateway.llm.tools.tool_index import ToolIndex, build_exposed_index
from toolcrib.gateway.llm.translation.response import GEMINI_PATH

GENERATE: Final = "generateContent"
STREAM: Final = "streamGenerateContent"
COUNT: Final = "countTokens"

# Paths below that of a model are operations, which belong to one upstream.
_MODEL_LIST_PATH: Final = re.compile(r"/v1(?:beta|alpha)?/models(?:/(?!.*/operations\b).*)?")
_COUNTED_REQUEST: Final = "generateContentRequest"


async def handle_gemini(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Answer a request to a path of the Gemini API."""
    if exchange.method == "GET" and _MODEL_LIST_PATH.fullmatch(exchange.path):
        await list_models(gateway, exchange)
        return
    match = GEMINI_PATH.fullmatch(exchange.path)
    if match is None or exchange.method != "POST":
        upstreams = [upstream for upstream in gateway.settings.upstreams if upstream.api == "gemini"]
        if not upstreams:
            raise RequestFailed('no upstream has the Gemini API; add one with "api": "gemini" to `models`', 404)
        upstream = gateway.choose_upstream(exchange, upstreams)
        check_profile_rights(exchange, upstream)
        await gateway.forward(exchange, upstream)
        return
    prefix, model, method = match.groups()
    exchange.model = exchange.model or model
    route = gateway.upstreams.find_route("gemini", exchange.model, exchange.failed_models)
    query = _select_events(exchange, method)
    is_replaced = route.model != model or query != exchange.query
    target = f"{prefix}{quote(route.model, safe='')}:{method}{'?' if query else ''}{query}"
    exchange.replaced_target = target if is_replaced else ""
    if method == COUNT:
        await _count_tokens(gateway, exchange)
        return
    if method not in (GENERATE, STREAM):
        check_profile_rights(exchange, route.upstream)
        await gateway.forward(exchange, route.upstream)
        return
    request = await gateway.read_request(exchange, "gemini")
    index = await _get_index(gateway, request)
    if index is None or index.plan.style == "all":
        treatment: Treatment = "native" if request.switch == "native" else "off"
        await gateway.forward_request(request, treatment, plan=index.plan if index else None)
        return
    rewriter = await gateway.build_rewriter(request, index, GeminiRewriter)
    await answer_request(gateway, request, rewriter, GeminiStream(rewriter))


def _select_events(exchange: HttpExchange, method: str) -> str:
    """Return the query that asks the upstream for events; a client that has not asked for them gets a JSON array."""
    if method != STREAM or parse_qs(exchange.query).get("alt") == ["sse"]:
        return exchange.query
    exchange.array_encoder = JsonArrayEncoder()
    kept = [parameter for parameter in exchange.query.split("&") if parameter and not parameter.startswith("alt=")]
    return "&".join([*kept, "alt=sse"])


async def _count_tokens(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """Count the tokens of the request that the model would be sent."""
    counted = await gateway.read_request(exchange, "gemini")
    # Vertex AI has the fields of the counted request at the top level, the Gemini API in an object.
    inner = dict_or_empty(counted.body.get(_COUNTED_REQUEST))
    request = replace(counted, body=inner or counted.body)
    index = await _get_index(gateway, request)
    if index is None or index.plan.style == "all":
        if inner:
            exchange.body = _wrap_counted(counted, inner)
        await gateway.forward(exchange, counted.upstream)
        return
    rewriter = await gateway.build_rewriter(request, index, GeminiRewriter)
    body = rewriter.next_request()
    response = await gateway.send_request(request, _wrap_counted(counted, body) if inner else serialize_json(body))
    headers = [*response.forwarded_headers(), *build_response_headers(request, rewriter).render()]
    await exchange.send_response(response.status, headers, await response.read())


def _wrap_counted(counted: LlmRequest, body: Mapping[str, Any]) -> bytes:
    """Return the body that counts the tokens of a request for the model of the upstream."""
    return serialize_json({**counted.body, _COUNTED_REQUEST: {**body, "model": f"models/{counted.model}"}})


async def _get_index(gateway: LlmGateway, request: LlmRequest) -> ToolIndex | None:
    """Return the index of a request, or None if it is forwarded."""
    body, declarations = name_fields(request.body), list_declarations(request.body)
    calling = name_fields(name_fields(body.get("toolConfig")).get("functionCallingConfig"))
    if (
        request.switch in ("off", "native")
        or not declarations
        or calling.get("allowedFunctionNames")
        or name_fields(body.get("generationConfig")).get("candidateCount") not in (None, 1)
        or not isinstance(body.get("contents"), list)
        or not request.is_well_formed("contents")
    ):
        return None
    gateway.check_tool_count(request, len(declarations))
    exposure = gateway.exposure_for(request)
    parsed = ((each, each, _parse_tool(each)) for each in declarations)
    build = partial(build_exposed_index, parsed, exposure)
    return await gateway.get_tool_index(declarations, build, "gemini", exposure)


def _parse_tool(declaration: Mapping[str, Any]) -> Tool | None:
    try:
        (tool,) = tools_from_wire({"functionDeclarations": [dict(declaration)]})
    except (ToolcribError, ValueError):
        return None
    return tool
