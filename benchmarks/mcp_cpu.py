"""Compare the CPU time of the MCP gateway in two checkouts.

git worktree add /tmp/before COMMIT
python -m benchmarks.mcp_cpu /tmp/before

Both gateways have the same configuration and server, and take turns with small batches of the same requests. CPU is the
user and system time of the gateway's process alone.
"""

import http.client
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.gateway_cpu import describe_checkout
from benchmarks.mcp import ERAS, MODERN, PAUSE_SECONDS, Peer, echo
from benchmarks.model_gateway import Server, start_server
from benchmarks.speed import cpu_seconds
from tests.support.ports import find_free_port

TOOLS = 100
# A batch takes much longer than a tick of the clock, which has 10 ms.
BATCH, LIST_BATCH, LARGE_BATCH = 300, 200, 300
# The budget for a preview is 10,000 tokens, so this result is passed on whole.
LARGE_CHARS = 20_000
ECHO = {"name": "echo___echo_1", "arguments": {"text": "hello"}}
_numbers = itertools.count()


class HttpPeer(Peer):
    """A gateway with MCP over HTTP, and one connection to it."""

    def __init__(self, server: Server, era: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port)
        self._server = server
        self._headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self._headers["mcp-protocol-version"] = era
        self._reply = b""
        super().__init__([], era)

    def _start(self, command: object, env: object) -> None:
        """Do nothing: the gateway runs already."""

    @property
    def process_id(self) -> int:
        """The id of the gateway."""
        assert self._server.process
        return self._server.process.pid

    def close(self) -> None:
        self._connection.close()

    def _send(self, message: dict[str, Any]) -> None:
        headers = dict(self._headers)
        if headers["mcp-protocol-version"] == MODERN:
            headers["mcp-method"] = message["method"]
            if "name" in message.get("params", {}):
                headers["mcp-name"] = message["params"]["name"]
        try:
            response = self._post(message, headers)
        except OSError:
            # The gateway has closed the idle connection.
            self._connection.close()
            response = self._post(message, headers)
        self._reply = response.read()
        if session := response.getheader("mcp-session-id"):
            self._headers["mcp-session-id"] = session

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request("POST", "/mcp", json.dumps(message), headers)
        return self._connection.getresponse()

    def _read(self) -> bytes:
        reply, self._reply = self._reply, b""
        lines = reply.splitlines()
        return next((line[5:] for line in lines if line.startswith(b"data: {")), reply)


def call(peer: Peer) -> None:
    """Call a tool by its name."""
    _check(peer.ask("tools/call", ECHO), "hello")


def call_large(peer: Peer) -> None:
    """Call a tool that returns a long text."""
    text = "word " * (LARGE_CHARS // 5)
    _check(peer.ask("tools/call", {"name": "echo___echo_1", "arguments": {"text": text}}), text)


def call_through(peer: Peer) -> None:
    """Call a tool through `call_tool`."""
    _check(peer.ask("tools/call", {"name": "call_tool", "arguments": ECHO}), "hello")


def search(peer: Peer) -> None:
    """Search with a text that no cache has."""
    query = f"send a text number {next(_numbers)} through a channel"
    result = peer.ask("tools/call", {"name": "search_tools", "arguments": {"query": query}})
    assert "echo" in result["content"][0]["text"], result


def list_tools(peer: Peer) -> None:
    """List all tools."""
    assert len(peer.ask("tools/list")["tools"]) >= TOOLS


def _check(result: dict[str, Any], text: str) -> None:
    assert result["content"][0]["text"] == text, result


CASES: dict[str, tuple[str, Callable[[Peer], None], int]] = {
    "call by name": ("search", call, BATCH),
    f"call by name, {LARGE_CHARS:,} characters": ("search", call_large, LARGE_BATCH),
    "call through call_tool": ("search", call_through, BATCH),
    "search": ("search", search, BATCH),
    f"list of {TOOLS} tools": ("direct", list_tools, LIST_BATCH),
}


@contextmanager
def start_gateway(checkout: Path, folder: Path, transport: str, era: str, mode: str) -> Iterator[Peer]:
    """Start the gateway of a checkout and wait until it has encoded its tools."""
    command, *args = echo(TOOLS)
    # The server is the same for both, so it does not run in the checkout.
    server = {"command": command, "args": args, "env": {"PYTHONPATH": str(Path.cwd())}, "connectSeconds": 600}
    port = find_free_port()
    config = {"mcpServers": {"echo": server}, "toolSearch": {"mode": mode}, "http": {"port": port}}
    path = Path(tempfile.mkdtemp(dir=folder)) / "toolcrib.json"
    path.write_text(json.dumps({**config, "store": f"sqlite:///{path.parent}/store.db"}), encoding="utf-8")
    run = [sys.executable, "-m", "toolcrib", "stdio" if transport == "stdio" else "serve", "--config", str(path)]
    env = {"PYTHONPATH": str(checkout / "src"), "PYTHONSAFEPATH": "1"}
    with ExitStack() as stack:
        if transport == "stdio":
            peer = Peer(run, era, {**os.environ, **env})
        else:
            peer = HttpPeer(stack.enter_context(start_server(str(checkout), run, port, **env)), era)
        stack.callback(peer.close)
        _wait_until_ready(peer)
        yield peer


def _wait_until_ready(peer: Peer) -> None:
    while peer.ask("tools/call", ECHO)["content"][0]["text"] != "hello":
        time.sleep(PAUSE_SECONDS)
    before = -1.0
    while cpu_seconds(peer.process_id) > before + 0.02:
        before = cpu_seconds(peer.process_id)
        time.sleep(2 * PAUSE_SECONDS)


def compare(
    peers: tuple[Peer, Peer], act: Callable[[Peer], None], times: int, rounds: int
) -> tuple[float, float, float]:
    """Return the mean CPU milliseconds of both, and the median of the ratios of neighbouring batches."""
    figures: list[list[float]] = []
    for peer in peers * 20:
        act(peer)
    for number in range(rounds):
        spent: dict[Peer, float] = {}
        for peer in peers if number % 2 else peers[::-1]:
            before = cpu_seconds(peer.process_id)
            for _ in range(times):
                act(peer)
            spent[peer] = (cpu_seconds(peer.process_id) - before) * 1e3 / times
        figures.append([spent[peer] for peer in peers])
    left, right = (sum(column) / rounds for column in zip(*figures, strict=True))
    return left, right, median(after / max(before, 1e-9) for before, after in figures)


@click.command()
@click.argument("before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path())
@click.option("--rounds", default=9, show_default=True, help="Batches of each gateway in each line.")
@click.option("--only", default="", help="Measure the lines that contain this text.")
def main(before: Path, after: Path, rounds: int, only: str) -> None:
    """Print the CPU time of the gateways in the checkouts BEFORE and AFTER, by default this one."""
    names = " | ".join(f"{describe_checkout(path)} ms" for path in (before, after))
    print(f"| | {names} | of the means | median of ratios |\n|---|--:|--:|--:|--:|")
    for transport, era, mode in itertools.product(("stdio", "HTTP"), ERAS, ("search", "direct")):
        cases = {f"{transport}, {era}, {name}": case for name, case in CASES.items() if case[0] == mode}
        cases = {name: case for name, case in cases.items() if only in name}
        if not cases:
            continue
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            left, right = (
                stack.enter_context(start_gateway(path.resolve(), folder, transport, era, mode))
                for path in (before, after)
            )
            for name, (_, act, times) in cases.items():
                first, second, ratio = compare((left, right), act, times, rounds)
                print(f"| {name} | {first:.3f} | {second:.3f} | {second / first:.3f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
