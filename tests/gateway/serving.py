"""Run `toolcrib serve` as a process and send HTTP requests to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src"
PLAIN = Path(__file__).resolve().parents[1] / "support" / "mcp_servers" / "plain.py"
COMMAND = [sys.executable, "-m", "toolcrib"]
WAIT_SECONDS = 300.0


def server_entry(*tools: Any, tag: str = "plain", era: str = "legacy") -> dict[str, Any]:
    """Return the configuration entry of a small, fast server with these tools."""
    spec = {"tag": tag, "era": era, "tools": list(tools)}
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(PLAIN), json.dumps(spec)],
        "connectSeconds": WAIT_SECONDS,
    }


def environment(**more: str) -> dict[str, str]:
    """Return the environment without the configuration of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLCRIB")}
    return {**kept, "PYTHONPATH": str(SOURCE), "XDG_CONFIG_HOME": os.devnull, **more}


def write_json(path: Path, document: object) -> Path:
    """Write a JSON file atomically and return its path."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(document), encoding="utf-8")
    new.replace(path)
    return path


def wait_until(holds: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Wait until a condition is true; fail after a timeout."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body, parsed as JSON."""
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running gateway."""

    url: str
    stdout: str
    log: Path

    def request(self, path: str, key: str = "", body: object = None, **headers: str) -> HttpReply:
        """Send a POST request with a body, or a GET request without."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            sent["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
            sent.setdefault("Accept", "application/json, text/event-stream")
        request = urllib.request.Request(f"{self.url}{path}", data, sent)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
                return HttpReply(response.status, dict(response.headers), response.read().decode())
        except urllib.error.HTTPError as fault:
            with fault:
                return HttpReply(fault.code, dict(fault.headers), fault.read().decode())

    def servers(self, key: str = "") -> dict[str, dict[str, Any]]:
        """Return the servers by name."""
        return {one["name"]: one for one in self.request("/api/servers", key).json["servers"]}

    def read_log(self) -> str:
        """Return the text of standard error."""
        return self.log.read_text(encoding="utf-8")


@contextmanager
def running_gateway(folder: Path, *options: str, **more: str) -> Iterator[GatewayProcess]:
    """Run a gateway in a folder, on a free port."""
    log = folder / "stderr.log"
    with log.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", *options],
            cwd=folder,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        assert process.stdout
        try:
            output = ""
            while "claude mcp add" not in output:
                line = process.stdout.readline()
                assert line, log.read_text(encoding="utf-8")
                output += line
            match = re.search(r"(http://\S+)/mcp\. ", output)
            assert match
            served = GatewayProcess(match[1], output, log)
            wait_until(lambda: _is_up(served))
            yield served
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)
            process.stdout.close()
    assert process.returncode in (0, -15), log.read_text(encoding="utf-8")


def _is_up(served: GatewayProcess) -> bool:
    try:
        return served.request("/health").status == 200
    except OSError:
        return False
