"""Requests that are forwarded unchanged, and the choice of the upstream."""

from __future__ import annotations

import gzip
import json
from typing import Any

import anthropic
import httpx2
import pytest

from tests.gateway.llm.anthropic.requests import HARBOUR, REGEX, block_types, conversation_with, user_message
from tests.gateway.llm.raw_upstream import ScriptedAnswer, message_end, message_start, raw_upstream, text_block
from tests.gateway.llm.serving import gateway_for_upstream, running_llm_gateway
from tests.support.scripted_model.turn import Failure, Raw, Turn
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
WHOLE = b'{ "type": "message",\n  "content": [] }'
ODD = json.dumps({"messages": [user_message("Hi")], "model": "claude-opus-4-8", "tools": [REGEX]}, indent=3)


@both
def test_request_without_tools_is_forwarded(stream: bool) -> None:
    with conversation_with([Turn("Good day.")], stream=stream) as conversation:
        reply = conversation.send([], "Hi")
        (request,) = conversation.upstream_requests
    assert reply["content"][0]["text"] == "Good day."
    assert request.headers["authorization"] == "Bearer secret"
    assert "anthropic-version" in request.headers


@both
@pytest.mark.parametrize("status", [401, 429, 529])
def test_error_status_of_upstream_is_forwarded(status: int, stream: bool) -> None:
    with conversation_with([Failure(status, "so it is")], stream=stream) as conversation:
        with pytest.raises(anthropic.APIStatusError, match="so it is") as raised:
            conversation.send([], "Hi")
        assert raised.value.status_code == status and len(conversation.upstream_requests) == 1


@both
def test_model_with_native_search_is_not_rewritten(stream: bool) -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": REGEX["name"], "input": {}}
    with conversation_with([Turn(Raw(use), "Done.")], stream=stream) as conversation:
        reply = conversation.send([REGEX, *HARBOUR], "Hi", model="claude-opus-4-8")
        (request,) = conversation.upstream_requests
    assert block_types(reply) == ["server_tool_use", "text"]
    assert request.body["tools"] == [REGEX, *HARBOUR]


@pytest.mark.parametrize(
    ("model", "settings", "headers", "treatment"),
    [
        ("claude-opus-4-8", {}, {}, "native"),
        ("claude-opus-4-8", {"tool_search": "on"}, {}, "search"),
        ("mine", {}, {}, "search"),
        ("mine", {"tool_search": "off"}, {}, "search"),
        ("mine", {"tool_search": "native"}, {}, "native"),
        ("mine", {}, {"x-toolcrib-tool-search": "native"}, "native"),
        ("claude-opus-4-8", {}, {"x-toolcrib-tool-search": "ON"}, "search"),
    ],
)
def test_treatment_depends_on_model_settings_and_header(
    model: str, settings: dict[str, Any], headers: dict[str, str], treatment: str
) -> None:
    with conversation_with([Turn("Done.")], **settings) as conversation:
        body = {"model": model, "messages": [user_message("Hi")], "tools": [REGEX, *HARBOUR]}
        url = f"{conversation.server.url}/v1/messages"
        answer = httpx2.post(url, json=body, headers=headers, timeout=30)
        (request,) = conversation.upstream_requests
    assert answer.headers["x-toolcrib-treatment"] == treatment
    assert answer.headers["x-toolcrib-upstream"] == "scripted"
    assert len(request.body["tools"]) == (5 if treatment == "native" else 1)
    assert not any(name.startswith("x-toolcrib") for name in request.headers)
    if treatment == "search":
        assert answer.headers["x-toolcrib-tools"] == "5"
        assert answer.headers["x-toolcrib-tools-shown"] == "1"
        assert int(answer.headers["x-toolcrib-tokens-saved"]) > 60


def test_forwarded_bytes_are_unchanged() -> None:
    streamed = [message_start(), text_block("Hi"), message_end()]
    about = {"request-id": "req_1", "Server": "theirs"}
    answers = [
        ScriptedAnswer([WHOLE], content_type="application/json", headers=about),
        ScriptedAnswer(streamed),
        ScriptedAnswer([gzip.compress(b"".join(streamed))], headers={"Content-Encoding": "gzip"}),
        ScriptedAnswer([gzip.compress(WHOLE)], content_type="application/json", headers={"Content-Encoding": "gzip"}),
    ]
    with raw_upstream(*answers) as upstream, gateway_for_upstream(upstream.url) as served:
        url = f"{served.url}/v1/messages?beta=true"
        whole = httpx2.post(url, content=ODD, timeout=30)
        events, encoded, other = (httpx2.post(url, content=ODD, timeout=30) for _ in range(3))
    assert other.content == whole.content and encoded.content == events.content
    assert whole.content == WHOLE and whole.headers["request-id"] == "req_1"
    # The gateway sends its own headers, and each only once.
    assert [len(whole.headers.get_list(name)) for name in ("server", "date")] == [1, 1]
    assert events.content == b"".join(streamed)
    assert upstream.bodies == [json.loads(ODD)] * 4


def test_first_matching_upstream_gets_request_with_its_key() -> None:
    answer = ScriptedAnswer([b"{}"], content_type="application/json")
    with raw_upstream(answer, answer) as small, raw_upstream(answer, answer) as large:
        upstreams = (
            LlmUpstreamConfig("small", url=small.url, models=("small-*", "tiny"), key="own"),
            LlmUpstreamConfig("other", api="openai", url="http://127.0.0.1:9", models=("gpt-*",)),
            LlmUpstreamConfig("large", url=large.url, models=("large-*",), headers={"X-Team": "a"}),
        )
        with running_llm_gateway(LlmGateway(LlmGatewayConfig(upstreams))) as served:
            names, refused = [], {}
            for model in ("small-2", "large-1", "tiny", "huge", "gpt-9"):
                answer_ = httpx2.post(
                    f"{served.url}/v1/messages", json={"model": model}, headers={"x-api-key": "theirs"}, timeout=30
                )
                names.append(answer_.headers.get("x-toolcrib-upstream"))
                if answer_.status_code == 404:
                    refused[model] = answer_.json()["error"]
    assert names == ["small", "large", "small", None, None]
    assert {error["type"] for error in refused.values()} == {"not_found_error"}
    assert "the models are large-*, small-*, tiny; add it to" in refused["huge"]["message"]
    assert refused["gpt-9"]["message"] == (
        "upstream 'other' has the model 'gpt-9', but speaks OpenAI's APIs (/v1/chat/completions, "
        "/v1/responses), not Anthropic's API (/v1/messages); send the request there, or add an "
        'upstream with "api": "messages" to `models` in the configuration'
    )


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b"{", 400, "invalid_request_error"),
        (b"[]", 400, "invalid_request_error"),
        (b'"\\ud800"', 400, "invalid_request_error"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 400, "invalid_request_error"),
    ],
    ids=["cut", "list", "surrogate", "deep"],
)
def test_invalid_body_is_refused(content: bytes, status: int, kind: str) -> None:
    with conversation_with([]) as conversation:
        answer = httpx2.post(f"{conversation.server.url}/v1/messages", content=content, timeout=60)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)


def test_unknown_switch_is_refused() -> None:
    with conversation_with([]) as conversation:
        answer = httpx2.post(
            f"{conversation.server.url}/v1/messages", json={"model": "m"}, headers={"x-toolcrib-tool-search": "maybe"}
        )
    assert answer.status_code == 400
    assert "auto, on, off, native" in answer.json()["error"]["message"]
