"""Compare the CPU time of the MCP gateway with a direct connection and FastMCP's proxy, in one run.

python -m benchmarks.mcp [--calls N] [--rounds N] [--out FILE] [--only-recording]

Every contender is a process with the stdio transport and gets the same requests. Only the CPU time of that process is
measured, not that of the server behind it.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.echo_server import definition
from benchmarks.machine import describe_machine
from benchmarks.speed import cpu_seconds, print_progress
from toolcrib.config.server_settings import ServerConfig
from toolcrib.hub.hub import build_manifest
from toolcrib.storage import open_store

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
ERAS = (LEGACY, MODERN)
LIST_TOOLS = 1_000
KNOWN_SERVERS, TOOLS_EACH = 20, 30
WARM = 20
LISTS = 20
PAUSE_SECONDS = 0.5
# Short alternating rounds, so that other load on the machine slows down both contenders equally.
SHORT_ROUNDS = 10
FASTMCP = """
import sys
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
target = StdioTransport(sys.argv[2], sys.argv[3:])
create_proxy(target, mode=sys.argv[1]).run(show_banner=False, log_level="ERROR")
"""


class Peer:
    """A process with MCP on standard input and output."""

    def __init__(self, command: Sequence[str], era: str, env: Mapping[str, str] | None = None) -> None:
        self._start(command, env)
        self._modern = era == MODERN
        self._count = 0
        if not self._modern:
            info = {"name": "benchmark", "version": "1"}
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
            self.ask("initialize", hello)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _start(self, command: Sequence[str], env: Mapping[str, str] | None) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )

    @property
    def process_id(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def seconds(self) -> float:
        """The CPU time of the process."""
        return cpu_seconds(self._process.pid)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its result."""
        self._count += 1
        given = dict(params or {})
        if self._modern:
            given["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        self._send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": given})
        while line := self._read():
            answer = json.loads(line)
            if answer.get("id") == self._count and "method" not in answer:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
        raise RuntimeError(f"the process ended with code {self._process.wait()}")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _read(self) -> bytes:
        assert self._process.stdout
        return self._process.stdout.readline()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


Command = Callable[[Path, str, int], list[str]]


def echo(tools: int) -> list[str]:
    """Return the command of the server behind all contenders."""
    return [sys.executable, "-m", "benchmarks.echo_server", str(tools)]


def direct(folder: Path, era: str, tools: int) -> list[str]:
    """Return the command of the server itself."""
    return echo(tools)


def ours(folder: Path, era: str, tools: int) -> list[str]:
    """Return the command of our gateway, which lists all tools unchanged."""
    command, *args = echo(tools)
    server = {
        "command": command,
        "args": args,
        "cwd": str(Path.cwd()),
        "era": "legacy" if era == LEGACY else era,
        "connectSeconds": 600,
    }
    settings = {"mode": "direct", "prefix": False}
    config = {"mcpServers": {"echo": server}, "toolSearch": settings, "store": "sqlite://"}
    path = folder / f"toolcrib-{era}-{tools}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return [sys.executable, "-m", "toolcrib", "stdio", "--config", str(path)]


def fastmcp(folder: Path, era: str, tools: int) -> list[str]:
    """Return the command of FastMCP's proxy, with a persistent connection."""
    mode = "legacy" if era == LEGACY else MODERN
    return [sys.executable, "-c", FASTMCP, mode, *echo(tools)]


CONTENDERS: dict[str, Command] = {"direct": direct, "ours": ours, "FastMCP": fastmcp}


class GatewayCosts(NamedTuple):
    """The CPU seconds of each contender."""

    calls: dict[str, dict[str, float]]
    lists: dict[str, dict[str, float]]
    first: dict[str, float]
    recording: dict[str, dict[str, float]]


@contextmanager
def peers(folder: Path, era: str, tools: int) -> Iterator[dict[str, Peer]]:
    """Start all contenders and wait until they are ready."""
    with ExitStack() as stack:
        running = {}
        for name, command in CONTENDERS.items():
            peer = Peer(command(folder, era, tools), era)
            stack.callback(peer.close)
            while len(peer.ask("tools/list")["tools"]) < tools:
                time.sleep(PAUSE_SECONDS)
            running[name] = peer
        yield running


