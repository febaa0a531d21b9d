"""A server that runs on one replica is taken over by another one when its replica is killed."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.gateway.serving import server_entry
from tests.support.ports import find_free_ports
from tests.support.replica_load import ADMIN, ReplicaProcess

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux")]

TAKEOVER_SECONDS = 60.0


@pytest.fixture
async def replicas(postgres_url: str, tmp_path: Path) -> AsyncIterator[list[ReplicaProcess]]:
    config = {
        "mcpServers": {"single": {**server_entry("pid", tag="single"), "replicas": "one"}},
        "auth": {"keys": [{"key": ADMIN, "name": "admin"}]},
        "store": postgres_url,
    }
    started = [ReplicaProcess(tmp_path / str(number), port, config) for number, port in enumerate(find_free_ports(2))]
    try:
        for replica in started:
            await replica.start()
        yield started
    finally:
        for replica in started:
            await replica.stop()


async def call_pid(replica: ReplicaProcess) -> int:
    """Return the process id of the server, or 0 if the call failed."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "single___pid", "arguments": {}}}
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {ADMIN}"}, timeout=30) as http:
        result = (await http.post(f"{replica.url}/mcp", json=body)).json().get("result", {})
    text = result["content"][0]["text"] if result and not result.get("isError") else ""
    return int(text.rsplit(" ", 1)[-1]) if text else 0


async def wait_for_pid(replica: ReplicaProcess) -> int:
    """Call the server until it answers; return its process id."""
    with anyio.fail_after(TAKEOVER_SECONDS):
        while not (pid := await call_pid(replica)):
            await anyio.sleep(0.1)
    return pid


def read_parent(pid: int) -> int:
    """Return the id of the process that started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_another_replica_takes_over_the_server_of_a_killed_one(replicas: list[ReplicaProcess]) -> None:
    before = await wait_for_pid(replicas[0])
    # Both replicas call the same process.
    assert await wait_for_pid(replicas[1]) == before
    (owner,) = [replica for replica in replicas if replica.pid == read_parent(before)]
    (other,) = [replica for replica in replicas if replica is not owner]
    await owner.stop(signal.SIGKILL)
    after = await wait_for_pid(other)
    assert after != before and read_parent(after) == other.pid
    # The server of the killed replica has ended, so that there is one at a time.
    assert not Path(f"/proc/{before}").exists()
    # The killed replica is back and calls the server of the other one.
    await owner.start()
    assert await wait_for_pid(owner) == after
