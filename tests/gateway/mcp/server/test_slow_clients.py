"""Clients that do not read, and memory use over many calls."""

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
from toolcrib.gateway.mcp.server import router as router_module
from toolcrib.gateway.mcp.server.client import get_session_state

pytestmark = pytest.mark.anyio

HEAVY = os.environ.get("TOOLCRIB_HEAVY_TESTS")


async def test_client_that_does_not_read_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "NOTIFY_TIMEOUT_SECONDS", 0.3)
    blocked: list[Any] = []
    notify = Connection.notify

    async def notify_or_block(self: Connection, *args: Any) -> None:
        if self in blocked:
            await anyio.sleep_forever()
        await notify(self, *args)

    monkeypatch.setattr(Connection, "notify", notify_or_block)
    received: list[str] = []

    async def on_message(message: Any) -> None:
        received.append(getattr(message, "method", ""))

    server = plain_server("zoo", ["echo", "change"])
    async with gateway(build_config(server)) as router, connect_client(router, "legacy") as stalled:
        blocked += list(router.connections.values())
        async with connect_client(router, "legacy", message_handler=on_message) as other:
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(router.notify_tools_changed)
                await wait_until(lambda: received)
                # The number of waiting notifications is limited.
                assert get_session_state(blocked[0]).pending_notifications <= router_module.MAX_PENDING_NOTIFICATIONS
                # A changed tool list is processed while notifications are blocked.
                await call_text(other, "zoo___change", {"description": "Other."})
                await wait_until(lambda: router.hub.directory.servers[0].quarantined)
            assert await list_tool_names(stalled) == ["zoo___change"]


async def call_repeatedly(connected: Any, count: int) -> None:
    for number in range(count):
        assert await call_text(connected, "zoo___echo", {"text": str(number)}) == str(number)
        if number % 20 == 0:
            await call_text(connected, "search_tools", {"query": "echo a text"})


@pytest.mark.parametrize("revision", ["legacy", STATELESS])
async def test_memory_does_not_grow_with_calls(revision: str) -> None:
    count = 10_000 if HEAVY else 100
    config = build_config(plain_server("zoo", ["echo"], revision), mode="search", always_expose=("zoo___echo",))
    async with gateway(config) as router:
        async with connect_client(router, revision) as connected:
            # The client logs a warning for each call of an unlisted tool, and pytest keeps the log.
            await list_tool_names(connected)
            await call_repeatedly(connected, min(count, 500))
            tracemalloc.start()
            try:
                await call_repeatedly(connected, 50)
                router.hub.flush()
                gc.collect()
                before = tracemalloc.get_traced_memory()[0]
                await call_repeatedly(connected, count)
                router.hub.flush()
                gc.collect()
                grown = tracemalloc.get_traced_memory()[0] - before
            finally:
                tracemalloc.stop()
        print(f"{count} calls in the {revision} revision: {grown:,} bytes more")
        # Caches are bounded and fill up early.
        assert grown < 500_000
        assert not len(router.pool.servers["zoo"].in_flight)


async def test_closed_sessions_are_released() -> None:
    async with gateway(build_config(plain_server("zoo", ["echo"]))) as router:
        for _ in range(5):
            async with connect_client(router, "legacy") as connected:
                await call_text(connected, "zoo___echo", {"text": "x"})
        gc.collect()
        assert router.client_count == 0
        alive = [item for item in gc.get_objects() if isinstance(item, Connection)]
        assert len(alive) <= 1