def measure_best(running: dict[str, Peer], act: Callable[[Peer], object], times: int, rounds: int) -> dict[str, float]:
    """Return the CPU seconds of one request: all contenders alternate, and the best round of each counts."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, peer in running.items():
            before = peer.seconds
            for _ in range(times):
                act(peer)
            taken = (peer.seconds - before) / times
            best[name] = min(best.get(name, taken), taken)
    return best


def call(peer: Peer) -> object:
    """Call a tool and check its result."""
    result = peer.ask("tools/call", {"name": "echo_1", "arguments": {"text": "hello"}})
    assert result["content"][0]["text"] == "hello", result
    return result


def build_recording_command(folder: Path, era: str, *, records: bool) -> list[str]:
    """Return the command of our gateway with a store on disk, with or without recording."""
    *command, path = ours(folder, era, 2)
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    name = f"recording-{era}-{records}"
    config |= {"store": f"sqlite:///{name}.db", "audit": {"enabled": records}}
    copy = folder / f"{name}.json"
    copy.write_text(json.dumps(config), encoding="utf-8")
    return [*command, str(copy)]


def measure_recording(folder: Path, calls: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the CPU seconds of a call with and without the audit log and the time series."""
    figures = {}
    for era in ERAS:
        print_progress(f"recording, {era}")
        with ExitStack() as stack:
            running = {}
            for name, records in (("recorded", True), ("not recorded", False)):
                peer = Peer(build_recording_command(folder, era, records=records), era)
                stack.callback(peer.close)
                while len(peer.ask("tools/list")["tools"]) < 2:
                    time.sleep(PAUSE_SECONDS)
                running[name] = peer
            measure_best(running, call, WARM, 1)
            figures[era] = measure_mean(running, calls, rounds)
    return figures


