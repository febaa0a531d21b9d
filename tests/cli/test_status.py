from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolcrib.cli.gateway import client
from toolcrib.cli.main import toolcrib

SERVER = {
    "name": "files",
    "state": "started",
    "trouble": "",
    "tools": 1,
    "tokens": 30,
    "calls": 1,
    "waiting": ["read"],
    "changed": ["write"],
    "flagged": [],
    "faults": ["the override of files___x matches no tool", "tool 2 is not an object"],
    "altered": [],
}
STATS: dict[str, Any] = {
    "tools": 1,
    "tokens": 30,
    "sessions": 1,
    "counts": {"listings": 1, "searches": 1, "tokens_saved": -48},
    "notices": [],
}
COMPLETE = {"status": "ok", "reasons": [], "servers": [SERVER], **STATS}


class Peer:
    """A server that records its requests."""

    def __init__(self, listener: socket.socket) -> None:
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.requests: list[str] = []

    def answer(self, connection: socket.socket, reply: bytes | None) -> None:
        """Send the reply to one request; without a reply, wait for the client to disconnect."""
        self.requests.append(connection.recv(65_536).decode())
        if reply is None:
            connection.recv(1)
        else:
            connection.sendall(reply)


@contextmanager
def run_peer(reply: bytes | None) -> Iterator[Peer]:
    """Run a server that sends the same reply to every request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Peer(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    server.answer(connection, reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def json_reply(document: object, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{json.dumps(document)}".encode()


def run(*arguments: str, code: int, **variables: str) -> Result:
    """Run the command and check its exit code."""
    result = CliRunner(env={"TOOLCRIB_KEY": "", **variables}).invoke(toolcrib, ["status", *arguments])
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "ftp://here", "http://a b", "http://"])
def test_invalid_url_is_reported_with_an_example(url: str) -> None:
    result = run("--url", url, code=1)
    assert result.stderr == f"Error: --url: must be a URL such as {client.EXAMPLE_URL}\n"


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000,
        json_reply({}),
        json_reply([]),
        json_reply({**COMPLETE, "servers": [{}]}),
        json_reply({**COMPLETE, "servers": [{**SERVER, "tools": "many"}]}),
        json_reply({**COMPLETE, "counts": {"listings": "many"}}),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_server_that_is_not_a_gateway_is_reported(reply: bytes, options: list[str]) -> None:
    with run_peer(reply) as peer:
        result = run("--url", f"http://{peer.address}", *options, code=1)
    assert f"http://{peer.address} is not a Toolcrib gateway" in result.stderr


def test_server_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.2)
    with run_peer(None) as peer:
        result = run("--url", f"http://{peer.address}", code=1)
    assert "did not answer within" in result.stderr
    assert "no gateway is running" not in result.stderr


def test_unknown_host_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    result = run("--url", "nonsense", code=1)
    assert result.stderr == "Error: the host nonsense cannot be found; check --url\n"


def test_loopback_url_without_a_scheme_ignores_proxies() -> None:
    nowhere = "http://127.0.0.1:9"
    with run_peer(json_reply(COMPLETE)) as peer:
        result = run("--url", f"{peer.address}/", code=0, HTTP_PROXY=nowhere, http_proxy=nowhere)
    assert "1 tool of 1 server, about 30 tokens. 1 session." in result.stdout


def test_counts_and_savings_are_printed() -> None:
    with run_peer(json_reply(COMPLETE)) as peer:
        result = run("--url", peer.address, code=0)
    assert "! 1 tool quarantined; see toolcrib approve" in result.stdout
    assert "! 2 problems of tools or overrides; see toolcrib doctor" in result.stdout
    assert "MCP clients: 1 tool list, 1 search, no tokens saved." in result.stdout
    more = {**COMPLETE, "counts": {"listings": 2, "tokens_saved": 2000, "model_requests": 1}}
    with run_peer(json_reply(more)) as peer:
        result = run("--url", peer.address, code=0)
    assert "MCP clients: 2 tool lists, 0 searches, about 2,000 tokens saved." in result.stdout
    assert "LLM clients: 1 request with deferred tools, no tokens saved." in result.stdout


def test_key_is_sent_as_utf_8_and_validated() -> None:
    with run_peer(json_reply(COMPLETE)) as peer:
        run("--url", peer.address, "--key", "k€y", code=0)
    assert all("Authorization: Bearer k€y\r\n" in request for request in peer.requests)
    result = run("--url", "nonsense", "--key", "two\nlines", code=1)
    assert "check --key" in result.stderr


def test_reason_of_a_refusal_is_printed() -> None:
    refusal = {"type": "error", "error": {"type": "forbidden", "message": "this gateway does not serve the host"}}
    with run_peer(json_reply(refusal, "403 Forbidden")) as peer:
        result = run("--url", peer.address, code=1)
    assert result.stderr == "Error: this gateway does not serve the host\n"
