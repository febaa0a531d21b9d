"""The messages between replicas."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import create_task_group, fail_after, sleep

from tests.gateway.mcp.harness import wait_until
from toolcrib.config.settings import GatewayConfig
from toolcrib.gateway.replicas import ReplicaChannel
from toolcrib.hub.hub import Hub
from toolcrib.storage import open_store

pytestmark = pytest.mark.anyio


async def test_message_that_cannot_be_handled_does_not_end_the_replica(postgres_url: str) -> None:
    received: list[Any] = []

    async def receive(body: Any) -> None:
        received.append(body["number"])
        if body["number"] == 1:
            raise RuntimeError("the session has ended")

    hubs = [Hub(GatewayConfig(store=postgres_url), open_store(postgres_url)) for _ in range(2)]
    sender, receiver = map(ReplicaChannel, hubs)
    receiver.add_handler("test", receive)
    try:
        async with create_task_group() as tasks:
            tasks.start_soon(receiver.run)
            with fail_after(20):
                # The receiver may not listen yet, so the message is sent until it arrives.
                while not received:
                    await sender.send("test", {"number": 1})
                    await sleep(0.05)
            await sender.send("test", {"number": 2})
            await wait_until(lambda: 2 in received)
            tasks.cancel_scope.cancel()
    finally:
        for hub in hubs:
            hub.close()
