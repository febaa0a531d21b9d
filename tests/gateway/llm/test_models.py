"""The list of models in the formats of all APIs, read by the official clients."""

from __future__ import annotations

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types

from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.upstream.test_upstreams import closed_port, gateway_for, json_answer

CHAT_LIST = json_answer({"object": "list", "data": [{"id": "qwen3"}, {"id": "org/coder:8b"}]})
GOOGLE_LIST = json_answer({"models": [{"name": "models/gemini-3-pro", "inputTokenLimit": 9}, {"name": "models/old"}]})


def google_client(url: str, version: str = "v1beta") -> genai.Client:
    options = types.HttpOptions(
        base_url=url, api_version=version, retry_options=types.HttpRetryOptions(attempts=1), timeout=30_000
    )
    return genai.Client(api_key="theirs", http_options=options, vertexai=False)


@pytest.mark.parametrize("version", ["v1beta", "v1"])
def test_google_client_lists_models_of_upstream_with_chat_completions(version: str) -> None:
    with raw_upstream(always=CHAT_LIST) as upstream:
        models = {"local": {"api": "chat", "url": upstream.url}, "fast": "local/qwen3"}
        with gateway_for(models) as url:
            client = google_client(url, version)
            listed = list(client.models.list())
            found = client.models.get(model="org/coder:8b")
            alias = client.models.get(model="fast")
            with pytest.raises(errors.ClientError, match="no upstream lists the model 'lost'") as raised:
                client.models.get(model="lost")
    assert [model.name for model in listed] == ["models/fast", "models/qwen3", "models/org/coder:8b"]
    assert listed[1].supported_actions == ["generateContent"]
    assert (found.name, found.display_name, alias.name) == ("models/org/coder:8b", "org/coder:8b", "models/fast")
    assert raised.value.code == 404
    assert set(upstream.paths) == {"GET /v1/models"}
    assert {headers.get("authorization") for headers in upstream.headers} == {"Bearer theirs"}
    assert not any(name.startswith("x-goog-") for headers in upstream.headers for name in headers)


def test_google_client_lists_models_of_several_upstreams() -> None:
    with raw_upstream(always=GOOGLE_LIST) as google, raw_upstream(always=CHAT_LIST) as local:
        models = {
            "gemini": {"url": google.url, "key": "own", "models": ["gemini-*"]},
            "local": {"api": "chat", "url": local.url, "key": "own"},
        }
        with gateway_for(models) as url:
            client = google_client(url)
            listed = list(client.models.list())
            assert client.models.get(model="qwen3").name == "models/qwen3"
    # The model `old` of Google would be sent to the other upstream.
    assert [model.name for model in listed] == ["models/gemini-3-pro", "models/qwen3", "models/org/coder:8b"]
    assert listed[0].input_token_limit == 9
    assert google.paths == ["GET /v1beta/models?pageSize=1000"]


def test_google_client_reads_the_list_of_its_only_upstream_unchanged() -> None:
    answer = json_answer({"models": [{"name": "models/gemini-3-pro", "topK": 7}], "nextPageToken": ""})
    with raw_upstream(always=answer) as google, gateway_for({"gemini": {"url": google.url, "models": ["*"]}}) as url:
        client = google_client(url)
        (model,) = client.models.list(config={"page_size": 5})
    assert (model.name, model.top_k) == ("models/gemini-3-pro", 7)
    assert google.paths == ["GET /v1beta/models?pageSize=5"]


def test_anthropic_client_lists_models_of_upstream_with_chat_completions() -> None:
    with (
        raw_upstream(always=CHAT_LIST) as upstream,
        gateway_for({"local": {"api": "chat", "url": upstream.url}}) as url,
        anthropic.Anthropic(base_url=url, api_key="theirs", max_retries=0) as client,
    ):
        listed = [(model.id, model.type, model.display_name) for model in client.models.list()]
        assert client.models.retrieve("qwen3").display_name == "qwen3"
    assert listed == [("qwen3", "model", "qwen3"), ("org/coder:8b", "model", "org/coder:8b")]
    assert upstream.headers[0]["authorization"] == "Bearer theirs" and "x-api-key" not in upstream.headers[0]


def test_openai_client_gets_the_description_of_the_upstream() -> None:
    answer = json_answer({"id": "qwen3", "object": "model", "created": 5, "owned_by": "me"})
    with (
        raw_upstream(always=answer) as upstream,
        gateway_for({"local": {"api": "chat", "url": upstream.url}}) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="theirs", max_retries=0) as client,
    ):
        assert client.models.retrieve("qwen3").owned_by == "me"


def test_unreachable_upstream_is_named_in_the_format_of_the_client() -> None:
    with gateway_for({"local": {"api": "chat", "url": closed_port(), "retries": 0}}) as url:
        client = google_client(url)
        with pytest.raises(errors.ServerError, match="'local' listed its models") as raised:
            list(client.models.list())
    assert (raised.value.code, raised.value.status) == (502, "INTERNAL")


def test_operations_of_a_model_are_forwarded() -> None:
    answer = ScriptedAnswer((b'{"name": "x"}',), content_type="application/json", length=13)
    with raw_upstream(always=answer) as google, gateway_for({"gemini": {"url": google.url, "models": ["*"]}}) as url:
        path = "/v1beta/models/veo-4/operations/abc"
        assert httpx2.get(f"{url}{path}", headers={"x-goog-api-key": "theirs"}, timeout=30).json() == {"name": "x"}
    assert google.paths == [f"GET {path}"]


def test_request_without_a_model_and_one_for_an_unknown_model_are_explained() -> None:
    models = {"local": {"api": "chat", "url": closed_port(), "models": ["qwen*"]}, "fast": "local/qwen3"}
    with gateway_for(models) as url:
        missing = httpx2.post(f"{url}/v1/messages", json={"messages": []}, timeout=30)
        empty = httpx2.post(f"{url}/v1/messages", json={"model": None, "messages": []}, timeout=30)
        unknown = httpx2.post(f"{url}/v1/messages", json={"model": "gpt", "messages": []}, timeout=30)
    for reply in (missing, empty):
        assert reply.status_code == 400
        assert reply.json()["error"]["message"] == "the request names no model; send one as `model`"
    # The models of an upstream that answers by translation, and the aliases.
    assert unknown.status_code == 404 and "the models are fast, qwen*; add it" in unknown.json()["error"]["message"]
