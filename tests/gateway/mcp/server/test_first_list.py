"""The first list of a gateway whose servers nobody has seen yet. Some clients never read another."""

from __future__ import annotations

import math

import anyio
import pytest
from mcp_types import Implementation

from tests.gateway.mcp.harness import (
    MODERN,
    PROFILE,
    client,
    config_of,
    gateway,
    names,
    plain,
    script,
    told,
    until,
    upstreams,
)
from toolcrib.config.settings import Profile, Server
from toolcrib.gateway.mcp.upstream import pool, stdio

pytestmark = pytest.mark.anyio

GOOD = plain("good", ["echo"])
STALLED = script("slow", "faulty.py", "mute", connect_seconds=60)
GONE = Server("gone", command="there-is-no-such-program")
CURSOR = Implementation(name="cursor-vscode", version="1")
OWN = ["search_tools", "describe_tool", "call_tool"]


@pytest.fixture(autouse=True)
def short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "LEAVE_SECONDS", 0.3)


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_it_waits_for_servers_that_are_only_starting(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_SECONDS", 60)
    async with gateway(config_of(GOOD, GONE), wait=False) as front, client(front, era) as connected:
        assert await names(connected) == ["good___echo"]


async def test_it_does_not_wait_long_and_then_gives_those_who_read_once_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_SECONDS", 0.1)
    async with gateway(config_of(GOOD, STALLED), wait=False) as front:
        await until(lambda: any(one.known for one in upstreams(front)))
        async with client(front, "legacy") as connected:
            assert await names(connected) == ["good___echo"]
            found = await told(connected, "search_available_tools", {"query": "zebra quartz"})
            assert found.endswith(
                "1 server is still starting: slow. Search again in a moment for their tools."
            )
        async with client(front, "legacy", client_info=CURSOR) as connected:
            assert await names(connected) == [*OWN, "good___echo"]
            called = {"name": "good___echo", "arguments": {"text": "fine"}}
            assert await told(connected, "call_tool", called) == "fine"


async def test_a_profile_waits_for_its_own_servers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FIRST_LIST_SECONDS", math.inf)
    config = config_of(GOOD, STALLED, profiles=[Profile("mine", ("good",))])
    token = PROFILE.set("mine")
    async with gateway(config, wait=False) as front, client(front, "legacy") as connected:
        with anyio.fail_after(60):
            assert await names(connected) == ["good___echo"]
    PROFILE.reset(token)
