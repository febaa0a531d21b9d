"""Three replicas and one PostgreSQL under load: nothing that was acknowledged is lost, and no client sees a fault.

The long version of this test, with figures, is `python -m benchmarks.replicas`.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from tests.support.postgres import PostgresServer
from tests.support.replica_load import (
    PENDING_SERVER,
    STATELESS,
    LoadClients,
    LoadReport,
    ReplicaProcess,
    answer_after_search,
    build_replica_config,
)
from tests.support.round_robin import RoundRobinProxy, round_robin
from tests.support.scripted_model.server import ScriptedModel
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditFilter

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux")]

CLIENTS = 5
SETTLE_SECONDS = 60.0


@dataclass
class Cluster:
    """The replicas, their proxy and the clients."""

    replicas: list[ReplicaProcess]
    proxy: RoundRobinProxy
    clients: LoadClients
    store_url: str
    ends_at_error: bool = True

    async def wait_for_calls(self, count: int) -> None:
        """Wait until the clients have completed more calls."""
        report = self.clients.report
        goal = report.completed["call"] + count
        with anyio.fail_after(300):
            while report.completed["call"] < goal:
                assert not (report.fatal and self.ends_at_error), report.fatal[:3]
                await anyio.sleep(0.02)

    async def check_nothing_is_lost(self) -> None:
        """Check that everything that was acknowledged is in the store, soon after."""
        assert await self.list_lost() == {}
        assert self.clients.report.fatal == []

    async def list_lost(self) -> dict[str, str]:
        """Return what was acknowledged and is not in the store, after some time to write it."""
        report = self.clients.report
        # The clients continue, so only what is acknowledged now is looked for.
        acknowledged = LoadReport(dict(report.calls), list(report.keys), list(report.approvals), report.streams)
        lost = {"": ""}
        with anyio.move_on_after(SETTLE_SECONDS):
            while lost:
                lost = await anyio.to_thread.run_sync(self._find_lost, acknowledged)
                await anyio.sleep(0.2)
        return lost

    def _find_lost(self, report: LoadReport) -> dict[str, str]:
        store = open_store(self.store_url)
        try:
            written = {row.request_id for row in store.list_audit(AuditFilter(), 100_000)}
            stored_keys, pins = {key.name for key in store.list_keys()}, store.get_pins(PENDING_SERVER)
            counted = (store.get_usage()["small___echo"].calls, sum(row.requests for row in store.list_llm_usage()))
        finally:
            store.close()
        return {
            **{name: "key" for name in report.keys if name not in stored_keys},
            **{tool: "approval" for tool in report.approvals if pins[tool].state != "approved"},
            **dict.fromkeys(report.calls.keys() - written, "audit row"),
            **{f"call {number}": "usage count" for number in range(counted[0], len(report.calls))},
            **{f"stream {number}": "usage count" for number in range(counted[1], report.streams)},
        }


@asynccontextmanager
async def run_cluster(store_url: str, folder: Path) -> AsyncIterator[Cluster]:
    """Run three replicas and clients."""
    pins = [Pin(f"tool {n}", "a", {"name": "old"}, "changed", 0.0, {"name": "new"}, f"b{n}") for n in range(2_000)]
    store = open_store(store_url)
    store.put_pins(PENDING_SERVER, pins)
    store.close()
    with ScriptedModel(answer_after_search) as model:
        replicas = []
        for number, port in enumerate(find_free_ports(3)):
            replicas.append(ReplicaProcess(folder / str(number), port, build_replica_config(store_url, model.url)))
        try:
            async with anyio.create_task_group() as starts:
                for replica in replicas:
                    starts.start_soon(replica.start)
            async with round_robin([replica.url for replica in replicas]) as proxy, anyio.create_task_group() as tasks:
                clients = LoadClients(proxy.url)
                for revision in ("legacy", "legacy", STATELESS):
                    tasks.start_soon(clients.run_calls, revision)
                tasks.start_soon(clients.run_streams)
                tasks.start_soon(clients.run_changes, {pin.tool: pin.candidate_fingerprint for pin in pins})
                yield Cluster(replicas, proxy, clients, store_url)
                clients.stopped.set()
        finally:
            for replica in replicas:
                await replica.stop()


def find_free_ports(count: int) -> list[int]:
    """Return ports that are free at the moment."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture(scope="module")
async def cluster(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with run_cluster(postgres_server.create_database(), tmp_path_factory.mktemp("cluster")) as running:
        await running.wait_for_calls(20)
        yield running


async def test_calls_continue_while_postgresql_is_away(cluster: Cluster, postgres_server: PostgresServer) -> None:
    report = cluster.clients.start_report()
    await anyio.to_thread.run_sync(postgres_server.stop)
    try:
        await cluster.wait_for_calls(20)
    finally:
        await anyio.to_thread.run_sync(postgres_server.start)
    await cluster.wait_for_calls(20)
    # Keys and approvals are refused meanwhile, with an error that asks for a retry.
    assert {text.partition(":")[0] for _, text in report.retryable} <= {"key", "approval"}
    await cluster.check_nothing_is_lost()


async def test_a_rolling_restart_is_invisible(cluster: Cluster) -> None:
    report = cluster.clients.start_report()
    for replica in cluster.replicas:
        assert await replica.stop(signal.SIGTERM) == 0
        await replica.start()
    await cluster.wait_for_calls(20)
    assert (report.fatal, report.retryable) == ([], [])
    assert report.completed["stream"] > 0
    await cluster.check_nothing_is_lost()


async def test_a_killed_replica_costs_only_its_requests_in_flight(cluster: Cluster) -> None:
    report = cluster.clients.start_report()
    await cluster.wait_for_calls(20)
    killed = cluster.replicas[0]
    await killed.stop(signal.SIGKILL)
    await cluster.wait_for_calls(20)
    assert report.fatal == []
    # At most one request of each client was in flight.
    assert len(report.retryable) <= CLIENTS
    # The next process writes what the killed one had recorded.
    await killed.start()
    await cluster.check_nothing_is_lost()
