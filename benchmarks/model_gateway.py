"""What the model gateway adds to a request, beside a direct connection and LiteLLM's proxy.

python -m benchmarks.model_gateway [--litellm PATH] [--out FILE]

Each server runs in a process of its own and is asked by turns, in one run: a slow minute of the machine
hits all of them. LiteLLM's proxy passes through, the least it can do; ours once passes on and once
searches 1,000 tools. CPU is that of the server's process with all its threads, which says more than a
clock on a machine that does other things besides. The upstream answers at once and costs nobody anything.
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
# Copies bytes and reads none of them: what a relay on this machine costs at least.
BARE = "a bare relay"
# What is done for each API: nothing, or the tools are held back and searched.
PASSED, SEARCHED = "passed on", "100 tools searched"
CROWD, CROWD_EVENTS, CROWD_GAP_SECONDS = 50, 150, 0.1
HELD = 500
HELD_EVENTS = 20
HELD_GAP_SECONDS = 0.25
START_SECONDS = 600
PAGE = os.sysconf("SC_PAGE_SIZE")


async def _gateway(port: int, url: str) -> None:
    upstreams = [LlmUpstreamConfig(api, api=api, url=url, connect_seconds=120) for api in get_args(LlmApi)]
    gateway = LlmGateway(LlmGatewayConfig(tuple(upstreams)))
    await gateway.open()
    app = Starlette(routes=build_llm_routes(gateway))
    config = uvicorn.Config(app, port=port, log_level="error", access_log=False, lifespan="off", backlog=2_048)
    await uvicorn.Server(config).serve()


# ----------------------------------------------------------------------------- those measured


@dataclass
class Server:
    """A process that answers at a port, and what it has used."""

    name: str
    port: int
    path: str
    process: subprocess.Popen[bytes] | None
    tools: int = 0
    measures: dict[str, list[float]] = field(default_factory=dict)

    @property
    def api(self) -> str:
        """The API it is asked in."""
        return self.path if self.path in (CHAT, RESPONSES) else MESSAGES

    def cpu_seconds(self) -> float:
        """CPU of the process and its children, so far."""
        return sum(_cpu_seconds(pid) for pid in self._pids())

    def memory_bytes(self) -> int:
        """Resident memory of the process and its children."""
        return sum(_memory_bytes(pid) for pid in self._pids())

    def note(self, measure: str, value: float) -> None:
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
    """What the threads of a process have run, to the nanosecond; a tick would be ten events."""
    spent = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            spent += int(thread.read_text().split()[0])
    return spent / 1e9


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
            _wait(process, port, name, log)
            yield Server(name, port, path, process)
        finally:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, name: str, log: Any) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            log.seek(0)
            raise SystemExit(f"{name} ended at once: {log.read()[-2000:].decode()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise SystemExit(f"{name} was not there after {START_SECONDS} s")


def _own(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.model_gateway", *map(str, arguments)]


def _litellm_config(folder: str, url: str) -> str:
    path = Path(folder) / "litellm.json"
    through = {"path": "/v1/through", "target": f"{url}/v1/messages", "headers": {}}
    general = {"pass_through_endpoints": [through], "dangerously_permit_weak_or_unset_master_key": True}
    config = {"model_list": [], "general_settings": general}
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


# --------------------------------------------------------------------------------- the client


class Client:
    """One connection, as thin as can be: what it costs is not charged to those it measures."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes) -> tuple[float, list[float], int]:
        """Seconds to the first byte of the body, seconds each event was under way, and its size."""
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
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in answer.split(b"\r\n")[0]:
            raise SystemExit(f"{self._server.name}: {answer!r}")
        if b"content-length:" in answer:
            length = int(answer.partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            return time.perf_counter() - started, [], length
        first, size, under_way = 0.0, 0, []
        while length := int(await reader.readline(), 16):
            chunk = await reader.readexactly(length + 2)
            now = time.perf_counter()
            first = first or now - started
            size += length
            under_way += [now - float(stamp) for stamp in STAMP.findall(chunk)]
        await reader.readline()
        return first, under_way, size

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
        # There is none in this API: that tools are held back is not told.
        return []
    return [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}]


