"""What clients want to be told besides answers: each its own, and servers are asked for no more."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.gateway.mcp.harness import MODERN, client, config_of, gateway, plain, told, until
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.gateway.mcp.upstream import subscriptions, supervisor
from toolcrib.gateway.mcp.upstream.subscriptions import Wishes

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

TOOLS = ["echo", "wanted", "touch", "log", "die", "cut"]
OLD = plain("old", TOOLS, resources=["memo://a", "memo://b"], given={"call_seconds": 20.0})
NEW = plain("new", TOOLS, MODERN, resources=["memo://c"], given={"call_seconds": 20.0})
UPDATED = "notifications/resources/updated"


@pytest.fixture
async def front(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    for module in (subscriptions, supervisor):
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.02)
    async with gateway(config_of(OLD, NEW)) as made:
        yield made


def hearing(front: Front, heard: list[str]) -> Client:
    async def on_message(message: Any) -> None:
        if getattr(message, "method", "") == UPDATED:
            heard.append(str(message.params.uri))

    return client(front, "legacy", message_handler=on_message)


async def wanted(connected: Client, server: str = "old") -> dict[str, Any]:
    """What a server has been asked for; nothing while it is being started anew."""
    said = await told(connected, f"{server}___wanted")
    nothing: dict[str, Any] = {"levels": None, "followed": None}
    return nothing if "not reachable" in said else dict(json.loads(said))


async def becomes(
    connected: Client, holds: Callable[[dict[str, Any]], bool], server: str = "old"
) -> None:
    """Wait until a server has been asked for this."""
    with anyio.fail_after(20):
        while not holds(await wanted(connected, server)):
            await anyio.sleep(0.02)


async def test_a_server_is_asked_for_the_lowest_level_that_anybody_wants(front: Front) -> None:
    async with client(front, "legacy") as one:
        assert (await wanted(one))["levels"] == []
        await one.set_logging_level("error")
        await becomes(one, lambda now: now["levels"] == ["error"])
        async with client(front, "legacy") as other:
            # That one has not said what it wants, so it is not made to want errors alone.
            await becomes(one, lambda now: now["levels"] == ["error", "info"])
            await other.set_logging_level("debug")
            await becomes(one, lambda now: now["levels"] == ["error", "info", "debug"])
        # It has left, and with it its wish.
        await becomes(one, lambda now: now["levels"][-1] == "error")
        # A server that was started anew does not know of any of it.
        assert "went away" in await told(one, "old___die")
        await becomes(one, lambda now: now["levels"] == ["error"])


async def test_the_level_of_one_client_is_not_that_of_another(front: Front) -> None:
    heard: list[Any] = []
    others: list[Any] = []

    def into(said: list[Any]) -> Callable[[Any], Any]:
        async def on_log(params: Any) -> None:
            said.append(params.level)

        return on_log

    async with (
        client(front, "legacy", logging_callback=into(heard)) as one,
        client(front, "legacy", logging_callback=into(others)) as other,
    ):
        await one.set_logging_level("error")
        await other.set_logging_level("debug")
        for connected in (one, other):
            await connected.call_tool("old___log", {})
        await until(lambda: len(heard) + len(others) == 3)
    assert (heard, others) == (["error"], ["debug", "error"])


async def test_a_server_that_does_not_answer_keeps_nobody_waiting() -> None:
    deaf = plain("old", ["wanted"], deaf=True, given={"connect_seconds": 300.0})
    async with gateway(config_of(deaf)) as front, client(front, "legacy") as connected:
        with anyio.fail_after(20):
            await connected.set_logging_level("error")
        await becomes(connected, lambda now: now["levels"] == ["error"])


async def test_what_nobody_follows_any_more_is_not_asked_for(front: Front) -> None:
    async with client(front, "legacy") as one:
        await one.list_resources()
        async with client(front, "legacy") as other:
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
    assert front.fleet.wishes.uris("old") == frozenset()


async def test_a_newer_server_is_asked_for_no_more_than_that_either(front: Front) -> None:
    async with client(front) as one, client(front) as other:
        await one.list_resources()
        async with one.listen(resource_subscriptions=["memo://c"]):
            async with other.listen(resource_subscriptions=["memo://c"]):
                await becomes(one, lambda now: now["followed"] == ["memo://c"], "new")
            assert (await wanted(one, "new"))["followed"] == ["memo://c"]
        await becomes(one, lambda now: now["followed"] == [], "new")
    assert front.fleet.wishes.uris("new") == frozenset()


async def test_a_stream_that_is_lost_is_opened_again(front: Front) -> None:
    heard: list[str] = []
    async with hearing(front, heard) as connected:
        await connected.list_resources()
        await connected.subscribe_resource("memo://c")
        await becomes(connected, lambda now: now["followed"] == ["memo://c"], "new")
        await told(connected, "new___touch", {"uri": "memo://c"})
        await until(lambda: heard == ["memo://c"])
        await told(connected, "new___cut")
        # It may have changed in the meantime.
        await until(lambda: heard == ["memo://c", "memo://c"])
        await becomes(connected, lambda now: now["followed"] == ["memo://c"], "new")
        await told(connected, "new___touch", {"uri": "memo://c"})
        await until(lambda: len(heard) == 3)


@pytest.mark.parametrize("server", ["old", "new"])
async def test_a_server_that_was_started_anew_is_asked_again(front: Front, server: str) -> None:
    uri = "memo://a" if server == "old" else "memo://c"
    heard: list[str] = []
    async with hearing(front, heard) as connected:
        await connected.list_resources()
        await connected.subscribe_resource(uri)
        await becomes(connected, lambda now: now["followed"] == [uri], server)
        assert "went away" in await told(connected, f"{server}___die")
        await until(lambda: heard == [uri])
        await becomes(connected, lambda now: now["followed"] == [uri], server)
        # One that is reached in another way too.
        config = front.service.config
        changed = replace(config.servers[server], call_seconds=30.0)
        await front.fleet.reconfigure(replace(config, servers={**config.servers, server: changed}))
        await until(lambda: heard == [uri, uri])
        await becomes(connected, lambda now: now["followed"] == [uri], server)


def test_only_so_much_can_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_FOLLOWED", 2)
    made = Wishes()
    assert [made.follow("old", uri) for uri in ("a", "b", "a", "c")] == [True, True, True, False]
    made.unfollow("old", "a")
    assert made.uris("old") == {"a", "b"}
    made.unfollow("old", "a")
    assert made.follow("old", "c")


async def test_a_request_without_a_session_leaves_no_wish_behind(front: Front) -> None:
    before = front.fleet.wishes.level
    async with client(front, "legacy") as connected:
        connection = next(iter(front._connections.values()))
        front._relay.left(connection.state["toolcrib"])
        await connected.subscribe_resource("memo://a")
        await connected.set_logging_level("debug")
        assert front.fleet.wishes.uris("old") == frozenset()
        assert front.fleet.wishes.level == before
