"""A client that is received without the SDK and then handed on to it notices nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.gateway.mcp.harness import build_config, plain_server, wait_until
from tests.gateway.mcp.server.test_fast_start import (
    TOOLS,
    Lines,
    call,
    hello,
    lined,
    modern,
    opened,
    request,
)
from toolcrib.config.settings import GatewayConfig
from toolcrib.gateway.mcp.gateway import serve_pipes
from toolcrib.gateway.mcp.server import handover
from toolcrib.gateway.mcp.server.fast_start import FastStart
from toolcrib.gateway.mcp.server.pipes import StdioPipes
from toolcrib.gateway.mcp.server.token_savings import TokenSavings
from toolcrib.hub.hub import Hub

pytestmark = pytest.mark.anyio

MODULES = ["first", "second"]
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Talk:
    """A client, and how far the gateway behind its pipes has come."""

    def __init__(self) -> None:
        self.pipes = Lines()
        self.loads = 0
        self.is_handed_on = False
        self.has_ended = False
        self.may_load = anyio.Event()

    async def say(self, *messages: Any) -> None:
        for message in messages:
            await self.pipes.put.send(lined(message))

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; nothing else may come before it."""
        await self.say(message)
        answer = await self.heard()
        assert answer["id"] == message["id"]
        return answer

    async def heard(self) -> dict[str, Any]:
        with anyio.fail_after(30):
            message: dict[str, Any] = json.loads(await self.pipes.heard.receive())
        return message

    def load(self, module: str) -> None:
        self.loads += 1
        anyio.from_thread.run(self.may_load.wait)


@asynccontextmanager
async def talking(service: Hub) -> AsyncIterator[Talk]:
    """Both halves of serving a client on pipes, with a load that ends when it is told to."""
    talk = Talk()
    savings = TokenSavings(service)
    doorstep = FastStart(service, None, savings)

    async def serve() -> None:
        pipes = StdioPipes(talk.pipes.lines, talk.pipes)
        handed = await handover.StdioHandover(doorstep, pipes, talk.load, MODULES).run()
        if handed is not None:
            talk.is_handed_on = True
            await serve_pipes(service, None, handed, savings, doorstep.state)
        talk.has_ended = True

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            try:
                yield talk
            finally:
                # Also where a test has failed: nobody could end the thread that waits for it.
                talk.may_load.set()
            talk.pipes.put.close()
            await wait_until(lambda: talk.has_ended)
    finally:
        talk.pipes.close()
        service.close()


@pytest.fixture
def config() -> GatewayConfig:
    return build_config(plain_server("many", TOOLS, given={"start": "lazy"}), max_tools_limit=5)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test says loads the SDK, however slow the machine is."""
    monkeypatch.setattr(handover, "IDLE_SECONDS", 600)
    monkeypatch.setattr(handover, "MAX_DELAY_SECONDS", 600)


async def test_a_client_with_a_handshake_is_handed_on_with_its_list(config: GatewayConfig) -> None:
    async with talking(opened(config)) as talk:
        await talk.ask(hello())
        await talk.say(INITIALIZED)
        await talk.say(request("tools/call", call("search_available_tools", query="tool_7"), 2))
        assert (await talk.heard())["method"] == "notifications/tools/list_changed"
        assert (await talk.heard())["id"] == 2
        before = await talk.ask(request("tools/list", id=3))
        assert talk.loads == 0

        # A server's tool is for the SDK; while that is loaded, others are still answered.
        await talk.say(request("tools/call", call("many___tool_7"), 4))
        await wait_until(lambda: talk.loads)
        assert await talk.ask(request("tools/list", id=5)) == {**before, "id": 5}
        assert (talk.loads, talk.is_handed_on) == (1, False)

        talk.may_load.set()
        answer = await talk.heard()
        assert answer["id"] == 4
        assert answer["result"]["content"][0]["text"]
        assert await talk.ask(request("tools/list", id=6)) == {**before, "id": 6}
        assert (await talk.ask(request("ping", id=7)))["result"] == {}


async def test_a_client_without_a_handshake_stays_one(config: GatewayConfig) -> None:
    async with talking(opened(config)) as talk:
        listed = await talk.ask(modern("tools/list", 1))
        talk.may_load.set()
        assert (await talk.ask(modern("prompts/list", 2)))["result"]["prompts"] == []
        assert talk.is_handed_on
        assert await talk.ask(modern("tools/list", 3)) == {**listed, "id": 3}
        # The older way is refused, as it would have been from the start.
        assert (await talk.ask(hello(4)))["error"]["code"] == -32022


async def test_nothing_is_said_twice_where_nothing_was_answered_before(
    config: GatewayConfig,
) -> None:
    async with talking(opened(config)) as talk:
        talk.may_load.set()
        assert (await talk.ask(request("tools/list", id=1)))["error"]["code"] == -32602
        assert (await talk.ask(hello(2)))["result"]["serverInfo"]["name"] == "toolcrib"
        assert len((await talk.ask(request("tools/list", id=3)))["result"]["tools"]) == 6


async def test_a_client_that_leaves_has_nothing_loaded_for_it(config: GatewayConfig) -> None:
    async with talking(opened(config)) as talk:
        await talk.ask(hello())
        await talk.say(INITIALIZED)
        talk.pipes.put.close()
        await wait_until(lambda: talk.has_ended)
        assert (talk.loads, talk.is_handed_on) == (0, False)


async def test_a_client_that_leaves_meanwhile_is_not_loaded_for_any_further(
    config: GatewayConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "IDLE_SECONDS", 0)
    async with talking(opened(config)) as talk:
        await wait_until(lambda: talk.loads)
        talk.pipes.put.close()
        await anyio.wait_all_tasks_blocked()
        talk.may_load.set()
        await wait_until(lambda: talk.has_ended)
        assert (talk.loads, talk.is_handed_on) == (1, False)


async def test_a_client_that_leaves_is_still_answered(config: GatewayConfig) -> None:
    async with talking(opened(config)) as talk:
        await talk.ask(hello())
        await talk.say(request("prompts/list", id=1))
        talk.pipes.put.close()
        await wait_until(lambda: talk.loads)
        talk.may_load.set()
        await wait_until(lambda: talk.has_ended)
        assert talk.is_handed_on


@pytest.mark.parametrize("patience", ["QUIET_SECONDS", "LONGEST_SECONDS"])
async def test_a_client_that_asks_nothing_has_its_servers_started(
    config: GatewayConfig, patience: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, patience, 0)
    async with talking(opened(config)) as talk:
        talk.may_load.set()
        await wait_until(lambda: talk.is_handed_on)
        assert talk.loads == len(MODULES)
        assert "result" in await talk.ask(hello())


async def test_a_client_that_never_stops_asking_does_not_put_it_off(
    config: GatewayConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "MAX_DELAY_SECONDS", 0)
    async with talking(opened(config)) as talk:
        await talk.say(hello(), *[request("ping", id=number) for number in range(1, 60)])
        await wait_until(lambda: talk.loads)
        talk.may_load.set()
        assert [(await talk.heard())["id"] for _ in range(60)] == list(range(60))
        await wait_until(lambda: talk.is_handed_on)


async def test_only_so_much_is_kept_for_later(
    config: GatewayConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "MAX_QUEUED_LINES", 3)
    async with talking(opened(config)) as talk:
        await talk.ask(hello())
        await talk.say(*[INITIALIZED] * 3)
        await wait_until(lambda: talk.is_handed_on)
        assert talk.loads == 0
        assert "result" in await talk.ask(request("ping", id=1))
