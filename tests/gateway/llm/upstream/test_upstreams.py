"""How the gateway chooses an upstream, and what it does when one fails."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import Turn
from toolcrib.config.parser import parse_config
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.models import check_upstreams
from toolcrib.gateway.llm.upstream.upstreams import adapt_target, build_upstream_headers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("api", "path"), [("messages", "/v1/messages"), ("openai", "/v1/chat/completions"), ("openai", "/v1/responses")]
)
def test_redirect_of_an_upstream_is_an_error_without_the_foreign_address(api: LlmApi, path: str, status: int) -> None:
    redirect = ScriptedAnswer(status=status, headers={"Location": "http://evil.invalid/v1/messages"}, length=0)
    with raw_upstream(redirect) as upstream:
        one = LlmUpstreamConfig("mine", api=api, url=upstream.url)
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}
            response = httpx2.post(f"{served.url}{path}", json=body)
    assert response.status_code == 502
    assert "location" not in response.headers and "evil" not in response.text
    message = response.json()["error"]["message"]
    assert "'mine'" in message and str(status) in message and "`url`" in message


def parse_models(**models: Any) -> LlmGatewayConfig:
    return parse_config({"models": models}, {}).llm_gateway


@contextmanager
def gateway_for(models: dict[str, Any]) -> Iterator[str]:
    with running_llm_gateway(LlmGateway(parse_models(**models))) as served:
        yield served.url


def closed_port() -> str:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


def error_answer(status: int, **headers: str) -> ScriptedAnswer:
    return ScriptedAnswer((b'{"error": {"message": "no"}}',), status, "application/json", 28, headers)


def json_answer(body: dict[str, Any]) -> ScriptedAnswer:
    data = json.dumps(body).encode()
    return ScriptedAnswer((data,), content_type="application/json", length=len(data))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [429, 500, 529, 0])
def test_alias_falls_back_to_the_next_model_before_the_first_byte(status: int, stream: bool) -> None:
    with raw_upstream(always=error_answer(status)) as failing, ScriptedModel(lambda request: Turn("Hello")) as model:
        models = {
            "first": {"url": failing.url if status else closed_port(), "retries": 0},
            "second": {"url": model.url},
            "fast": ["first/small", "second/large"],
        }
        with (
            gateway_for(models) as url,
            anthropic.Anthropic(base_url=url, api_key="the-key-for-the-first", max_retries=0) as client,
        ):
            options: Any = {"model": "fast", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
            if stream:
                with client.messages.stream(**options) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**options)
            assert [block.text for block in message.content if block.type == "text"] == ["Hello"]
            assert [request.body["model"] for request in model.requests] == ["large"]
            assert [body["model"] for body in failing.bodies] == ["small"] * bool(status)
            # The client's key is for the first upstream only.
            assert "x-api-key" not in model.requests[0].headers


def test_error_of_the_last_model_of_an_alias_reaches_the_client() -> None:
    with raw_upstream(always=error_answer(503)) as failing:
        models = {"one": {"api": "openai", "url": failing.url}, "fast": ["one/a", "one/b"]}
        with gateway_for(models) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            with pytest.raises(openai.InternalServerError) as raised:
                client.chat.completions.create(model="fast", messages=[{"role": "user", "content": "Hi"}])
            assert raised.value.status_code == 503
        assert [body["model"] for body in failing.bodies] == ["a", "b"]


def test_aliases_are_listed_and_unusable_ones_are_explained() -> None:
    with raw_upstream(always=json_answer({"data": [{"id": "gpt-5"}]})) as upstream:
        models = {
            "mine": {"api": "openai", "url": upstream.url},
            "sea": {"url": upstream.url},
            "fast": "mine/gpt-5",
            "deep": "sea/claude",
        }
        with gateway_for(models) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            assert [model.id for model in client.models.list()] == ["fast", "gpt-5"]
            assert client.models.retrieve("fast").owned_by == "toolcrib"
            refused = httpx2.post(f"{url}/v1/chat/completions", json={"model": "deep", "messages": []})
            assert refused.status_code == 404 and "alias 'deep'" in refused.json()["error"]["message"]


@pytest.mark.parametrize("status", [401, 429])
def test_next_key_of_an_upstream_is_used_while_one_is_refused(status: int) -> None:
    answer = json_answer({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []})
    with raw_upstream(error_answer(status), always=answer) as upstream:
        models = {"mine": {"api": "openai", "url": upstream.url, "keys": ["key-one", "key-two"]}}
        with gateway_for(models) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            for _ in range(2):
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
        keys = [headers["authorization"] for headers in upstream.headers]
        assert keys == ["Bearer key-one", "Bearer key-two", "Bearer key-two"]


def test_other_paths_are_forwarded_unchanged() -> None:
    embedding = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m"}
    batches = {"data": [], "has_more": False, "first_id": None, "last_id": None}
    answers = (json_answer({**embedding, "usage": {"prompt_tokens": 1, "total_tokens": 1}}), json_answer(batches))
    with raw_upstream(*answers, always=json_answer({"data": [], "object": "list"})) as upstream:
        models = {"land": {"api": "openai", "url": upstream.url}, "sea": {"url": upstream.url}, "small": "land/e-5"}
        with gateway_for(models) as url:
            with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
                made = client.embeddings.create(model="small", input="Hi", encoding_format="float")
                assert made.data[0].embedding == [0.5]
                with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as other:
                    assert other.messages.batches.list().data == []
                assert client.files.list().data == []
            assert httpx2.get(f"{url}/v1/messages").status_code == 405
        assert upstream.bodies[0]["model"] == "e-5"
        assert upstream.paths == ["POST /v1/embeddings", "GET /v1/messages/batches", "GET /v1/files"]


def test_request_without_a_model_and_with_several_upstreams_needs_a_header() -> None:
    with raw_upstream(always=json_answer({"data": []})) as upstream:
        models = {name: {"api": "openai", "url": upstream.url} for name in ("one", "two")}
        with gateway_for(models) as url:
            refused = httpx2.get(f"{url}/v1/files")
            assert refused.status_code == 404 and "x-toolcrib-upstream: one, two" in refused.text
            assert httpx2.get(f"{url}/v1/files", headers={"x-toolcrib-upstream": "two"}).status_code == 200


def test_deployment_of_azure_is_the_model_of_other_paths() -> None:
    with raw_upstream(always=json_answer({"data": []})) as upstream:
        with gateway_for({"mine": {"api": "openai", "url": upstream.url}}) as url:
            path = "/openai/deployments/small/embeddings?api-version=2024-10-21"
            assert httpx2.post(f"{url}{path}", json={"input": "Hi"}).status_code == 200
        assert upstream.bodies == [{"input": "Hi", "model": "small"}]
        assert upstream.paths == ["POST /v1/embeddings"]


def test_azure_client_uses_a_deployment_as_the_model() -> None:
    with ScriptedModel(lambda request: Turn("Hello")) as model:
        models = {"mine": {"api": "openai", "url": model.url, "key": "own-key", "models": ["gpt*"]}}
        with (
            gateway_for(models) as url,
            openai.AzureOpenAI(azure_endpoint=url, api_version="2024-10-21", api_key="theirs", max_retries=0) as client,
        ):
            made = client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "Hi"}])
            assert made.choices[0].message.content == "Hello"
            response = client.responses.create(model="gpt-5", input="Hi")
            assert response.output_text == "Hello"
        assert [request.path for request in model.requests] == ["/v1/chat/completions", "/v1/responses"]
        assert [request.body["model"] for request in model.requests] == ["gpt-5", "gpt-5"]
        assert all(request.headers["api-key"] == "own-key" for request in model.requests)


@pytest.mark.parametrize(
    ("url", "target", "sent"),
    [
        ("https://mine.openai.azure.com", "/v1/chat/completions", "/openai/v1/chat/completions"),
        ("https://mine.openai.azure.com/openai/v1/", "/v1/responses", "/openai/v1/responses"),
        ("https://api.openai.com/v1", "/v1/responses", "/v1/responses"),
    ],
)
def test_azure_upstream_gets_its_own_paths_and_key_header(url: str, target: str, sent: str) -> None:
    (upstream,) = parse_models(mine={"api": "openai", "url": url, "key": "k"}).upstreams
    assert adapt_target(upstream, target) == sent
    header = "api-key" if "azure" in url else "authorization"
    assert header in dict(build_upstream_headers(upstream, [("authorization", "Bearer theirs")], key="k"))


@pytest.mark.parametrize("query", ["", "?alt=sse"])
def test_key_of_a_gemini_client_in_the_query_is_not_forwarded_with_the_key_of_the_upstream(query: str) -> None:
    path = "/v1beta/models/gemini-3-pro:generateContent"
    keyed = LlmUpstreamConfig("google", api="gemini", url="https://a", key="own")
    target = f"{path}{query}{'&' if query else '?'}key=theirs"
    assert adapt_target(keyed, target) == f"{path}{query}"
    assert adapt_target(LlmUpstreamConfig("google", api="gemini", url="https://a"), target) == target


def test_changed_settings_apply_to_the_next_request() -> None:
    with ScriptedModel(lambda request: Turn("Hello")) as model:
        settings = [parse_models()]
        with (
            running_llm_gateway(LlmGateway(lambda: settings[-1])) as served,
            openai.OpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=0) as client,
        ):
            ask: Any = {"model": "fast", "messages": [{"role": "user", "content": "Hi"}]}
            with pytest.raises(openai.NotFoundError):
                client.chat.completions.create(**ask)
            settings.append(parse_models(mine={"api": "openai", "url": model.url}, fast="mine/qwen3"))
            assert client.chat.completions.create(**ask).choices[0].message.content == "Hello"
            assert model.requests[0].body["model"] == "qwen3"


def test_doctor_finds_upstreams_that_cannot_be_used() -> None:
    page = ScriptedAnswer((b"<html>",), content_type="text/html", length=6)
    with raw_upstream(always=error_answer(401)) as refusing, raw_upstream(always=page) as website:
        config = parse_models(
            gone={"url": closed_port(), "retries": 0},
            expired={"api": "openai", "url": refusing.url, "keys": ["key-one", "key-two"]},
            keyless={"api": "openai", "url": refusing.url},
            page={"api": "gemini", "url": website.url},
        )
        found = asyncio.run(check_upstreams(config))
    assert [(finding.server, finding.severity) for finding in found] == [
        ("gone", "error"),
        ("expired", "error"),
        ("expired", "error"),
        ("page", "error"),
    ]
    assert "cannot be reached" in found[0].problem
    assert found[2].problem == "it refuses its key 2 with status 401"
    assert not any("key-" in finding.problem for finding in found)
