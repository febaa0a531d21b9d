"""Measure the memory of the gateway and of the browser while pages of the console are open and tools are called.

python -m benchmarks.soak [--minutes N] [--rate N] [--out FILE]

Needs Chromium. Flat memory means that a row near the end is not larger than one after the first minutes, when
all caches and time series have been used.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
from playwright.sync_api import Browser, CDPSession, sync_playwright

from benchmarks.machine import describe_machine
from benchmarks.speed import cpu_seconds, print_progress

PAGES = ("/", "/activity", "/servers", "/search")
PROTOCOL = "2025-11-25"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")


class SoakSample(NamedTuple):
    """One row of the result."""

    minute: int
    calls: int
    failures: int
    gateway_megabytes: float
    browser_megabytes: float
    script_megabytes: float
    nodes: int


class Caller(threading.Thread):
    """Calls a tool at a fixed rate."""

    def __init__(self, port: int, rate: int) -> None:
        super().__init__(daemon=True)
        self.calls = self.failures = 0
        self._rate = rate
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL,
        }
        self._stopped = threading.Event()
        info = {"name": "soak", "version": "1"}
        self._send("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": info})

    def run(self) -> None:
        """Call until stopped; calls that are late are made up for."""
        started = time.monotonic()
        while not self._stopped.is_set():
            due = int((time.monotonic() - started) * self._rate)
            while self.calls < due and not self._stopped.is_set():
                arguments = {"text": f"message {self.calls}", "times": 2}
                reply = self._send("tools/call", {"name": f"echo_{self.calls % 20}", "arguments": arguments})
                self.calls += 1
                self.failures += '"isError":true' in reply.replace(" ", "") or '"error":' in reply
            self._stopped.wait(1 / self._rate)

    def stop(self) -> None:
        """Stop calling and wait for the last call."""
        self._stopped.set()
        self.join()

    def _send(self, method: str, params: dict[str, Any]) -> str:
        body = json.dumps({"jsonrpc": "2.0", "id": self.calls + 1, "method": method, "params": params})
        self._connection.request("POST", "/mcp", body, self._headers)
        response = self._connection.getresponse()
        if session := response.headers.get("Mcp-Session-Id"):
            self._headers["Mcp-Session-Id"] = session
        return response.read().decode()


@contextmanager
def running_gateway(folder: Path) -> Iterator[tuple[int, int]]:
    """Run `toolcrib serve` with one server of 20 tools; yield its process id and port."""
    server = {"command": sys.executable, "args": ["-m", "benchmarks.echo_server", "20"], "cwd": str(Path.cwd())}
    tool_search = {"mode": "direct", "prefix": False}
    config = folder / "toolcrib.json"
    config.write_text(json.dumps({"mcpServers": {"echo": server}, "toolSearch": tool_search}), encoding="utf-8")
    command = [sys.executable, "-m", "toolcrib", "serve", "--config", str(config), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    try:
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                # Read the rest of the output, so that it does not fill the pipe.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                yield process.pid, int(found[1])
                return
        raise click.ClickException("the gateway did not start")
    finally:
        process.terminate()
        process.wait(30)


def resident_megabytes(root: int) -> float:
    """Return the resident memory of a process and its descendants."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    group = {root}
    while more := {process for process, parent in parents.items() if parent in group} - group:
        group |= more
    return sum(_process_megabytes(process) for process in group)


def _process_megabytes(process: int) -> float:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 / 1e6
    except OSError:
        return 0.0


def open_pages(browser: Browser, port: int) -> list[CDPSession]:
    """Open the pages and return a connection to the debugger of each."""
    sessions = []
    for path in PAGES:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}{path}")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        sessions.append(session)
    return sessions


def measure_pages(sessions: list[CDPSession]) -> tuple[float, int]:
    """Return the megabytes of script objects and the number of DOM nodes of all pages, after a garbage collection."""
    heap, nodes = 0.0, 0
    for session in sessions:
        session.send("HeapProfiler.collectGarbage")
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        heap += metrics["JSHeapUsedSize"] / 1e6
        nodes += int(metrics["Nodes"])
    return heap, nodes


def find_browser_process() -> int:
    """Return the process id of the Chromium that this process has started."""
    for name in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = name.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"chromium" in words[0] and not any(word.startswith(b"--type=") for word in words):
            return int(name.parent.name)
    raise click.ClickException("the process of Chromium was not found")


def render(samples: list[SoakSample], cpu: float, minutes: int, rate: int) -> str:
    """Return the result as Markdown."""
    about = ", ".join(f"{name}: {value}" for name, value in describe_machine().items())
    header = "| minute | calls | failed | gateway MB | browser MB | script MB | DOM nodes |\n|---:|---:|---:|---:|---:|---:|---:|"
    rows = "\n".join(
        f"| {s.minute} | {s.calls:,} | {s.failures} | {s.gateway_megabytes:.1f} | {s.browser_megabytes:.1f} "
        f"| {s.script_megabytes:.1f} | {s.nodes:,} |"
        for s in samples
    )
    return (
        "# Memory while pages are open\n\n"
        f"`python -m benchmarks.soak --minutes {minutes} --rate {rate}`. Four pages of the console are open: "
        f"{', '.join(PAGES)}. The gateway used {1000 * cpu:.2f} ms of CPU time per call, "
        f"with the work for the pages. {about}.\n\n{header}\n{rows}\n"
    )


@click.command()
@click.option("--minutes", default=60, show_default=True, help="How long to call tools.")
@click.option("--rate", default=100, show_default=True, help="Calls per second.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the result to a file, after every sample.")
def main(minutes: int, rate: int, out: Path | None) -> None:
    """Print the memory of the gateway and the browser every two minutes."""
    if not CHROMIUM:
        raise click.ClickException("install chromium")
    samples: list[SoakSample] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_gateway(Path(folder)) as (process, port),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        browser_process = find_browser_process()
        sessions = open_pages(browser, port)
        caller = Caller(port, rate)
        caller.start()
        started, cpu_before = time.monotonic(), cpu_seconds(process)
        for minute in range(1, minutes + 1):
            time.sleep(max(0.0, started + 60 * minute - time.monotonic()))
            if minute > 2 and minute % 2:
                continue
            heap, nodes = measure_pages(sessions)
            megabytes = _process_megabytes(process), resident_megabytes(browser_process)
            samples.append(SoakSample(minute, caller.calls, caller.failures, *megabytes, heap, nodes))
            print_progress(str(samples[-1]))
            cpu = (cpu_seconds(process) - cpu_before) / max(caller.calls, 1)
            if out:
                out.write_text(render(samples, cpu, minutes, rate), encoding="utf-8")
        caller.stop()
        browser.close()
    click.echo(render(samples, cpu, minutes, rate))


if __name__ == "__main__":
    main()
