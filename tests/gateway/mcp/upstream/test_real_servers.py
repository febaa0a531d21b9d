"""More than twenty real servers of different vendors behind one gateway, in all modes.

Set TOOLCRIB_REAL_SERVERS to 1 to run it, or to a folder in which the packages are kept for the next
time. It needs no account anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from tests.gateway.mcp.real_servers import FILES, SERVERS, RealServer, install_python_servers
from tests.support.gateway_process import run_gateway, write_config
from tests.support.npm import NODE, install_folder, install_packages

MODES: Final = ("direct", "search", "dynamic")
PATIENCE: Final = 600.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Run a gateway with all servers and a profile for each mode; yield its URL and their folder."""
    kept = install_folder("TOOLCRIB_REAL_SERVERS", tmp_path_factory.mktemp("servers"))
    modules = install_packages(kept, [*(one.package for one in SERVERS if not one.is_python), f"{NODE}@latest"])
    python = kept / "python"
    install_python_servers(python)
    folder = tmp_path_factory.mktemp("folder")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    config = {
        "mcpServers": {one.name: one.config(modules, python, folder) for one in SERVERS},
        "profiles": {mode: {"mode": mode} for mode in MODES},
        "store": "sqlite://",
    }
    path = write_config(tmp_path_factory.mktemp("gateway"), config)
    with run_gateway(path, servers=len(SERVERS)) as address:
        yield address, folder


def test_servers_of_twenty_vendors_are_covered() -> None:
    assert len({one.package.partition("/")[0] for one in SERVERS}) >= 20


def test_every_server_is_listed(gateway: tuple[str, Path]) -> None:
    async def names() -> set[str]:
        async with _client(gateway, "direct", "auto") as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    listed = anyio.run(names)
    assert {_name(one) for one in SERVERS} <= listed


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("mode", MODES)
def test_every_server_answers(gateway: tuple[str, Path], mode: str, era: str) -> None:
    failed: dict[str, str] = {}

    async def ask(client: Client, one: RealServer) -> None:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        query = f"{one.tool} {one.name}"
        found: CallToolResult | None = None
        if "search_tools" in tools:
            found = await client.call_tool("search_tools", {"query": query, "limit": 10})
            name, arguments = ("call_tool", {"name": _name(one), "arguments": one.call_arguments(gateway[1])})
        else:
            if "search_available_tools" in tools:
                found = await client.call_tool("search_available_tools", {"query": query})
            name, arguments = _name(one), one.call_arguments(gateway[1])
        if found is not None and _name(one) not in json.dumps(found.structured_content):
            failed[one.name] = f"was not found by {query!r}"
            return
        try:
            result = await client.call_tool(name, arguments)
        except MCPError as fault:
            # Some servers report a failed call only like this.
            said, is_error = fault.error.message, True
        else:
            said, is_error = str(result.content), bool(result.is_error)
        if "not reachable" in said or (one.works and is_error):
            failed[one.name] = said[:300]

    async def ask_all() -> None:
        async with _client(gateway, mode, era) as client:
            for one in SERVERS:
                await ask(client, one)

    anyio.run(ask_all)
    assert failed == {}


def _client(gateway: tuple[str, Path], profile: str, era: Any) -> Client:
    return Client(f"{gateway[0]}/mcp/p/{profile}", mode=era, read_timeout_seconds=PATIENCE)


def _name(one: RealServer) -> str:
    return f"{one.name}___{one.tool}"
