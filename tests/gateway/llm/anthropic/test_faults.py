"""Failing upstreams: the client gets an error in the form of the API and never hangs."""

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


def post_message(served: RunningLlmGateway, tools: list[dict[str, Any]], stream: bool = True) -> httpx2.Response:
    body: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [user_message("Hi")]}
    body |= {"tools": tools} if tools else {}
    body |= {"stream": True} if stream else {}
    return httpx2.post(f"{served.url}/v1/messages", json=body, timeout=60)


@contextmanager
def gateway_with(*answers: ScriptedAnswer, **settings: Any) -> Iterator[tuple[RawUpstream, RunningLlmGateway]]:
    with raw_upstream(*answers) as upstream, gateway_for_upstream(upstream.url, **{"retries": 0, **settings}) as served:
        yield upstream, served


def last_event(answer: httpx2.Response) -> dict[str, Any]:
    """Return the last event of a stream."""
    assert answer.status_code == 200
    name, data = answer.text.strip().split("\n\n")[-1].split("\n")
    last: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert name == f"event: {last['type']}"
    return last


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
def test_broken_stream_ends_with_error_event(tools: list[dict[str, Any]], pieces: list[bytes]) -> None:
    # The content length is larger than the content, so the connection breaks off.
    with gateway_with(ScriptedAnswer(pieces, length=10_000)) as (_, served):
        last = last_event(post_message(served, tools))
    assert last["type"] == "error"
    assert last["error"]["type"] == "api_error" and "'scripted' broke off" in last["error"]["message"]


def test_truncated_stream_ends_with_error_event() -> None:
    with gateway_with(ScriptedAnswer([message_start(), text_block("Well")])) as (_, served):
        last = last_event(post_message(served, SEARCHABLE))
    assert last["error"]["message"] == "the upstream ended its answer in the middle; try again"


@either
def test_silent_upstream_times_out(tools: list[dict[str, Any]]) -> None:
    done = threading.Event()
    stalling = ScriptedAnswer([message_start(), lambda: done.wait(30)])
    with gateway_with(stalling, read_seconds=0.3) as (_, served):
        last = last_event(post_message(served, tools))
        done.set()
    assert last["error"]["type"] == "timeout_error"
    assert last["error"]["message"] == "upstream 'scripted' was silent for 0.3 s"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (b"data: {not json}\n\n", "invalid JSON"),
        (b"data: []\n\n", "not an object"),
        (event("content_block_delta", index=4, delta={}), "a block that is not open"),
        (event("content_block_stop"), "without its index"),
        (b"data: " + b"x" * (17 << 20) + b"\n\n", "more than 16,777,216 bytes"),
    ],
)
def test_invalid_events_end_with_error_event(broken: bytes, message: str) -> None:
    with gateway_with(ScriptedAnswer([message_start(), text_block("Well"), broken, text_block("?")])) as (_, served):
        last = last_event(post_message(served, SEARCHABLE))
    assert last["error"]["type"] == "api_error" and message in last["error"]["message"]


def test_error_event_of_upstream_is_forwarded_and_ends_stream() -> None:
    failure = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    with gateway_with(ScriptedAnswer([message_start(), failure, text_block("?")])) as (_, served):
        answer = post_message(served, SEARCHABLE)
    assert last_event(answer)["error"] == {"type": "overloaded_error", "message": "Overloaded"}


ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [400, 429, 500, 529])
def test_error_in_first_round_is_forwarded_unchanged(status: int, stream: bool) -> None:
    # The gateway itself would not write these spaces.
    body = json.dumps(ERROR, indent=3).encode()
    refusing = ScriptedAnswer([body], status, "application/json", len(body), {"Retry-After": "7"})
    with gateway_with(refusing, retries=2) as (upstream, served):
        answer = post_message(served, SEARCHABLE, stream)
    assert (answer.status_code, answer.content) == (status, body)
    assert answer.headers["retry-after"] == "7" and len(upstream.bodies) == 1


