"""Official clients in front of an upstream with Chat Completions whose replies are broken or are errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types

from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway

EVERY_API = pytest.mark.parametrize("api", ["messages", "responses", "gemini"])
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def whole(body: Any, status: int = 200, type: str = "application/json") -> ScriptedAnswer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ScriptedAnswer((data,), status, type, len(data))


def chunks(*deltas: Any, end: str = "stop") -> ScriptedAnswer:
    """Return a stream with these deltas, or other objects that have `choices` or `error`."""
    events = [
        each if {"choices", "error"} & each.keys() else {"id": "x", "choices": [{"delta": each}]} for each in deltas
    ]
    events += [{"id": "x", "choices": [{"delta": {}, "finish_reason": end}]}] if end else []
    return ScriptedAnswer([f"data: {json.dumps(event)}\n\n".encode() for event in events])


@contextmanager
def broken_gateway(answer: ScriptedAnswer, api: LlmApi = "chat") -> Iterator[str]:
    with raw_upstream(always=answer) as upstream:
        one = LlmUpstreamConfig("local", api=api, url=upstream.url, retries=0)
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served:
            yield served.url


def ask(api: str, url: str, stream: bool) -> Any:
    """Return the reply: a message, a response, or the chunks of Gemini."""
    if api == "messages":
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
            body: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
            if not stream:
                return client.messages.create(**body)
            with client.messages.stream(**body) as events:
                return events.get_final_message()
    if api == "responses":
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as other:
            if not stream:
                return other.responses.create(model="m", input="Hi")
            *_, last = other.responses.create(model="m", input="Hi", stream=True)
            return last.response  # type: ignore[union-attr]
    gemini = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url), vertexai=False)
    if stream:
        return list(gemini.models.generate_content_stream(model="m", contents="Hi"))
    return [gemini.models.generate_content(model="m", contents="Hi")]


def fail(api: str, url: str, stream: bool) -> tuple[int | None, str]:
    """Return the status and the text of the error that the client raises."""
    with pytest.raises((anthropic.APIError, openai.APIError, errors.APIError)) as raised:
        ask(api, url, stream)
    error: Any = raised.value
    status: int | None = getattr(error, "status_code", None) or getattr(error, "code", None)
    return status, str(error)


@BOTH
@EVERY_API
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (whole({"error": {"message": "no credits", "code": 402}}), "no credits"),
        (whole({"error": "no credits"}), "no credits"),
        (whole({"error": {}, "choices": None}), "the upstream sent no reply"),
        (whole(b"<html>", type="text/html"), "invalid JSON"),
        (whole(b"", 204), "invalid JSON"),
    ],
    ids=["object", "text", "nothing", "page", "204"],
)
def test_error_with_status_of_success_is_an_error(api: str, stream: bool, answer: ScriptedAnswer, text: str) -> None:
    with broken_gateway(answer) as url:
        status, message = fail(api, url, stream)
    assert status == 502 and text in message


@EVERY_API
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (chunks({"content": "Hm"}, end=""), "in the middle"),
        (chunks({"content": "Hm"}, {"error": {"message": "no credits"}}), "no credits"),
        (chunks({"content": "Hm"}, {"error": "no credits"}), "no credits"),
    ],
    ids=["cut", "object", "text"],
)
def test_client_raises_the_error_of_a_stream_that_has_begun(api: str, answer: ScriptedAnswer, text: str) -> None:
    with broken_gateway(answer) as url:
        assert text in fail(api, url, True)[1]


def test_google_client_reads_the_error_of_a_forwarded_stream() -> None:
    first = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hm"}]}}]}
    answer = ScriptedAnswer([f"data: {json.dumps(first)}\n\n".encode()], length=1_000)
    with broken_gateway(answer, "gemini") as url:
        status, message = fail("gemini", url, True)
    assert status == 502 and "upstream" in message


@BOTH
@EVERY_API
def test_error_page_of_the_upstream_has_the_status_as_its_message(api: str, stream: bool) -> None:
    with broken_gateway(whole(b"<html>", 503, "text/html")) as url:
        status, message = fail(api, url, stream)
    assert status == 503 and "the upstream answered with status 503" in message


@pytest.mark.parametrize("upstream_api", ["chat", "openai"])
def test_error_of_a_started_stream_of_responses_has_the_type_of_the_api(upstream_api: LlmApi) -> None:
    event = {"type": "response.created", "response": {"id": "resp_1"}}
    answer = chunks({"content": "Hm"}, end="")
    if upstream_api == "openai":
        answer = ScriptedAnswer([f"data: {json.dumps(event)}\n\n".encode()], length=1_000)
    with broken_gateway(answer, upstream_api) as url:
        body = {"model": "m", "input": "Hi", "stream": True}
        lines = httpx2.post(f"{url}/v1/responses", json=body, timeout=60).text.splitlines()
    assert "event: error" in lines
    error = json.loads(lines[-2].removeprefix("data: "))
    assert error["type"] == "error" and "upstream" in error["message"] and error["error"]["type"] == "server_error"


@BOTH
@EVERY_API
def test_refusal_ends_the_reply_as_such(api: str, stream: bool) -> None:
    message = {"choices": [{"message": {"refusal": "No."}, "finish_reason": "stop"}]}
    with broken_gateway(chunks({"refusal": "No."}) if stream else whole(message)) as url:
        reply = ask(api, url, stream)
    if api == "messages":
        assert (reply.content[0].text, reply.stop_reason) == ("No.", "refusal")
    elif api == "responses":
        assert reply.output[0].content[0].refusal == "No."
    else:
        assert reply[0].text == "No." and reply[-1].candidates[0].finish_reason == "SAFETY"


@BOTH
def test_call_without_arguments_that_ends_with_stop_is_a_call(stream: bool) -> None:
    # Some servers send an empty text for a tool without parameters, and OpenAI ends a forced call with `stop`.
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "ring", "arguments": ""}}
    message = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "stop"}]}
    with broken_gateway(chunks({"tool_calls": [call]}) if stream else whole(message)) as url:
        assert ask("responses", url, stream).output[0].arguments == "{}"
        reply = ask("messages", url, stream)
    assert reply.stop_reason == "tool_use" and reply.content[0].input == {}


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/v1/messages", {"messages": "Hi"}, "messages: must be a list"),
        ("/v1/responses", {"input": 5}, "input: must be a list"),
    ],
)
def test_history_that_is_not_a_list_is_refused(path: str, body: dict[str, Any], name: str) -> None:
    with (
        broken_gateway(whole({})) as url,
        openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match=name),
    ):
        client.post(path, body={"model": "m", **body}, cast_to=object)
