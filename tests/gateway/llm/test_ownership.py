"""Credentials are sent only to the right upstream, and clients see only their own data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest

from tests.gateway.llm.raw_upstream import RawUpstream, ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import RunningLlmGateway, running_llm_gateway
from tests.gateway.llm.serving_openai import WORDS, chat_functions, functions
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.conversation_memory import ConversationMemory
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.openai_responses.endpoint import ResponseIdMap, ResponseIdObserver

Json = dict[str, Any]
THEIRS = {"authorization": "Bearer theirs"}


def json_answer(body: Json, status: int = 200) -> ScriptedAnswer:
    content = json.dumps(body).encode()
    return ScriptedAnswer([content], status, "application/json", len(content))


def stored_response(id: str) -> ScriptedAnswer:
    return json_answer({"id": id, "object": "response", "status": "completed", "output": []})


def streamed_response(id: str, *calls: Json) -> ScriptedAnswer:
    items = [{"type": "function_call", "call_id": f"call_{id}", **call} for call in calls]
    events = [
        {"type": "response.created", "response": {"id": id}},
        *({"type": "response.output_item.done", "output_index": 0, "item": item} for item in items),
        {"type": "response.completed", "response": {"id": id, "output": items}},
    ]
    return ScriptedAnswer([f"data: {json.dumps(item)}\n\n".encode() for item in events])


def model_list(*ids: str) -> ScriptedAnswer:
    return json_answer({"object": "list", "data": [{"id": id} for id in ids]})


@contextmanager
def gateway_with_two_upstreams(
    *answers: ScriptedAnswer, api: str = "openai", first: Json | None = None, second: Json | None = None
) -> Iterator[tuple[RunningLlmGateway, RawUpstream, RawUpstream]]:
    """Yield a gateway and its two upstreams, which give the same answers."""
    with ExitStack() as open:
        rewriter = open.enter_context(raw_upstream(*answers))
        two = open.enter_context(raw_upstream(*answers))
        settings: list[Json] = [
            {"url": rewriter.url, "models": ("small-*",), **(first or {})},
            {"url": two.url, "models": ("large-*",), **(second or {})},
        ]
        upstreams = tuple(
            LlmUpstreamConfig(name, api=api, **given)  # type: ignore[arg-type]
            for name, given in zip(("one", "two"), settings, strict=True)
        )
        served = open.enter_context(running_llm_gateway(LlmGateway(LlmGatewayConfig(upstreams))))
        yield served, rewriter, two


def credentials_sent_to(upstream: RawUpstream) -> list[str | None]:
    """Return the credentials that an upstream has received."""
    return [item.get("authorization", item.get("x-api-key")) for item in upstream.headers]


@pytest.mark.parametrize("make_response", [stored_response, streamed_response], ids=["whole", "streamed"])
def test_stored_response_is_read_from_its_upstream(make_response: Any) -> None:
    with gateway_with_two_upstreams(make_response("resp_9"), stored_response("resp_9"), stored_response("resp_9")) as (
        served,
        one,
        two,
    ):
        with httpx2.Client(base_url=served.url, headers=THEIRS, timeout=30) as client:
            client.post("/v1/responses", json={"model": "large-1", "input": "Hi"})
            found = client.get("/v1/responses/resp_9?include=a/b")
            gone = client.delete("/v1/responses/resp_9")
        other = httpx2.get(f"{served.url}/v1/responses/resp_9", headers={"authorization": "Bearer another"})
    assert (found.status_code, gone.status_code) == (200, 200)
    assert two.paths == ["POST /v1/responses", "GET /v1/responses/resp_9?include=a/b", "DELETE /v1/responses/resp_9"]
    assert credentials_sent_to(one) == [] and set(credentials_sent_to(two)) == {"Bearer theirs"}
    assert other.status_code == 404, "a response of another client is not found"


def test_unknown_response_needs_upstream_header() -> None:
    with gateway_with_two_upstreams(stored_response("resp_7")) as (served, one, two):
        url = f"{served.url}/v1/responses/resp_7"
        lost, wrong, found = (
            httpx2.get(url, headers={**THEIRS, **named}, timeout=30)
            for named in ({}, {"x-toolcrib-upstream": "three"}, {"x-toolcrib-upstream": "two"})
        )
    assert lost.status_code == 404
    assert "x-toolcrib-upstream: one, two" in lost.json()["error"]["message"]
    assert wrong.status_code == 404 and "one, two" in wrong.json()["error"]["message"]
    assert found.json()["id"] == "resp_7"
    assert (one.headers, len(two.headers)) == ([], 1)


def test_request_with_model_goes_to_upstream_of_model() -> None:
    with gateway_with_two_upstreams(json_answer({"input_tokens": 3})) as (served, one, two):
        sent = {"model": "large-2", "input": "Hi"}
        counted = httpx2.post(f"{served.url}/v1/responses/input_tokens", json=sent, headers=THEIRS, timeout=30)
        nobodys = httpx2.post(f"{served.url}/v1/responses/compact", json={}, timeout=30)
    assert counted.json() == {"input_tokens": 3}
    assert (one.headers, credentials_sent_to(two)) == ([], ["Bearer theirs"])
    assert nobodys.status_code == 404


def test_model_list_does_not_send_ambiguous_credentials() -> None:
    answers = model_list("small-1", "large-1", "large-2", "other")
    with gateway_with_two_upstreams(answers) as (served, one, two):
        listed = httpx2.get(f"{served.url}/v1/models", headers=THEIRS, timeout=30)
    assert [entry["id"] for entry in listed.json()["data"]] == ["small-1", "large-1", "large-2"]
    # It is not known which upstream the key is for.
    assert credentials_sent_to(one) == credentials_sent_to(two) == [None]


def test_credentials_go_to_only_upstream_without_key() -> None:
    listing = model_list("small-1")
    with gateway_with_two_upstreams(listing, listing, first={"key": "own"}) as (served, one, two):
        listed = httpx2.get(f"{served.url}/v1/models", headers=THEIRS, timeout=30)
        named = httpx2.get(f"{served.url}/v1/models", headers={**THEIRS, "x-toolcrib-upstream": "two"}, timeout=30)
    assert [entry["id"] for entry in listed.json()["data"]] == ["small-1"]
    assert credentials_sent_to(one) == ["Bearer own"]
    assert credentials_sent_to(two) == ["Bearer theirs", "Bearer theirs"]
    assert named.headers.get("x-toolcrib-upstream", "two") == "two"


def test_model_is_read_from_its_upstream() -> None:
    with gateway_with_two_upstreams(json_answer({"id": "large-1"})) as (served, one, two):
        found = httpx2.get(f"{served.url}/v1/models/large-1", headers=THEIRS, timeout=30)
        lost = httpx2.get(f"{served.url}/v1/models/huge-1", headers=THEIRS, timeout=30)
    assert found.json() == {"id": "large-1"}
    assert (one.headers, credentials_sent_to(two)) == ([], ["Bearer theirs"])
    assert lost.status_code == 404


def test_model_list_has_form_of_requested_api() -> None:
    with gateway_with_two_upstreams(model_list("small-1", "large-1"), api="messages") as (served, one, _):
        headers = {"anthropic-version": "2023-06-01", "x-api-key": "theirs"}
        listed = httpx2.get(f"{served.url}/v1/models?limit=2", headers=headers, timeout=30)
    assert listed.json() == {
        "data": [{"id": "small-1"}, {"id": "large-1"}],
        "has_more": False,
        "first_id": "small-1",
        "last_id": "large-1",
    }
    assert one.paths == ["GET /v1/models?limit=1000"]


def test_failing_upstream_is_left_out_of_model_list() -> None:
    with gateway_with_two_upstreams(json_answer({"error": {}}, 401), json_answer({"error": {}}, 401)) as (
        served,
        one,
        two,
    ):
        one.answers.insert(0, model_list("small-1"))
        some = httpx2.get(f"{served.url}/v1/models", timeout=30)
        none = httpx2.get(f"{served.url}/v1/models", timeout=30)
        assert two.paths == ["GET /v1/models"] * 2
    assert [entry["id"] for entry in some.json()["data"]] == ["small-1"]
    assert none.status_code == 502
    assert "x-toolcrib-upstream" in none.json()["error"]["message"]


LOOK = ToolCall("search_tools", {"query": "exchange rate of currencies"})
RATE = ToolCall("get_exchange_rate", {"currency": "USD"}, id="call_same")


def start_conversation(url: str, headers: Json, system: str = "Be kind.", model: str = "m") -> Json:
    """Send a request with a hidden search and return the message for the client."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "A dollar?"}]
    body = {"model": model, "messages": messages, "tools": chat_functions()}
    answer = httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
    message: Json = answer.json()["choices"][0]["message"]
    return message


