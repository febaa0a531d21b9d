"""Measure calls with a large result: as a preview and whole, and the memory of the gateway over many stored results.

python -m benchmarks.stored_results [--calls N] [--rounds N]

The gateway is a process with the stdio transport. The same server returns 49 KB of JSON rows for every call. Short
rounds alternate, so that other load on the machine slows down both contenders equally. Flat memory means that the last
row is not larger than the one after a tenth of the calls.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import click

from benchmarks.machine import describe_machine
from benchmarks.mcp import LEGACY, Peer
from benchmarks.speed import print_progress

CALLS_PER_ROUND = 30
WARM = 10
ROWS = 220
SERVER = """
import json, sys
rows = [
    {"id": number, "title": f"Issue number {number} about a broken thing", "state": "open",
     "user": {"login": f"user{number % 7}", "id": number * 13}, "labels": ["bug", "p1"],
     "created_at": "2026-01-01T00:00:00Z", "url": f"https://github.com/x/y/issues/{number}"}
    for number in range(int(sys.argv[1]))
]
result = {"content": [{"type": "text", "text": json.dumps(rows)}]}
info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "rows", "version": "1"}}
tools = {"tools": [{"name": "rows", "inputSchema": {"type": "object"}}]}
answers = {"initialize": info, "tools/list": tools, "tools/call": result, "ping": {}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        method = message["method"]
        known = {"result": answers[method]} if method in answers else {"error": {"code": -32601, "message": method}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **known}), flush=True)
"""


def start_gateway(folder: Path, name: str, budget_tokens: int) -> Peer:
    """Start a gateway with a store in a file."""
    script = folder / "rows.py"
    script.write_text(SERVER, encoding="utf-8")
    server = {"command": sys.executable, "args": [str(script), str(ROWS)], "era": "legacy"}
    config = {
        "mcpServers": {"rows": server},
        "toolSearch": {"mode": "direct"},
        "results": {"budgetTokens": budget_tokens},
        "store": f"sqlite:///{folder / name}.db",
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    peer = Peer([sys.executable, "-m", "toolcrib", "stdio", "--config", str(path)], LEGACY)
    for _ in range(WARM):
        call(peer)
    return peer


def call(peer: Peer) -> int:
    """Call the tool and return the length of its result."""
    result = peer.ask("tools/call", {"name": "rows___rows", "arguments": {}})
    return len(result["content"][0]["text"])


def measure_round(peer: Peer) -> tuple[float, float]:
    """Return the wall and the CPU time of a call in milliseconds."""
    cpu, started = peer.seconds, time.perf_counter()
    for _ in range(CALLS_PER_ROUND):
        call(peer)
    wall = time.perf_counter() - started
    return 1000 * wall / CALLS_PER_ROUND, 1000 * (peer.seconds - cpu) / CALLS_PER_ROUND


def read_memory(process: int) -> float:
    """Return the resident memory of a process in MB."""
    fields = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in fields if line.startswith("VmRSS")).split()[1]) / 1024


@click.command()
@click.option("--calls", default=10_000, help="Calls of the memory measurement.")
@click.option("--rounds", default=8, help="Rounds of the time measurement.")
def main(calls: int, rounds: int) -> None:
    """Print the tables in Markdown."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers = {"whole": start_gateway(folder, "whole", 0), "preview": start_gateway(folder, "preview", 10_000)}
        times: dict[str, list[tuple[float, float]]] = {contender: [] for contender in peers}
        for number in range(rounds):
            for contender, peer in peers.items():
                times[contender].append(measure_round(peer))
            print_progress(f"round {number + 1} of {rounds}")
        print(
            f"{', '.join(describe_machine().values())}\n\n| result of {call(peers['whole']):,} characters | wall | CPU of the gateway |"
        )
        print("|---|---|---|")
        for contender, rows in times.items():
            wall, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"| {contender} | {wall:.1f} ms | {cpu:.1f} ms |")
        peers["whole"].close()
        print("\n| calls with a stored result | memory of the gateway |\n|---|---|")
        peer = peers["preview"]
        for number in range(calls + 1):
            if number % (calls // 10) == 0:
                print(f"| {number:,} | {read_memory(peer.process_id):.0f} MB |", flush=True)
            call(peer)
        peer.close()


if __name__ == "__main__":
    main()
