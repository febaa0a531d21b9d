"""Whose a request is: keys go where they are meant to go, and nobody is given another's."""

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
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.openai_responses.response_ids import ResponseIdMap, ResponseIdObserver

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
        *({"type": "response.output_item.done", "output_index": 0, "item": one} for one in items),
        {"type": "response.completed", "response": {"id": id, "output": items}},
    ]
    return ScriptedAnswer([f"data: {json.dumps(one)}\n\n".encode() for one in events])


def model_list(*ids: str) -> ScriptedAnswer:
    return json_answer({"object": "list", "data": [{"id": id} for id in ids]})


@contextmanager
def gateway_with_two_upstreams(
    *answers: ScriptedAnswer,
    api: str = "openai",
    first: Json | None = None,
    second: Json | None = None,
) -> Iterator[tuple[RunningLlmGateway, RawUpstream, RawUpstream]]:
    """A gateway before two upstreams that give the same answers, and those."""
    with ExitStack() as open:
        one = open.enter_context(raw_upstream(*answers))
        two = open.enter_context(raw_upstream(*answers))
        settings: list[Json] = [
            {"url": one.url, "models": ("small-*",), **(first or {})},
            {"url": two.url, "models": ("large-*",), **(second or {})},
        ]
        upstreams = tuple(
            LlmUpstreamConfig(name, api=api, **given)  # type: ignore[arg-type]
            for name, given in zip(("one", "two"), settings, strict=True)
        )
        served = open.enter_context(running_llm_gateway(LlmGateway(LlmGatewayConfig(upstreams))))
        yield served, one, two


def credentials_sent_to(upstream: RawUpstream) -> list[str | None]:
    """The keys that an upstream was sent."""
    return [one.get("authorization", one.get("x-api-key")) for one in upstream.headers]


@pytest.mark.parametrize("made", [stored_response, streamed_response], ids=["whole", "streamed"])
def test_a_stored_response_is_asked_for_where_it_was_made(made: Any) -> None:
    with gateway_with_two_upstreams(
        made("resp_9"), stored_response("resp_9"), stored_response("resp_9")
    ) as (served, one, two):
        with httpx2.Client(base_url=served.url, headers=THEIRS, timeout=30) as client:
            client.post("/v1/responses", json={"model": "large-1", "input": "Hi"})
            found = client.get("/v1/responses/resp_9?include=a/b")
            gone = client.delete("/v1/responses/resp_9")
        other = httpx2.get(
            f"{served.url}/v1/responses/resp_9", headers={"authorization": "Bearer another"}
        )
    assert (found.status_code, gone.status_code) == (200, 200)
    assert two.paths == [
        "POST /v1/responses",
        "GET /v1/responses/resp_9?include=a/b",
        "DELETE /v1/responses/resp_9",
    ]
    assert credentials_sent_to(one) == [] and set(credentials_sent_to(two)) == {"Bearer theirs"}
    assert other.status_code == 404, "somebody else's responses are not known to me"


def test_a_response_that_nobody_knows_is_asked_for_nowhere_until_the_client_says_where() -> None:
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


def test_what_names_its_model_goes_to_the_upstream_of_that_model() -> None:
    with gateway_with_two_upstreams(json_answer({"input_tokens": 3})) as (served, one, two):
        sent = {"model": "large-2", "input": "Hi"}
        counted = httpx2.post(
            f"{served.url}/v1/responses/input_tokens", json=sent, headers=THEIRS, timeout=30
        )
        nobodys = httpx2.post(f"{served.url}/v1/responses/compact", json={}, timeout=30)
    assert counted.json() == {"input_tokens": 3}
    assert (one.headers, credentials_sent_to(two)) == ([], ["Bearer theirs"])
    assert nobodys.status_code == 404


def test_the_models_of_all_upstreams_are_listed_and_no_key_goes_astray() -> None:
    answers = model_list("small-1", "large-1", "large-2", "other")
    with gateway_with_two_upstreams(answers) as (served, one, two):
        listed = httpx2.get(f"{served.url}/v1/models", headers=THEIRS, timeout=30)
    assert [entry["id"] for entry in listed.json()["data"]] == ["small-1", "large-1", "large-2"]
    # Which of the two the key is for, nobody can tell.
    assert credentials_sent_to(one) == credentials_sent_to(two) == [None]


def test_a_key_can_only_be_meant_for_the_one_upstream_that_has_none() -> None:
    listing = model_list("small-1")
    with gateway_with_two_upstreams(listing, listing, first={"key": "own"}) as (served, one, two):
        listed = httpx2.get(f"{served.url}/v1/models", headers=THEIRS, timeout=30)
        named = httpx2.get(
            f"{served.url}/v1/models", headers={**THEIRS, "x-toolcrib-upstream": "two"}, timeout=30
        )
    assert [entry["id"] for entry in listed.json()["data"]] == ["small-1"]
    assert credentials_sent_to(one) == ["Bearer own"]
    assert credentials_sent_to(two) == ["Bearer theirs", "Bearer theirs"]
    assert named.headers.get("x-toolcrib-upstream", "two") == "two"


