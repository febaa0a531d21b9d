"""Replicas of `toolcrib serve` as processes, and clients that send requests to them until they are stopped.

Every acknowledged request is recorded, so that a test can look for it afterwards.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio
import httpx2

from tests.gateway.serving import COMMAND, environment, server_entry
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import ToolCall, Turn

ADMIN: Final = "the-key-of-the-admin"
STATELESS: Final = "2026-07-28"
SETTLED: Final = "all done"
PENDING_SERVER: Final = "pending"
_RETRYABLE: Final = frozenset({429, 502, 503})
_HEADERS: Final = {"authorization": f"Bearer {ADMIN}", "accept": "application/json, text/event-stream"}
_HELLO: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
_ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
TOOLS: Final = [
    {"name": f"tool_{number}", "description": f"Does thing {number}.", "input_schema": {"type": "object"}}
    for number in range(40)
]


class ReplicaProcess:
    """One replica on a fixed port, which can be stopped, killed and started again."""

    def __init__(self, folder: Path, port: int, config: dict[str, Any], command: Sequence[str] = COMMAND) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "toolcrib.json").write_text(json.dumps(config))
        self._folder = folder
        self._port = port
        self._command = command
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process; 0 if it does not run."""
        return self._process.pid if self._process else 0

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the process, without that of its servers."""
        assert self._process
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    async def start(self) -> None:
        """Start the process and wait until it is ready."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "serve", "--port", str(self._port)],
                cwd=self._folder,
                env=environment(),
                stdout=log,
                stderr=log,
            )
        async with httpx2.AsyncClient(timeout=5) as http:
            with anyio.fail_after(120):
                while True:
                    try:
                        if (await http.get(f"{self.url}/ready")).status_code == 200:
                            return
                    except httpx2.HTTPError:
                        assert self._process.poll() is None, self.read_log()
                    await anyio.sleep(0.05)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(number)
        with anyio.fail_after(120):
            while self._process.poll() is None:
                await anyio.sleep(0.02)
        code, self._process = self._process.returncode, None
        return int(code)

    def read_log(self) -> str:
        """Return the end of the log."""
        return (self._folder / "log").read_text(errors="replace")[-3000:]


def build_replica_config(store: str, model_url: str) -> dict[str, Any]:
    """Return the configuration of a replica with one small server and one LLM."""
    return {
        "mcpServers": {"small": server_entry("echo")},
        "models": {"scripted": {"api": "messages", "url": model_url, "key": "any", "style": "reveal"}},
        "auth": {"keys": [{"key": ADMIN, "name": "admin"}]},
        "store": store,
        "http": {"drainSeconds": 2, "shutdownSeconds": 20},
    }


def answer_after_search(request: Request) -> Turn:
    """Search once, then answer: what the scripted LLM does."""
    search = next((name for name in request.tool_names if "search" in name), None)
    if request.results or search is None:
        return Turn(SETTLED)
    return Turn(ToolCall(search, {"query": "thing 7"}))


@dataclass
class LoadReport:
    """What the clients saw."""

    # When each acknowledged call was answered, and by which replica, by request id.
    calls: dict[str, tuple[float, str]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    approvals: list[str] = field(default_factory=list)
    streams: int = 0
    completed: Counter[str] = field(default_factory=Counter)
    # Errors that a client may answer with a retry, and others, as text.
    retryable: list[tuple[float, str]] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)


