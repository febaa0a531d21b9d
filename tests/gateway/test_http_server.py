"""A gateway that is stopped reports it, finishes the requests in flight, ends open streams and exits with 0."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.gateway.serving import COMMAND, GatewayProcess, environment, server_entry, wait_until, write_json

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@contextmanager
def started(folder: Path, **http: Any) -> Iterator[tuple[subprocess.Popen[str], GatewayProcess]]:
    """Run a gateway that the test itself stops."""
    servers = {"one": server_entry("echo", "pause")}
    write_json(folder / "toolcrib.json", {"mcpServers": servers, "http": http, "store": "sqlite:///t.db"})
    log = folder / "stderr.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0"],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        assert process.stdout
        try:
            lines = iter(process.stdout.readline, "")
            url = next(line.split()[2].removesuffix("/mcp.") for line in lines if line.startswith("MCP server: "))
            served = GatewayProcess(url, "", log)
            wait_until(lambda: _get_status(served, "/ready") == 200)
            yield process, served
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _get_status(served: GatewayProcess, path: str) -> int:
    try:
        return served.request(path).status
    except OSError:
        return 0


def test_requests_in_flight_end_with_their_result(tmp_path: Path) -> None:
    with started(tmp_path) as (process, served):
        session = {"mcp_session_id": served.request("/mcp", "", HELLO).headers["mcp-session-id"]}
        call = {"name": "one___pause", "arguments": {"seconds": 2}}
        replies: list[str] = []
        request = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        thread = threading.Thread(target=lambda: replies.append(served.request("/mcp", "", request, **session).text))
        thread.start()
        wait_until(lambda: served.servers()["one"]["state"] == "in use")
        process.send_signal(signal.SIGTERM)
        thread.join(60)
        assert process.wait(60) == 0
    (reply,) = replies
    events = [json.loads(line.removeprefix("data: ")) for line in reply.splitlines() if line.startswith("data: {")]
    assert events[-1]["result"]["content"][0]["text"] == "rested"


def test_an_open_stream_does_not_delay_the_end(tmp_path: Path) -> None:
    with started(tmp_path, shutdownSeconds=300) as (process, served):
        session = served.request("/mcp", "", HELLO).headers["mcp-session-id"]
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session}
        with urllib.request.urlopen(urllib.request.Request(f"{served.url}/mcp", headers=headers), timeout=60) as stream:
            process.send_signal(signal.SIGTERM)
            with suppress(IncompleteRead):
                stream.read()
        assert process.wait(60) == 0


def test_a_gateway_that_drains_is_not_ready_and_still_serves(tmp_path: Path) -> None:
    with started(tmp_path, drainSeconds=600) as (process, served):
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: served.request("/ready").status == 503)
        assert served.request("/ready").json == {"status": "draining", "store": "ok"}
        listed = served.request("/mcp", "", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert listed.status == 200
        assert listed.headers["connection"] == "close"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_gateway_serves_for_as_long_as_its_proxy_sends_requests(tmp_path: Path) -> None:
    with started(tmp_path, drainSeconds=1) as (process, served):
        call = {"name": "one___pause", "arguments": {"seconds": 0.5}}
        process.send_signal(signal.SIGTERM)
        # Together they take much longer than the drain.
        for number in range(8):
            request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            assert served.request("/mcp", "", request).status == 200
        assert process.wait(60) == 0


def test_a_request_on_a_connection_from_before_the_shutdown_is_served(tmp_path: Path) -> None:
    with started(tmp_path) as (process, served):
        connections = [HTTPConnection(str(urlsplit(served.url).netloc), timeout=60) for _ in range(2)]
        # One connection is new, and a request has ended on the other.
        connections[0].connect()
        connections[1].request("GET", "/health")
        assert connections[1].getresponse().read()
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: _get_status(served, "/ready") == 0)
        for connection in connections:
            connection.request("GET", "/health")
            response = connection.getresponse()
            assert (response.status, response.headers["connection"]) == (200, "close")
            response.read()
        assert process.wait(60) == 0


def test_ctrl_c_does_not_wait_for_idle_connections(tmp_path: Path) -> None:
    with started(tmp_path) as (process, served):
        connection = HTTPConnection(str(urlsplit(served.url).netloc), timeout=60)
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        process.send_signal(signal.SIGINT)
        wait_until(lambda: _get_status(served, "/ready") == 0)
        with pytest.raises(OSError):
            connection.request("GET", "/health")
            connection.getresponse()
        process.wait(60)


def test_client_that_disconnects_before_the_end_of_its_body_leaves_no_traceback(tmp_path: Path) -> None:
    with started(tmp_path) as (_, served):
        address = urlsplit(served.url)
        assert address.hostname and address.port
        session = served.request("/mcp", "", HELLO).headers["mcp-session-id"]
        for path, id in (("/mcp", ""), ("/mcp", session), ("/api/keys", "")):
            with socket.create_connection((address.hostname, address.port)) as client:
                head = f"POST {path} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
                head += f"mcp-session-id: {id}\r\n" if id else ""
                client.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
                # The gateway reads the body when it has answered another request.
                assert _get_status(served, "/health") == 200
        wait_until(lambda: _get_status(served, "/metrics") == 200)
        assert "Traceback" not in served.read_log()