def _tool(path: str, number: int) -> dict[str, Any]:
    properties = {
        name: {"type": "string", "description": f"What the {name} is, in a few words."}
        for name in ("subject", "amount", "place", "date")
    }
    schema = {"type": "object", "properties": properties}
    tool = {"name": f"tool_{number}", "description": f"Does what number {number} is for, and says what came of it."}
    if path == MESSAGES:
        return {**tool, "input_schema": schema, "defer_loading": True}
    if path == CHAT:
        return {"type": "function", "function": {**tool, "parameters": schema}}
    return {"type": "function", **tool, "parameters": schema, "defer_loading": True}


# ------------------------------------------------------------------------------ what is measured


async def _requests(server: Server, count: int) -> None:
    """Whole answers, one after the other: latency, and CPU for each."""
    client, body = Client(server), build_body("Hi", stream=False, tools=server.tools)
    for _ in range(3):
        await client.ask(body)
    before, times = server.cpu_seconds(), []
    for _ in range(count):
        times.append((await client.ask(body))[0])
    server.note("request ms", median(times) * 1e3)
    server.note("request cpu ms", (server.cpu_seconds() - before) / count * 1e3)
    await client.close()


async def _streams(server: Server, count: int) -> None:
    """Streamed answers, one after the other: the first byte, and each event."""
    client, tools, path = Client(server), server.tools, server.api
    body = build_body("Hi", stream=True, tools=tools, path=path)
    short = build_body(f"1 {GAP_SECONDS}", stream=True, tools=tools, path=path)
    await client.ask(body)
    firsts, events, spent, beside = [], [], 0.0, 0.0
    number = max(count // 6, 3)
    for _ in range(number):
        before = server.cpu_seconds()
        first, under_way, _ = await client.ask(body)
        between = server.cpu_seconds()
        await client.ask(short)
        spent += between - before
        beside += server.cpu_seconds() - between
        firsts.append(first)
        events += under_way
    server.note("first byte ms", median(firsts) * 1e3)
    server.note("event µs", median(events) * 1e6)
    # What the request itself takes is in both kinds of streams.
    server.note("event cpu µs", (spent - beside) / (len(events) - number) * 1e6)
    await client.close()


async def _crowd(server: Server) -> None:
    """Many streams at once, as a server has them: measured when all are well under way."""
    body = build_body(f"{CROWD_EVENTS} {CROWD_GAP_SECONDS} ", stream=True)
    clients = [Client(server) for _ in range(CROWD)]
    asked = [asyncio.ensure_future(client.ask(body)) for client in clients]
    whole = CROWD_EVENTS * CROWD_GAP_SECONDS
    await asyncio.sleep(0.4 * whole)
    before, began = server.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(0.4 * whole)
    spent, passed = server.cpu_seconds() - before, time.perf_counter() - began
    await asyncio.gather(*asked)
    await asyncio.gather(*(client.close() for client in clients))
    events = CROWD * passed / CROWD_GAP_SECONDS
    server.note(f"event cpu µs, {CROWD} streams", spent / events * 1e6)


async def _load(server: Server, seconds: float) -> None:
    """As many requests as it takes, sixteen at once."""
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
    server.note("requests a CPU second", answered / spent if spent else 0.0)


async def _hold(server: Server, rounds: int) -> None:
    """Many slow streams at once, several times over: memory that grows does so from round to round."""
    body = build_body(f"{HELD_EVENTS} {HELD_GAP_SECONDS} ", stream=True)
    server.note("memory before MB", server.memory_bytes() / 1e6)
    for number in range(rounds):
        clients = [Client(server) for _ in range(HELD)]
        asked = [asyncio.ensure_future(client.ask(body)) for client in clients]
        peak = 0
        while not all(one.done() for one in asked):
            peak = max(peak, server.memory_bytes())
            await asyncio.sleep(0.1)
        sizes = {one.result()[2] for one in asked}
        # The stamps are all of one length, so the streams are too.
        if len(sizes) != 1:
            raise SystemExit(f"{server.name} did not bring all streams to their end: {sizes}")
        server.note(f"memory in round {number + 1} MB", peak / 1e6)
        await asyncio.gather(*(client.close() for client in clients))


async def _first_requests(server: Server, direct: Server) -> float:
    """What a first request with 1,000 tools that nobody has seen adds, in milliseconds."""
    added = []
    for number in range(5):
        body = build_body("Hi", stream=False, tools=1_000).replace(b"tool_", b"t%d_" % number)
        body = body.replace(b"t%d_search_t%d_regex" % (number, number), b"tool_search_tool_regex")
        times = []
        for one in (server, direct):
            client = Client(one)
            await client.ask(build_body("Hi", stream=False))
            times.append((await client.ask(body))[0])
            await client.close()
        added.append((times[0] - times[1]) * 1e3)
        await asyncio.sleep(1)
    return min(added)


async def _measure(servers: list[Server], by_api: list[Server], rounds: int, count: int) -> dict[str, float]:
    for _ in range(rounds):
        for server in servers:
            await _requests(server, count)
        for server in servers:
            await _streams(server, count)
    for server in servers:
        if server.process is not None and not server.tools:
            await _crowd(server)
    measured = [server for server in servers if server.process is not None]
    for server in measured:
        if server.name not in (SEARCHING, BARE):
            await _load(server, 5.0)
            await _hold(server, 2)
    # Last, as searching takes memory of its own.
    for _ in range(rounds):
        for server in by_api:
            await _streams(server, count)
    ours = next(server for server in servers if server.name == SEARCHING)
    direct = next(server for server in servers if server.name == DIRECT)
    return {"first request of 1,000 tools ms": await _first_requests(ours, direct)}


# ------------------------------------------------------------------------------------ the table


def _best(server: Server, measure: str) -> float | None:
    values = server.measures.get(measure)
    if not values:
        return None
    return max(values) if "CPU second" in measure else min(values)


def _by_api(servers: list[Server]) -> list[str]:
    """What each API adds, passed on and searched, to the same stream without us."""
    lines = [
        "",
        "What a stream takes in each API, beside a direct connection. Searched, every event is read, "
        "and mostly written anew; the tools are held back, and the model calls none of them.",
        "",
        "| | added to the first byte, ms | added to an event, µs | CPU of an event, µs |",
        "|---|--:|--:|--:|",
    ]
    direct = {server.path: server for server in servers if server.name == DIRECT}
    for server in servers:
        if server.name == DIRECT:
            continue
        added = [
            (_best(server, measure) or 0.0) - (_best(direct[server.path], measure) or 0.0)
            for measure in ("first byte ms", "event µs")
        ]
        cpu = _best(server, "event cpu µs") or 0.0
        lines.append(f"| {server.name} | {added[0]:.2f} | {added[1]:.0f} | {cpu:.0f} |")
    return lines


def _table(servers: list[Server], by_api: list[Server], extra: dict[str, float], command: str) -> str:
    names = [server.name for server in servers]
    measures = list(dict.fromkeys(name for server in servers for name in server.measures))
    lines = [
        "# The model gateway",
        "",
        f"`{command}`. Whole answers, and streams of {EVENTS} events {GAP_SECONDS * 1e3:.0f} ms "
        "apart, one after the other; an event's time is from the upstream's sending it to the client's having it; the best of "
        "the rounds. An event's CPU is what a stream of many takes more than one of a single event. "
        f"Of {CROWD} streams at once each has {CROWD_EVENTS} events, {CROWD_GAP_SECONDS * 1e3:.0f} ms apart. "
        f"Memory while {HELD} streams are held at once, in one round and in the next.",
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'--:|' * len(names)}",
    ]
    for measure in measures:
        cells = [_best(server, measure) for server in servers]
        shown = ("" if one is None else f"{one:,.0f}" if one >= 100 else f"{one:.2f}" for one in cells)
        lines.append(f"| {measure} | {' | '.join(shown)} |")
    by_name = {server.name: server for server in servers}
    lines += ["", "Added to a direct connection, and how many times as much LiteLLM adds:", ""]
    lines += ["| | a bare relay | ours | LiteLLM | times |", "|---|--:|--:|--:|--:|"]
    for measure in (
        "request ms",
        "first byte ms",
        "event µs",
        "request cpu ms",
        "event cpu µs",
        f"event cpu µs, {CROWD} streams",
    ):
        direct = _best(by_name[DIRECT], measure) or 0.0
        bare, ours, theirs = (
            (_best(by_name[name], measure) or 0.0) - direct if name in by_name else None
            for name in (BARE, OURS, LITELLM)
        )
        assert bare is not None and ours is not None
        told = "not installed | " if theirs is None else f"{theirs:.2f} | {theirs / ours:.1f} ×"
        lines.append(f"| {measure} | {bare:.2f} | {ours:.2f} | {told} |")
    lines += _by_api(by_api)
    for name, value in extra.items():
        lines += ["", f"A {name.removesuffix(' ms')} that nobody has seen before adds {value:.0f} ms."]
    machine = ", ".join(describe_machine().values())
    # Times on a machine that does other things besides are too long, for all of them.
    load = f"Load at the end, over 1, 5 and 15 minutes: {'{:.1f}, {:.1f}, {:.1f}'.format(*os.getloadavg())}."
    return "\n".join([*lines, "", f"{machine}. {load}", ""])


