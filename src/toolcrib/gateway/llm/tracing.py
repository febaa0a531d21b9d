"""Records of LLM requests: OpenTelemetry spans, and audit rows with the tools that went upstream.

The spans have the attributes of the GenAI conventions. Only the API of OpenTelemetry is used. Spans go where the process
is configured to send them, for example with `opentelemetry-instrument toolcrib serve`; without a configuration they
cost nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty
from toolcrib.config.settings import LlmApi, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import HttpExchange, ResponseHeaders
from toolcrib.gateway.llm.upstream.http_messages import HeaderList
from toolcrib.gateway.llm.usage import TokenCounts
from toolcrib.gateway.logs import request_id
from toolcrib.storage.audit import AuditRow

MAX_RECORDED_TOOLS: Final = 100
_MAX_FIRST_MESSAGE_CHARS: Final = 4_000

_PROVIDERS: Final[Mapping[LlmApi, str]] = {
    "messages": "anthropic",
    "openai": "openai",
    "chat": "openai",
    "gemini": "gcp.gemini",
}
_tracer = trace.get_tracer("toolcrib.gateway.llm")


@contextmanager
def trace_request(upstream: LlmUpstreamConfig, model: str, client_headers: HeaderList) -> Iterator[Span]:
    """Trace a request to a model, as a child of the client's span if it has sent one."""
    if isinstance(_tracer, trace.ProxyTracer) and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        # OpenTelemetry is not configured, and an empty span would cost more than parsing the request.
        yield trace.INVALID_SPAN
        return
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS[upstream.api],
        "gen_ai.request.model": model,
        "toolcrib.upstream": upstream.name,
    }
    parent = propagate.extract(dict(client_headers))
    with _tracer.start_as_current_span(
        f"chat {model}", parent, SpanKind.CLIENT, attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except RequestFailed as error:
            # Messages can contain parts of the conversation.
            span.set_attribute("error.type", str(error.status))
            span.set_status(Status(StatusCode.ERROR))
            raise


def describe_response(span: Span, status: int, counts: TokenCounts, saved_tokens: int) -> None:
    """Add the result of a request to its span."""
    if not span.is_recording():
        return
    span.set_attributes(
        {
            "gen_ai.usage.input_tokens": counts.input,
            "gen_ai.usage.output_tokens": counts.output,
            "gen_ai.usage.cache_read.input_tokens": counts.cached,
            "toolcrib.saved_tokens": saved_tokens,
            "http.response.status_code": status,
        }
    )
    if status >= 400:
        span.set_attribute("error.type", str(status))
        span.set_status(Status(StatusCode.ERROR))


@dataclass(slots=True)
class RequestMeasurement:
    """What is known of a request at its end."""

    counts: TokenCounts = field(default_factory=TokenCounts)
    searches: int = 0
    # The ids of the tools that searches have found, also in earlier requests.
    found_tools: list[str] = field(default_factory=list)
    error: str = ""
    started: float = field(default_factory=time.perf_counter)


def list_tools(tools: object) -> list[dict[str, Any]]:
    """Return the tools of a request of any API, one by one; Gemini has several functions in one tool."""
    return [
        each for tool in dicts_or_empty(tools) for each in (dicts_or_empty(tool.get("functionDeclarations")) or [tool])
    ]


def _name_tool(tool: Mapping[str, Any]) -> str:
    """Return the name of a tool; a tool of the provider has only a type, or is named by its only field."""
    name = tool.get("name") or dict_or_empty(tool.get("function")).get("name") or tool.get("type")
    return str(name or next(iter(tool), ""))


def find_conversation(exchange: HttpExchange, body: Mapping[str, Any]) -> str:
    """Return a digest that the turns of a conversation share.

    Clients name a conversation in different fields. Without a name, its first message identifies it.
    """
    named = (
        dict_or_empty(body.get("metadata")).get("user_id")
        or body.get("prompt_cache_key")
        or body.get("conversation")
        or exchange.get_header("session_id")
    )
    return hashlib.sha256(
        json.dumps([exchange.principal.name, named or _find_first_message(body)]).encode()
    ).hexdigest()[:16]


def _find_first_message(body: Mapping[str, Any]) -> str:
    messages = body.get("messages") or body.get("input") or body.get("contents")
    if isinstance(messages, str):
        return messages[:_MAX_FIRST_MESSAGE_CHARS]
    user = (message for message in dicts_or_empty(messages) if message.get("role") == "user")
    content = dict_or_empty(next(user, None))
    text = content.get("content") or content.get("parts")
    # Clients move the cache breakpoints of a prompt, so only the texts of the blocks are compared.
    blocks = [block.get("text") for block in dicts_or_empty(text)] if isinstance(text, list) else text
    return json.dumps(blocks)[:_MAX_FIRST_MESSAGE_CHARS]


def build_turn_row(
    exchange: HttpExchange, body: Mapping[str, Any], headers: ResponseHeaders, measurement: RequestMeasurement
) -> AuditRow:
    """Return the audit row of a request that has ended."""
    principal, counts = exchange.principal, measurement.counts
    failed = bool(measurement.error) or exchange.status >= 400
    agent = exchange.get_header("user-agent").split(" ")[0].partition("/")[0]
    sent = list_tools(exchange.sent_tools)
    details: dict[str, Any] = {
        "treatment": headers.treatment,
        "status": exchange.status,
        "tools_total": headers.tool_count or len(list_tools(body.get("tools"))),
        "tools_count": len(sent),
        "tools_sent": list(map(_name_tool, sent[:MAX_RECORDED_TOOLS])),
        "tools_found": measurement.found_tools[:MAX_RECORDED_TOOLS],
        "tokens_in": counts.input,
        "tokens_out": counts.output,
        "tokens_cached": counts.cached,
        "tokens_held_back": max(headers.saved_tokens, 0),
        "searches": measurement.searches,
    }
    if measurement.error:
        details["error"] = measurement.error
    if headers.plan is not None:
        details["reason"] = headers.plan.reason
    return AuditRow(
        "llm",
        "error" if failed else "ok",
        time.time(),
        key=principal.name if principal.key_hash else "",
        profile=principal.profile or "",
        client=agent[:80],
        session=find_conversation(exchange, body),
        server=headers.upstream,
        tool=(exchange.model or str(body.get("model", "")))[:200],
        seconds=round(time.perf_counter() - measurement.started, 6),
        request_bytes=len(exchange.body),
        request_id=request_id.get(),
        details=details,
    )
