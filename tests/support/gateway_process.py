"""`toolcrib serve` as a process of its own, for tests with clients that are programs too."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

START_SECONDS: Final = 600
REPOSITORY: Final = Path(__file__).parents[2]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_config(folder: Path, config: Mapping[str, Any]) -> Path:
    """A configuration as a file in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toolcrib.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def stdio_command(config: Path) -> list[str]:
    """What a client starts to have the gateway as its child."""
    return [sys.executable, "-m", "toolcrib", "stdio", "--config", str(config)]


@contextmanager
def run_process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process until this ends; what it says goes to a file."""
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=REPOSITORY)
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
    """A gateway over HTTP, once so many of its servers are up: its address, without `/mcp`."""
    port = free_port()
    command = [sys.executable, "-m", "toolcrib", "serve", "--config", str(config)]
    log = config.with_suffix(".log")
    with run_process([*command, "--port", str(port)], log) as process:
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: count_started_servers(address) >= servers, process, log)
        yield address


def count_started_servers(address: str) -> int:
    """How many servers of a gateway are up; none while it is not up itself."""
    try:
        with urllib.request.urlopen(f"{address}/api/servers", timeout=60) as answer:
            told = json.load(answer)
    except OSError:
        return 0
    return sum(one["state"] in ("started", "in use") for one in told["servers"])


def wait_for(condition: Any, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until something holds, as long as the process lives."""
    until = time.monotonic() + START_SECONDS
    while not condition():
        said = log.read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"it ended: {said}"
        assert time.monotonic() < until, f"it did not come up: {said}"
        time.sleep(0.2)
