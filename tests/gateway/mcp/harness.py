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

from toolcrib.config.settings import Config, Profile, Safety, Server, ToolSearch
from toolcrib.gateway.mcp.gateway import running
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.hub.hub import Service
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.storage import open_store

SERVERS = Path(__file__).resolve().parents[2] / "support" / "mcp_servers"
MODERN = "2026-07-28"
DEFAULT = Safety()
PROFILE: ContextVar[str | None] = ContextVar("profile", default=None)


def script(name: str, file: str, *args: str, **given: Any) -> Server:
    """A server that is one of the scripts. They need no library, so they start quickly."""
    command = ("-I", "-S", str(SERVERS / file), *args)
    return Server(name, command=sys.executable, args=command, **given)


def plain(name: str, tools: Iterable[Any] = ("echo",), era: str = "legacy", **spec: Any) -> Server:
    """A server that behaves; `given` is what its configuration says besides."""
    given = spec.pop("given", {})
    spec = {"tag": name, "era": era, "tools": list(tools), **spec}
    return script(name, "plain.py", json.dumps(spec), **given)


def config_of(
    *servers: Server, profiles: Iterable[Profile] = (), safety: Safety = DEFAULT, **search: Any
) -> Config:
    """A configuration with these servers, and nothing kept."""
    return Config(
        servers={server.name: server for server in servers},
        tool_search=ToolSearch(**search),
        profiles={profile.name: profile for profile in profiles},
        safety=safety,
        store="sqlite://",
    )


@asynccontextmanager
async def gateway(
    config: Config, *, wait: bool = True, meaning: bool = False
) -> AsyncIterator[Front]:
    """A running gateway; its servers have come up or failed, if that is waited for."""
    service = Service(config, open_store(config.store))
    if not meaning:
        # Words alone: the model takes its time, and has its own tests.
        service._engine = SearchEngine(service.engine.catalog, {"lexical": Lexical()})
    try:
        async with running(service, lambda ctx: PROFILE.get()) as front:
            if wait:
                await settled(front)
            yield front
    finally:
        service.close()


async def settled(front: Front) -> None:
    """Wait until every server has come up or failed."""
    await until(
        lambda: all(one.link or one.failures or one.is_lazy for one in upstreams(front)), 60
    )


def upstreams(front: Front) -> list[Any]:
    return list(front.fleet.upstreams.values())


async def until(holds: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something holds; fail if it does not in all that time."""
    with anyio.fail_after(seconds):
        while not holds():
            await anyio.sleep(0.01)


def client(front: Front, era: str = MODERN, **given: Any) -> Client:
    """The official client, connected in this process."""
    return Client(front.server, mode=era, cache=None, **given)


def with_search(config: Config, **search: Any) -> Config:
    """The same configuration, with other settings of the search."""
    return replace(config, tool_search=replace(config.tool_search, **search))


async def names(connected: Client) -> list[str]:
    """The tools that a client is shown."""
    return [tool.name for tool in (await connected.list_tools()).tools]


async def told(connected: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    """The text that a call gives."""
    result = await connected.call_tool(tool, arguments or {})
    return "\n".join(part.text for part in result.content if part.type == "text")


def text_of(part: Any) -> str:
    """The text of a part of a result, which has to be one."""
    assert part.type == "text"
    return str(part.text)


@asynccontextmanager
async def served(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
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
            await until(lambda: server.started)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True


def _no_signals() -> Any:
    return nullcontext()
