"""What one replica remembers of a conversation is known on the others, and after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from anyio import create_task_group, to_thread

from tests.gateway.mcp.harness import wait_until
from tests.support.postgres import PostgresServer
from toolcrib.config.settings import GatewayConfig
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, MemorySharing
from toolcrib.gateway.replicas import ReplicaChannel
from toolcrib.hub.hub import Hub
from toolcrib.storage import open_store

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def run_memory(url: str) -> AsyncIterator[ConversationMemory]:
    """Run the memory of one replica."""
    hub = Hub(GatewayConfig(store=url), open_store(url))
    memory, replicas = ConversationMemory(100), ReplicaChannel(hub)
    sharing = MemorySharing(hub.store, replicas, {"conversation": memory})
    try:
        async with create_task_group() as tasks:
            tasks.start_soon(replicas.run)
            tasks.start_soon(sharing.run)
            await wait_until(lambda: memory.on_put is not None)
            yield memory
            tasks.cancel_scope.cancel()
    finally:
        hub.close()


async def test_values_reach_other_replicas(postgres_url: str) -> None:
    async with run_memory(postgres_url) as one, run_memory(postgres_url) as other:
        one.put("short", ["hidden"])
        # Too long for the payload of a notification.
        one.put("long", ["x" * 20_000])
        await wait_until(lambda: other.get("short") == ["hidden"] and other.get("long"))
        other.discard("short")
        await wait_until(lambda: one.get("short") is None)


async def test_a_new_replica_knows_earlier_values(postgres_url: str) -> None:
    async with run_memory(postgres_url) as one:
        one.put("key", ["hidden"])
    async with run_memory(postgres_url) as other:
        assert other.get("key") == ["hidden"]


async def test_values_that_were_written_during_an_outage_are_read_afterwards(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with run_memory(postgres_url) as one, run_memory(postgres_url) as other:
        await to_thread.run_sync(postgres_server.stop)
        one.put("key", ["hidden"])
        await to_thread.run_sync(postgres_server.start)
        await wait_until(lambda: other.get("key") == ["hidden"])
