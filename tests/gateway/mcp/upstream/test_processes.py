"""The gateway as a process that is started, killed and restarted."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
import pytest
from mcp import Client, StdioServerParameters

from tests.gateway.mcp.harness import SERVERS, STATELESS, call_text, list_tool_names
from tests.gateway.mcp.upstream.test_faults import is_running
from toolcrib.gateway.mcp.upstream.stdio import RUNNING_PROCESSES, start_process, wait_for_pending_starts

pytestmark = pytest.mark.anyio

SOURCE = Path(__file__).resolve().parents[4] / "src"
# Each start takes seconds; this variable increases their number.
HEAVY = bool(os.environ.get("TOOLCRIB_HEAVY_TESTS"))
PYTHON = {"command": sys.executable}


def write_config(folder: Path, **servers: list[str]) -> Path:
    """Write a configuration whose servers are scripts with these arguments."""
    entries = {
        name: {**PYTHON, "args": ["-I", "-S", str(SERVERS / args[0]), *args[1:]]} for name, args in servers.items()
    }
    path = folder / "toolcrib.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE)}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "toolcrib", *args]


def zoo_command(*tools: str, era: str = "legacy") -> list[str]:
    return ["plain.py", json.dumps({"tag": "zoo", "era": era, "tools": list(tools)})]


@pytest.mark.parametrize("mode", ["legacy", "auto"] if HEAVY else ["auto"])
async def test_stdio_clients_of_both_revisions(tmp_path: Path, mode: str) -> None:
    note = tmp_path / "child"
    config = write_config(
        tmp_path,
        zoo=zoo_command("echo", "pid", era=STATELESS if mode == "auto" else "legacy"),
        tree=["faulty.py", "tree", str(note)],
    )
    launched = command("stdio", "--config", str(config))
    params = StdioServerParameters(command=launched[0], args=launched[1:], env=environment())
    async with Client(params, mode=mode) as connected:
        assert connected.protocol_version == ("2025-11-25" if mode == "legacy" else STATELESS)
        with anyio.fail_after(60):
            while len(await list_tool_names(connected)) < 3:
                await anyio.sleep(0.05)
        assert await call_text(connected, "zoo___echo", {"text": "through"}) == "through"
        child = int(note.read_text())
        server = int(await call_text(connected, "zoo___pid"))
    with anyio.fail_after(20):
        while is_running(child) or is_running(server):
            await anyio.sleep(0.05)


@asynccontextmanager
async def run_gateway_process(config: Path) -> AsyncIterator[tuple[subprocess.Popen[bytes], str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        command("serve", "--config", str(config), "--port", str(port)),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient() as http:
            with anyio.fail_after(60):
                while not await is_answering(http, f"{url}/health"):
                    assert process.poll() is None
                    await anyio.sleep(0.05)
        yield process, url
    finally:
        process.kill()
        process.wait()


async def is_answering(http: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx2.TransportError:
        return False


async def test_killed_gateway_answers_from_stored_tools(tmp_path: Path) -> None:
    async def ask(method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with httpx2.AsyncClient(timeout=30) as http:
            return (await http.post(f"{url}/mcp", json=body)).json()["result"]

    mute = tmp_path / "mute"
    # A server that starts once and does not respond after a restart.
    code = (
        "import pathlib, sys, time; mark = pathlib.Path(sys.argv[3]); "
        "time.sleep(600) if mark.exists() else mark.touch(); exec(open(sys.argv[2]).read())"
    )
    plain = str(SERVERS / "plain.py")
    spec = json.dumps({"tools": ["lion", "pid"], "era": "legacy"})
    start = f"import sys; sys.argv[1:1] = [{spec!r}]; {code}"
    entry = {**PYTHON, "args": ["-c", start, plain, str(mute)]}
    path = tmp_path / "toolcrib.json"
    path.write_text(json.dumps({"mcpServers": {"zoo": entry}}))
    async with run_gateway_process(path) as (process, url):
        with anyio.fail_after(60):
            while not (await ask("tools/list"))["tools"]:
                await anyio.sleep(0.05)
        called = await ask("tools/call", name="zoo___pid", arguments={})
        server = int(called["content"][0]["text"])
        with anyio.fail_after(30):
            # Counters are written within a second.
            while not read_usage(tmp_path):
                await anyio.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert read_usage(tmp_path) == [("zoo___pid", 1)]
    with anyio.fail_after(20):
        # It exits after its input is closed.
        while is_running(server):
            await anyio.sleep(0.05)
    async with run_gateway_process(path) as (process, url):
        listed = await ask("tools/list")
        assert [tool["name"] for tool in listed["tools"]][:2] == ["zoo___lion", "zoo___pid"]
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(30):
            while process.poll() is None:
                await anyio.sleep(0.05)
    assert process.returncode == 0
    # A clean stop writes the log of the store back.
    assert not (tmp_path / "toolcrib.db-wal").exists()


def read_usage(folder: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(folder / "toolcrib.db")) as database:
        return database.execute("SELECT tool_id, calls FROM usage").fetchall()


async def test_pending_start_is_tracked() -> None:
    may_open = anyio.Event()

    async def opening() -> anyio.abc.Process:
        await may_open.wait()
        return await anyio.open_process([sys.executable, "-c", "input()"])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start_process, opening())
        await anyio.sleep(0)
        # With a timeout, because a start may hang.
        await wait_for_pending_starts(0.05)
        before = dict(RUNNING_PROCESSES)
        may_open.set()
        await wait_for_pending_starts(60)
    (pid,) = RUNNING_PROCESSES.keys() - before.keys()
    process = RUNNING_PROCESSES.pop(pid)
    await process.aclose()


async def test_sigterm_also_stops_the_servers(tmp_path: Path) -> None:
    note = tmp_path / "child"
    config = write_config(tmp_path, tree=["faulty.py", "tree", str(note)])
    process = subprocess.Popen(
        command("stdio", "--config", str(config)),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with anyio.fail_after(60):
            while not note.exists() or not note.read_text():
                await anyio.sleep(0.05)
        child = int(note.read_text())
        assert is_running(child)
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(30):
            while process.poll() is None or is_running(child):
                await anyio.sleep(0.05)
    finally:
        process.kill()
        process.wait()
        assert process.stdin
        process.stdin.close()
