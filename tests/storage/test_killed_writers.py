"""A process that is killed while it writes loses nothing that it has acknowledged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditFilter
from toolcrib.storage.store import Store

# Starts a writer for each line of its input, in a forked process, so that the modules are imported only once. A writer
# prints its process id, and acknowledges a round after all its writes, by printing its number.
_WRITERS = """
import os
import sys
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store
from toolcrib.storage.access import StoredKey
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.manifests import ServerManifest
from toolcrib.storage.results import StoredResult
from toolcrib.storage.tool_usage import ToolUsageTotal

def write_rounds(url, number):
    store = open_store(url)
    while True:
        number += 1
        tool = f"tool {number}"
        store.put_pins("mail", [Pin(tool, "old", {"x": "y" * 3000}, "changed", 0.0, {"name": "new"}, "new")])
        assert store.approve("mail", tool) == [tool]
        store.put_manifest("mail", ServerManifest("mail", str(number), ({"name": "t" * 20_000},)))
        store.put_key(StoredKey(str(number), f"hash {number}", f"key {number}", None, float(number)))
        store.put_profile(f"profile {number}", {"servers": []}, float(number))
        store.append_audit([AuditRow("approval", at=float(number), tool=tool)], durable=True)
        store.append_audit([AuditRow("call", at=float(number), tool=tool)] * 2)
        store.put_result(StoredResult(f"result {number}", "ann", tool, "text" * 2000, 1.0, 9e9), 10**9)
        store.add_calls({"calls": ToolUsageTotal(2, 0, float(number))})
        store.add_calls({}, {"written": 1})
        print(number, flush=True)

for line in sys.stdin:
    url, _, number = line.rpartition(" ")
    writer = os.fork()
    if not writer:
        print(os.getpid(), flush=True)
        write_rounds(url, int(number))
    os.waitpid(writer, 0)
    print("ended", flush=True)
"""


@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 50), ("postgresql", 5)])
def test_killed_writer_loses_no_acknowledged_write(
    kind: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'toolcrib.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    randomness = random.Random(5)
    acknowledged: set[int] = set()
    start = 0
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _WRITERS], stdin=pipe, stdout=pipe, text=True) as writers:
        assert writers.stdin and writers.stdout
        for _ in range(kills):
            print(url, start, file=writers.stdin, flush=True)
            writer = int(writers.stdout.readline())
            for _ in range(randomness.randint(1, 8)):
                acknowledged.add(int(writers.stdout.readline()))
            os.kill(writer, signal.SIGKILL)
            acknowledged.update(map(int, iter(writers.stdout.readline, "ended\n")))
            with closing(open_store(url)) as store:
                assert store.notice == ""
                check_rounds(store, acknowledged)
                # The next writer starts after the round that was interrupted.
                start = max(int(name.removeprefix("tool ")) for name in store.get_pins("mail"))
    assert len(acknowledged) >= kills


def check_rounds(store: Store, rounds: set[int]) -> None:
    """Check that all acknowledged rounds are stored, and that no batch is stored in part or twice."""
    tools = {f"tool {number}" for number in rounds}
    approved = {name for name, pin in store.get_pins("mail").items() if pin.state == "approved"}
    assert approved >= tools
    assert {key.name for key in store.list_keys()} >= {f"key {number}" for number in rounds}
    assert store.list_profiles().keys() >= {f"profile {number}" for number in rounds}
    manifest = store.get_manifest("mail")
    assert manifest and int(manifest.identity) >= max(rounds)
    approvals = [row.tool for row in store.list_audit(AuditFilter(action="approval"), 10_000)]
    calls = [row.tool for row in store.list_audit(AuditFilter(action="call"), 10_000)]
    assert tools <= set(approvals) and len(approvals) == len(set(approvals))
    assert tools <= set(calls) and len(calls) == 2 * len(set(calls))
    assert all(store.get_result(f"result {number}", "ann", 2.0) for number in rounds)
    assert len(rounds) <= store.get_stats()["written"] <= len(set(calls))
    assert 2 * len(rounds) <= store.get_usage()["calls"].calls <= len(calls)
