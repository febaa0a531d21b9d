"""The first tool list while servers start, which is the only one that some clients read."""

from __future__ import annotations

import math

import anyio
import pytest
from mcp_types import Implementation

from tests.gateway.mcp.harness import (
    PROFILE,
    STATELESS,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    plain_server,
    script_server,
    upstreams,
    wait_until,
)
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import AccessProfile
from toolcrib.gateway.mcp.upstream import pool, stdio

pytestmark = pytest.mark.anyio

GOOD = plain_server("good", ["echo"])
STALLED = script_server("slow", "faulty.py", "mute", connect_seconds=60)
GONE = ServerConfig("gone", command="there-is-no-such-program")
CURSOR = Implementation(name="cursor-vscode", version="1")
GATEWAY_TOOLS = ["search_tools", "describe_tool", "call_tool"]


@pytest.fixture(autouse=True)
def short_exit_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "EXIT_GRACE_SECONDS", 0.3)


@pytest.mark.parametrize("revision", ["legacy", STATELESS])
async def test_list_waits_for_starting_servers(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_WAIT_SECONDS", 60)
    async with gateway(build_config(GOOD, GONE), wait=False) as router, connect_client(router, revision) as connected:
        assert await list_tool_names(connected) == ["good___echo"]


async def test_list_wait_is_limited_and_single_list_clients_get_a_search_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_WAIT_SECONDS", 0.1)
    async with gateway(build_config(GOOD, STALLED), wait=False) as router:
        await wait_until(lambda: any(server.is_listed for server in upstreams(router)))
        async with connect_client(router, "legacy") as connected:
            assert await list_tool_names(connected) == ["good___echo"]
            result = await call_text(connected, "search_available_tools", {"query": "zebra quartz"})
            assert result.endswith("1 server is still starting: slow. Search again in a moment for their tools.")
        async with connect_client(router, "legacy", client_info=CURSOR) as connected:
            assert await list_tool_names(connected) == [*GATEWAY_TOOLS, "good___echo"]
            arguments = {"name": "good___echo", "arguments": {"text": "fine"}}
            assert await call_text(connected, "call_tool", arguments) == "fine"


async def test_profile_waits_only_for_its_own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_WAIT_SECONDS", math.inf)
    config = build_config(GOOD, STALLED, profiles=[AccessProfile("mine", ("good",))])
    token = PROFILE.set("mine")
    async with gateway(config, wait=False) as router, connect_client(router, "legacy") as connected:
        with anyio.fail_after(60):
            assert await list_tool_names(connected) == ["good___echo"]
    PROFILE.reset(token)


async def test_search_mode_lists_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_WAIT_SECONDS", math.inf)
    config = build_config(STALLED, mode="search")
    async with gateway(config, wait=False) as router, connect_client(router) as connected:
        with anyio.fail_after(60):
            tools = (await connected.list_tools()).tools
    description = tools[0].description or ""
    assert description.startswith("Find tools. More come from servers that were not up yet: slow.")
