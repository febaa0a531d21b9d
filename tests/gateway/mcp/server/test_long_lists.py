"""Clients that do not listen, and a gateway that runs for long."""

from __future__ import annotations

import gc
import os
import tracemalloc
from typing import Any

import anyio
import pytest
from mcp.server.connection import Connection

from tests.gateway.mcp.harness import (
    STATELESS,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    plain_server,
    wait_until,
)
from toolcrib.gateway.mcp.server import router as fronts
from toolcrib.gateway.mcp.server.client import get_session_state

pytestmark = pytest.mark.anyio

HEAVY = os.environ.get("TOOLCRIB_HEAVY_TESTS")


async def test_a_client_that_does_not_listen_delays_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fronts, "NOTIFY_TIMEOUT_SECONDS", 0.3)
    deaf: list[Any] = []
    notify = Connection.notify

    async def stalls(self: Connection, *about: Any) -> None:
        if self in deaf:
            await anyio.sleep_forever()
        await notify(self, *about)

    monkeypatch.setattr(Connection, "notify", stalls)
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        heard.append(getattr(message, "method", ""))

    server = plain_server("zoo", ["echo", "change"])
    async with gateway(build_config(server)) as front, connect_client(front, "legacy") as stalled:
        deaf += list(front._connections.values())
        async with connect_client(front, "legacy", message_handler=on_message) as other:
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(front.notify_tools_changed)
                await wait_until(lambda: heard)
                # No more than so many wait for it at any time.
                assert (
                    get_session_state(deaf[0]).pending_notifications
                    <= fronts.MAX_PENDING_NOTIFICATIONS
                )
                # A new list of a server is learned while the deaf one is being told.
                await call_text(other, "zoo___change", {"description": "Other."})
                await wait_until(lambda: front.hub.directory.servers[0].quarantined)
            assert await list_tool_names(stalled) == ["zoo___change"]


async def calls(connected: Any, count: int) -> None:
    for number in range(count):
        assert await call_text(connected, "zoo___echo", {"text": str(number)}) == str(number)
        if number % 20 == 0:
            await call_text(connected, "search_tools", {"query": "echo a text"})


@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_memory_does_not_grow_with_the_calls(era: str) -> None:
    count = 10_000 if HEAVY else 100
    config = build_config(
        plain_server("zoo", ["echo"], era), mode="search", always_expose=("zoo___echo",)
    )
    async with gateway(config) as front:
        async with connect_client(front, era) as connected:
            # Of tools that it has not seen listed the client warns at every call, and pytest keeps what is logged.
            await list_tool_names(connected)
            await calls(connected, min(count, 500))
            tracemalloc.start()
            try:
                await calls(connected, 50)
                front.hub.flush()
                gc.collect()
                before = tracemalloc.get_traced_memory()[0]
                await calls(connected, count)
                front.hub.flush()
                gc.collect()
                grown = tracemalloc.get_traced_memory()[0] - before
            finally:
                tracemalloc.stop()
        print(f"{count} calls in the {era} era: {grown:,} bytes more")
        # What is kept for speed has its limits, which are reached early.
        assert grown < 500_000
        assert not len(front.pool.servers["zoo"].in_flight)


async def test_sessions_leave_nothing_behind() -> None:
    async with gateway(build_config(plain_server("zoo", ["echo"]))) as front:
        for _ in range(5):
            async with connect_client(front, "legacy") as connected:
                await call_text(connected, "zoo___echo", {"text": "x"})
        gc.collect()
        assert front.client_count == 0
        alive = [one for one in gc.get_objects() if isinstance(one, Connection)]
        assert len(alive) <= 1
