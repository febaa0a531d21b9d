"""Run `toolcrib serve` as a separate process, for tests with external clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.ports import find_free_port

START_SECONDS: Final = 600
REPOSITORY: Final = Path(__file__).parents[2]


def write_config(folder: Path, config: Mapping[str, Any]) -> Path:
    """Write a configuration to a file in this folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toolcrib.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def stdio_command(config: Path) -> list[str]:
    """Return the command with which a client starts the gateway as its child."""
    return [sys.executable, "-m", "toolcrib", "stdio", "--config", str(config)]


@contextmanager
def run_process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until the `with` block ends; its output goes to a file."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=REPOSITORY)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def run_gateway(config: Path, servers: int) -> Iterator[str]:
    """Run a gateway over HTTP, wait for its servers, and yield its address without `/mcp`."""
    port = find_free_port()
    command = [sys.executable, "-m", "toolcrib", "serve", "--config", str(config)]
    log = config.with_suffix(".log")
    with run_process([*command, "--port", str(port)], log) as process:
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: count_started_servers(address) >= servers, process, log)
        yield address


def count_started_servers(address: str) -> int:
    """Return how many servers of a gateway are started; 0 if the gateway does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/api/servers", timeout=60) as answer:
            body = json.load(answer)
    except OSError:
        return 0
    return sum(server["state"] in ("started", "in use") for server in body["servers"])


def wait_for(condition: Any, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a condition is true; fail if the process ends first."""
    until = time.monotonic() + START_SECONDS
    while not condition():
        output = log.read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"it ended: {output}"
        assert time.monotonic() < until, f"it did not come up: {output}"
        time.sleep(0.2)
