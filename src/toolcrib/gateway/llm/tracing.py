"""OpenTelemetry spans for LLM requests, with the attributes of the GenAI conventions.

Only the API of OpenTelemetry is used. Spans go where the process is configured to send them, for
example with `opentelemetry-instrument toolcrib serve`; without a configuration they cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from toolcrib.config.settings import LlmApi, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.http_messages import HeaderList
from toolcrib.gateway.llm.usage import TokenCounts

_PROVIDERS: Final[Mapping[LlmApi, str]] = {"messages": "anthropic", "openai": "openai", "chat": "openai"}
_tracer = trace.get_tracer("toolcrib.gateway.llm")


@contextmanager
def trace_request(upstream: LlmUpstreamConfig, model: str, client_headers: HeaderList) -> Iterator[Span]:
    """Trace a request to a model, as a child of the client's span if it has sent one."""
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
