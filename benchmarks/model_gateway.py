"""Compare the time and CPU that the LLM gateway adds to a request with a direct connection and LiteLLM's proxy.

python -m benchmarks.model_gateway [--litellm PATH] [--out FILE]

Each server runs in a separate process. They take turns, so that other load on the machine affects all of them. LiteLLM
uses a pass-through endpoint, its cheapest path. Our gateway is measured passing requests through and searching 1,000
tools. CPU time is that of the server's process with all threads; it depends less on other load than elapsed time does.
The upstream responds immediately, and its CPU time is not counted.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, get_args

import click
import uvicorn
from starlette.applications import Starlette

from benchmarks.machine import describe_machine
from benchmarks.model_upstream import CHAT, EVENTS, GAP_SECONDS, MESSAGES, RESPONSES, STAMP, serve
from tests.support.ports import find_free_port, find_free_ports
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.routes import build_llm_routes

OURS, DIRECT, SEARCHING, LITELLM = "ours", "direct", "ours, searching 1,000 tools", "LiteLLM"
# Copies bytes without parsing them: the lower bound for a proxy on this machine.
BARE = "a bare relay"
# What the gateway does for each API: pass the request through, or defer its tools and add a search tool.
PASSED, SEARCHED = "passed through", "100 deferred tools"
PARALLEL_STREAMS, PARALLEL_EVENTS, PARALLEL_GAP_SECONDS = 50, 150, 0.1
SLOW_STREAMS = 500
SLOW_EVENTS = 20
SLOW_GAP_SECONDS = 0.25
START_SECONDS = 600
PAGE = os.sysconf("SC_PAGE_SIZE")


async def _serve_gateway(port: int, url: str) -> None:
    upstreams = [LlmUpstreamConfig(api, api=api, url=url, connect_seconds=120) for api in get_args(LlmApi)]
    gateway = LlmGateway(LlmGatewayConfig(tuple(upstreams)))
    await gateway.open()
    app = Starlette(routes=build_llm_routes(gateway))
    config = uvicorn.Config(app, port=port, log_level="error", access_log=False, lifespan="off", backlog=2_048)
    await uvicorn.Server(config).serve()


# ------------------------------------------------------------------------- the measured servers


@dataclass
class Server:
    """A server process at a port, and its measurements."""

    name: str
    port: int
    path: str
    process: subprocess.Popen[bytes] | None
    tools: int = 0
    measures: dict[str, list[float]] = field(default_factory=dict)

    @property
    def api(self) -> str:
        """The path of the API in which it gets requests."""
        return self.path if self.path in (CHAT, RESPONSES) else MESSAGES

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process and its children so far."""
        return sum(_cpu_seconds(pid) for pid in self._pids())

    def memory_bytes(self) -> int:
        """Return the resident memory of the process and its children."""
        return sum(_memory_bytes(pid) for pid in self._pids())

    def record(self, measure: str, value: float) -> None:
        self.measures.setdefault(measure, []).append(value)

    def _pids(self) -> list[int]:
        if self.process is None:
            return []
        found = [self.process.pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
        return found


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process. `schedstat` counts nanoseconds; a clock tick is too coarse."""
    nanoseconds = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            nanoseconds += int(thread.read_text().split()[0])
    return nanoseconds / 1e9


def _memory_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


@contextlib.contextmanager
def start_server(name: str, command: list[str], port: int, path: str = MESSAGES, **env: str) -> Iterator[Server]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})
        try:
            _wait_for_port(process, port, name, log)
            yield Server(name, port, path, process)
        finally:
            process.terminate()
            process.wait()


def _wait_for_port(process: subprocess.Popen[bytes], port: int, name: str, log: Any) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            log.seek(0)
            raise SystemExit(f"{name} ended during start-up: {log.read()[-2000:].decode()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise SystemExit(f"{name} did not listen within {START_SECONDS} s")


def _own_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.model_gateway", *map(str, arguments)]


def _litellm_config(folder: str, url: str) -> str:
    path = Path(folder) / "litellm.json"
    endpoint = {"path": "/v1/through", "target": f"{url}/v1/messages", "headers": {}}
    general = {"pass_through_endpoints": [endpoint], "dangerously_permit_weak_or_unset_master_key": True}
    config = {"model_list": [], "general_settings": general}
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


# --------------------------------------------------------------------------------- the client


class Client:
    """A minimal HTTP client with one connection, so that it takes little time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes) -> tuple[float, list[float], int]:
        """Return the seconds to the first byte of the body, the latency of each event in seconds, and the body size."""
        if self._writer is None:
            address = ("127.0.0.1", self._server.port)
            self._reader, self._writer = await asyncio.open_connection(*address, limit=1 << 20)
        reader = self._reader
        assert reader is not None
        head = (
            f"POST {self._server.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: any\r\n"
            f"anthropic-version: 2023-06-01\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        started = time.perf_counter()
        self._writer.write(head.encode() + body)
        await self._writer.drain()
        response_head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in response_head.split(b"\r\n")[0]:
            raise SystemExit(f"{self._server.name}: {response_head!r}")
        if b"content-length:" in response_head:
            length = int(response_head.partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            return time.perf_counter() - started, [], length
        first, size, latencies = 0.0, 0, []
        while length := int(await reader.readline(), 16):
            chunk = await reader.readexactly(length + 2)
            now = time.perf_counter()
            first = first or now - started
            size += length
            latencies += [now - float(stamp) for stamp in STAMP.findall(chunk)]
        await reader.readline()
        return first, latencies, size

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()


def build_body(content: str, *, stream: bool, tools: int = 0, path: str = MESSAGES) -> bytes:
    body: dict[str, Any] = {"model": "any"}
    if path == RESPONSES:
        body |= {"input": content}
    else:
        body |= {"max_tokens": 99, "messages": [{"role": "user", "content": content}]}
    if stream:
        body["stream"] = True
    if tools:
        body["tools"] = [*_search_tool(path), *(_tool(path, number) for number in range(tools))]
    return json.dumps(body).encode()


def _search_tool(path: str) -> list[dict[str, str]]:
    if path == RESPONSES:
        return [{"type": "tool_search"}]
    if path == CHAT:
        # This API has no search tool; the gateway defers tools without one.
        return []
    return [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}]


def _tool(path: str, number: int) -> dict[str, Any]:
    properties = {
        name: {"type": "string", "description": f"A short text about the {name}."}
        for name in ("subject", "amount", "place", "date")
    }
    schema = {"type": "object", "properties": properties}
    tool = {"name": f"tool_{number}", "description": f"Run action number {number} and return its result."}
    if path == MESSAGES:
        return {**tool, "input_schema": schema, "defer_loading": True}
    if path == CHAT:
        return {"type": "function", "function": {**tool, "parameters": schema}}
    return {"type": "function", **tool, "parameters": schema, "defer_loading": True}


# -------------------------------------------------------------------------------- measurements


async def _measure_requests(server: Server, count: int) -> None:
    """Measure the latency and CPU time of sequential requests without streaming."""
    client, body = Client(server), build_body("Hi", stream=False, tools=server.tools)
    for _ in range(3):
        await client.ask(body)
    before, times = server.cpu_seconds(), []
    for _ in range(count):
        times.append((await client.ask(body))[0])
    server.record("request ms", median(times) * 1e3)
    server.record("request cpu ms", (server.cpu_seconds() - before) / count * 1e3)
    await client.close()


async def _measure_streams(server: Server, count: int) -> None:
    """Measure sequential streams: time to the first byte, and latency and CPU time of an event."""
    client, tools, path = Client(server), server.tools, server.api
    body = build_body("Hi", stream=True, tools=tools, path=path)
    short = build_body(f"1 {GAP_SECONDS}", stream=True, tools=tools, path=path)
    await client.ask(body)
    firsts, events, long_seconds, short_seconds = [], [], 0.0, 0.0
    number = max(count // 6, 3)
    for _ in range(number):
        before = server.cpu_seconds()
        first, latencies, _ = await client.ask(body)
        between = server.cpu_seconds()
        await client.ask(short)
        long_seconds += between - before
        short_seconds += server.cpu_seconds() - between
        firsts.append(first)
        events += latencies
    server.record("first byte ms", median(firsts) * 1e3)
    server.record("event µs", median(events) * 1e6)
    # The difference of long and short streams leaves out the CPU time of the request.
    server.record("event cpu µs", (long_seconds - short_seconds) / (len(events) - number) * 1e6)
    await client.close()


async def _measure_parallel_streams(server: Server) -> None:
    """Measure the CPU time of an event with many parallel streams, while all of them are running."""
    body = build_body(f"{PARALLEL_EVENTS} {PARALLEL_GAP_SECONDS} ", stream=True)
    clients = [Client(server) for _ in range(PARALLEL_STREAMS)]
    requests = [asyncio.ensure_future(client.ask(body)) for client in clients]
    duration = PARALLEL_EVENTS * PARALLEL_GAP_SECONDS
    await asyncio.sleep(0.4 * duration)
    before, began = server.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(0.4 * duration)
    spent, passed = server.cpu_seconds() - before, time.perf_counter() - began
    await asyncio.gather(*requests)
    await asyncio.gather(*(client.close() for client in clients))
    events = PARALLEL_STREAMS * passed / PARALLEL_GAP_SECONDS
    server.record(f"event cpu µs, {PARALLEL_STREAMS} streams", spent / events * 1e6)


async def _measure_throughput(server: Server, seconds: float) -> None:
    """Measure the requests per CPU second with sixteen parallel clients."""
    body, end, answered = build_body("Hi", stream=False), time.monotonic() + seconds, 0

    async def work() -> None:
        nonlocal answered
        client = Client(server)
        while time.monotonic() < end:
            await client.ask(body)
            answered += 1
        await client.close()

    before = server.cpu_seconds()
    await asyncio.gather(*(work() for _ in range(16)))
    spent = server.cpu_seconds() - before
    server.record("requests per CPU second", answered / spent if spent else 0.0)


async def _measure_memory(server: Server, rounds: int) -> None:
    """Measure the memory with many slow parallel streams. A leak would show as growth from round to round."""
    body = build_body(f"{SLOW_EVENTS} {SLOW_GAP_SECONDS} ", stream=True)
    server.record("memory before MB", server.memory_bytes() / 1e6)
    for number in range(rounds):
        clients = [Client(server) for _ in range(SLOW_STREAMS)]
        requests = [asyncio.ensure_future(client.ask(body)) for client in clients]
        peak = 0
        while not all(request.done() for request in requests):
            peak = max(peak, server.memory_bytes())
            await asyncio.sleep(0.1)
        sizes = {request.result()[2] for request in requests}
        # All timestamps have the same length, so all complete streams do too.
        if len(sizes) != 1:
            raise SystemExit(f"{server.name} did not complete all streams: {sizes}")
        server.record(f"memory in round {number + 1} MB", peak / 1e6)
        await asyncio.gather(*(client.close() for client in clients))


async def _first_requests(server: Server, direct: Server) -> float:
    """Return the milliseconds that the first request with 1,000 new tools takes more than a direct request."""
    added = []
    for number in range(5):
        body = build_body("Hi", stream=False, tools=1_000).replace(b"tool_", b"t%d_" % number)
        body = body.replace(b"t%d_search_t%d_regex" % (number, number), b"tool_search_tool_regex")
        times = []
        for target in (server, direct):
            client = Client(target)
            await client.ask(build_body("Hi", stream=False))
            times.append((await client.ask(body))[0])
            await client.close()
        added.append((times[0] - times[1]) * 1e3)
        await asyncio.sleep(1)
    return min(added)


async def _measure(servers: list[Server], by_api: list[Server], rounds: int, count: int) -> dict[str, float]:
    for _ in range(rounds):
        for server in servers:
            await _measure_requests(server, count)
        for server in servers:
            await _measure_streams(server, count)
    for server in servers:
        if server.process is not None and not server.tools:
            await _measure_parallel_streams(server)
    measured = [server for server in servers if server.process is not None]
    for server in measured:
        if server.name not in (SEARCHING, BARE):
            await _measure_throughput(server, 5.0)
            await _measure_memory(server, 2)
    # Last, because searching increases the memory of the gateway.
    for _ in range(rounds):
        for server in by_api:
            await _measure_streams(server, count)
    ours = next(server for server in servers if server.name == SEARCHING)
    direct = next(server for server in servers if server.name == DIRECT)
    return {"first request with 1,000 new tools ms": await _first_requests(ours, direct)}


# ------------------------------------------------------------------------------------ the table


def _best_value(server: Server, measure: str) -> float | None:
    values = server.measures.get(measure)
    if not values:
        return None
    return max(values) if "CPU second" in measure else min(values)


def _render_apis(servers: list[Server]) -> list[str]:
    """Return the table of what each API adds to a direct stream, passed through and with deferred tools."""
    lines = [
        "",
        "What a stream in each API takes more than with a direct connection. With deferred tools, the gateway parses "
        "every event and writes most of them again; the model calls no tool.",
        "",
        "| | time to the first byte, added ms | latency of an event, added µs | CPU time of an event, µs |",
        "|---|--:|--:|--:|",
    ]
    direct = {server.path: server for server in servers if server.name == DIRECT}
    for server in servers:
        if server.name == DIRECT:
            continue
        added = [
            (_best_value(server, measure) or 0.0) - (_best_value(direct[server.path], measure) or 0.0)
            for measure in ("first byte ms", "event µs")
        ]
        cpu = _best_value(server, "event cpu µs") or 0.0
        lines.append(f"| {server.name} | {added[0]:.2f} | {added[1]:.0f} | {cpu:.0f} |")
    return lines


def _render_report(servers: list[Server], by_api: list[Server], extra: dict[str, float], command: str) -> str:
    names = [server.name for server in servers]
    measures = list(dict.fromkeys(name for server in servers for name in server.measures))
    lines = [
        "# The LLM gateway",
        "",
        f"`{command}`. Sequential requests, without streaming and with streams of {EVENTS} events {GAP_SECONDS * 1e3:.0f} ms "
        "apart; the best of the rounds. The latency of an event is the time from upstream to client. The CPU time of an "
        "event is the difference between a stream of many events and one of a single event, per event. "
        f"Each of {PARALLEL_STREAMS} parallel streams has {PARALLEL_EVENTS} events, {PARALLEL_GAP_SECONDS * 1e3:.0f} ms apart. "
        f"Memory is that with {SLOW_STREAMS} parallel streams, in two rounds.",
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'--:|' * len(names)}",
    ]
    for measure in measures:
        cells = [_best_value(server, measure) for server in servers]
        shown = ("" if cell is None else f"{cell:,.0f}" if cell >= 100 else f"{cell:.2f}" for cell in cells)
        lines.append(f"| {measure} | {' | '.join(shown)} |")
    by_name = {server.name: server for server in servers}
    lines += ["", "Added to a direct connection, and the ratio of LiteLLM to ours:", ""]
    lines += ["| | a bare relay | ours | LiteLLM | ratio |", "|---|--:|--:|--:|--:|"]
    for measure in (
        "request ms",
        "first byte ms",
        "event µs",
        "request cpu ms",
        "event cpu µs",
        f"event cpu µs, {PARALLEL_STREAMS} streams",
    ):
        direct = _best_value(by_name[DIRECT], measure) or 0.0
        bare, ours, theirs = (
            (_best_value(by_name[name], measure) or 0.0) - direct if name in by_name else None
            for name in (BARE, OURS, LITELLM)
        )
        assert bare is not None and ours is not None
        cell = "not installed | " if theirs is None else f"{theirs:.2f} | {theirs / ours:.1f} ×"
        lines.append(f"| {measure} | {bare:.2f} | {ours:.2f} | {cell} |")
    lines += _render_apis(by_api)
    for name, value in extra.items():
        lines += ["", f"The {name.removesuffix(' ms')} takes {value:.0f} ms more than a direct request."]
    machine = ", ".join(describe_machine().values())
    # Other load on the machine makes all times longer.
    load = f"Load at the end, over 1, 5 and 15 minutes: {'{:.1f}, {:.1f}, {:.1f}'.format(*os.getloadavg())}."
    return "\n".join([*lines, "", f"{machine}. {load}", ""])


@click.group(invoke_without_command=True)
@click.option("--litellm", default="litellm", help="Path of LiteLLM's executable.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--count", default=60, show_default=True, help="Requests in each step.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("benchmarks/results/model_gateway.md"))
@click.pass_context
def main(context: click.Context, litellm: str, rounds: int, count: int, out: Path) -> None:
    """Run the benchmark and write the tables."""
    if context.invoked_subcommand:
        return
    with contextlib.ExitStack() as running:
        port, gateway_port = find_free_ports(2)
        url = f"http://127.0.0.1:{port}"
        start = running.enter_context
        upstream = start(start_server("the upstream", _own_command("upstream", port), port))
        direct = Server(DIRECT, upstream.port, upstream.path, None)
        ours = start(start_server(OURS, _own_command("gateway", gateway_port, url), gateway_port))
        relay_port = find_free_port()
        relay = [sys.executable, "-m", "benchmarks.bare_relay", str(relay_port), str(port)]
        bare = start(start_server(BARE, relay, relay_port))
        searching = Server(SEARCHING, ours.port, ours.path, ours.process, 1_000)
        servers = [direct, bare, ours, searching]
        by_api = []
        for name, path in (("Messages", MESSAGES), ("Chat", CHAT), ("Responses", RESPONSES)):
            by_api.append(Server(DIRECT, direct.port, path, None))
            for what, tools in ((PASSED, 0), (SEARCHED, 100)):
                by_api.append(Server(f"{name}, {what}", ours.port, path, ours.process, tools))
        if shutil.which(litellm):
            folder = start(tempfile.TemporaryDirectory())
            litellm_port = find_free_port()
            config = _litellm_config(folder, url)
            command = [litellm, "--config", config, "--port", str(litellm_port), "--host", "127.0.0.1"]
            quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            servers.append(start(start_server(LITELLM, command, litellm_port, "/v1/through", **quiet)))
        extra = asyncio.run(_measure(servers, by_api, rounds, count))
    table = _render_report(servers, by_api, extra, "python -m benchmarks.model_gateway")
    out.write_text(table, encoding="utf-8")
    print(table)


@main.command()
@click.argument("port", type=int)
def upstream(port: int) -> None:
    """Serve the upstream."""
    asyncio.run(serve(port))


@main.command()
@click.argument("port", type=int)
@click.argument("url")
def gateway(port: int, url: str) -> None:
    """Serve the gateway."""
    # The event loop that uvicorn selects by default.
    factory = uvicorn.Config("", loop="auto").get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve_gateway(port, url))


if __name__ == "__main__":
    main()
