"""The first list of a gateway whose servers nobody has seen yet. Some clients never read another."""

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
from toolcrib.config.settings import AccessProfile, ServerConfig
from toolcrib.gateway.mcp.upstream import pool, stdio

pytestmark = pytest.mark.anyio

GOOD = plain_server("good", ["echo"])
STALLED = script_server("slow", "faulty.py", "mute", connect_seconds=60)
GONE = ServerConfig("gone", command="there-is-no-such-program")
CURSOR = Implementation(name="cursor-vscode", version="1")
OWN = ["search_tools", "describe_tool", "call_tool"]


@pytest.fixture(autouse=True)
def short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "EXIT_GRACE_SECONDS", 0.3)


@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_it_waits_for_servers_that_are_only_starting(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_WAIT_SECONDS", 60)
    async with (
        gateway(build_config(GOOD, GONE), wait=False) as front,
        connect_client(front, era) as connected,
    ):
        assert await list_tool_names(connected) == ["good___echo"]


async def test_it_does_not_wait_long_and_then_gives_those_who_read_once_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_WAIT_SECONDS", 0.1)
    async with gateway(build_config(GOOD, STALLED), wait=False) as front:
        await wait_until(lambda: any(one.is_listed for one in upstreams(front)))
        async with connect_client(front, "legacy") as connected:
            assert await list_tool_names(connected) == ["good___echo"]
            found = await call_text(connected, "search_available_tools", {"query": "zebra quartz"})
            assert found.endswith(
                "1 server is still starting: slow. Search again in a moment for their tools."
            )
        async with connect_client(front, "legacy", client_info=CURSOR) as connected:
            assert await list_tool_names(connected) == [*OWN, "good___echo"]
            called = {"name": "good___echo", "arguments": {"text": "fine"}}
            assert await call_text(connected, "call_tool", called) == "fine"


async def test_a_profile_waits_for_its_own_servers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_WAIT_SECONDS", math.inf)
    config = build_config(GOOD, STALLED, profiles=[AccessProfile("mine", ("good",))])
    token = PROFILE.set("mine")
    async with gateway(config, wait=False) as front, connect_client(front, "legacy") as connected:
        with anyio.fail_after(60):
            assert await list_tool_names(connected) == ["good___echo"]
    PROFILE.reset(token)