def test_one_model_is_asked_for_at_its_upstream() -> None:
    with gateway_with_two_upstreams(json_answer({"id": "large-1"})) as (served, one, two):
        found = httpx2.get(f"{served.url}/v1/models/large-1", headers=THEIRS, timeout=30)
        lost = httpx2.get(f"{served.url}/v1/models/huge-1", headers=THEIRS, timeout=30)
    assert found.json() == {"id": "large-1"}
    assert (one.headers, credentials_sent_to(two)) == ([], ["Bearer theirs"])
    assert lost.status_code == 404


def test_models_are_listed_in_the_form_of_the_api_that_is_asked() -> None:
    with gateway_with_two_upstreams(model_list("small-1", "large-1"), api="messages") as (
        served,
        one,
        _,
    ):
        headers = {"anthropic-version": "2023-06-01", "x-api-key": "theirs"}
        listed = httpx2.get(f"{served.url}/v1/models?limit=2", headers=headers, timeout=30)
    assert listed.json() == {
        "data": [{"id": "small-1"}, {"id": "large-1"}],
        "has_more": False,
        "first_id": "small-1",
        "last_id": "large-1",
    }
    assert one.paths == ["GET /v1/models?limit=1000"]


def test_an_upstream_that_does_not_tell_its_models_is_left_out_and_none_at_all_is_an_error() -> (
    None
):
    with gateway_with_two_upstreams(
        json_answer({"error": {}}, 401), json_answer({"error": {}}, 401)
    ) as (served, one, two):
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
    """One exchange in which a search is hidden: the message that the client gets."""
    said = [{"role": "system", "content": system}, {"role": "user", "content": "A dollar?"}]
    body = {"model": model, "messages": said, "tools": chat_functions()}
    answer = httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
    message: Json = answer.json()["choices"][0]["message"]
    return message


def count_messages_sent(
    url: str, model: ScriptedModel, headers: Json, message: Json, **more: str
) -> int:
    """How many messages the upstream is told when the client goes on after that message."""
    said = [
        {"role": "system", "content": more.get("system", "Be kind.")},
        {"role": "user", "content": "A dollar?"},
        message,
        {"role": "tool", "tool_call_id": "call_same", "content": "2"},
    ]
    body = {"model": more.get("asked", "m"), "messages": said, "tools": chat_functions()}
    httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
    return len(model.requests[-1].body["messages"])


def test_what_was_hidden_is_put_back_for_its_owner_in_its_conversation_alone() -> None:
    def script(request: Request) -> Turn:
        if any(name == "get_exchange_rate" for name in request.tool_names):
            return Turn("Done.") if request.results == ("2",) else Turn(RATE)
        return Turn(LOOK)

    with ExitStack() as open:
        model = open.enter_context(ScriptedModel(script))
        upstreams = (
            LlmUpstreamConfig("other", api="openai", url=model.url, models=("other",)),
            LlmUpstreamConfig("scripted", api="openai", url=model.url),
        )
        gateway = LlmGateway(LlmGatewayConfig(upstreams, threshold_tools=len(WORDS)))
        url = open.enter_context(running_llm_gateway(gateway)).url
        mine = {"x-api-key": "mine"}
        message = start_conversation(url, mine)
        assert count_messages_sent(url, model, mine, message) == 6, "search and result are put back"
        others: list[Json] = [{}, {"x-api-key": "another"}, {"api-key": "mine"}]
        for headers in others:
            assert count_messages_sent(url, model, headers, message) == 4, headers
        assert count_messages_sent(url, model, mine, message, system="Be rude.") == 4
        assert count_messages_sent(url, model, mine, message, asked="other") == 4


def test_a_streamed_response_of_two_rounds_is_found_whole_by_the_id_of_its_first() -> None:
    rounds = [
        streamed_response(
            "resp_1", {"name": "search_tools", "arguments": '{"query": "exchange rate"}'}
        ),
        streamed_response(
            "resp_2", {"name": "get_exchange_rate", "arguments": '{"currency": "x"}'}
        ),
    ]
    with raw_upstream(*rounds, always=stored_response("resp_2")) as model:
        upstream = LlmUpstreamConfig("raw", api="openai", url=model.url, tool_search="on")
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((upstream,)))) as served:
            url = f"{served.url}/v1/responses"
            body = {"model": "m", "input": "A dollar?", "tools": functions(), "stream": True}
            said = httpx2.post(url, json=body, headers=THEIRS, timeout=30).text
            for id in ("resp_1", "resp_2"):
                httpx2.get(f"{url}/{id}/input_items?limit=1", headers=THEIRS, timeout=30)
    events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: ")]
    assert events[0]["response"]["id"] == events[-1]["response"]["id"] == "resp_1"
    assert model.paths[2:] == ["GET /v1/responses/resp_2/input_items?limit=1"] * 2


def test_places_are_forgotten_when_there_are_too_many_and_odd_answers_have_none() -> None:
    issued = ResponseIdMap(max_ids=2)
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
