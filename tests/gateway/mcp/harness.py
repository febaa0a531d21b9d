"""A gateway in this process, in front of small real servers, for the tests of its parts."""

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

from toolcrib.config.settings import (
    AccessProfile,
    GatewayConfig,
    SafetyConfig,
    ServerConfig,
    ToolSearchConfig,
)
from toolcrib.gateway.mcp.gateway import run_gateway
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.hub import Hub
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.storage import open_store

SERVERS = Path(__file__).resolve().parents[2] / "support" / "mcp_servers"
STATELESS = "2026-07-28"
DEFAULT = SafetyConfig()
PROFILE: ContextVar[str | None] = ContextVar("profile", default=None)


def script_server(name: str, file: str, *args: str, **given: Any) -> ServerConfig:
    """A server that is one of the scripts. They need no library, so they start quickly."""
    command = ("-I", "-S", str(SERVERS / file), *args)
    return ServerConfig(name, command=sys.executable, args=command, **given)


def plain_server(
    name: str, tools: Iterable[Any] = ("echo",), revision: str = "legacy", **spec: Any
) -> ServerConfig:
    """A server that behaves; `given` is what its configuration says besides."""
    given = spec.pop("given", {})
    spec = {"tag": name, "era": revision, "tools": list(tools), **spec}
    return script_server(name, "plain.py", json.dumps(spec), **given)


def build_config(
    *servers: ServerConfig,
    profiles: Iterable[AccessProfile] = (),
    safety: SafetyConfig = DEFAULT,
    **search: Any,
) -> GatewayConfig:
    """A configuration with these servers, and nothing kept."""
    return GatewayConfig(
        servers={server.name: server for server in servers},
        tool_search=ToolSearchConfig(**search),
        profiles={profile.name: profile for profile in profiles},
        safety=safety,
        store="sqlite://",
    )


@asynccontextmanager
async def gateway(
    config: GatewayConfig, *, wait: bool = True, semantic: bool = False
) -> AsyncIterator[McpRouter]:
    """A running gateway; its servers have come up or failed, if that is waited for."""
    service = Hub(config, open_store(config.store))
    if not semantic:
        # Words alone: the model takes its time, and has its own tests.
        service._engine = SearchEngine(service.engine.catalog, {"lexical": LexicalRanker()})
    try:
        async with run_gateway(service, lambda ctx: PROFILE.get()) as front:
            if wait:
                await wait_for_servers(front)
            yield front
    finally:
        service.close()


async def wait_for_servers(front: McpRouter) -> None:
    """Wait until every server has come up or failed."""
    await wait_until(
        lambda: all(
            upstream.connection or upstream.failures or upstream.is_lazy
            for upstream in upstreams(front)
        ),
        60,
    )


def upstreams(front: McpRouter) -> list[UpstreamServer]:
    return list(front.pool.servers.values())


async def wait_until(holds: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something holds; fail if it does not in all that time."""
    with anyio.fail_after(seconds):
        while not holds():
            await anyio.sleep(0.01)


def connect_client(router: McpRouter, revision: str = STATELESS, **given: Any) -> Client:
    """The official client, connected in this process."""
    return Client(router.server, mode=revision, cache=None, **given)


def with_search_settings(config: GatewayConfig, **search: Any) -> GatewayConfig:
    """The same configuration, with other settings of the search."""
    return replace(config, tool_search=replace(config.tool_search, **search))


async def list_tool_names(connected: Client) -> list[str]:
    """The tools that a client is shown."""
    return [tool.name for tool in (await connected.list_tools()).tools]


async def call_text(connected: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    """The text that a call gives."""
    result = await connected.call_tool(tool, arguments or {})
    return "\n".join(part.text for part in result.content if part.type == "text")


def part_text(part: Any) -> str:
    """The text of a part of a result, which has to be one."""
    assert part.type == "text"
    return str(part.text)


@asynccontextmanager
async def serve_app(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """An application on a loopback port, by a real HTTP server; gives its address."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        settings = uvicorn.Config(app, log_level="error", lifespan="on", ws="none")
        settings.timeout_graceful_shutdown = 1
        server = uvicorn.Server(settings)
        # Signals are pytest's.
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
