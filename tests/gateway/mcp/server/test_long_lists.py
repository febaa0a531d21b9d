"""Clients that do not listen, and a gateway that runs for long."""

from __future__ import annotations

import gc
import os
import tracemalloc
from typing import Any

import anyio
import pytest
from mcp.server.connection import Connection

from tests.gateway.mcp.harness import MODERN, client, config_of, gateway, names, plain, told, until
from toolcrib.gateway.mcp.server import router as fronts
from toolcrib.gateway.mcp.server.client import shown_to

pytestmark = pytest.mark.anyio

HEAVY = os.environ.get("TOOLCRIB_HEAVY_TESTS")


async def test_a_client_that_does_not_listen_delays_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fronts, "TELL_SECONDS", 0.3)
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

    server = plain("zoo", ["echo", "change"])
    async with gateway(config_of(server)) as front, client(front, "legacy") as stalled:
        deaf += list(front._connections.values())
        async with client(front, "legacy", message_handler=on_message) as other:
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(front.tell_tools_changed)
                await until(lambda: heard)
                # No more than so many wait for it at any time.
                assert shown_to(deaf[0]).telling <= fronts.MAX_TELLING
                # A new list of a server is learned while the deaf one is being told.
                await told(other, "zoo___change", {"description": "Other."})
                await until(lambda: front.service.directory.shelves[0].held)
            assert await names(stalled) == ["zoo___change"]


async def calls(connected: Any, count: int) -> None:
    for number in range(count):
        assert await told(connected, "zoo___echo", {"text": str(number)}) == str(number)
        if number % 20 == 0:
            await told(connected, "search_tools", {"query": "echo a text"})


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_memory_does_not_grow_with_the_calls(era: str) -> None:
    count = 10_000 if HEAVY else 100
    config = config_of(plain("zoo", ["echo"], era), mode="search", always_expose=("zoo___echo",))
    async with gateway(config) as front:
        async with client(front, era) as connected:
            # Of tools that it has not seen listed the client warns at every call, and pytest keeps what is logged.
            await names(connected)
            await calls(connected, min(count, 500))
            tracemalloc.start()
            try:
                await calls(connected, 50)
                front.service.flush()
                gc.collect()
                before = tracemalloc.get_traced_memory()[0]
                await calls(connected, count)
                front.service.flush()
                gc.collect()
                grown = tracemalloc.get_traced_memory()[0] - before
            finally:
                tracemalloc.stop()
        print(f"{count} calls in the {era} era: {grown:,} bytes more")
        # What is kept for speed has its limits, which are reached early.
        assert grown < 500_000
        assert not len(front.fleet.upstreams["zoo"].waiting)


async def test_sessions_leave_nothing_behind() -> None:
    async with gateway(config_of(plain("zoo", ["echo"]))) as front:
        for _ in range(5):
            async with client(front, "legacy") as connected:
                await told(connected, "zoo___echo", {"text": "x"})
        gc.collect()
        assert front.clients == 0
        alive = [one for one in gc.get_objects() if isinstance(one, Connection)]
        assert len(alive) <= 1
