"""What the load of one access profile does to another one on the same gateway.

python -m benchmarks.tenants [--calls 300] [--no-catalog] [--out FILE]

Team B sends one request after the other, and its waiting time is measured: alone, while 16 clients of team A call without a pause,
the same in the order of arrival as before 0.4, and with a quota for team A. Then team B searches, with and without a large catalog of team A. The clients of team
A run in another process.
"""

import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import anyio
import click

from benchmarks.machine import describe_machine
from tests.gateway.serving import COMMAND, server_entry
from tests.support.ports import find_free_port
from tests.support.replica_load import ReplicaProcess

ROOT = Path(__file__).resolve().parent.parent
TEAM_A, TEAM_B = "the-key-of-team-a", "the-key-of-team-b"
FLOOD_CLIENTS = 16
LARGE_CATALOG = 3_000
WARM_UP_CALLS = 10
# A gateway in which the teams do not take turns.
ARRIVAL_ORDER = """
from toolcrib.gateway import quotas
quotas.MAX_RUNNING_REQUESTS = 1_000_000
from toolcrib.cli.main import main
main()
"""


class Waiting(NamedTuple):
    """How long team B waits for a response, in milliseconds, and how many responses team A gets in that time."""

    situation: str
    request: str
    p50: float
    p95: float
    responses_of_a: float


def send_calls(port: int, counter: Any) -> None:
    """Call without a pause from several threads, and count the responses."""

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        params = {"name": "a___echo", "arguments": {"text": "x"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        while True:
            connection.request(
                "POST", "/mcp", body, {"authorization": f"Bearer {TEAM_A}", "content-type": "application/json"}
            )
            connection.getresponse().read()
            with counter.get_lock():
                counter.value += 1

    for _ in range(FLOOD_CLIENTS):
        threading.Thread(target=send).start()


def measure(port: int, name: str, arguments: dict[str, Any], count: int, responses: Any) -> tuple[float, float, float]:
    """Return the median and the 95th percentile of the seconds of a call of team B, and the median of team A's responses."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    params = {"name": name, "arguments": arguments}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {"authorization": f"Bearer {TEAM_B}", "content-type": "application/json"}
    seconds, overtaken = [], []
    for number in range(count + WARM_UP_CALLS):
        started, before = time.perf_counter(), responses.value
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200 and not answer["result"].get("isError"), answer
        if number >= WARM_UP_CALLS:
            seconds.append(time.perf_counter() - started)
            overtaken.append(responses.value - before)
        # Without a pause, team B would flood the gateway too.
        time.sleep(0.01)
    cuts = quantiles(seconds, n=20)
    return cuts[9], cuts[18], median(overtaken)


@contextmanager
def flood(port: int, responses: Any) -> Iterator[None]:
    """Let clients of team A call without a pause."""
    process = get_context("spawn").Process(target=send_calls, args=(port, responses))
    process.start()
    try:
        time.sleep(2)
        yield
    finally:
        process.kill()
        process.join()


@contextmanager
def run_gateway(
    folder: Path, quota: dict[str, int] | None = None, catalog: int = 0, command: Sequence[str] = COMMAND
) -> Iterator[int]:
    """Run a gateway with two teams; yield its port."""
    folder.mkdir()
    port = find_free_port()
    servers = {"a": server_entry("echo", tag="a"), "b": server_entry("echo", tag="b")}
    if catalog:
        arguments = ["-m", "benchmarks.echo_server", str(catalog)]
        servers["large"] = {"command": sys.executable, "args": arguments, "cwd": str(ROOT), "connectSeconds": 120}
    config = {
        "mcpServers": servers,
        "profiles": {
            "a": {"servers": [name for name in servers if name != "b"], **(quota or {})},
            "b": {"servers": ["b"]},
        },
        "auth": {"keys": [{"key": TEAM_A, "name": "a", "profile": "a"}, {"key": TEAM_B, "name": "b", "profile": "b"}]},
        "store": f"sqlite:///{folder / 'toolcrib.db'}",
    }
    gateway = ReplicaProcess(folder / "gateway", port, config, command)
    anyio.run(gateway.start)
    try:
        yield port
    finally:
        anyio.run(gateway.stop)


def measure_all(folder: Path, calls: int, *, has_catalog: bool) -> list[Waiting]:
    """Measure every situation."""
    found: list[Waiting] = []
    responses = get_context("spawn").Value("q", 0)

    def add(situation: str, request: str, port: int) -> None:
        arguments = {"text": "x"} if request == "call" else {"query": "give back a text"}
        name = "b___echo" if request == "call" else "search_tools"
        p50, p95, overtaken = measure(port, name, arguments, calls, responses)
        found.append(Waiting(situation, request, 1_000 * p50, 1_000 * p95, overtaken))
        click.echo(found[-1], err=True)

    with run_gateway(folder / "free") as port:
        add("alone", "call", port)
        with flood(port, responses):
            add(f"{FLOOD_CLIENTS} clients of A call", "call", port)
        add("alone", "search", port)
    with run_gateway(folder / "arrival", command=[sys.executable, "-c", ARRIVAL_ORDER]) as port, flood(port, responses):
        add(f"{FLOOD_CLIENTS} clients of A call, in the order of arrival", "call", port)
    with (
        run_gateway(folder / "quota", {"callsPerMinute": 600, "maxConcurrentCalls": 2}) as port,
        flood(port, responses),
    ):
        add(f"{FLOOD_CLIENTS} clients of A call, with a quota", "call", port)
    if has_catalog:
        with run_gateway(folder / "large", catalog=LARGE_CATALOG) as port:
            wait_until_encoded(port, responses)
            add(f"A has {LARGE_CATALOG:,} tools", "search", port)
    return found


def wait_until_encoded(port: int, responses: Any) -> None:
    """Wait until searches no longer get faster."""
    last = float("inf")
    while (current := measure(port, "search_tools", {"query": "give back a text"}, 20, responses)[0]) < 0.8 * last:
        last = current
        time.sleep(5)


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
        "| situation | request of B | median | 95th percentile | median, compared with alone | responses to A during a request of B |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        ratio = row.p50 / base[row.request].p50
        times = f"{row.p50:.1f} ms | {row.p95:.1f} ms | {ratio:.1f}"
        lines.append(f"| {row.situation} | {row.request} | {times} | {row.responses_of_a:g} |")
    return "\n".join([*lines, ""])


@click.command()
@click.option("--calls", default=300, show_default=True, help="The requests of team B in each situation.")
@click.option("--catalog/--no-catalog", default=True, help="Whether to measure a large catalog too.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/tenants.md")
def main(calls: int, catalog: bool, out: Path) -> None:
    """Measure how teams affect each other and write the page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        out.write_text(render(measure_all(Path(folder), calls, has_catalog=catalog)), encoding="utf-8")
    click.echo(out.read_text())


if __name__ == "__main__":
    main()
