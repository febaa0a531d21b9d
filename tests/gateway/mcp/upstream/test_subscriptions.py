"""Subscriptions of clients to resources and log levels, and their synchronization with servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.gateway.mcp.harness import (
    STATELESS,
    build_config,
    call_text,
    connect_client,
    gateway,
    plain_server,
    wait_until,
)
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream import subscriptions, supervisor
from toolcrib.gateway.mcp.upstream.subscriptions import Subscriptions

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

TOOLS = ["echo", "wanted", "touch", "log", "die", "cut"]
OLD = plain_server("old", TOOLS, resources=["memo://a", "memo://b"], given={"call_seconds": 20.0})
NEW = plain_server("new", TOOLS, STATELESS, resources=["memo://c"], given={"call_seconds": 20.0})
UPDATED = "notifications/resources/updated"


@pytest.fixture
async def router(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[McpRouter]:
    for module in (subscriptions, supervisor):
        monkeypatch.setattr(module, "MIN_RETRY_SECONDS", 0.02)
    async with gateway(build_config(OLD, NEW)) as made:
        yield made


def connect_listening_client(router: McpRouter, received: list[str]) -> Client:
    async def on_message(message: Any) -> None:
        if getattr(message, "method", "") == UPDATED:
            received.append(str(message.params.uri))

    return connect_client(router, "legacy", message_handler=on_message)


async def get_subscriptions(connected: Client, server: str = "old") -> dict[str, Any]:
    """Return the subscriptions that a server received; empty while it restarts."""
    said = await call_text(connected, f"{server}___wanted")
    nothing: dict[str, Any] = {"levels": None, "followed": None}
    return nothing if "not reachable" in said else dict(json.loads(said))


async def wait_for_subscriptions(
    connected: Client, holds: Callable[[dict[str, Any]], bool], server: str = "old"
) -> None:
    """Wait until a server has received these subscriptions."""
    with anyio.fail_after(20):
        while not holds(await get_subscriptions(connected, server)):
            await anyio.sleep(0.02)


async def test_server_gets_the_lowest_log_level_of_all_clients(router: McpRouter) -> None:
    async with connect_client(router, "legacy") as one:
        assert (await get_subscriptions(one))["levels"] == []
        await one.set_logging_level("error")
        await wait_for_subscriptions(one, lambda now: now["levels"] == ["error"])
        async with connect_client(router, "legacy") as other:
            # This client set no level, so it keeps the default.
            await wait_for_subscriptions(one, lambda now: now["levels"] == ["error", "info"])
            await other.set_logging_level("debug")
            await wait_for_subscriptions(one, lambda now: now["levels"] == ["error", "info", "debug"])
        # The client has left, so its level no longer counts.
        await wait_for_subscriptions(one, lambda now: now["levels"][-1] == "error")
        # A restarted server has lost the level.
        assert "lost its connection" in await call_text(one, "old___die")
        await wait_for_subscriptions(one, lambda now: now["levels"] == ["error"])


async def test_log_levels_of_clients_are_separate(router: McpRouter) -> None:
    received: list[Any] = []
    others: list[Any] = []

    def into(said: list[Any]) -> Callable[[Any], Any]:
        async def on_log(params: Any) -> None:
            said.append(params.level)

        return on_log

    async with (
        connect_client(router, "legacy", logging_callback=into(received)) as one,
        connect_client(router, "legacy", logging_callback=into(others)) as other,
    ):
        await one.set_logging_level("error")
        await other.set_logging_level("debug")
        for connected in (one, other):
            await connected.call_tool("old___log", {})
        await wait_until(lambda: len(received) + len(others) == 3)
    assert (received, others) == (["error"], ["debug", "error"])


async def test_unresponsive_server_does_not_delay_clients() -> None:
    deaf = plain_server("old", ["wanted"], deaf=True, given={"connect_seconds": 300.0})
    async with gateway(build_config(deaf)) as router, connect_client(router, "legacy") as connected:
        with anyio.fail_after(20):
            await connected.set_logging_level("error")
        await wait_for_subscriptions(connected, lambda now: now["levels"] == ["error"])


async def test_last_client_cancels_the_subscription(router: McpRouter) -> None:
    async with connect_client(router, "legacy") as one:
        await one.list_resources()
        async with connect_client(router, "legacy") as other:
            for uri in ("memo://a", "memo://b"):
                await one.subscribe_resource(uri)
                await other.subscribe_resource(uri)
            # Repeating the subscription changes nothing.
            await one.subscribe_resource("memo://a")
            await wait_for_subscriptions(one, lambda now: now["followed"] == ["memo://a", "memo://b"])
            await one.unsubscribe_resource("memo://a")
            await one.unsubscribe_resource("memo://nothing")
            await other.unsubscribe_resource("memo://b")
        # The other client has disconnected.
        await wait_for_subscriptions(one, lambda now: now["followed"] == ["memo://b"])
        await one.unsubscribe_resource("memo://b")
        await wait_for_subscriptions(one, lambda now: now["followed"] == [])
    assert router.pool.subscriptions.subscribed_uris("old") == frozenset()


async def test_last_client_cancels_the_stream_of_stateless_server(router: McpRouter) -> None:
    async with connect_client(router) as one, connect_client(router) as other:
        await one.list_resources()
        async with one.listen(resource_subscriptions=["memo://c"]):
            async with other.listen(resource_subscriptions=["memo://c"]):
                await wait_for_subscriptions(one, lambda now: now["followed"] == ["memo://c"], "new")
            assert (await get_subscriptions(one, "new"))["followed"] == ["memo://c"]
        await wait_for_subscriptions(one, lambda now: now["followed"] == [], "new")
    assert router.pool.subscriptions.subscribed_uris("new") == frozenset()


async def test_lost_stream_is_reopened(router: McpRouter) -> None:
    received: list[str] = []
    async with connect_listening_client(router, received) as connected:
        await connected.list_resources()
        await connected.subscribe_resource("memo://c")
        await wait_for_subscriptions(connected, lambda now: now["followed"] == ["memo://c"], "new")
        await call_text(connected, "new___touch", {"uri": "memo://c"})
        await wait_until(lambda: received == ["memo://c"])
        await call_text(connected, "new___cut")
        # The resource may have changed meanwhile.
        await wait_until(lambda: received == ["memo://c", "memo://c"])
        await wait_for_subscriptions(connected, lambda now: now["followed"] == ["memo://c"], "new")
        await call_text(connected, "new___touch", {"uri": "memo://c"})
        await wait_until(lambda: len(received) == 3)


@pytest.mark.parametrize("server", ["old", "new"])
async def test_restarted_server_gets_the_subscriptions_again(router: McpRouter, server: str) -> None:
    uri = "memo://a" if server == "old" else "memo://c"
    received: list[str] = []
    async with connect_listening_client(router, received) as connected:
        await connected.list_resources()
        await connected.subscribe_resource(uri)
        await wait_for_subscriptions(connected, lambda now: now["followed"] == [uri], server)
        assert "lost its connection" in await call_text(connected, f"{server}___die")
        await wait_until(lambda: received == [uri])
        await wait_for_subscriptions(connected, lambda now: now["followed"] == [uri], server)
        # Also after a change of its configuration.
        config = router.hub.config
        changed = replace(config.servers[server], call_seconds=30.0)
        await router.pool.reconfigure(replace(config, servers={**config.servers, server: changed}))
        await wait_until(lambda: received == [uri, uri])
        await wait_for_subscriptions(connected, lambda now: now["followed"] == [uri], server)


def test_number_of_subscribed_resources_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIBED_URIS", 2)
    made = Subscriptions()
    assert [made.subscribe("old", uri) for uri in ("a", "b", "a", "c")] == [True, True, True, False]
    made.unsubscribe("old", "a")
    assert made.subscribed_uris("old") == {"a", "b"}
    made.unsubscribe("old", "a")
    assert made.subscribe("old", "c")


async def test_stateless_request_leaves_no_subscription(router: McpRouter) -> None:
    before = router.pool.subscriptions.log_level
    async with connect_client(router, "legacy") as connected:
        connection = next(iter(router.connections.values()))
        router.passthrough.end_session(connection.state["toolcrib"])
        await connected.subscribe_resource("memo://a")
        await connected.set_logging_level("debug")
        assert router.pool.subscriptions.subscribed_uris("old") == frozenset()
        assert router.pool.subscriptions.log_level == before
