"""A gateway that is killed under load loses nothing that it has acknowledged, on either database."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tests.support.ports import find_free_port
from tests.support.replica_load import (
    ADMIN,
    STATELESS,
    LoadClients,
    LoadReport,
    ReplicaProcess,
    answer_after_search,
    build_replica_config,
)
from tests.support.scripted_model.server import ScriptedModel
from toolcrib.config.settings import ApiKey
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditFilter
from toolcrib.storage.store import Store

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux")]

KILLS = 3
CALLS_PER_KILL = 25
CLIENTS = 5


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_killed_gateway_loses_no_acknowledged_row_or_count(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'toolcrib.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    reports = []
    with ScriptedModel(answer_after_search) as model:
        gateway = ReplicaProcess(tmp_path / "gateway", find_free_port(), build_replica_config(url, model.url))
        for _ in range(KILLS):
            await gateway.start()
            reports.append(await kill_under_load(gateway))
        # The last process writes what the killed ones have left.
        await gateway.start()
        assert await gateway.stop() == 0
    with closing(open_store(url)) as store:
        check_counts(store, reports)
    assert not list(tmp_path.rglob("*.journal/*"))


async def kill_under_load(gateway: ReplicaProcess) -> LoadReport:
    """Kill a gateway after some calls; return what it had acknowledged."""
    clients = LoadClients(gateway.url, 0.0)
    async with anyio.create_task_group() as tasks:
        for revision in ("legacy", STATELESS, STATELESS):
            tasks.start_soon(clients.run_calls, revision)
        for _ in range(CLIENTS - 3):
            tasks.start_soon(clients.run_streams)
        with anyio.fail_after(60):
            while clients.report.completed["call"] < CALLS_PER_KILL or not clients.report.completed["stream"]:
                await anyio.sleep(0.01)
        clients.stopped.set()
        await gateway.stop(signal.SIGKILL)
    assert clients.report.fatal == []
    return clients.report


def check_counts(store: Store, reports: list[LoadReport]) -> None:
    """Check that every acknowledged request is in every table, without duplicates."""
    # A request in flight at a kill may be recorded and not acknowledged.
    in_flight = CLIENTS * len(reports)
    rows = Counter(row.request_id for row in store.list_audit(AuditFilter(action="call"), 100_000))
    acknowledged = {id for report in reports for id in report.calls}
    assert acknowledged <= rows.keys() and set(rows.values()) == {1}
    assert len(rows) <= len(acknowledged) + in_flight
    assert len(rows) <= store.get_usage()["small___echo"].calls <= len(rows) + in_flight
    streams = sum(report.completed["stream"] for report in reports)
    turns = store.list_audit(AuditFilter(action="llm"), 100_000)
    (usage,) = store.list_llm_usage()
    assert streams <= len(turns) <= streams + in_flight and streams <= usage.requests <= streams + in_flight
    series = {amount.name: amount.amount for amount in store.list_series("day", 0.0)}
    assert (series["calls"], series["llm_requests"]) == (len(rows), len(turns))
    used = store.get_key_usage()[ApiKey.from_secret(ADMIN).hash]
    assert used.requests >= len(acknowledged) + streams