def measure_mean(running: dict[str, Peer], calls: int, rounds: int) -> dict[str, float]:
    """Return the mean CPU seconds of a call, because the difference is smaller than the noise of one round."""
    total = dict.fromkeys(running, 0.0)
    size = max(calls // SHORT_ROUNDS, 1)
    for _ in range(rounds * SHORT_ROUNDS):
        for name, peer in running.items():
            before = peer.seconds
            for _ in range(size):
                call(peer)
            total[name] += peer.seconds - before
    return {name: seconds / (rounds * SHORT_ROUNDS * size) for name, seconds in total.items()}


def write_known_servers(folder: Path) -> list[str]:
    """Store the manifests of 20 servers and return the command of our gateway."""
    store = open_store(f"sqlite:///{folder / 'known.db'}")
    servers = {}
    for number in range(KNOWN_SERVERS):
        name = f"server{number}"
        command, *args = echo(TOOLS_EACH)
        servers[name] = {"command": command, "args": [*args, name], "start": "lazy"}
        tools = [definition(number * TOOLS_EACH + one) for one in range(TOOLS_EACH)]
        server = ServerConfig(name, command=command, args=(*args, name))
        manifest = {"instructions": "", "protocol": MODERN, "info": {}}
        store.put_manifest(name, build_manifest(server, tools, manifest))
    store.close()
    path = folder / "known.json"
    path.write_text(json.dumps({"mcpServers": servers, "store": "sqlite:///known.db"}))
    return [sys.executable, "-m", "toolcrib", "stdio", "--config", str(path)]


def measure_first_responses(folder: Path, rounds: int) -> dict[str, float]:
    """Return the CPU seconds of a new process until its first response."""
    command = write_known_servers(folder)
    query = {"name": "search_tools", "arguments": {"query": "echo channel 7"}}
    asks: dict[str, tuple[list[str], str, dict[str, Any]]] = {
        "ours, tools/list, 20 servers known": (command, "tools/list", {}),
        "ours, a search, 20 servers known": (command, "tools/call", query),
        "FastMCP, tools/list, 1 server": (fastmcp(folder, MODERN, TOOLS_EACH), "tools/list", {}),
        "the SDK's server, tools/list": (echo(TOOLS_EACH), "tools/list", {}),
    }
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, (started, method, params) in asks.items():
            peer = Peer(started, MODERN)
            peer.ask(method, params)
            # Work after the first response does not count.
            taken = peer.seconds
            best[name] = min(best.get(name, taken), taken)
            peer.close()
    return best


def measure_gateway(calls: int, rounds: int) -> GatewayCosts:
    """Return all figures."""
    figures = GatewayCosts({}, {}, {}, {})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for era in ERAS:
            print_progress(f"calls, {era}")
            with peers(folder, era, tools=2) as running:
                measure_best(running, call, WARM, 1)
                figures.calls[era] = measure_best(running, call, calls, rounds)
            print_progress(f"lists, {era}")
            with peers(folder, era, LIST_TOOLS) as running:
                lists = measure_best(running, lambda peer: peer.ask("tools/list"), LISTS, rounds)
                figures.lists[era] = lists
        print_progress("first answers")
        figures.first.update(measure_first_responses(folder, rounds))
        figures.recording.update(measure_recording(folder, calls, rounds))
    return figures


def recording_table(recording: dict[str, dict[str, float]]) -> list[str]:
    """Return the cost of the audit log and the time series as Markdown."""
    lines = ["## Recording a call", "", "| | recorded | not recorded | ratio |", "|---|--:|--:|--:|"]
    for era, by in recording.items():
        on, off = by["recorded"], by["not recorded"]
        lines.append(f"| {era} | {1000 * on:.2f} | {1000 * off:.2f} | {on / off:.2f} |")
    return lines


def table(figures: GatewayCosts, calls: int, rounds: int) -> str:
    """Return the figures as Markdown."""
    lines = [
        "# CPU time of the MCP gateway",
        "",
        f"`python -m benchmarks.mcp`. CPU milliseconds of the process between client and server, "
        f"with the stdio transport on both sides; the best of {rounds} rounds of {calls} calls. "
        "The contenders alternate. Direct is the server itself.",
        "",
    ]
    parts = {"One call": figures.calls, f"`tools/list` of {LIST_TOOLS:,} tools": figures.lists}
    for title, of_eras in parts.items():
        lines += [f"## {title}", "", "| | direct | ours | FastMCP | FastMCP / ours |"]
        lines.append("|---|--:|--:|--:|--:|")
        for era, by in of_eras.items():
            cells = " | ".join(f"{1000 * by[name]:.2f}" for name in CONTENDERS)
            lines.append(f"| {era} | {cells} | {by['FastMCP'] / by['ours']:.1f} × |")
        lines.append("")
    lines += ["## From the start to the first answer", "", "| | CPU seconds |", "|---|--:|"]
    lines += [f"| {name} | {seconds:.2f} |" for name, seconds in figures.first.items()]
    lines += ["", *recording_table(figures.recording)]
    return "\n".join([*lines, "", f"{', '.join(describe_machine().values())}.", ""])


@click.command()
@click.option("--calls", default=300, help="Calls a round.")
@click.option("--rounds", default=3, help="Rounds, of which the best counts.")
@click.option("--out", type=click.Path(path_type=Path), default="benchmarks/results/mcp.md")
@click.option("--only-recording", is_flag=True, help="Only the cost of recording calls; write no file.")
def main(calls: int, rounds: int, out: Path, only_recording: bool) -> None:
    """Measure the CPU time of the MCP gateway."""
    if only_recording:
        with tempfile.TemporaryDirectory() as temporary:
            click.echo("\n".join(recording_table(measure_recording(Path(temporary), calls, rounds))))
        return
    figures = measure_gateway(calls, rounds)
    text = table(figures, calls, rounds)
    out.with_suffix(".json").write_text(json.dumps(figures._asdict(), indent=1) + "\n")
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
