"""`toolcrib stdio` serves one client on standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import environment, server_entry
from tests.support.gateway_process import stdio_command, write_config
from toolcrib.gateway.mcp.upstream.stdio import MAX_LINE_BYTES

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tester", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST_TOOLS = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
LARGE_ARGUMENT = {"text": "grüß\u2028" + "x" * 1_000_000}
CALL = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {"name": "plain___echo", "arguments": LARGE_ARGUMENT},
}


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    config = {"mcpServers": {"plain": server_entry("echo")}, "store": "sqlite://", "results": {"budgetTokens": 0}}
    return stdio_command(write_config(tmp_path, config))


def encode_lines(*messages: dict[str, Any]) -> bytes:
    return "".join(json.dumps(message, ensure_ascii=False) + "\n" for message in messages).encode()


def test_client_on_pipes_is_served_until_it_closes_its_end(command: list[str]) -> None:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdin and process.stdout
        results: list[Any] = []
        for message in (INITIALIZE, LIST_TOOLS, CALL):
            process.stdin.write(encode_lines(message))
            process.stdin.flush()
            responses = filter(lambda line: "id" in line, map(json.loads, process.stdout))
            results.append(next(responses)["result"])
            if message is INITIALIZE:
                process.stdin.write(encode_lines(INITIALIZED))
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0
    initialized, listed, called = results
    assert initialized["serverInfo"]["name"] == "toolcrib"
    assert [tool["name"] for tool in listed["tools"]] == ["plain___echo"]
    assert called["content"][0]["text"] == LARGE_ARGUMENT["text"]


@pytest.mark.parametrize("text", [r"cut \ud83d", r"\uDE00 cut", r"\\ud83d and \ud83d\ude00"])
def test_half_of_a_surrogate_pair_in_a_request_is_replaced(command: list[str], text: str) -> None:
    call = json.dumps({**CALL, "params": {"name": "plain___echo", "arguments": {"text": "TEXT"}}}).replace("TEXT", text)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdin and process.stdout
        responses = map(json.loads, process.stdout)
        process.stdin.write(encode_lines(INITIALIZE, INITIALIZED, LIST_TOOLS))
        process.stdin.flush()
        assert any(line.get("id") == 2 for line in responses)
        process.stdin.write(call.encode() + b"\n")
        process.stdin.flush()
        (content,) = next(line for line in responses if line.get("id") == 3)["result"]["content"]
        process.stdin.close()
    wanted = json.loads(f'"{text}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert content["text"] == wanted


@pytest.mark.skipif(sys.platform == "win32", reason="reads a file as standard input")
def test_requests_can_come_from_a_file(command: list[str], tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    requests.write_bytes(encode_lines(INITIALIZE))
    with requests.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["protocolVersion"] == "2025-11-25"


def test_client_that_stops_reading_is_not_an_error(command: list[str]) -> None:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(encode_lines(INITIALIZE))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.stdout.close()
        process.stdin.write(encode_lines(INITIALIZED, LIST_TOOLS))
        process.stdin.close()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.skipif(sys.platform == "win32", reason="reads a file as standard input")
def test_message_in_a_file_is_limited_too(command: list[str], tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    with requests.open("wb") as file:
        file.write(encode_lines(INITIALIZE))
        # A sparse file: the message takes no room on the disk.
        file.truncate(2 * MAX_LINE_BYTES)
    with requests.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    assert b"more than 64 MiB" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="lines are limited on pipes of the event loop")
def test_message_without_end_closes_the_connection(command: list[str]) -> None:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin and process.stderr
        megabyte = b" " * (1 << 20)
        with suppress(BrokenPipeError):
            for _ in range(3 * MAX_LINE_BYTES // len(megabyte)):
                process.stdin.write(megabyte)
            process.stdin.close()
        assert b"more than 64 MiB" in process.stderr.read()
