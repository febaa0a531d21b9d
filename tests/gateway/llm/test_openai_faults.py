"""Failing upstreams: the OpenAI client gets an error that it understands."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import openai
import pytest

from tests.gateway.llm.openai_chat.test_chat_rewriter import search_call as chat_search
from tests.gateway.llm.openai_chat.test_chat_stream import call_chunks, chunk
from tests.gateway.llm.openai_responses.requests import assistant_message, deferred_functions, search_call
from tests.gateway.llm.openai_responses.test_responses_stream import response_events
from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from tests.gateway.llm.serving_openai import chat_functions
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway

Json = dict[str, Any]


def encode_events(bodies: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies)


CHAT_TEXT = encode_events([chunk(role="assistant", content="I am")])
CHAT_SEARCH = encode_events([*call_chunks(chat_search(), 0), chunk("tool_calls")]) + b"data: [DONE]\n\n"
RESPONSE_TEXT = encode_events(list(response_events(assistant_message("I am")))[:4])
RESPONSE_SEARCH = encode_events(response_events(search_call()))


def scripted_answer(body: bytes, status: int = 200, kind: str = "text/event-stream") -> ScriptedAnswer:
    return ScriptedAnswer([body], status, kind)


def stalling(body: bytes, kind: str = "text/event-stream") -> ScriptedAnswer:
    """Return an answer that stops before its end without closing the connection."""
    return ScriptedAnswer([body, partial(threading.Event().wait, 20)], content_type=kind, length=len(body) + 9)


@contextmanager
def client_for(*answers: ScriptedAnswer, read_seconds: float = 60) -> Iterator[openai.OpenAI]:
    with raw_upstream(*answers) as raw:
        upstream = LlmUpstreamConfig(
            "faulty", api="openai", url=raw.url, read_seconds=read_seconds, retries=0, style="reveal"
        )
        gateway = LlmGateway(LlmGatewayConfig((upstream,), threshold_tools=3))
        with (
            running_llm_gateway(gateway) as served,
            openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client,
        ):
            yield client


def chat(client: openai.OpenAI, stream: bool) -> list[Any]:
    given: Json = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": chat_functions(),
        "stream": stream,
    }
    answer = client.chat.completions.create(**given)
    return list(answer) if stream else [answer]


def responses(client: openai.OpenAI, stream: bool) -> list[Any]:
    given: Json = {"model": "m", "input": "Hi", "tools": deferred_functions(), "stream": stream}
    answer = client.responses.create(**given)
    return list(answer) if stream else [answer]


APIS = pytest.mark.parametrize(
    ("ask", "text", "search"),
    [(chat, CHAT_TEXT, CHAT_SEARCH), (responses, RESPONSE_TEXT, RESPONSE_SEARCH)],
    ids=["chat", "responses"],
)


@APIS
def test_upstream_that_dies_during_stream(ask: Any, text: bytes, search: bytes) -> None:
    for dying in (scripted_answer(text), ScriptedAnswer([text], length=len(text) + 100)):
        with client_for(dying) as client, pytest.raises(openai.APIError, match=r"broke off|in the middle"):
            ask(client, True)
    later = client_for(scripted_answer(search), scripted_answer(text))
    with later as client, pytest.raises(openai.APIError, match=r"broke off|in the middle"):
        ask(client, True)


@APIS
def test_stalled_upstream(ask: Any, text: bytes, search: bytes) -> None:
    silent = client_for(stalling(text), read_seconds=1.5)
    with silent as client, pytest.raises(openai.APIError, match=r"silent for 1\.5 s"):
        ask(client, True)
    whole = stalling(b'{"id":', "application/json")
    silent = client_for(whole, read_seconds=1.5)
    with silent as client, pytest.raises(openai.APIStatusError) as raised:
        ask(client, False)
    assert raised.value.status_code == 504


@APIS
def test_upstream_that_keeps_connection_open_after_end(ask: Any, text: bytes, search: bytes) -> None:
    end = ScriptedAnswer([text + search, partial(threading.Event().wait, 20)])
    done = scripted_answer(json.dumps({"error": {"message": "enough"}}).encode(), 400, "application/json")
    with client_for(end, done) as client, pytest.raises(openai.APIError, match="enough"):
        ask(client, True)


@APIS
@pytest.mark.parametrize(
    "nonsense", [b"data: {not json\n\n", b"data: [1]\n\n", b"data: \xff\xfe\n\n", b"data: " + b"[" * 5_000 + b"\n\n"]
)
def test_upstream_that_sends_invalid_data(ask: Any, text: bytes, search: bytes, nonsense: bytes) -> None:
    streamed, whole = (scripted_answer(text + nonsense), scripted_answer(nonsense[6:], kind="application/json"))
    says = pytest.raises(openai.APIError, match=r"the upstream sent (invalid JSON|JSON that)")
    with client_for(streamed) as client, says:
        ask(client, True)
    with client_for(whole) as client, pytest.raises(openai.APIStatusError) as raised:
        ask(client, False)
    assert raised.value.status_code == 502


@APIS
def test_busy_upstream_error_is_forwarded(ask: Any, text: bytes, search: bytes) -> None:
    body = json.dumps({"error": {"message": "slow down", "type": "rate", "code": "x"}}).encode()
    for status in (429, 529):
        busy = scripted_answer(body, status, "application/json")
        for stream in (False, True):
            with client_for(busy) as client, pytest.raises(openai.APIStatusError) as raised:
                ask(client, stream)
            assert raised.value.status_code == status
            assert raised.value.body == {"message": "slow down", "type": "rate", "code": "x"}
        later = client_for(scripted_answer(search), busy)
        with later as client, pytest.raises(openai.APIError, match="slow down"):
            ask(client, True)


@APIS
def test_upstream_that_ignores_stream_option(ask: Any, text: bytes, search: bytes) -> None:
    says = pytest.raises(openai.APIStatusError, match="did not answer with a stream")
    with client_for(scripted_answer(b"{}", kind="application/json")) as client, says:
        ask(client, True)
    with client_for(scripted_answer(text)) as client, pytest.raises(openai.APIStatusError):
        ask(client, False)


def test_unreachable_upstream() -> None:
    upstream = LlmUpstreamConfig("nowhere", api="openai", url="http://127.0.0.1:1", retries=1)
    with (
        running_llm_gateway(LlmGateway(LlmGatewayConfig((upstream,)))) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client,
        pytest.raises(openai.APIStatusError, match="cannot be reached") as raised,
    ):
        chat(client, True)
    assert raised.value.status_code == 502
