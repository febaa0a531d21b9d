"""`/v1/models`: what there is to be asked, over all upstreams of an API.

A client's key goes only to an upstream that it can be meant for: the one that has the model that is
named, or the only one without a key of its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.config.settings import LlmApi, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.response_headers import ResponseHeaders
from toolcrib.gateway.llm.upstreams import CREDENTIAL_HEADERS, build_upstream_headers

# Nobody waits longer for one upstream's list when others have answered.
LIST_TIMEOUT_SECONDS: Final = 20.0
MODELS_PATH: Final = "/v1/models"

_log = logging.getLogger(__name__)


async def handle_models(gateway: LlmGateway, exchange: HttpExchange) -> None:
    """The models there are, or what is known of one."""
    known = _upstreams_of_client_api(gateway, exchange)
    upstream = gateway.find_named_upstream(exchange, known)
    model = exchange.path.removeprefix(MODELS_PATH).strip("/")
    if upstream is None and len(known) == 1:
        upstream = known[0]
    if upstream is None and model:
        upstream = gateway.upstreams.match_model(known[0].api, model)
    if upstream is not None:
        await gateway.forward(exchange, upstream, ResponseHeaders(upstream.name, "off"))
        return
    listed = await asyncio.gather(*(_fetch_models(gateway, exchange, one, known) for one in known))
    told = [one for one in listed if one is not None]
    if not told:
        names = ", ".join(repr(one.name) for one in known)
        raise RequestFailed(
            f"none of the upstreams {names} has told its models; give each a `key` in the "
            "configuration, or name one in the header x-toolcrib-upstream",
            502,
        )
    entries = [entry for some in told for entry in some]
    body = serialize_json(_render_model_list(known[0].api, entries))
    await exchange.send_response(200, [("content-type", "application/json")], body)


def _upstreams_of_client_api(
    gateway: LlmGateway, exchange: HttpExchange
) -> list[LlmUpstreamConfig]:
    """The upstreams of the API in which the client asks; all those of the first, if there is none."""
    api: LlmApi = "messages" if exchange.get_header("anthropic-version") else "openai"
    known = list(gateway.settings.upstreams)
    if not known:
        raise RequestFailed("no upstream is configured; add one to `models`", 404)
    asked = [one for one in known if one.api == api]
    return asked or [one for one in known if one.api == known[0].api]


async def _fetch_models(
    gateway: LlmGateway,
    exchange: HttpExchange,
    upstream: LlmUpstreamConfig,
    known: list[LlmUpstreamConfig],
) -> list[dict[str, Any]] | None:
    """The models that are asked for at an upstream; None if it does not tell them."""
    sent = exchange.headers
    if sum(not one.key for one in known) > 1:
        # Whose the client's key is, nobody can tell.
        sent = [(name, value) for name, value in sent if name not in CREDENTIAL_HEADERS]
    target = f"{MODELS_PATH}?limit=1000" if upstream.api == "messages" else MODELS_PATH
    try:
        async with asyncio.timeout(LIST_TIMEOUT_SECONDS):
            headers = build_upstream_headers(upstream, sent)
            reply = await gateway.upstreams.send(upstream, "GET", target, headers)
            body = await reply.read()
        if not reply.is_success:
            raise RequestFailed(f"status {reply.status}", reply.status)
        entries = dicts_or_empty((await gateway.parse_upstream_body(body)).get("data"))
    except (RequestFailed, TimeoutError) as fault:
        _log.warning("upstream %s does not tell its models: %s", upstream.name, fault or "silent")
        return None
    return [one for one in entries if _is_routed_to(gateway, upstream, str_or_empty(one.get("id")))]


def _is_routed_to(gateway: LlmGateway, upstream: LlmUpstreamConfig, model: str) -> bool:
    """Whether requests for a model come to this upstream."""
    try:
        return bool(model) and gateway.upstreams.match_model(upstream.api, model) is upstream
    except RequestFailed:
        return False


def _render_model_list(api: LlmApi, entries: list[dict[str, Any]]) -> dict[str, Any]:
    if api == "openai":
        return {"object": "list", "data": entries}
    ids = [entry["id"] for entry in entries]
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return {"data": entries, "has_more": False, **ends}
