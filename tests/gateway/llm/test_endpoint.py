"""Clients that stop reading, read slowly or wait for a silent model."""

from __future__ import annotations

import gc
import json
import platform
import socket
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.llm.anthropic.requests import HARBOUR, REGEX, user_message
from tests.gateway.llm.openai_chat.test_chat_stream import chunk
from tests.gateway.llm.openai_responses.requests import assistant_message, deferred_functions
from tests.gateway.llm.openai_responses.test_responses_stream import response_events
from tests.gateway.llm.raw_upstream import ScriptedAnswer, message_end, message_start, raw_upstream, text_block
from tests.gateway.llm.serving import gateway_for_upstream, running_llm_gateway
from tests.gateway.llm.serving_openai import chat_functions
from tests.gateway.llm.test_openai_faults import CHAT_SEARCH, RESPONSE_SEARCH, encode_events
from tests.gateway.serving import wait_until
from tests.support.gateway_process import run_process, wait_for, write_config
from tests.support.ports import find_free_port, is_listening
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm import endpoint
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.upstream.http_messages import UpstreamResponse

STALLED_STREAMS = 200
either = pytest.mark.parametrize("tools", [[], [REGEX, *HARBOUR]], ids=["passed on", "searched"])


def messages(tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "m", "messages": [user_message("Hi")], "stream": True, "tools": tools}


def send_post(url: str, body: dict[str, Any]) -> socket.socket:
    """Send a request and return the connection without reading from it."""
    data = json.dumps(body).encode()
    host, port = url.removeprefix("http://").split(":")
    head = f"POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n\r\n"
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
    client.connect((host, int(port)))
    client.sendall(head.encode() + data)
    return client


