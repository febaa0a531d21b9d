"""Requests and log messages of a server reach only the client whose call they belong to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
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

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

OLD = plain_server("old", ["ask", "hang", "speak", "log", "pid"], given={"call_seconds": 20.0})
NEW = plain_server("new", ["hang", "log"], STATELESS, given={"call_seconds": 20.0})


@pytest.fixture
async def router() -> AsyncIterator[McpRouter]:
    async with gateway(build_config(OLD, NEW)) as running:
        yield running


def connect_listening_client(router: McpRouter, received: list[Any], era: str = "legacy", target: Any = None) -> Client:
    """Connect a client that returns its roots and records log messages."""

    async def roots(ctx: Any) -> types.ListRootsResult:
        received.append("asked")
        return types.ListRootsResult(roots=[])

    async def on_log(params: Any) -> None:
        received.append(params.data)

    given: dict[str, Any] = {"list_roots_callback": roots, "logging_callback": on_log}
    return Client(target, mode=era, **given) if target else connect_client(router, era, **given)


@asynccontextmanager
async def connect_over_pipes(router: McpRouter, received: list[Any], era: str) -> AsyncIterator[Client]:
    """Connect such a client like on standard input and output."""

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        async with create_client_server_memory_streams() as (ours, (read, write)), anyio.create_task_group() as tasks:
            options = router.server.create_initialization_options()
            tasks.start_soon(router.server.run, read, write, options)
            yield ours
            tasks.cancel_scope.cancel()

    async with connect_listening_client(router, received, era, transport()) as connected:
        yield connected


async def abandon_call(router: McpRouter, connected: Client, tool: str = "old___hang") -> None:
    """Start a call and cancel it once the server has received it."""
    upstream = router.pool.servers[tool.partition("___")[0]]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connected.call_tool, tool, {})
        await wait_until(lambda: upstream.state == "in use")
        # This is sent after the call was written to the server.
        await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    await wait_until(lambda: upstream.state == "started")


async def test_concurrent_clients_are_not_mixed_up(router: McpRouter) -> None:
    """A request is ambiguous while two clients have calls in flight."""
    async with (
        connect_listening_client(router, []) as one,
        connect_listening_client(router, []) as other,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(other.call_tool, "old___hang", {})
        await wait_until(lambda: router.pool.servers["old"].state == "in use")
        assert "the addressee is ambiguous" in await call_text(one, "old___ask", {"method": "roots/list"})
        tasks.cancel_scope.cancel()


async def test_messages_of_abandoned_call_reach_no_other_client(router: McpRouter) -> None:
    received: list[Any] = []
    async with connect_listening_client(router, []) as one, connect_listening_client(router, received) as other:
        await abandon_call(router, one)
        assert "an abandoned call of another client" in await call_text(other, "old___speak")
        # The call is answered; earlier messages still belong to no client.
        await call_text(other, "old___speak", {"end": True})
        assert received == []
        # Now the addressee is certain.
        await call_text(other, "old___ask", {"method": "roots/list"})
        await other.call_tool("old___log", {})
        await wait_until(lambda: len(received) == 3)
    assert received == ["asked", "old", "old"]


async def test_log_after_an_abandoned_call_reaches_no_client(router: McpRouter) -> None:
    received: list[Any] = []
    async with connect_listening_client(router, []) as one, connect_listening_client(router, received):
        await abandon_call(router, one)
        await router.pool.servers["old"]._handle_notification(
            "notifications/message", {"level": "error", "data": "of the hung call"}
        )
    assert received == []


@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_client_can_be_asked_after_it_abandoned_its_own_call(router: McpRouter, era: str) -> None:
    received: list[Any] = []
    async with connect_over_pipes(router, received, era) as connected:
        await abandon_call(router, connected)
        assert "roots" in await call_text(connected, "old___ask", {"method": "roots/list"})
    assert received == ["asked"]


async def test_reconnect_resolves_the_ambiguity(router: McpRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(build_config(OLD)) as running:
        upstream = running.pool.servers["old"]
        async with connect_listening_client(running, []) as one, connect_listening_client(running, []) as other:
            before = await call_text(other, "old___pid")
            await abandon_call(running, one)
            first = upstream.connection
            assert "an abandoned call of another client" in await call_text(
                other, "old___ask", {"method": "roots/list"}
            )
            # The server is idle now; do not wait for the next health check.
            assert upstream.should_reconnect()
            assert first is not None
            monkeypatch.setattr(upstreams, "HEALTH_CHECK_SECONDS", 0.05)
            first.closed.set()
            await wait_until(lambda: upstream.connection not in (None, first))
            assert upstream.failures == 0
            assert await call_text(other, "old___pid") != before
            assert "roots" in await call_text(other, "old___ask", {"method": "roots/list"})


async def test_abandoned_call_of_stateless_server_expires(router: McpRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Any] = []
    monkeypatch.setattr(in_flight, "ABANDONED_CALL_SECONDS", 0.3)
    router.pool.servers["new"].in_flight.reset(is_stateless=True)
    async with connect_listening_client(router, []) as one, connect_listening_client(router, received) as other:
        await abandon_call(router, one, "new___hang")
        with anyio.fail_after(20):
            while not received:
                await other.call_tool("new___log", {})
                await anyio.sleep(0.05)
    assert "new" in received


async def test_number_of_abandoned_calls_is_bounded(router: McpRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "MAX_ABANDONED_CALLS", 3)
    queue = in_flight.InFlightCalls()
    queue.reset(is_stateless=False)
    for _ in range(10):
        async with connect_listening_client(router, []) as connected:
            caller: Any = connected
            caller.key = object()
            with queue.track_call(caller, 5):
                pass
    assert queue.abandoned_count == 4


@pytest.mark.parametrize("era", ["legacy", STATELESS])
@pytest.mark.parametrize("server", ["old", "new"])
async def test_user_response_time_does_not_count_for_the_call_timeout(era: str, server: str) -> None:
    answered = anyio.Event()
    given = {"call_seconds": 1.0, "answer_seconds": 60.0}
    servers = [plain_server("old", ["ask"], given=given), plain_server("new", ["ask"], STATELESS, given=given)]

    async def roots(ctx: Any) -> types.ListRootsResult:
        await answered.wait()
        return types.ListRootsResult(roots=[])

    async with (
        gateway(build_config(*servers)) as router,
        connect_client(router, era, list_roots_callback=roots) as connected,
        anyio.create_task_group() as tasks,
    ):
        results: list[str] = []

        async def call() -> None:
            results.append(await call_text(connected, f"{server}___ask", {"method": "roots/list"}))

        tasks.start_soon(call)
        # Longer than the call timeout, while the request is open.
        await anyio.sleep(1.5)
        assert results == []
        answered.set()
        await wait_until(lambda: results)
        assert "roots" in results[0]


@pytest.mark.parametrize("server", ["old", "new"])
async def test_request_to_the_user_times_out(server: str) -> None:
    given = {"answer_seconds": 0.3}
    servers = [plain_server("old", ["ask"], given=given), plain_server("new", ["ask"], STATELESS, given=given)]

    async def roots(ctx: Any) -> types.ListRootsResult:
        await anyio.sleep_forever()
        raise AssertionError

    async with (
        gateway(build_config(*servers)) as router,
        connect_client(router, "legacy", list_roots_callback=roots) as connected,
    ):
        with anyio.fail_after(20):
            try:
                text = await call_text(connected, f"{server}___ask", {"method": "roots/list"})
            except Exception as fault:
                text = str(fault)
    assert "did not respond to roots/list in time" in text


async def test_number_of_server_requests_is_limited(router: McpRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "MAX_SERVER_REQUESTS_PER_CALL", 0)
    async with connect_listening_client(router, []) as connected:
        text = await call_text(connected, "old___ask", {"method": "roots/list"})
    assert "at most 0 requests to the client" in text


class SlowCaller:
    """A client that receives notifications slowly, or not at all."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        self.key = object()
        self.capabilities: dict[str, Any] = {}
        self.received: list[Any] = []
        self._is_stuck = is_stuck

    async def send_request(self, method: str, params: Any) -> dict[str, Any]:
        return {}

    async def notify(self, method: str, params: Any) -> None:
        await self.report_progress(params["level"], None, None)

    async def report_progress(self, progress: Any, total: float | None, message: str | None) -> None:
        if self._is_stuck:
            await anyio.sleep_forever()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        self.received.append(progress)


@pytest.mark.parametrize(("tool", "expected"), [("progress", [1, 2, 3]), ("log", ["debug", "error"])])
async def test_a_response_does_not_overtake_the_notifications_before_it(tool: str, expected: list[Any]) -> None:
    async with gateway(build_config(plain_server("work", [tool]))) as router:
        caller = SlowCaller()
        params = {"name": tool, "arguments": {}, "_meta": {"progressToken": 1}}
        await router.pool.servers["work"].request("tools/call", params, caller)
    assert caller.received == expected


async def test_a_client_that_receives_nothing_gets_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "NOTIFICATION_SECONDS", 0.01)
    async with gateway(build_config(plain_server("work", ["progress"]))) as router:
        params = {"name": "progress", "arguments": {}, "_meta": {"progressToken": 1}}
        result = await router.pool.servers["work"].request("tools/call", params, SlowCaller(is_stuck=True))
    assert result["content"][0]["text"] == "done"
