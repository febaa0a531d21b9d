"""Replicas under load, and what they must not lose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

from tests.support.replica_load import PENDING_SERVER, LoadClients, LoadReport, ReplicaProcess
from tests.support.round_robin import RoundRobinProxy
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditFilter

SETTLE_SECONDS: Final = 60.0


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
        assert self.clients.report.fatal == [], self.clients.report.fatal[:3]

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