@either
def test_request_of_a_client_that_stops_reading_is_cancelled(
    tools: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(endpoint, "CHECK_INTERVAL_SECONDS", 0.05)
    endless = ScriptedAnswer([message_start(), *[text_block("on and on " * 900)] * 20_000])
    with (
        raw_upstream(endless) as upstream,
        gateway_for_upstream(upstream.url) as served,
        send_post(served.url, messages(tools)),
    ):
        # The connection to the upstream is closed, so that no further tokens are generated.
        assert upstream.gone.wait(60)


@either
def test_nothing_is_left_of_stalled_streams_that_are_closed_together(tools: list[dict[str, Any]]) -> None:
    is_closed = threading.Event()
    unfinished = ScriptedAnswer([message_start(), text_block("on and on " * 900), lambda: is_closed.wait(60)])

    def count_open() -> int:
        gc.collect()
        return sum(isinstance(each, endpoint.HttpExchange | UpstreamResponse) for each in gc.get_objects())

    with (
        raw_upstream(always=unfinished) as upstream,
        gateway_for_upstream(upstream.url) as served,
        ExitStack() as clients,
    ):
        before = count_open()
        for number in range(0, STALLED_STREAMS, 5):
            # A few at a time, because the upstream has a short queue of connections.
            for _ in range(5):
                clients.enter_context(send_post(served.url, messages(tools)))
            wait_until(lambda expected=number + 5: len(upstream.bodies) == expected)  # type: ignore[misc]
        wait_until(lambda: count_open() == before + 2 * STALLED_STREAMS)
        clients.close()
        wait_until(lambda: count_open() == before)
        is_closed.set()


def read_resident_kilobytes(pid: int) -> int:
    """Return the memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back on request")
def test_memory_of_many_streams_that_are_closed_together_is_given_back(tmp_path: Path) -> None:
    is_closed = threading.Event()
    unfinished = ScriptedAnswer([message_start(), text_block("on and on " * 900), lambda: is_closed.wait(60)])
    deferred = {"description": "x" * 20_000, "input_schema": {"type": "object"}, "defer_loading": True}
    tools: list[dict[str, Any]] = [REGEX, *({"name": f"tool_{number}", **deferred} for number in range(30))]
    port = find_free_port()
    with raw_upstream(always=unfinished) as upstream, ExitStack() as clients:
        config = write_config(tmp_path, {"models": {"m": {"url": upstream.url}}})
        command = [sys.executable, "-m", "toolcrib", "serve", "--config", str(config), "--port", str(port)]
        process = clients.enter_context(run_process(command, tmp_path / "log"))
        wait_for(lambda: is_listening(port), process, tmp_path / "log")
        with ExitStack() as streams:
            # The first request loads what all later ones need.
            streams.enter_context(send_post(f"http://127.0.0.1:{port}", messages(tools)))
            wait_until(lambda: upstream.bodies)
            before = read_resident_kilobytes(process.pid)
            for number in range(1, endpoint.MANY_REQUESTS, 5):
                for _ in range(5):
                    streams.enter_context(send_post(f"http://127.0.0.1:{port}", messages(tools)))
                wait_until(lambda expected=number + 5: len(upstream.bodies) == expected)  # type: ignore[misc]
            held = read_resident_kilobytes(process.pid) - before
        # Without a release, more than half stays with the process.
        wait_until(lambda: read_resident_kilobytes(process.pid) - before < held / 4)
        is_closed.set()


@either
def test_slow_client_receives_the_whole_response(tools: list[dict[str, Any]]) -> None:
    long = [text_block("on and on " * 900) for _ in range(150)]
    stream = [message_start(), *long, message_end()]
    with (
        raw_upstream(ScriptedAnswer(stream)) as upstream,
        gateway_for_upstream(upstream.url) as served,
        send_post(served.url, messages(tools)) as client,
    ):
        got = b""
        while not got.endswith(b"\r\n0\r\n\r\n") and (piece := client.recv(40_000)):
            got += piece
    assert got.count(b"on and on ") == 150 * 900
    assert got.count(b"event: message_stop") == 1


def test_stream_with_an_unknown_encoding_is_forwarded_unchanged() -> None:
    sent = b"\x1b\x07\x00 no events at all"
    odd = ScriptedAnswer([sent], headers={"Content-Encoding": "br"})
    with raw_upstream(odd) as upstream, gateway_for_upstream(upstream.url) as served:
        url = f"{served.url}/v1/messages"
        with httpx2.stream("POST", url, json=messages([]), timeout=30) as answer:
            assert answer.headers["content-encoding"] == "br"
            assert b"".join(answer.iter_raw()) == sent


@pytest.mark.parametrize(
    ("path", "asked", "first", "last"),
    [
        (
            "chat/completions",
            {"messages": [user_message("Hi")], "tools": chat_functions()},
            CHAT_SEARCH,
            encode_events([chunk(role="assistant", content="Done."), chunk("stop")]) + b"data: [DONE]\n\n",
        ),
        (
            "responses",
            {"input": "Hi", "tools": deferred_functions()},
            RESPONSE_SEARCH,
            encode_events(response_events(assistant_message("Done."))),
        ),
    ],
    ids=["chat", "responses"],
)
def test_client_receives_pings_while_a_later_round_is_silent(
    path: str, asked: Any, first: bytes, last: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PING_SECONDS", 0.01)
    monkeypatch.setattr(endpoint, "CHECK_INTERVAL_SECONDS", 0.01)
    heard = threading.Event()
    slow = ScriptedAnswer([lambda: heard.wait(30), last])
    with raw_upstream(ScriptedAnswer([first]), slow) as raw:
        upstream = LlmUpstreamConfig("slow", api="openai", url=raw.url, style="reveal")
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((upstream,), threshold_tools=3))) as served:
            body = {"model": "m", "stream": True, **asked}
            got = b""
            url = f"{served.url}/v1/{path}"
            with httpx2.stream("POST", url, json=body, timeout=60) as answer:
                for piece in answer.iter_bytes():
                    got += piece
                    if got.count(b": searching\n\n") >= 3:
                        heard.set()
    assert heard.is_set() and b"Done." in got
