"""What the load of one access profile does to another one on the same gateway.

python -m benchmarks.tenants [--calls 300] [--out FILE]

Team B sends one request after the other, and its waiting time is measured: alone, while 16 clients of team A call without a pause,
and the same with a quota for team A. Then team B searches, with and without a large catalog of team A. The clients of team
A run in another process.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

import anyio
import click

from benchmarks.machine import describe_machine
from tests.gateway.serving import server_entry
from tests.support.ports import find_free_port
from tests.support.replica_load import ReplicaProcess

ROOT = Path(__file__).resolve().parent.parent
TEAM_A, TEAM_B = "the-key-of-team-a", "the-key-of-team-b"
FLOOD_CLIENTS = 16
LARGE_CATALOG = 3_000
# Sends calls from several threads until it is ended.
FLOOD = """
import http.client, json, sys, threading
port, key, clients, name = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {"text": "x"}}})
def send():
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        connection.request("POST", "/mcp", body, {"authorization": f"Bearer {key}", "content-type": "application/json"})
        connection.getresponse().read()
for _ in range(clients):
    threading.Thread(target=send).start()
"""


class Waiting(NamedTuple):
    """How long team B waits for a response, in milliseconds."""

    situation: str
    request: str
    p50: float
    p95: float


def measure(port: int, name: str, arguments: dict[str, Any], count: int) -> tuple[float, float]:
    """Return the median and the 95th percentile of the seconds of a call of team B."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    params = {"name": name, "arguments": arguments}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {"authorization": f"Bearer {TEAM_B}", "content-type": "application/json"}
    seconds = []
    for number in range(count + 10):
        started = time.perf_counter()
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200 and not answer["result"].get("isError"), answer
        if number >= 10:
            seconds.append(time.perf_counter() - started)
        # Without a pause, team B would flood the gateway too.
        time.sleep(0.01)
    cuts = quantiles(seconds, n=20)
    return cuts[9], cuts[18]


@contextmanager
def flood(port: int) -> Iterator[None]:
    """Let clients of team A call without a pause."""
    process = subprocess.Popen([sys.executable, "-c", FLOOD, str(port), TEAM_A, str(FLOOD_CLIENTS), "a___echo"])
    try:
        time.sleep(2)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def run_gateway(folder: Path, quota: dict[str, int], catalog: int) -> Iterator[int]:
    """Run a gateway with two teams; yield its port."""
    folder.mkdir()
    port = find_free_port()
    servers = {"a": server_entry("echo", tag="a"), "b": server_entry("echo", tag="b")}
    if catalog:
        command = [sys.executable, "-m", "benchmarks.echo_server", str(catalog)]
        servers["large"] = {"command": command[0], "args": command[1:], "cwd": str(ROOT), "connectSeconds": 120}
    config = {
        "mcpServers": servers,
        "profiles": {"a": {"servers": [name for name in servers if name != "b"], **quota}, "b": {"servers": ["b"]}},
        "auth": {"keys": [{"key": TEAM_A, "name": "a", "profile": "a"}, {"key": TEAM_B, "name": "b", "profile": "b"}]},
        "store": f"sqlite:///{folder / 'toolcrib.db'}",
    }
    gateway = ReplicaProcess(folder / "gateway", port, config)
    anyio.run(gateway.start)
    try:
        yield port
    finally:
        anyio.run(gateway.stop)


def measure_all(folder: Path, calls: int) -> list[Waiting]:
    """Measure every situation."""
    found: list[Waiting] = []

    def add(situation: str, request: str, port: int) -> None:
        arguments = {"text": "x"} if request == "call" else {"query": "give back a text"}
        p50, p95 = measure(port, "b___echo" if request == "call" else "search_tools", arguments, calls)
        found.append(Waiting(situation, request, 1_000 * p50, 1_000 * p95))
        click.echo(found[-1], err=True)

    with run_gateway(folder / "free", {}, 0) as port:
        add("alone", "call", port)
        with flood(port):
            add(f"{FLOOD_CLIENTS} clients of A call", "call", port)
        add("alone", "search", port)
    with run_gateway(folder / "quota", {"callsPerMinute": 600, "maxConcurrentCalls": 2}, 0) as port, flood(port):
        add(f"{FLOOD_CLIENTS} clients of A call, with a quota", "call", port)
    with run_gateway(folder / "large", {}, LARGE_CATALOG) as port:
        # The first search encodes the tools of A.
        measure(port, "search_tools", {"query": "give back a text"}, 2)
        wait_until_encoded(port)
        add(f"A has {LARGE_CATALOG:,} tools", "search", port)
    return found


def wait_until_encoded(port: int, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until searches no longer get faster."""
    last = float("inf")
    while (current := measure(port, "search_tools", {"query": "give back a text"}, 20)[0]) < 0.8 * last:
        last = current
        pause(5)


def render(rows: list[Waiting]) -> str:
    """Return the page."""
    machine = describe_machine()
    base = {row.request: row for row in reversed(rows) if row.situation == "alone"}
    lines = [
        "# Two teams on one gateway",
        "",
        f"Measured on: {machine['processor']}, {machine['cores']} cores, {machine['python']}. Made by `python -m benchmarks.tenants`. "
        "How long team B waits for a response over HTTP, one request after the other. One gateway process, with SQLite. The clients "
        "of team A ignore `Retry-After` and use the other core.",
        "",
        "| situation | request of B | median | 95th percentile | median, compared with alone |",
        "|---|---|---:|---:|---:|",
    ]
    for row in rows:
        ratio = row.p50 / base[row.request].p50
        lines.append(f"| {row.situation} | {row.request} | {row.p50:.1f} ms | {row.p95:.1f} ms | {ratio:.1f} |")
    return "\n".join([*lines, ""])


@click.command()
@click.option("--calls", default=300, show_default=True, help="The requests of team B in each situation.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/tenants.md")
def main(calls: int, out: Path) -> None:
    """Measure how teams affect each other and write the page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        out.write_text(render(measure_all(Path(folder), calls)), encoding="utf-8")
    click.echo(out.read_text())


if __name__ == "__main__":
    main()
