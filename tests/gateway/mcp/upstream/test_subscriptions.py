"""What clients want to be told besides answers: each its own, and servers are asked for no more."""

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

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

TOOLS = ["echo", "wanted", "touch", "log", "die", "cut"]
OLD = plain_server("old", TOOLS, resources=["memo://a", "memo://b"], given={"call_seconds": 20.0})
NEW = plain_server("new", TOOLS, STATELESS, resources=["memo://c"], given={"call_seconds": 20.0})
UPDATED = "notifications/resources/updated"


@pytest.fixture
async def front(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[McpRouter]:
    for module in (subscriptions, supervisor):
        monkeypatch.setattr(module, "MIN_RETRY_SECONDS", 0.02)
    async with gateway(build_config(OLD, NEW)) as made:
        yield made


def hearing(front: McpRouter, heard: list[str]) -> Client:
    async def on_message(message: Any) -> None:
        if getattr(message, "method", "") == UPDATED:
            heard.append(str(message.params.uri))

    return connect_client(front, "legacy", message_handler=on_message)


async def wanted(connected: Client, server: str = "old") -> dict[str, Any]:
    """What a server has been asked for; nothing while it is being started anew."""
    said = await call_text(connected, f"{server}___wanted")
    nothing: dict[str, Any] = {"levels": None, "followed": None}
    return nothing if "not reachable" in said else dict(json.loads(said))


async def becomes(
    connected: Client, holds: Callable[[dict[str, Any]], bool], server: str = "old"
) -> None:
    """Wait until a server has been asked for this."""
    with anyio.fail_after(20):
        while not holds(await wanted(connected, server)):
            await anyio.sleep(0.02)


async def test_server_gets_the_lowest_log_level_of_all_clients(front: McpRouter) -> None:
    async with connect_client(front, "legacy") as one:
        assert (await wanted(one))["levels"] == []
        await one.set_logging_level("error")
        await becomes(one, lambda now: now["levels"] == ["error"])
        async with connect_client(front, "legacy") as other:
            # That one has not said what it wants, so it is not made to want errors alone.
            await becomes(one, lambda now: now["levels"] == ["error", "info"])
            await other.set_logging_level("debug")
            await becomes(one, lambda now: now["levels"] == ["error", "info", "debug"])
        # It has left, and with it its wish.
        await becomes(one, lambda now: now["levels"][-1] == "error")
        # A server that was started anew does not know of any of it.
        assert "lost its connection" in await call_text(one, "old___die")
        await becomes(one, lambda now: now["levels"] == ["error"])


async def test_log_levels_of_clients_are_separate(front: McpRouter) -> None:
    heard: list[Any] = []
    others: list[Any] = []

    def into(said: list[Any]) -> Callable[[Any], Any]:
        async def on_log(params: Any) -> None:
            said.append(params.level)

        return on_log

    async with (
        connect_client(front, "legacy", logging_callback=into(heard)) as one,
        connect_client(front, "legacy", logging_callback=into(others)) as other,
    ):
        await one.set_logging_level("error")
        await other.set_logging_level("debug")
        for connected in (one, other):
            await connected.call_tool("old___log", {})
        await wait_until(lambda: len(heard) + len(others) == 3)
    assert (heard, others) == (["error"], ["debug", "error"])


async def test_unresponsive_server_does_not_delay_clients() -> None:
    deaf = plain_server("old", ["wanted"], deaf=True, given={"connect_seconds": 300.0})
    async with gateway(build_config(deaf)) as front, connect_client(front, "legacy") as connected:
        with anyio.fail_after(20):
            await connected.set_logging_level("error")
        await becomes(connected, lambda now: now["levels"] == ["error"])


async def test_last_client_cancels_the_subscription(front: McpRouter) -> None:
    async with connect_client(front, "legacy") as one:
        await one.list_resources()
        async with connect_client(front, "legacy") as other:
            for uri in ("memo://a", "memo://b"):
                await one.subscribe_resource(uri)
                await other.subscribe_resource(uri)
            # To say it again changes nothing.
            await one.subscribe_resource("memo://a")
            await becomes(one, lambda now: now["followed"] == ["memo://a", "memo://b"])
            await one.unsubscribe_resource("memo://a")
            await one.unsubscribe_resource("memo://nothing")
            await other.unsubscribe_resource("memo://b")
        # The other one has left without a word.
        await becomes(one, lambda now: now["followed"] == ["memo://b"])
        await one.unsubscribe_resource("memo://b")
        await becomes(one, lambda now: now["followed"] == [])
    assert front.pool.subscriptions.subscribed_uris("old") == frozenset()


async def test_last_client_cancels_the_stream_of_stateless_server(front: McpRouter) -> None:
    async with connect_client(front) as one, connect_client(front) as other:
        await one.list_resources()
        async with one.listen(resource_subscriptions=["memo://c"]):
            async with other.listen(resource_subscriptions=["memo://c"]):
                await becomes(one, lambda now: now["followed"] == ["memo://c"], "new")
            assert (await wanted(one, "new"))["followed"] == ["memo://c"]
        await becomes(one, lambda now: now["followed"] == [], "new")
    assert front.pool.subscriptions.subscribed_uris("new") == frozenset()


async def test_lost_stream_is_reopened(front: McpRouter) -> None:
    heard: list[str] = []
    async with hearing(front, heard) as connected:
        await connected.list_resources()
        await connected.subscribe_resource("memo://c")
        await becomes(connected, lambda now: now["followed"] == ["memo://c"], "new")
        await call_text(connected, "new___touch", {"uri": "memo://c"})
        await wait_until(lambda: heard == ["memo://c"])
        await call_text(connected, "new___cut")
        # It may have changed in the meantime.
        await wait_until(lambda: heard == ["memo://c", "memo://c"])
        await becomes(connected, lambda now: now["followed"] == ["memo://c"], "new")
        await call_text(connected, "new___touch", {"uri": "memo://c"})
        await wait_until(lambda: len(heard) == 3)


@pytest.mark.parametrize("server", ["old", "new"])
async def test_restarted_server_gets_the_subscriptions_again(front: McpRouter, server: str) -> None:
    uri = "memo://a" if server == "old" else "memo://c"
    heard: list[str] = []
    async with hearing(front, heard) as connected:
        await connected.list_resources()
        await connected.subscribe_resource(uri)
        await becomes(connected, lambda now: now["followed"] == [uri], server)
        assert "lost its connection" in await call_text(connected, f"{server}___die")
        await wait_until(lambda: heard == [uri])
        await becomes(connected, lambda now: now["followed"] == [uri], server)
        # One that is reached in another way too.
        config = front.hub.config
        changed = replace(config.servers[server], call_seconds=30.0)
        await front.pool.reconfigure(replace(config, servers={**config.servers, server: changed}))
        await wait_until(lambda: heard == [uri, uri])
        await becomes(connected, lambda now: now["followed"] == [uri], server)


def test_number_of_subscribed_resources_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIBED_URIS", 2)
    made = Subscriptions()
    assert [made.subscribe("old", uri) for uri in ("a", "b", "a", "c")] == [True, True, True, False]
    made.unsubscribe("old", "a")
    assert made.subscribed_uris("old") == {"a", "b"}
    made.unsubscribe("old", "a")
    assert made.subscribe("old", "c")


async def test_stateless_request_leaves_no_subscription(front: McpRouter) -> None:
    before = front.pool.subscriptions.log_level
    async with connect_client(front, "legacy") as connected:
        connection = next(iter(front.connections.values()))
        front.passthrough.end_session(connection.state["toolcrib"])
        await connected.subscribe_resource("memo://a")
        await connected.set_logging_level("debug")
        assert front.pool.subscriptions.subscribed_uris("old") == frozenset()
        assert front.pool.subscriptions.log_level == before
