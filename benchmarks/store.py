"""Compare the CPU time of an MCP call with a store in PostgreSQL, in a SQLite file and in memory, in one run.

python -m benchmarks.store [--calls N] [--rounds N] [--out FILE]

Every contender is a gateway with the stdio transport that records every call. PostgreSQL is started for the run; the CPU
time of its processes is shown separately.
"""

import json
import os
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

import click

from benchmarks.machine import describe_machine
from benchmarks.mcp import MODERN, PAUSE_SECONDS, WARM, Peer, call, measure_best, measure_mean, ours
from benchmarks.speed import cpu_seconds
from tests.support.postgres import PostgresServer
from toolcrib.config.settings import GatewayConfig
from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.auth import Principal
from toolcrib.gateway.keys import KeyRing
from toolcrib.hub.hub import Hub
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.store import Store
from toolcrib.storage.time_series import SeriesAmount
from toolcrib.storage.tool_usage import ToolUsageTotal

BATCHES = (1, 20, 100)


def build_command(folder: Path, name: str, url: str) -> list[str]:
    """Return the command of a gateway with a store."""
    *command, path = ours(folder, MODERN, 2)
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    copy = folder / f"{name}.json"
    copy.write_text(json.dumps({**config, "store": url, "audit": {"enabled": True}}), encoding="utf-8")
    return [*command, str(copy)]


def measure_server(server: PostgresServer) -> float:
    """Return the CPU time of PostgreSQL, with its processes of connections."""
    return sum(map(cpu_seconds, [server.pid, *server.children()]))


def measure_stores(calls: int, rounds: int) -> tuple[dict[str, float], float]:
    """Return the CPU seconds of a call by store, and those of PostgreSQL for a call."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary, ExitStack() as stack:
        folder = Path(temporary)
        (folder / "postgres").mkdir()
        server = PostgresServer(folder / "postgres")
        server.start()
        stack.callback(server.stop)
        urls = {
            "memory": "sqlite://",
            "SQLite": f"sqlite:///{folder / 'store.db'}",
            "PostgreSQL": server.create_database(),
        }
        running = {}
        for name, url in urls.items():
            peer = Peer(build_command(folder, name, url), MODERN)
            stack.callback(peer.close)
            while len(peer.ask("tools/list")["tools"]) < 2:
                time.sleep(PAUSE_SECONDS)
            running[name] = peer
        measure_best(running, call, WARM, 1)
        before = measure_server(server)
        figures = measure_mean(running, calls, rounds)
        return figures, (measure_server(server) - before) / (calls * rounds)


def write_batch(store: Store, calls: int) -> None:
    """Write what a gateway writes for some calls."""
    row = AuditRow("call", at=1.0, key="key", client="client", session="session", server="echo", tool="echo___echo_1")
    names = ("calls", "bucket_03", "tokens_in")
    store.append_audit([row] * calls, series=[SeriesAmount(60.0, "client", name, calls) for name in names])
    store.add_calls({"echo___echo_1": ToolUsageTotal(calls, 0, 1.0, 0.1)}, {"calls": calls})


def measure_batches() -> dict[str, dict[int, float]]:
    """Return the median CPU seconds of this process for a batch, by store and number of calls."""
    figures: dict[str, dict[int, float]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary, ExitStack() as stack:
        (Path(temporary) / "postgres").mkdir()
        server = PostgresServer(Path(temporary) / "postgres")
        server.start()
        stack.callback(server.stop)
        urls = {"SQLite": f"sqlite:///{temporary}/store.db", "PostgreSQL": server.create_database()}
        for name, url in urls.items():
            with closing(open_store(url)) as store:
                figures[name] = {calls: median(_time_batch(store, calls) for _ in range(100)) for calls in BATCHES}
    return figures


def _time_batch(store: Store, calls: int) -> float:
    before = time.process_time()
    write_batch(store, calls)
    return time.process_time() - before


def render_batches(figures: dict[str, dict[int, float]]) -> list[str]:
    """Return the cost of batches as Markdown."""
    lines = [
        "## One batch",
        "",
        "Median CPU milliseconds of the gateway to write what it has recorded of some calls.",
        "",
    ]
    lines += [
        f"| store | {' | '.join(f'{calls} call' + 's' * (calls > 1) for calls in BATCHES)} |",
        f"|---|{'--:|' * len(BATCHES)}",
    ]
    return lines + [
        f"| {name} | {' | '.join(f'{1000 * each:.2f}' for each in by.values())} |" for name, by in figures.items()
    ]


def measure_journal(calls: int = 5_000) -> dict[str, float]:
    """Return the CPU seconds of recording one call, without and with a journal."""
    row = AuditRow("call", at=1.0, key="key", client="client", session="s" * 32, server="echo", tool="echo___echo_1")
    figures = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, folder in (("without a journal", None), ("with a journal", Path(temporary))):
            with closing(open_store("sqlite://", folder)) as store:
                hub = Hub(GatewayConfig(), store)
                audit, keys = AuditLog(hub), KeyRing(hub)
                principal = Principal("key", None, "a" * 64)
                before = time.process_time()
                for number in range(calls):
                    keys.count_use(principal)
                    hub.record_call("echo___echo_1", True, 0.01)
                    audit.record(row)
                    if number % 100 == 99:
                        audit.flush()
                        keys.flush()
                        hub.flush()
                figures[name] = (time.process_time() - before) / calls
    return figures


def render_journal(figures: dict[str, float]) -> list[str]:
    """Return the cost of the journal as Markdown."""
    lines = [
        "## The journal",
        "",
        "CPU microseconds to record a call in the audit log, the usage totals and the use of its key, and to write batches "
        "of 100 calls to a store in memory.",
        "",
        "| | a call |",
        "|---|--:|",
    ]
    return lines + [f"| {name} | {1e6 * seconds:.1f} |" for name, seconds in figures.items()]


def render(figures: dict[str, float], server: float, calls: int, rounds: int) -> str:
    """Return the figures as Markdown."""
    lines = [
        "# What a store costs per MCP call",
        "",
        f"`python -m benchmarks.store --calls {calls} --rounds {rounds}`. Mean CPU milliseconds of a gateway for one call "
        "that is recorded in the audit log, the time series and the usage totals. The contenders alternate. Differences below 5 % "
        "are noise.",
        "",
        "| store | gateway | ratio to memory | database server |",
        "|---|--:|--:|--:|",
    ]
    for name, seconds in figures.items():
        own = f"{1000 * server:.3f}" if name == "PostgreSQL" else "–"
        lines.append(f"| {name} | {1000 * seconds:.3f} | {seconds / figures['memory']:.3f} | {own} |")
    lines += ["", *render_batches(measure_batches()), "", *render_journal(measure_journal())]
    return "\n".join([*lines, "", f"{', '.join(describe_machine().values())}, {os.cpu_count()} cores.", ""])


@click.command()
@click.option("--calls", default=500, help="Calls a round.")
@click.option("--rounds", default=4, help="Rounds.")
@click.option("--out", type=click.Path(path_type=Path), default="benchmarks/results/store.md")
def main(calls: int, rounds: int, out: Path) -> None:
    """Measure what a store costs per MCP call."""
    text = render(*measure_stores(calls, rounds), calls, rounds)
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