def count_messages_sent(url: str, model: ScriptedModel, headers: Json, message: Json, **more: str) -> int:
    """Continue after a message, and return the number of messages that the upstream gets."""
    messages = [
        {"role": "system", "content": more.get("system", "Be kind.")},
        {"role": "user", "content": more.get("question", "A dollar?")},
        message,
        {"role": "tool", "tool_call_id": "call_same", "content": "2"},
    ]
    body = {"model": more.get("requested_model", "m"), "messages": messages, "tools": chat_functions()}
    httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
    return len(model.requests[-1].body["messages"])


def test_hidden_messages_are_restored_only_for_owner_and_conversation() -> None:
    def script(request: Request) -> Turn:
        if any(name == "get_exchange_rate" for name in request.tool_names):
            return Turn("Done.") if request.results == ("2",) else Turn(RATE)
        return Turn(LOOK)

    with ExitStack() as open:
        model = open.enter_context(ScriptedModel(script))
        upstreams = (
            LlmUpstreamConfig("other", api="openai", url=model.url, models=("other",), style="reveal"),
            LlmUpstreamConfig("scripted", api="openai", url=model.url, style="reveal"),
        )
        gateway = LlmGateway(LlmGatewayConfig(upstreams, threshold_tools=len(WORDS)))
        url = open.enter_context(running_llm_gateway(gateway)).url
        mine = {"x-api-key": "mine"}
        message = start_conversation(url, mine)
        assert count_messages_sent(url, model, mine, message) == 6, "search and result are put back"
        assert count_messages_sent(url, model, mine, message, system="It is noon.") == 6
        others: list[Json] = [{}, {"x-api-key": "another"}, {"api-key": "mine"}]
        for headers in others:
            assert count_messages_sent(url, model, headers, message) == 4, headers
        assert count_messages_sent(url, model, mine, message, question="A yen?") == 4
        assert count_messages_sent(url, model, mine, message, requested_model="other") == 4


