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
from toolcrib.gateway.mcp.upstream import in_flight
from toolcrib.gateway.mcp.upstream import supervisor as upstreams

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

OLD = plain_server("old", ["ask", "hang", "speak", "log", "pid"], given={"call_seconds": 20.0})
NEW = plain_server("new", ["hang", "log"], STATELESS, given={"call_seconds": 20.0})


@pytest.fixture
async def front() -> AsyncIterator[McpRouter]:
    async with gateway(build_config(OLD, NEW)) as made:
        yield made


def listening(
    front: McpRouter, heard: list[Any], era: str = "legacy", target: Any = None
) -> Client:
    """A client that can be asked for its roots, and hears of the log."""

    async def roots(ctx: Any) -> types.ListRootsResult:
        heard.append("asked")
        return types.ListRootsResult(roots=[])

    async def on_log(params: Any) -> None:
        heard.append(params.data)

    given: dict[str, Any] = {"list_roots_callback": roots, "logging_callback": on_log}
    return Client(target, mode=era, **given) if target else connect_client(front, era, **given)


@asynccontextmanager
async def piped(front: McpRouter, heard: list[Any], era: str) -> AsyncIterator[Client]:
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


async def give_up(front: McpRouter, connected: Client, tool: str = "old___hang") -> None:
    """Begin a call, and leave it when the server has it."""
    upstream = front.pool.servers[tool.partition("___")[0]]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connected.call_tool, tool, {})
        await wait_until(lambda: upstream.state == "in use")
        # What is told after it has been written to the server.
        await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    await wait_until(lambda: upstream.state == "started")


async def test_concurrent_clients_are_not_mixed_up(front: McpRouter) -> None:
    """A server that asks while two clients wait for it does not say which one it means."""
    async with (
        listening(front, []) as one,
        listening(front, []) as other,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(other.call_tool, "old___hang", {})
        await wait_until(lambda: front.pool.servers["old"].state == "in use")
        assert "the addressee is ambiguous" in await call_text(
            one, "old___ask", {"method": "roots/list"}
        )
        tasks.cancel_scope.cancel()


async def test_messages_of_abandoned_call_reach_no_other_client(front: McpRouter) -> None:
    heard: list[Any] = []
    async with listening(front, []) as one, listening(front, heard) as other:
        await give_up(front, one)
        assert "an abandoned call of another client" in await call_text(other, "old___speak")
        # It is answered at last, and what it said before that is still nobody's.
        await call_text(other, "old___speak", {"end": True})
        assert heard == []
        # Now there is no doubt any more.
        await call_text(other, "old___ask", {"method": "roots/list"})
        await other.call_tool("old___log", {})
        await wait_until(lambda: len(heard) == 3)
    assert heard == ["asked", "old", "old"]


async def test_log_after_an_abandoned_call_reaches_no_client(front: McpRouter) -> None:
    heard: list[Any] = []
    async with listening(front, []) as one, listening(front, heard):
        await give_up(front, one)
        await front.pool.servers["old"]._handle_notification(
            "notifications/message", {"level": "error", "data": "of the hung call"}
        )
    assert heard == []


@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_client_can_be_asked_after_it_abandoned_its_own_call(
    front: McpRouter, era: str
) -> None:
    heard: list[Any] = []
    async with piped(front, heard, era) as connected:
        await give_up(front, connected)
        assert "roots" in await call_text(connected, "old___ask", {"method": "roots/list"})
    assert heard == ["asked"]


async def test_reconnect_resolves_the_ambiguity(
    front: McpRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(build_config(OLD)) as made:
        upstream = made.pool.servers["old"]
        async with listening(made, []) as one, listening(made, []) as other:
            before = await call_text(other, "old___pid")
            await give_up(made, one)
            first = upstream.connection
            assert "an abandoned call of another client" in await call_text(
                other, "old___ask", {"method": "roots/list"}
            )
            # Nobody uses it now. Without waiting for the next look at its health:
            assert upstream.should_reconnect()
            assert first is not None
            monkeypatch.setattr(upstreams, "HEALTH_CHECK_SECONDS", 0.05)
            first.closed.set()
            await wait_until(lambda: upstream.connection not in (None, first))
            assert upstream.failures == 0
            assert await call_text(other, "old___pid") != before
            assert "roots" in await call_text(other, "old___ask", {"method": "roots/list"})


async def test_abandoned_call_of_stateless_server_expires(
    front: McpRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(in_flight, "ABANDONED_CALL_SECONDS", 0.3)
    front.pool.servers["new"].in_flight.reset(is_stateless=True)
    async with listening(front, []) as one, listening(front, heard) as other:
        await give_up(front, one, "new___hang")
        with anyio.fail_after(20):
            while not heard:
                await other.call_tool("new___log", {})
                await anyio.sleep(0.05)
    assert "new" in heard


async def test_number_of_abandoned_calls_is_bounded(
    front: McpRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_ABANDONED_CALLS", 3)
    queue = in_flight.InFlightCalls()
    queue.reset(is_stateless=False)
    for _ in range(10):
        async with listening(front, []) as connected:
            caller: Any = connected
            caller.key = object()
            with queue.track_call(caller, 5):
                pass
    assert queue.abandoned_count == 4


@pytest.mark.parametrize("era", ["legacy", STATELESS])
@pytest.mark.parametrize("server", ["old", "new"])
async def test_user_response_time_does_not_count_for_the_call_timeout(
    era: str, server: str
) -> None:
    answered = anyio.Event()
    given = {"call_seconds": 1.0, "answer_seconds": 60.0}
    servers = [
        plain_server("old", ["ask"], given=given),
        plain_server("new", ["ask"], STATELESS, given=given),
    ]

    async def roots(ctx: Any) -> types.ListRootsResult:
        await answered.wait()
        return types.ListRootsResult(roots=[])

    async with (
        gateway(build_config(*servers)) as front,
        connect_client(front, era, list_roots_callback=roots) as connected,
        anyio.create_task_group() as tasks,
    ):
        said: list[str] = []

        async def call() -> None:
            said.append(await call_text(connected, f"{server}___ask", {"method": "roots/list"}))

        tasks.start_soon(call)
        # Longer than a call may take, and the question is open all the time.
        await anyio.sleep(1.5)
        assert said == []
        answered.set()
        await wait_until(lambda: said)
        assert "roots" in said[0]


@pytest.mark.parametrize("server", ["old", "new"])
async def test_request_to_the_user_times_out(server: str) -> None:
    given = {"answer_seconds": 0.3}
    servers = [
        plain_server("old", ["ask"], given=given),
        plain_server("new", ["ask"], STATELESS, given=given),
    ]

    async def roots(ctx: Any) -> types.ListRootsResult:
        await anyio.sleep_forever()
        raise AssertionError

    async with (
        gateway(build_config(*servers)) as front,
        connect_client(front, "legacy", list_roots_callback=roots) as connected,
    ):
        with anyio.fail_after(20):
            try:
                said = await call_text(connected, f"{server}___ask", {"method": "roots/list"})
            except Exception as fault:
                said = str(fault)
    assert "did not respond to roots/list in time" in said


async def test_number_of_server_requests_is_limited(
    front: McpRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MAX_SERVER_REQUESTS_PER_CALL", 0)
    async with listening(front, []) as connected:
        said = await call_text(connected, "old___ask", {"method": "roots/list"})
    assert "at most 0 requests to the client" in said
