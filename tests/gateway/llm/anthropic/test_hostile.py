"""Hostile requests, patterns and upstreams."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.llm.anthropic.requests import (
    BM25,
    REGEX,
    conversation_with,
    deferred_tool,
    regex_search,
    user_message,
)
from tests.gateway.llm.anthropic.test_rewriter import build_rewriter, keys, odd, values, words
from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import gateway_for_upstream
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import Turn
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic.stream import MessagesStream

HOSTILE = r"(a+)+\1$"
OTHERS = 100


def test_slow_regex_times_out_without_blocking_other_requests() -> None:
    tools = [REGEX, *(deferred_tool(f"trap_{number}", "a" * 5_000 + "!") for number in range(50))]

    def script(request: Request) -> Turn:
        is_first = len(request.body["messages"]) == 1
        return Turn(regex_search(HOSTILE)) if "hostile" in request.user_text and is_first else Turn("Hi")

    with conversation_with(script) as conversation:
        url = f"{conversation.server.url}/v1/messages"

        def post(text: str, tools: list[dict[str, Any]]) -> httpx2.Response:
            body = {"model": "m", "messages": [user_message(text)], "tools": tools}
            return client.post(url, json=body)

        with httpx2.Client(timeout=60) as client, ThreadPoolExecutor(16) as threads:
            hostile = [threads.submit(post, "hostile", tools) for _ in range(3)]
            others = [threads.submit(post, "friendly", [REGEX, deferred_tool("x")]) for _ in range(OTHERS)]
            answers = [item.result(60) for item in others]
            given_up = [item.result(60).json()["content"][1]["content"] for item in hostile]
    assert [item.status_code for item in answers] == [200] * OTHERS
    assert {item["error_code"] for item in given_up} == {"execution_time_exceeded"}


@pytest.fixture(scope="module")
def messages_url() -> Iterator[str]:
    """Yield the URL of a gateway whose upstream accepts anything."""
    reply = b'{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}'
    anything = ScriptedAnswer([reply], content_type="application/json", length=len(reply))
    with raw_upstream(always=anything) as upstream, gateway_for_upstream(upstream.url) as served:
        yield f"{served.url}/v1/messages"


requests = st.fixed_dictionaries(
    {"model": st.just("m") | values},
    optional={
        "messages": st.lists(odd, max_size=4) | odd,
        "tools": st.lists(odd | st.just(REGEX) | st.just(BM25) | st.just(deferred_tool("x")), max_size=5),
        "tool_choice": odd,
        "system": odd,
        "stream": values,
        "cache_control": odd,
    },
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=requests, on=st.booleans())
def test_arbitrary_requests_get_response_or_api_error(messages_url: str, body: Any, on: bool) -> None:
    headers = {"x-toolcrib-tool-search": "on"} if on else {}
    answer = httpx2.post(messages_url, content=json.dumps(body), headers=headers, timeout=30)
    # This upstream never streams, so a request for a stream gets 502.
    assert answer.status_code in (200, 400, 404, 502), answer.text
    assert answer.status_code == 200 or answer.json()["type"] == "error"


event = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
                "ping",
                "error",
                "other",
            ]
        )
        | values
    },
    optional={
        "index": st.integers(0, 2) | values,
        "content_block": st.dictionaries(keys, values | words, max_size=4) | odd,
        "delta": odd,
        "message": odd,
        "usage": odd,
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(event, max_size=12))
def test_arbitrary_events_give_valid_stream_or_502(events: list[Any]) -> None:
    stream = MessagesStream(build_rewriter({"messages": [user_message("Hi")], "tools": [REGEX, deferred_tool("x")]}))
    try:
        output = [out for item in events for out in stream.handle_event(item)]
        output += stream.finish_round()
    except RequestFailed as fault:
        assert fault.status == 502
        return
    json.dumps(output)
    indexes = [item["index"] for item in output if item.get("type") == "content_block_start"]
    assert indexes == list(range(len(indexes)))


def test_pings_are_sent_while_upstream_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.gateway.llm.endpoint.PING_SECONDS", 0.01)
    monkeypatch.setattr("toolcrib.gateway.llm.endpoint.CHECK_INTERVAL_SECONDS", 0.01)
    go_on = threading.Event()

    def script(request: Request) -> Turn:
        if len(request.body["messages"]) == 1:
            return Turn(regex_search("x"))
        go_on.wait(30)
        return Turn("Done.")

    with conversation_with(script) as conversation:
        url = f"{conversation.server.url}/v1/messages"
        body = {"model": "m", "messages": [user_message("Hi")], "tools": [REGEX, deferred_tool("x")], "stream": True}
        seen = b""
        with httpx2.stream("POST", url, json=body, timeout=30) as answer:
            for chunk in answer.iter_bytes():
                seen += chunk
                if seen.count(b"event: ping") >= 3:
                    go_on.set()
    assert b"event: message_stop" in seen
