"""Three replicas and one PostgreSQL under load: nothing that was acknowledged is lost, and no client sees a fault.

The long version of this test, with figures, is `python -m benchmarks.replicas`.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

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
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux")]

CLIENTS = 5


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
