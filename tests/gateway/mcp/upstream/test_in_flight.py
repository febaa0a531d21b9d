"""Whose a question or a line of the log is, when a server does not say: nobody else hears of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.memory import create_client_server_memory_streams

from tests.gateway.mcp.harness import MODERN, client, config_of, gateway, plain, told, until
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.gateway.mcp.upstream import in_flight
from toolcrib.gateway.mcp.upstream import supervisor as upstreams

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

OLD = plain("old", ["ask", "hang", "speak", "log", "pid"], given={"call_seconds": 20.0})
NEW = plain("new", ["hang", "log"], MODERN, given={"call_seconds": 20.0})


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    async with gateway(config_of(OLD, NEW)) as made:
        yield made


def listening(front: Front, heard: list[Any], era: str = "legacy", target: Any = None) -> Client:
    """A client that can be asked for its roots, and hears of the log."""

    async def roots(ctx: Any) -> types.ListRootsResult:
        heard.append("asked")
        return types.ListRootsResult(roots=[])

    async def on_log(params: Any) -> None:
        heard.append(params.data)

    given: dict[str, Any] = {"list_roots_callback": roots, "logging_callback": on_log}
    return Client(target, mode=era, **given) if target else client(front, era, **given)


@asynccontextmanager
async def piped(front: Front, heard: list[Any], era: str) -> AsyncIterator[Client]:
    """The same, connected as by standard input and output."""

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        async with (
            create_client_server_memory_streams() as (ours, (read, write)),
            anyio.create_task_group() as tasks,
        ):
            options = front.server.create_initialization_options()
            tasks.start_soon(front.server.run, read, write, options)
            yield ours
            tasks.cancel_scope.cancel()

    async with listening(front, heard, era, transport()) as connected:
        yield connected


async def give_up(front: Front, connected: Client, tool: str = "old___hang") -> None:
    """Begin a call, and leave it when the server has it."""
    upstream = front.fleet.upstreams[tool.partition("___")[0]]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connected.call_tool, tool, {})
        await until(lambda: upstream.state == "in use")
        # What is told after it has been written to the server.
        await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    await until(lambda: upstream.state == "started")


async def test_two_clients_that_wait_are_not_mixed_up(front: Front) -> None:
    """A server that asks while two clients wait for it does not say which one it means."""
    async with (
        listening(front, []) as one,
        listening(front, []) as other,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(other.call_tool, "old___hang", {})
        await until(lambda: front.fleet.upstreams["old"].state == "in use")
        assert "which one is meant" in await told(one, "old___ask", {"method": "roots/list"})
        tasks.cancel_scope.cancel()


async def test_a_call_that_was_given_up_speaks_to_nobody_else(front: Front) -> None:
    heard: list[Any] = []
    async with listening(front, []) as one, listening(front, heard) as other:
        await give_up(front, one)
        assert "was given up" in await told(other, "old___speak")
        # It is answered at last, and what it said before that is still nobody's.
        await told(other, "old___speak", {"end": True})
        assert heard == []
        # Now there is no doubt any more.
        await told(other, "old___ask", {"method": "roots/list"})
        await other.call_tool("old___log", {})
        await until(lambda: len(heard) == 3)
    assert heard == ["asked", "old", "old"]


async def test_what_it_logs_while_nobody_waits_is_nobodys_either(front: Front) -> None:
    heard: list[Any] = []
    async with listening(front, []) as one, listening(front, heard):
        await give_up(front, one)
        await front.fleet.upstreams["old"]._told(
            "notifications/message", {"level": "error", "data": "of the hung call"}
        )
    assert heard == []


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_a_client_can_be_asked_after_it_gave_up_a_call_of_its_own(
    front: Front, era: str
) -> None:
    heard: list[Any] = []
    async with piped(front, heard, era) as connected:
        await give_up(front, connected)
        assert "roots" in await told(connected, "old___ask", {"method": "roots/list"})
    assert heard == ["asked"]


async def test_a_new_connection_ends_the_doubt(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(config_of(OLD)) as made:
        upstream = made.fleet.upstreams["old"]
        async with listening(made, []) as one, listening(made, []) as other:
            before = await told(other, "old___pid")
            await give_up(made, one)
            first = upstream.link
            assert "was given up" in await told(other, "old___ask", {"method": "roots/list"})
            # Nobody uses it now. Without waiting for the next look at its health:
            assert upstream._is_confused()
            assert first is not None
            monkeypatch.setattr(upstreams, "HEALTH_SECONDS", 0.05)
            first.closed.set()
            await until(lambda: upstream.link not in (None, first))
            assert upstream.failures == 0
            assert await told(other, "old___pid") != before
            assert "roots" in await told(other, "old___ask", {"method": "roots/list"})


async def test_a_newer_server_that_was_told_to_stop_is_trusted_after_a_while(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(in_flight, "STOP_SECONDS", 0.3)
    front.fleet.upstreams["new"].waiting.begin_anew(is_modern=True)
    async with listening(front, []) as one, listening(front, heard) as other:
        await give_up(front, one, "new___hang")
        with anyio.fail_after(20):
            while not heard:
                await other.call_tool("new___log", {})
                await anyio.sleep(0.05)
    assert "new" in heard


async def test_what_is_kept_of_calls_that_were_given_up_is_bounded(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_GIVEN_UP", 3)
    queue = in_flight.Waiting()
    queue.begin_anew(is_modern=False)
    for _ in range(10):
        async with listening(front, []) as connected:
            caller: Any = connected
            caller.key = object()
            with queue.call(caller, 5):
                pass
    assert len(queue._given_up.calls) == 4


@pytest.mark.parametrize("era", ["legacy", MODERN])
@pytest.mark.parametrize("server", ["old", "new"])
async def test_the_time_a_person_takes_does_not_count_as_time_of_the_call(
    era: str, server: str
) -> None:
    answered = anyio.Event()
    given = {"call_seconds": 1.0, "answer_seconds": 60.0}
    servers = [plain("old", ["ask"], given=given), plain("new", ["ask"], MODERN, given=given)]

    async def roots(ctx: Any) -> types.ListRootsResult:
        await answered.wait()
        return types.ListRootsResult(roots=[])

    async with (
        gateway(config_of(*servers)) as front,
        client(front, era, list_roots_callback=roots) as connected,
        anyio.create_task_group() as tasks,
    ):
        said: list[str] = []

        async def call() -> None:
            said.append(await told(connected, f"{server}___ask", {"method": "roots/list"}))

        tasks.start_soon(call)
        # Longer than a call may take, and the question is open all the time.
        await anyio.sleep(1.5)
        assert said == []
        answered.set()
        await until(lambda: said)
        assert "roots" in said[0]


@pytest.mark.parametrize("server", ["old", "new"])
async def test_a_person_who_never_answers_is_not_waited_for_for_ever(server: str) -> None:
    given = {"answer_seconds": 0.3}
    servers = [plain("old", ["ask"], given=given), plain("new", ["ask"], MODERN, given=given)]

    async def roots(ctx: Any) -> types.ListRootsResult:
        await anyio.sleep_forever()
        raise AssertionError

    async with (
        gateway(config_of(*servers)) as front,
        client(front, "legacy", list_roots_callback=roots) as connected,
    ):
        with anyio.fail_after(20):
            try:
                said = await told(connected, f"{server}___ask", {"method": "roots/list"})
            except Exception as fault:
                said = str(fault)
    assert "did not answer roots/list in time" in said


async def test_a_server_does_not_ask_for_ever(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_QUESTIONS", 0)
    async with listening(front, []) as connected:
        said = await told(connected, "old___ask", {"method": "roots/list"})
    assert "no more than 0 questions" in said
