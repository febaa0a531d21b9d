"""The gateway does not fail, whatever an upstream sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.llm.anthropic.requests import BM25, REGEX, deferred_tool, user_message
from tests.gateway.llm.openai_responses.requests import deferred_functions
from tests.gateway.llm.raw_upstream import RawUpstream, ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import RunningLlmGateway, running_llm_gateway
from tests.gateway.llm.serving_openai import chat_functions, functions
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway

Json = dict[str, Any]
OURS = "the gateway failed on this request"
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
SEARCHES = ["search_tools", "tool_search", BM25["name"], REGEX["name"]]

odd = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)
names = st.sampled_from([*SEARCHES, "send_email", "read_tide", "no_such_tool"]) | odd
written = st.sampled_from(['{"query": "letter"}', '{"pattern": "["}', "{", ""]) | odd
sent = st.sampled_from([{"query": "letter"}, {"pattern": "tide"}, {}]) | odd
ids = st.sampled_from(["call_1", "toolu_01", "srvtoolu_01", ""]) | odd


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Return a strategy for objects with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


blocks = some(
    type=st.sampled_from(["text", "tool_use", "server_tool_use", "thinking"]) | odd,
    id=ids,
    name=names,
    input=sent,
    text=odd,
)
items = some(
    type=st.sampled_from(["function_call", "custom_tool_call", "message", "reasoning"]) | odd,
    id=ids,
    call_id=ids,
    name=names,
    arguments=written,
    content=odd,
    role=st.just("assistant"),
)
calls = some(
    id=ids,
    index=st.integers(0, 1) | odd,
    type=st.just("function") | odd,
    function=some(name=names, arguments=written) | odd,
)
message = some(content=odd, role=st.just("assistant") | odd, tool_calls=st.lists(calls) | odd)
reason = st.sampled_from(["tool_calls", "tool_use", "stop", "end_turn"]) | odd
choice = some(message=message | odd, delta=message | odd, finish_reason=reason, index=odd)
WHOLE = {
    "messages": some(content=st.lists(blocks, max_size=3) | odd, stop_reason=reason, usage=odd),
    "chat": some(choices=st.lists(choice, max_size=2) | odd, usage=odd, id=odd),
    "responses": some(output=st.lists(items, max_size=3) | odd, id=ids, status=odd, usage=odd),
}
response = WHOLE["responses"]
kind = st.sampled_from(["created", "output_item.added", "output_item.done", "function_call_arguments.done"])
EVENTS = {
    "messages": some(
        type=st.sampled_from(
            ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]
        )
        | odd,
        index=st.integers(0, 1) | odd,
        content_block=blocks | odd,
        delta=some(type=st.just("input_json_delta"), partial_json=written, stop_reason=reason),
        message=odd,
        usage=odd,
    ),
    "chat": WHOLE["chat"],
    "responses": some(
        type=kind.map("response.{}".format) | odd,
        item=items | odd,
        output_index=st.integers(0, 1) | odd,
        response=response | odd,
        name=names,
    ),
}
ENDS: dict[str, Json] = {
    "messages": {"type": "message_stop"},
    "chat": {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    "responses": {"type": "response.completed", "response": {"id": "resp_1"}},
}
RAW = st.sampled_from([b"", b"{", b"[]", b"null", b"\xff", b"data: x", b"[" * 5_000])


@pytest.fixture(scope="module")
def stand() -> Iterator[tuple[RawUpstream, RunningLlmGateway]]:
    end = json.dumps({"type": "message", "content": [], "choices": [], "output": []}).encode()
    always = ScriptedAnswer([end], content_type="application/json", length=len(end))
    apis: tuple[LlmApi, ...] = ("messages", "openai")
    with raw_upstream(always=always) as upstream:
        upstreams = tuple(
            LlmUpstreamConfig(api, api=api, url=upstream.url, search="exact", style="reveal", retries=0) for api in apis
        )
        gateway = LlmGateway(LlmGatewayConfig(upstreams, threshold_tools=3))
        with running_llm_gateway(gateway) as served:
            yield upstream, served


def request(api: str, knows: bool, stream: bool) -> Json:
    """Return a request with tools, from a client that knows tool search if `knows`."""
    if api == "messages":
        plain = [{**deferred_tool(name), "defer_loading": None} for name in ("read_tide", "b", "c", "d")]
        tools = [BM25, REGEX, deferred_tool("read_tide"), deferred_tool("send_email")] if knows else plain
        return {"model": "m", "messages": [user_message("Hi")], "tools": tools, "stream": stream}
    if api == "chat":
        tools = chat_functions(defer_loading=True) if knows else chat_functions()
        return {"model": "m", "messages": [user_message("Hi")], "tools": tools, "stream": stream}
    tools = deferred_functions() if knows else functions()
    return {"model": "m", "input": [user_message("Hi")], "tools": tools, "stream": stream}


def answers(api: str, stream: bool, replies: list[Any]) -> list[ScriptedAnswer]:
    """Return the generated values as one stream of events or as separate responses."""
    if stream:
        events = [json.dumps(one).encode() for one in (*replies, ENDS[api])]
        return [ScriptedAnswer([b"data: " + one + b"\n\n" for one in events])]
    bodies = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in replies]
    return [ScriptedAnswer([one], content_type="application/json", length=len(one)) for one in bodies]


def later(api: str, first: Json, said: Any) -> Json:
    """Return the next request of the conversation, with the last response."""
    said = said if isinstance(said, dict) else {}
    if api == "responses":
        told = said.get("output")
        return {**first, "input": [*first["input"], *(told if isinstance(told, list) else [])]}
    content = said.get("content")
    if api == "chat":
        choices = said.get("choices")
        one = choices[0] if isinstance(choices, list) and choices else None
        inner = one.get("message") if isinstance(one, dict) else None
        return {**first, "messages": [*first["messages"], inner or user_message("Hm"), user_message("Go on")]}
    told = [{"role": "assistant", "content": content or "Hm"}, user_message("Go on")]
    return {**first, "messages": [*first["messages"], *told]}


def check(stand: tuple[RawUpstream, RunningLlmGateway], api: str, knows: bool, stream: bool, replies: Any) -> None:
    upstream, served = stand
    upstream.answers[:] = answers(api, stream, replies)
    first = request(api, knows, stream)
    answer = httpx2.post(served.url + PATHS[api], json=first, timeout=60)
    assert answer.status_code != 500 and OURS not in answer.text, answer.text
    if stream or answer.status_code != 200:
        return
    upstream.answers.clear()
    body = later(api, first, answer.json())
    answer = httpx2.post(served.url + PATHS[api], json=body, timeout=60)
    assert answer.status_code != 500 and OURS not in answer.text, answer.text


quick = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("api", PATHS)
def test_arbitrary_response_does_not_make_the_gateway_fail(
    stand: tuple[RawUpstream, RunningLlmGateway], api: str
) -> None:
    @quick
    @given(replies=st.lists(WHOLE[api] | RAW, max_size=3), knows=st.booleans())
    def check_answers(replies: Any, knows: bool) -> None:
        check(stand, api, knows, False, replies)

    check_answers()


@pytest.mark.parametrize("api", PATHS)
def test_arbitrary_stream_does_not_make_the_gateway_fail(
    stand: tuple[RawUpstream, RunningLlmGateway], api: str
) -> None:
    @quick
    @given(replies=st.lists(EVENTS[api], max_size=6), knows=st.booleans())
    def check_answers(replies: Any, knows: bool) -> None:
        check(stand, api, knows, True, replies)

    check_answers()


def test_hidden_search_call_without_an_id_is_restored(stand: tuple[RawUpstream, RunningLlmGateway]) -> None:
    look = {"type": "function_call", "name": "search_tools", "arguments": '{"query": "letter"}'}
    mail = {**look, "name": "send_email", "call_id": "call_1", "arguments": '{"recipient": "x"}'}
    upstream, served = stand
    upstream.bodies.clear()
    upstream.answers[:] = answers("responses", False, [{"output": [look]}, {"output": [mail]}])
    url = served.url + PATHS["responses"]
    first = request("responses", False, False)
    said = httpx2.post(url, json=first, timeout=60).json()
    assert [item["name"] for item in said["output"]] == ["send_email"]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "sent"}
    body = {**first, "input": [*first["input"], *said["output"], result]}
    assert httpx2.post(url, json=body, timeout=60).status_code == 200
    told = [item.get("name", item.get("type")) for item in upstream.bodies[-1]["input"]]
    assert told == [None, "search_tools", "function_call_output", "send_email", result["type"]]


@pytest.mark.parametrize("api", ["messages", "responses"])
def test_reply_without_content_is_forwarded_unchanged(stand: tuple[RawUpstream, RunningLlmGateway], api: str) -> None:
    upstream, served = stand
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    upstream.answers[:] = answers(api, False, [error])
    answer = httpx2.post(served.url + PATHS[api], json=request(api, False, False), timeout=60)
    assert answer.json() == error


def test_failed_response_in_place_of_a_stream_is_replayed(stand: tuple[RawUpstream, RunningLlmGateway]) -> None:
    upstream, served = stand
    failed = {"id": "resp_1", "status": "failed", "output": [], "error": {"code": "x", "message": "no credits"}}
    upstream.answers[:] = answers("responses", False, [failed])
    answer = httpx2.post(served.url + PATHS["responses"], json=request("responses", False, True), timeout=60)
    assert answer.status_code == 200 and '"type":"response.failed"' in answer.text and "no credits" in answer.text


@pytest.mark.parametrize("api", PATHS)
def test_error_in_place_of_a_stream_keeps_its_message(stand: tuple[RawUpstream, RunningLlmGateway], api: str) -> None:
    upstream, served = stand
    upstream.answers[:] = answers(api, False, [{"error": {"message": "no credits"}}])
    answer = httpx2.post(served.url + PATHS[api], json=request(api, False, True), timeout=60)
    assert answer.status_code == 502 and answer.json()["error"]["message"] == "no credits"
