"""Compare the CPU time of the LLM gateway in two checkouts.

git worktree add /tmp/before COMMIT
python -m benchmarks.gateway_cpu /tmp/before

Both gateways run in their own processes and take turns with small batches of the same requests. CPU is the user and
system time of a process, so other work on the machine counts little, and what it slows it slows in both. A line has
the median of the batches and the median of the ratios of neighbouring batches.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

import click

from benchmarks.model_gateway import Client, Server, build_body, start_server
from benchmarks.model_upstream import CHAT, MESSAGES, RESPONSES
from tests.support.ports import find_free_port

REQUESTS = 160
CONNECTIONS = 8
STREAMS = 10
# Events far enough apart that a busy machine seldom sends two in one segment.
EVENTS, GAP_SECONDS = 100, 0.02
TOOLS = 100

Batch = Callable[[Server, str, int], Awaitable[float]]


async def measure_requests(server: Server, path: str, tools: int) -> float:
    """Return the CPU milliseconds of a request with a whole reply."""
    body = build_body("Hi", stream=False, tools=tools, path=path)
    per_connection = REQUESTS // CONNECTIONS

    async def work(client: Client) -> None:
        for _ in range(per_connection):
            await client.ask(body)

    return await _measure(server, path, work, CONNECTIONS) / (CONNECTIONS * per_connection) * 1e3


async def measure_events(server: Server, path: str, tools: int) -> float:
    """Return the CPU microseconds of a streamed event, with its part of the request."""
    body = build_body(f"{EVENTS} {GAP_SECONDS} ", stream=True, tools=tools, path=path)

    async def work(client: Client) -> None:
        await client.ask(body)

    return await _measure(server, path, work, STREAMS) / (STREAMS * EVENTS) * 1e6


async def _measure(server: Server, path: str, work: Callable[[Client], Awaitable[None]], count: int) -> float:
    clients = [Client(Server(server.name, server.port, path, server.process)) for _ in range(count)]
    # The first request of a connection and of a list of tools is not measured.
    await asyncio.gather(*(client.ask(build_body("Hi", stream=False, path=path)) for client in clients))
    before = server.cpu_seconds()
    await asyncio.gather(*map(work, clients))
    spent = server.cpu_seconds() - before
    await asyncio.gather(*(client.close() for client in clients))
    return spent


CASES: dict[str, tuple[Batch, str, int]] = {
    "request ms, Messages, passed on": (measure_requests, MESSAGES, 0),
    f"request ms, Messages, {TOOLS} tools searched": (measure_requests, MESSAGES, TOOLS),
    "event µs, Messages, passed on": (measure_events, MESSAGES, 0),
    f"event µs, Messages, {TOOLS} tools searched": (measure_events, MESSAGES, TOOLS),
    "event µs, Chat, passed on": (measure_events, CHAT, 0),
    f"event µs, Chat, {TOOLS} tools searched": (measure_events, CHAT, TOOLS),
    "event µs, Responses, passed on": (measure_events, RESPONSES, 0),
    f"event µs, Responses, {TOOLS} tools searched": (measure_events, RESPONSES, TOOLS),
}


@contextlib.contextmanager
def _start_gateway(checkout: Path, url: str) -> Iterator[Server]:
    port = find_free_port()
    command = [sys.executable, "-m", "benchmarks.model_gateway", "gateway", str(port), url]
    paths = os.pathsep.join((str(checkout), str(checkout / "src")))
    with start_server(str(checkout), command, port, PYTHONPATH=paths, PYTHONSAFEPATH="1") as server:
        yield server


async def _compare(before: Server, after: Server, rounds: int, pattern: str) -> list[str]:
    lines = []
    for name, (batch, path, tools) in CASES.items():
        if pattern not in name:
            continue
        # The first batch of each builds the index of the tools.
        for server in (before, after):
            await batch(server, path, tools)
        pairs = []
        for number in range(rounds):
            order = (before, after) if number % 2 else (after, before)
            figures = {server.port: await batch(server, path, tools) for server in order}
            pairs.append((figures[before.port], figures[after.port]))
        ratio = median(right / left for left, right in pairs)
        left, right = (median(figures) for figures in zip(*pairs, strict=True))
        lines.append(f"| {name} | {left:.3g} | {right:.3g} | {ratio:.3f} |")
        print(lines[-1], flush=True)
    return lines


@click.command()
@click.argument("before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path())
@click.option("--rounds", default=9, show_default=True, help="Batches of each gateway in each line.")
@click.option("--only", default="", help="Measure the lines that contain this text.")
def main(before: Path, after: Path, rounds: int, only: str) -> None:
    """Print the CPU time of the gateways in the checkouts BEFORE and AFTER, by default this one."""
    with contextlib.ExitStack() as running:
        port = find_free_port()
        url = f"http://127.0.0.1:{port}"
        upstream = [sys.executable, "-m", "benchmarks.model_gateway", "upstream", str(port)]
        running.enter_context(start_server("the upstream", upstream, port))
        servers = [running.enter_context(_start_gateway(path.resolve(), url)) for path in (before, after)]
        print(f"| CPU | {describe_checkout(before)} | {describe_checkout(after)} | ratio |\n|---|--:|--:|--:|")
        asyncio.run(_compare(servers[0], servers[1], rounds, only))


def describe_checkout(checkout: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