@click.group(invoke_without_command=True)
@click.option("--litellm", default="litellm", help="LiteLLM's executable, in whichever environment.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--count", default=60, show_default=True, help="Requests in each step.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("benchmarks/results/model_gateway.md"))
@click.pass_context
def main(context: click.Context, litellm: str, rounds: int, count: int, out: Path) -> None:
    """Measure all of them and write a table."""
    if context.invoked_subcommand:
        return
    with contextlib.ExitStack() as running:
        port, at = find_free_ports(2)
        url = f"http://127.0.0.1:{port}"
        start = running.enter_context
        upstream = start(start_server("the upstream", _own("upstream", port), port))
        direct = Server(DIRECT, upstream.port, upstream.path, None)
        ours = start(start_server(OURS, _own("gateway", at, url), at))
        beside = find_free_port()
        relay = [sys.executable, "-m", "benchmarks.bare_relay", str(beside), str(port)]
        bare = start(start_server(BARE, relay, beside))
        searching = Server(SEARCHING, ours.port, ours.path, ours.process, 1_000)
        servers = [direct, bare, ours, searching]
        by_api = []
        for name, path in (("Messages", MESSAGES), ("Chat", CHAT), ("Responses", RESPONSES)):
            by_api.append(Server(DIRECT, direct.port, path, None))
            for what, tools in ((PASSED, 0), (SEARCHED, 100)):
                one = Server(f"{name}, {what}", ours.port, path, ours.process, tools)
                by_api.append(one)
        if shutil.which(litellm):
            folder = start(tempfile.TemporaryDirectory())
            other = find_free_port()
            config = _litellm_config(folder, url)
            command = [litellm, "--config", config, "--port", str(other), "--host", "127.0.0.1"]
            quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            servers.append(start(start_server(LITELLM, command, other, "/v1/through", **quiet)))
        extra = asyncio.run(_measure(servers, by_api, rounds, count))
    table = _table(servers, by_api, extra, "python -m benchmarks.model_gateway")
    out.write_text(table, encoding="utf-8")
    print(table)


@main.command()
@click.argument("port", type=int)
def upstream(port: int) -> None:
    """Be the upstream."""
    asyncio.run(serve(port))


@main.command()
@click.argument("port", type=int)
@click.argument("url")
def gateway(port: int, url: str) -> None:
    """Be our gateway before it."""
    # The event loop that uvicorn would take by itself.
    factory = uvicorn.Config("", loop="auto").get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_gateway(port, url))


if __name__ == "__main__":
    main()
