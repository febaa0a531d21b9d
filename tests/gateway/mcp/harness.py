"""Run the gateway in the test process, with small real servers behind it."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import Client
from starlette.types import ASGIApp

from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import AccessProfile, GatewayConfig, ResultsConfig, SafetyConfig, ToolSearchConfig
from toolcrib.gateway.mcp.gateway import run_gateway
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.hub import Hub
from toolcrib.search.engine import RANKERS
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.storage import open_store

SERVERS = Path(__file__).resolve().parents[2] / "support" / "mcp_servers"
STATELESS = "2026-07-28"
DEFAULT = SafetyConfig()
# Without a budget for results, lists have no `read_result`.
UNLIMITED = ResultsConfig(budget_tokens=0)
PROFILE: ContextVar[str | None] = ContextVar("profile", default=None)


def script_server(name: str, file: str, *args: str, **options: Any) -> ServerConfig:
    """Return the configuration of a script server. The scripts start fast: they import no library."""
    command = ("-I", "-S", str(SERVERS / file), *args)
    return ServerConfig(name, command=sys.executable, args=command, **options)


def plain_server(name: str, tools: Iterable[Any] = ("echo",), revision: str = "legacy", **spec: Any) -> ServerConfig:
    """Return the configuration of a well-behaved server; `given` adds configuration fields."""
    options = spec.pop("given", {})
    spec = {"tag": name, "era": revision, "tools": list(tools), **spec}
    return script_server(name, "plain.py", json.dumps(spec), **options)


def build_config(
    *servers: ServerConfig,
    profiles: Iterable[AccessProfile] = (),
    safety: SafetyConfig = DEFAULT,
    results: ResultsConfig = UNLIMITED,
    **search: Any,
) -> GatewayConfig:
    """Return a configuration with these servers and a store in memory."""
    return GatewayConfig(
        servers={server.name: server for server in servers},
        tool_search=ToolSearchConfig(**search),
        profiles={profile.name: profile for profile in profiles},
        safety=safety,
        results=results,
        store="sqlite://",
    )


@asynccontextmanager
async def gateway(config: GatewayConfig, *, wait: bool = True, semantic: bool = False) -> AsyncIterator[McpRouter]:
    """Run a gateway; yield its router, by default after all servers have started or failed.

    Without `semantic` the search is lexical only, because the encoder is slow and has its own tests.
    """
    rankers = RANKERS if semantic else {"lexical": LexicalRanker()}
    hub = Hub(config, open_store(config.store), rankers)
    try:
        async with run_gateway(hub, lambda ctx: PROFILE.get()) as router:
            if wait:
                await wait_for_servers(router)
            yield router
    finally:
        hub.close()


async def wait_for_servers(router: McpRouter) -> None:
    """Wait until every server has started or failed."""
    await wait_until(
        lambda: all(server.connection or server.failures or server.is_lazy for server in upstreams(router)), 60
    )


def upstreams(router: McpRouter) -> list[UpstreamServer]:
    """Return the upstream servers of a gateway."""
    return list(router.pool.servers.values())


async def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until a condition is true; fail after the given time."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.01)


def connect_client(router: McpRouter, revision: str = STATELESS, **options: Any) -> Client:
    """Return a client of the official SDK that is connected in this process."""
    return Client(router.server, mode=revision, cache=None, **options)


def with_search_settings(config: GatewayConfig, **search: Any) -> GatewayConfig:
    """Return a configuration with other search settings."""
    return replace(config, tool_search=replace(config.tool_search, **search))


async def list_tool_names(connected: Client) -> list[str]:
    """Return the names in a client's tool list."""
    return [tool.name for tool in (await connected.list_tools()).tools]


async def call_text(connected: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    """Call a tool and return the text of its result."""
    result = await connected.call_tool(tool, arguments or {})
    return "\n".join(part.text for part in result.content if part.type == "text")


def part_text(part: Any) -> str:
    """Return the text of a text part of a result."""
    assert part.type == "text"
    return str(part.text)


@asynccontextmanager
async def serve_app(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serve an application on a loopback port with a real HTTP server; yield its URL."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        settings = uvicorn.Config(app, log_level="error", lifespan="on", ws="none")
        settings.timeout_graceful_shutdown = 1
        server = uvicorn.Server(settings)
        # Leave signal handling to pytest.
        server.capture_signals = _no_signals  # type: ignore[method-assign]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            await wait_until(lambda: server.started)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True


def _no_signals() -> Any:
    return nullcontext()
