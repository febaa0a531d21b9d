"""Upstreams that fail: the client is told in the API's own form, and nobody hangs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import httpx2
import pytest

from tests.gateway.llm.anthropic.requests import HARBOUR, REGEX, user_message
from tests.gateway.llm.raw_upstream import (
    RawUpstream,
    ScriptedAnswer,
    event,
    message_end,
    message_start,
    raw_upstream,
    text_block,
    tool_call_block,
)
from tests.gateway.llm.serving import RunningLlmGateway, gateway_for_upstream

SEARCH = tool_call_block(REGEX["name"], {"pattern": "tide"})
SEARCHED = ScriptedAnswer([message_start(), SEARCH, message_end("tool_use")])
PLAIN: list[dict[str, Any]] = []
SEARCHABLE: list[dict[str, Any]] = [REGEX, *HARBOUR]
either = pytest.mark.parametrize("tools", [PLAIN, SEARCHABLE], ids=["passed on", "searched"])


def post_message(
    served: RunningLlmGateway, tools: list[dict[str, Any]], stream: bool = True
) -> httpx2.Response:
    body: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [user_message("Hi")]}
    body |= {"tools": tools} if tools else {}
    body |= {"stream": True} if stream else {}
    return httpx2.post(f"{served.url}/v1/messages", json=body, timeout=60)


@contextmanager
def gateway_with(
    *answers: ScriptedAnswer, **settings: Any
) -> Iterator[tuple[RawUpstream, RunningLlmGateway]]:
    with (
        raw_upstream(*answers) as upstream,
        gateway_for_upstream(upstream.url, **{"retries": 0, **settings}) as served,
    ):
        yield upstream, served


def last_event(answer: httpx2.Response) -> dict[str, Any]:
    """The last event of a stream."""
    assert answer.status_code == 200
    name, data = answer.text.strip().split("\n\n")[-1].split("\n")
    told: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert name == f"event: {told['type']}"
    return told


@either
@pytest.mark.parametrize(
    "pieces",
    [
        [message_start(), text_block("Well")],
        [message_start(), text_block("Well"), b'event: content_block_start\ndata: {"type":"conte'],
        [message_start()],
    ],
    ids=["between events", "within one", "at the start"],
)
def test_a_stream_that_breaks_off_ends_in_an_error(
    tools: list[dict[str, Any]], pieces: list[bytes]
) -> None:
    # It promises more than it sends, so that the end is not taken for one.
    with gateway_with(ScriptedAnswer(pieces, length=10_000)) as (_, served):
        told = last_event(post_message(served, tools))
    assert told["type"] == "error"
    assert (
        told["error"]["type"] == "api_error" and "'scripted' broke off" in told["error"]["message"]
    )


def test_a_stream_that_ends_too_early_is_an_error() -> None:
    with gateway_with(ScriptedAnswer([message_start(), text_block("Well")])) as (_, served):
        told = last_event(post_message(served, SEARCHABLE))
    assert told["error"]["message"] == "the upstream ended its answer in the middle; try again"


@either
def test_an_upstream_that_falls_silent_is_given_up(tools: list[dict[str, Any]]) -> None:
    done = threading.Event()
    stalling = ScriptedAnswer([message_start(), lambda: done.wait(30)])
    with gateway_with(stalling, read_seconds=0.3) as (_, served):
        told = last_event(post_message(served, tools))
        done.set()
    assert told["error"]["type"] == "timeout_error"
    assert told["error"]["message"] == "upstream 'scripted' was silent for 0.3 s"


@pytest.mark.parametrize(
    ("broken", "says_what"),
    [
        (b"data: {not json}\n\n", "invalid JSON"),
        (b"data: []\n\n", "not an object"),
        (event("content_block_delta", index=4, delta={}), "a block that is not open"),
        (event("content_block_stop"), "without its index"),
        (b"data: " + b"x" * (17 << 20) + b"\n\n", "more than 16,777,216 bytes"),
    ],
)
def test_events_that_make_no_sense_end_in_an_error(broken: bytes, says_what: str) -> None:
    with gateway_with(
        ScriptedAnswer([message_start(), text_block("Well"), broken, text_block("?")])
    ) as (_, served):
        told = last_event(post_message(served, SEARCHABLE))
    assert told["error"]["type"] == "api_error" and says_what in told["error"]["message"]


def test_an_error_that_the_upstream_streams_is_passed_on_and_ends_the_stream() -> None:
    failure = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    with gateway_with(ScriptedAnswer([message_start(), failure, text_block("?")])) as (_, served):
        answer = post_message(served, SEARCHABLE)
    assert last_event(answer)["error"] == {"type": "overloaded_error", "message": "Overloaded"}


ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [400, 429, 500, 529])
def test_an_error_before_the_first_word_is_passed_on_unmodified(status: int, stream: bool) -> None:
    # Spaced as nobody here would write it.
    body = json.dumps(ERROR, indent=3).encode()
    refusing = ScriptedAnswer([body], status, "application/json", len(body), {"Retry-After": "7"})
    with gateway_with(refusing, retries=2) as (upstream, served):
        answer = post_message(served, SEARCHABLE, stream)
    assert (answer.status_code, answer.content) == (status, body)
    assert answer.headers["retry-after"] == "7" and len(upstream.bodies) == 1


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_in_a_later_pass_is_tried_again_and_then_told(stream: bool) -> None:
    body = json.dumps(ERROR).encode()
    busy = ScriptedAnswer([body], 529, "application/json", len(body), {"Retry-After": "0"})
    first = (
        SEARCHED if stream else ScriptedAnswer([_search_reply()], content_type="application/json")
    )
    with gateway_with(first, busy, busy, retries=1) as (upstream, served):
        answer = post_message(served, SEARCHABLE, stream)
    assert len(upstream.bodies) == 3 and upstream.bodies[1] == upstream.bodies[2]
    if stream:
        assert last_event(answer) == ERROR
    else:
        assert (answer.status_code, answer.content) == (529, body)


def _search_reply() -> bytes:
    use = {"type": "tool_use", "id": "toolu_1", "name": REGEX["name"], "input": {"pattern": "x"}}
    return json.dumps({"type": "message", "content": [use], "stop_reason": "tool_use"}).encode()


@either
@pytest.mark.parametrize("stream", [True, False])
def test_an_upstream_that_is_not_there_is_a_bad_gateway(
    stream: bool, tools: list[dict[str, Any]]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with gateway_for_upstream(
            f"http://127.0.0.1:{closed.getsockname()[1]}", retries=1
        ) as served:
            answer = post_message(served, tools, stream)
    assert answer.status_code == 502
    assert answer.json()["error"] == {
        "type": "api_error",
        "message": "upstream 'scripted' cannot be reached; is it running?",
    }


def test_a_request_is_sent_again_only_while_nothing_came_back() -> None:
    with gateway_with(retries=2) as (upstream, served):
        answer = post_message(served, SEARCHABLE)
    assert answer.status_code == 502 and len(upstream.bodies) == 3
    with gateway_with(ScriptedAnswer([message_start()], length=999), retries=2) as (
        upstream,
        served,
    ):
        assert last_event(post_message(served, SEARCHABLE))["type"] == "error"
    assert len(upstream.bodies) == 1


@either
def test_an_answer_over_the_limit_is_broken_off(tools: list[dict[str, Any]]) -> None:
    body = b'{"content":[],"x":"' + b"x" * 5_000 + b'"}'
    answers = [
        ScriptedAnswer([body], content_type="application/json"),
        ScriptedAnswer([message_start(), text_block("x" * 5_000)]),
    ]
    with gateway_with(*answers, max_response_bytes=1_024) as (_, served):
        whole, streamed = post_message(served, tools, stream=False), post_message(served, tools)
    assert whole.status_code == 502 and "maxResponseBytes" in whole.json()["error"]["message"]
    assert "maxResponseBytes" in last_event(streamed)["error"]["message"]


@pytest.mark.parametrize(
    "content", [b"[]", b"<html>", b'{"content": 7}', b'{"content": [7]}', b"{}"]
)
def test_a_whole_answer_that_makes_no_sense_is_no_failure_of_ours(content: bytes) -> None:
    with gateway_with(ScriptedAnswer([content], content_type="application/json")) as (_, served):
        answer = post_message(served, SEARCHABLE, stream=False)
    assert answer.status_code == (200 if content.startswith(b"{") else 502)


def test_an_upstream_that_does_not_stream_is_told_apart() -> None:
    with gateway_with(ScriptedAnswer([b"{}"], content_type="application/json")) as (_, served):
        answer = post_message(served, SEARCHABLE)
    assert (
        answer.status_code == 502
        and "did not answer with a stream" in answer.json()["error"]["message"]
    )


@either
def test_when_the_client_goes_the_upstream_is_let_go(tools: list[dict[str, Any]]) -> None:
    more = threading.Event()

    def until_gone() -> None:
        more.set()

    endless: list[Any] = [message_start(), until_gone, *[text_block("on and on " * 900)] * 20_000]
    with gateway_with(ScriptedAnswer(endless)) as (upstream, served):
        body = {"model": "m", "messages": [user_message("Hi")], "stream": True, "tools": tools}
        with httpx2.stream("POST", f"{served.url}/v1/messages", json=body, timeout=60) as answer:
            assert next(answer.iter_bytes())
            assert more.wait(10)
        assert upstream.gone.wait(30)


def test_when_the_client_goes_before_the_first_word_the_upstream_is_let_go() -> None:
    asked, done = threading.Event(), threading.Event()

    def wait() -> None:
        asked.set()
        done.wait(30)

    slow: list[Any] = [wait, *[b" " * 65_536] * 2_000]
    with gateway_with(ScriptedAnswer(slow, content_type="application/json")) as (upstream, served):
        body = json.dumps({"model": "m", "messages": [user_message("Hi")]}).encode()
        host, port = served.url.removeprefix("http://").split(":")
        head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((host, int(port))) as client:
            client.sendall(head.encode() + body)
            assert asked.wait(10)
        done.set()
        assert upstream.gone.wait(30)


def test_a_second_pass_that_breaks_off_is_no_answer() -> None:
    half = ScriptedAnswer([message_start(), text_block("Well")])
    with gateway_with(SEARCHED, half) as (_, served):
        told = last_event(post_message(served, SEARCHABLE))
        assert told["type"] == "error"


def test_what_an_upstream_remembers_of_one_client_is_not_told_to_another() -> None:
    whole = [message_start(), text_block("Well"), message_end()]
    cookie = {"Set-Cookie": "session=of-the-first; Path=/"}
    with gateway_with(ScriptedAnswer(whole, headers=cookie), ScriptedAnswer(whole)) as (
        upstream,
        served,
    ):
        assert "set-cookie" not in post_message(served, PLAIN).headers
        post_message(served, PLAIN)
        assert [headers.get("cookie") for headers in upstream.headers] == [None, None]


@pytest.mark.parametrize("path", ["%2e%2e/messages", "..%2fmessages", "a%00b"])
def test_no_path_leads_out_of_what_is_served(path: str) -> None:
    with gateway_with() as (upstream, served):
        host, _, port = served.url.removeprefix("http://").partition(":")
        connection = HTTPConnection(host, int(port), timeout=30)
        connection.request("GET", f"/v1/models/{path}", headers={"anthropic-version": "x"})
        assert connection.getresponse().status == 400
        connection.close()
        assert upstream.bodies == []
