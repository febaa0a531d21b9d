"""Token usage: how it is read, added up, limited and traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette

from tests.gateway.llm.anthropic.requests import BM25, HARBOUR
from tests.gateway.llm.serving import running_llm_gateway
from tests.gateway.llm.serving_openai import chat_functions, functions
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.config.settings import ApiKey, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.auth import Principal
from toolcrib.gateway.llm import tracing
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.search_loop import sum_usage
from toolcrib.gateway.llm.usage import TokenCounts, UsageMeter, UsageReader, parse_usage
from toolcrib.storage import open_store
from toolcrib.storage.llm_usage import LlmUsage


def test_usage_is_added_at_any_depth() -> None:
    rewriter = {"input": 3, "details": {"cached": 1}, "tier": "a", "only": 1}
    other = {"input": 4, "details": {"cached": 2, "new": 5}, "tier": "b", "nothing": None}
    assert sum_usage(rewriter, other) == {
        "input": 7,
        "details": {"cached": 3, "new": 5},
        "tier": "b",
        "only": 1,
        "nothing": None,
    }
    assert sum_usage(None, {"input": 1}) == {"input": 1}
    assert sum_usage({"input": 1}, None) == {"input": 1}
    assert sum_usage(True, True) is True


@pytest.mark.parametrize(
    ("report", "counts"),
    [
        (
            {"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 10, "output_tokens": 3},
            (105, 3, 90),
        ),
        ({"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 90}}, (100, 3, 90)),
        ({"input_tokens": 100, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 90}}, (100, 3, 90)),
        (
            {
                "promptTokenCount": 100,
                "candidatesTokenCount": 2,
                "thoughtsTokenCount": 1,
                "cachedContentTokenCount": 90,
            },
            (100, 3, 90),
        ),
        ({"input_tokens": "many", "output_tokens": -5, "input_tokens_details": [1]}, (0, 0, 0)),
        ({"input_tokens": 10**30, "output_tokens": True}, (10**12, 0, 0)),
        (None, (0, 0, 0)),
    ],
)
def test_usage_of_every_api_is_read_alike(report: object, counts: tuple[int, int, int]) -> None:
    assert parse_usage(report) == counts


def test_stream_without_usage_is_estimated() -> None:
    reader = UsageReader()
    reader.read_events(b'data: {"usage": null}\n\ndata: {"usage": {broken\n\n')
    assert reader.count_tokens(400) == TokenCounts(100, 2)


def answer(request: Request) -> Turn:
    """Search once if the request has a search tool."""
    name = next((name for name in request.tool_names if "search" in name), None)
    if name is None or request.results:
        return Turn("Hi.")
    return Turn(ToolCall(name, {"query": "tide or letter"}))


class WithPrincipal(Starlette):
    """An application whose requests come from the key `ann`."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["principal"] = Principal("ann", key_hash="x")
        await super().__call__(scope, receive, send)


@contextmanager
def metered_gateway(monkeypatch: pytest.MonkeyPatch, meter: UsageMeter, **budget: Any) -> Iterator[str]:
    monkeypatch.setattr("tests.gateway.llm.serving.Starlette", WithPrincipal)
    with ScriptedModel(answer) as model:
        upstreams = (
            LlmUpstreamConfig("sea", api="messages", url=model.url, search="exact"),
            LlmUpstreamConfig("land", api="openai", url=model.url),
        )
        gateway = LlmGateway(
            LlmGatewayConfig(upstreams, threshold_tools=2),
            get_keys=lambda: (ApiKey("x", name="ann", **budget),),
            meter=meter,
        )
        with running_llm_gateway(gateway) as served:
            yield served.url


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_of_forwarded_and_searched_requests_are_stored_and_traced(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    store = open_store("sqlite://")
    meter = UsageMeter(store)
    question: Any = [{"role": "user", "content": "Hi"}]
    with metered_gateway(monkeypatch, meter) as url:
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
            for model, tools in (("plain", anthropic.omit), ("searched", [BM25, *HARBOUR])):
                options: Any = {"model": model, "max_tokens": 9, "messages": question, "tools": tools}
                if stream:
                    with client.messages.stream(**options) as events:
                        events.until_done()
                else:
                    client.messages.create(**options)
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as other:
            asked: Any = {"model": "chat", "messages": question, "tools": chat_functions(), "stream": stream}
            if stream:
                asked["stream_options"] = {"include_usage": True}
            list(other.chat.completions.create(**asked))
            request: Any = {"model": "responses", "input": "Hi", "stream": stream}
            list(other.responses.create(**request))
            list(other.responses.create(**{**request, "tools": functions()}))
    meter.flush()
    rows = {row.model: row for row in store.list_llm_usage()}
    store.close()
    assert {model: row.requests for model, row in rows.items()} == {
        "plain": 1,
        "searched": 1,
        "chat": 1,
        "responses": 2,
    }
    assert all(row.key == "ann" and row.input_tokens > 0 and row.output_tokens > 0 for row in rows.values())
    assert rows["searched"].saved_tokens > 0 and rows["plain"].saved_tokens == 0
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == [
        "chat plain",
        "chat searched",
        "chat chat",
        "chat responses",
        "chat responses",
    ]
    attributes = dict(spans[0].attributes or {})
    assert attributes["gen_ai.provider.name"] == "anthropic" and attributes["gen_ai.request.model"] == "plain"
    assert attributes["gen_ai.usage.input_tokens"] == rows["plain"].input_tokens
    assert attributes["http.response.status_code"] == 200


@pytest.mark.parametrize("budget", [{"requests_per_day": 1}, {"tokens_per_day": 1}])
def test_key_over_its_budget_gets_a_clear_error(budget: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("sqlite://")
    with metered_gateway(monkeypatch, UsageMeter(store), **budget) as url:
        # The official client does not repeat the request.
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=3) as client:
            client.responses.create(model="m", input="Hi")
            with pytest.raises(openai.RateLimitError, match=r"'ann' has used \d+ of its 1 .* at 00:00 UTC") as raised:
                client.responses.create(model="m", input="Hi")
            with pytest.raises(openai.RateLimitError):
                client.embeddings.create(model="m", input="Hi")
        assert int(raised.value.response.headers["retry-after"]) <= 86_400
        assert raised.value.code == "budget_exceeded"
        with (
            anthropic.Anthropic(base_url=url, api_key="k", max_retries=3) as other,
            pytest.raises(anthropic.RateLimitError),
        ):
            other.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    store.close()


def test_usage_of_earlier_runs_counts_for_the_budget_of_today_only() -> None:
    store = open_store("sqlite://")
    meter = UsageMeter(store)
    meter.record("ann", "m", TokenCounts(10, 5))
    meter.flush()
    store.add_llm_usage([LlmUsage("2020-01-01", "bob", "m", 1, 1000, 1000)])
    restarted = UsageMeter(store)
    restarted.check_budget("ann", ApiKey("x", tokens_per_day=16))
    restarted.check_budget("bob", ApiKey("x", tokens_per_day=1))
    with pytest.raises(Exception, match="15 of its 15 tokens"):
        restarted.check_budget("ann", ApiKey("x", tokens_per_day=15))
    store.close()