def test_streamed_response_is_found_by_id_of_first_round() -> None:
    rounds = [
        streamed_response("resp_1", {"name": "search_tools", "arguments": '{"query": "exchange rate"}'}),
        streamed_response("resp_2", {"name": "get_exchange_rate", "arguments": '{"currency": "x"}'}),
    ]
    with raw_upstream(*rounds, always=stored_response("resp_2")) as model:
        upstream = LlmUpstreamConfig("raw", api="openai", url=model.url, tool_search="on")
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((upstream,)))) as served:
            url = f"{served.url}/v1/responses"
            body = {"model": "m", "input": "A dollar?", "tools": functions(), "stream": True}
            messages = httpx2.post(url, json=body, headers=THEIRS, timeout=30).text
            for id in ("resp_1", "resp_2"):
                httpx2.get(f"{url}/{id}/input_items?limit=1", headers=THEIRS, timeout=30)
    events = [json.loads(line[6:]) for line in messages.splitlines() if line.startswith("data: ")]
    assert events[0]["response"]["id"] == events[-1]["response"]["id"] == "resp_1"
    assert model.paths[2:] == ["GET /v1/responses/resp_2/input_items?limit=1"] * 2


def test_response_ids_are_limited_and_read_from_responses() -> None:
    issued = ResponseIdMap(ConversationMemory(2))
    for number in range(3):
        issued.record(("ann",), "one", f"resp_{number}")
    issued.record(("ann",), "one", "")
    assert issued.find(("ann",), "resp_0") is None
    assert issued.find(("ann",), "resp_2") == ("one", "resp_2")
    assert issued.find(("bob",), "resp_2") is None
    seen: list[str] = []
    for pieces in (
        [b'{"id": 5}'],
        [b"{"],
        [b"data: {}\n\n"] * 40 + [b'data: {"response": {"id": "late"}}\n\n'],
        [b": hi\n\n", b'data: {"response"', b': {"id": "resp_1"}}\n\n', b"data: [\n\n"],
    ):
        watch = ResponseIdObserver(seen.append)
        for piece in pieces:
            watch(piece)
    assert seen == ["resp_1"]