class LoadClients:
    """Clients that send requests through a proxy, each one after the other."""

    def __init__(self, url: str, pause_seconds: float = 0.1) -> None:
        self._url = url
        self.report = LoadReport()
        self.stopped = anyio.Event()
        self._pause_seconds = pause_seconds

    def start_report(self) -> LoadReport:
        """Forget the errors and counts so far; what was acknowledged stays. Return the report."""
        self.report.completed.clear()
        self.report.retryable.clear()
        return self.report

    async def run_calls(self, revision: str) -> None:
        """Call a tool again and again in one session, or without one in the stateless revision."""
        async with httpx2.AsyncClient(headers=_HEADERS, timeout=60) as http:
            headers = {"mcp-protocol-version": revision}
            if revision != STATELESS:
                opened = await self._open_session(http)
                headers = {"mcp-session-id": opened, "mcp-protocol-version": "2025-11-25"}
            while not self.stopped.is_set():
                text = uuid4().hex
                params: dict[str, Any] = {"name": "small___echo", "arguments": {"text": text}}
                extra: dict[str, str] = {}
                if revision == STATELESS:
                    params["_meta"] = _ENVELOPE
                    extra = {"mcp-method": "tools/call", "mcp-name": "small___echo"}
                body = {"jsonrpc": "2.0", "id": text, "method": "tools/call", "params": params}
                await self._send(
                    "call",
                    http.post(f"{self._url}/mcp", json=body, headers={**headers, **extra, "x-request-id": text}),
                    lambda reply, text=text: self._check_call(reply, text),  # type: ignore[misc]
                )
                await anyio.sleep(self._pause_seconds)

    async def run_streams(self) -> None:
        """Send requests to the LLM and read the streams to their ends."""
        body = {
            "model": "any",
            "max_tokens": 100,
            "stream": True,
            "tools": TOOLS,
            "messages": [{"role": "user", "content": "Do thing 7."}],
        }
        async with httpx2.AsyncClient(headers={**_HEADERS, "anthropic-version": "2023-06-01"}, timeout=60) as http:
            while not self.stopped.is_set():
                if await self._send("stream", http.post(f"{self._url}/v1/messages", json=body), _check_stream):
                    self.report.streams += 1
                await anyio.sleep(self._pause_seconds)

    async def run_changes(self, fingerprints: dict[str, str]) -> None:
        """Create keys and approve definitions, one after the other."""
        pending = iter(fingerprints.items())
        async with httpx2.AsyncClient(headers=_HEADERS, timeout=60) as http:
            while not self.stopped.is_set():
                name = f"key {uuid4().hex}"
                created = http.post(f"{self._url}/api/keys", json={"name": name})
                if await self._send("key", created, _check_change):
                    self.report.keys.append(name)
                tool, fingerprint = next(pending, ("", ""))
                if tool:
                    body = {"server": PENDING_SERVER, "tool": tool, "fingerprint": fingerprint}
                    approved = http.post(f"{self._url}/api/decisions/approve", json=body)
                    if await self._send("approval", approved, _check_change):
                        self.report.approvals.append(tool)
                await anyio.sleep(min(self._pause_seconds, 0.1))

    async def _open_session(self, http: httpx2.AsyncClient) -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO}
        opened = await http.post(f"{self._url}/mcp", json=body)
        opened.raise_for_status()
        session: str = opened.headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await http.post(f"{self._url}/mcp", json=ready, headers={"mcp-session-id": session})
        return session

    async def _send(
        self, kind: str, request: Awaitable[httpx2.Response], check: Callable[[httpx2.Response], str]
    ) -> bool:
        """Send a request and return whether it succeeded; record how it ended."""
        try:
            reply = await request
        except httpx2.TransportError as error:
            # The replica died while it answered.
            self.report.retryable.append((time.time(), f"{kind}: {type(error).__name__}"))
            return False
        if reply.status_code in _RETRYABLE and "retry-after" in reply.headers:
            self.report.retryable.append((time.time(), f"{kind}: {reply.status_code} {reply.text[:150]}"))
            return False
        problem = f"{reply.status_code} {reply.text[:300]}" if reply.status_code != 200 else check(reply)
        if problem:
            self.report.fatal.append(f"{kind}: {problem}")
            return False
        self.report.completed[kind] += 1
        return True

    def _check_call(self, reply: httpx2.Response, text: str) -> str:
        events = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
        message = json.loads(events[-1] if events else reply.text)
        result = message.get("result", {})
        # Another text would be the answer to another client.
        if message.get("id") != text or text not in json.dumps(result) or result.get("isError"):
            return reply.text[:300]
        self.report.calls[text] = (time.time(), reply.headers.get("x-served-by", ""))
        return ""


def _check_stream(reply: httpx2.Response) -> str:
    events = [json.loads(line.removeprefix("data: ")) for line in reply.text.splitlines() if line.startswith("data: {")]
    text = "".join(event.get("delta", {}).get("text", "") for event in events)
    is_complete = bool(events) and events[-1]["type"] == "message_stop"
    return "" if is_complete and text == SETTLED else reply.text[-300:]


def _check_change(reply: httpx2.Response) -> str:
    return "" if reply.json() else reply.text