@pytest.mark.parametrize("stream", [True, False])
def test_error_in_later_round_is_retried_then_forwarded(stream: bool) -> None:
    body = json.dumps(ERROR).encode()
    busy = ScriptedAnswer([body], 529, "application/json", len(body), {"Retry-After": "0"})
    first = SEARCHED if stream else ScriptedAnswer([_search_reply()], content_type="application/json")
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
def test_unreachable_upstream_returns_502(stream: bool, tools: list[dict[str, Any]]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with gateway_for_upstream(f"http://127.0.0.1:{closed.getsockname()[1]}", retries=1) as served:
            answer = post_message(served, tools, stream)
    assert answer.status_code == 502
    assert answer.json()["error"] == {
        "type": "api_error",
        "message": "upstream 'scripted' cannot be reached; is it running?",
    }


def test_request_is_retried_only_before_response_starts() -> None:
    with gateway_with(retries=2) as (upstream, served):
        answer = post_message(served, SEARCHABLE)
    assert answer.status_code == 502 and len(upstream.bodies) == 3
    with gateway_with(ScriptedAnswer([message_start()], length=999), retries=2) as (upstream, served):
        assert last_event(post_message(served, SEARCHABLE))["type"] == "error"
    assert len(upstream.bodies) == 1


@either
def test_response_over_limit_is_aborted(tools: list[dict[str, Any]]) -> None:
    body = b'{"content":[],"x":"' + b"x" * 5_000 + b'"}'
    answers = [
        ScriptedAnswer([body], content_type="application/json"),
        ScriptedAnswer([message_start(), text_block("x" * 5_000)]),
    ]
    with gateway_with(*answers, max_response_bytes=1_024) as (_, served):
        whole, streamed = post_message(served, tools, stream=False), post_message(served, tools)
    assert whole.status_code == 502 and "maxResponseBytes" in whole.json()["error"]["message"]
    assert "maxResponseBytes" in last_event(streamed)["error"]["message"]


@pytest.mark.parametrize("content", [b"[]", b"<html>", b'{"content": 7}', b'{"content": [7]}', b"{}"])
def test_invalid_response_body_does_not_crash_gateway(content: bytes) -> None:
    with gateway_with(ScriptedAnswer([content], content_type="application/json")) as (_, served):
        answer = post_message(served, SEARCHABLE, stream=False)
    assert answer.status_code == (200 if content.startswith(b"{") else 502)


def test_upstream_without_event_stream_returns_502() -> None:
    with gateway_with(ScriptedAnswer([b"{}"], content_type="application/json")) as (_, served):
        answer = post_message(served, SEARCHABLE)
    assert answer.status_code == 502 and "did not answer with a stream" in answer.json()["error"]["message"]


@either
def test_client_disconnect_closes_upstream_connection(tools: list[dict[str, Any]]) -> None:
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


def test_client_disconnect_before_response_closes_upstream_connection() -> None:
    received, done = threading.Event(), threading.Event()

    def wait() -> None:
        received.set()
        done.wait(30)

    slow: list[Any] = [wait, *[b" " * 65_536] * 2_000]
    with gateway_with(ScriptedAnswer(slow, content_type="application/json")) as (upstream, served):
        body = json.dumps({"model": "m", "messages": [user_message("Hi")]}).encode()
        host, port = served.url.removeprefix("http://").split(":")
        head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((host, int(port))) as client:
            client.sendall(head.encode() + body)
            assert received.wait(10)
        done.set()
        assert upstream.gone.wait(30)


def test_truncated_second_round_ends_with_error_event() -> None:
    half = ScriptedAnswer([message_start(), text_block("Well")])
    with gateway_with(SEARCHED, half) as (_, served):
        last = last_event(post_message(served, SEARCHABLE))
        assert last["type"] == "error"


def test_cookies_of_upstream_are_not_shared_between_clients() -> None:
    whole = [message_start(), text_block("Well"), message_end()]
    cookie = {"Set-Cookie": "session=of-the-first; Path=/"}
    with gateway_with(ScriptedAnswer(whole, headers=cookie), ScriptedAnswer(whole)) as (upstream, served):
        assert "set-cookie" not in post_message(served, PLAIN).headers
        post_message(served, PLAIN)
        assert [headers.get("cookie") for headers in upstream.headers] == [None, None]


@pytest.mark.parametrize("path", ["%2e%2e/messages", "..%2fmessages", "a%00b"])
def test_path_traversal_is_refused(path: str) -> None:
    with gateway_with() as (upstream, served):
        host, _, port = served.url.removeprefix("http://").partition(":")
        connection = HTTPConnection(host, int(port), timeout=30)
        connection.request("GET", f"/v1/models/{path}", headers={"anthropic-version": "x"})
        assert connection.getresponse().status == 400
        connection.close()
        assert upstream.bodies == []
