"""Requests of servers to clients during a call, for all combinations of protocol revisions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

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
from toolcrib.gateway.mcp.server.server_requests import MAX_INPUT_REQUESTS, PendingInputCall

pytestmark = pytest.mark.anyio

OLD = plain_server("old", ["ask", "echo"], given={"call_seconds": 20.0})
NEW = plain_server("new", ["ask", "echo"], STATELESS)
FORM = {
    "mode": "form",
    "message": "Which one?",
    "requestedSchema": {"type": "object", "properties": {"which": {"type": "string"}}},
}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Say a word."}}], "maxTokens": 10}


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    async with gateway(build_config(OLD, NEW)) as router:
        yield router


def connect_responding_client(router: McpRouter, revision: str) -> Client:
    """Return a client that responds to every request a server may send."""

    async def elicit(ctx: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"which": params.message})

    async def sample(ctx: Any, params: Any) -> types.CreateMessageResult:
        content = types.TextContent(text="word")
        return types.CreateMessageResult(role="assistant", content=content, model="scripted")

    async def list_roots(ctx: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///here")])  # type: ignore[arg-type]

    return connect_client(
        router, revision, elicitation_callback=elicit, sampling_callback=sample, list_roots_callback=list_roots
    )


@pytest.mark.parametrize("revision", ["legacy", STATELESS])
@pytest.mark.parametrize("server", ["old", "new"])
@pytest.mark.parametrize(
    ("method", "params", "response"),
    [
        ("elicitation/create", FORM, {"action": "accept", "content": {"which": "Which one?"}}),
        ("sampling/createMessage", SAMPLING, {"model": "scripted", "role": "assistant"}),
        ("roots/list", {}, {"roots": [{"uri": "file:///here"}]}),
    ],
)
async def test_server_receives_the_response_in_all_combinations(
    router: McpRouter, revision: str, server: str, method: str, params: Any, response: dict[str, Any]
) -> None:
    async with connect_responding_client(router, revision) as connected:
        arguments = {"method": method, "params": params}
        text = await call_text(connected, f"{server}___ask", arguments)
        through = await call_text(connected, "call_tool", {"name": f"{server}___ask", "arguments": arguments})
    for result in (text, through):
        received = json.loads(result)
        received = received if server == "old" else received[0]["q"]
        assert response.items() <= received.items()


@pytest.mark.parametrize("revision", ["legacy", STATELESS])
async def test_client_without_the_capability_is_not_asked(router: McpRouter, revision: str) -> None:
    async with connect_client(router, revision) as connected:
        arguments = {"method": "elicitation/create", "params": FORM}
        assert "does not support elicitation/create" in await call_text(connected, "old___ask", arguments)


async def test_other_requests_of_a_server_are_refused(router: McpRouter) -> None:
    async with connect_responding_client(router, "legacy") as connected:
        text = await call_text(connected, "old___ask", {"method": "resources/list", "params": {}})
    assert "does not support resources/list" in text


async def call_ask(connected: Client, **more: Any) -> dict[str, Any]:
    params = {"name": "old___ask", "arguments": {"method": "roots/list"}, **more}
    data: dict[str, Any] = {"method": "tools/call", "params": params}
    opts: Any = {}
    connected.session._stamp(data, opts)
    return await connected.session._dispatcher.send_raw_request("tools/call", data["params"], opts)


async def test_input_is_accepted_once_and_only_for_its_call(router: McpRouter) -> None:
    async with connect_responding_client(router, STATELESS) as connected:
        first = await call_ask(connected)
        assert first["resultType"] == "input_required"
        assert first["inputRequests"] == {"1": {"method": "roots/list"}}
        state = first["requestState"]
        responses: dict[str, Any] = {"1": {"roots": []}}
        done = await call_ask(connected, requestState=state, inputResponses=responses)
        assert done["resultType"] == "complete"
        # A used token is refused, because another call could repeat its effect.
        with pytest.raises(MCPError, match="no longer waits for this input"):
            await call_ask(connected, requestState=state, inputResponses=responses)
        again = await call_ask(connected)
        assert again["resultType"] == "input_required"
        with pytest.raises(MCPError, match="lacks the input"):
            await call_ask(connected, requestState=again["requestState"], inputResponses={})
    await wait_until(lambda: router.pool.servers["old"].state == "started")


async def test_unanswered_request_times_out(router: McpRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = router.pool.servers["old"]
    monkeypatch.setattr(upstream, "config", plain_server("old", given={"answer_seconds": 0.3}))
    async with connect_responding_client(router, STATELESS) as connected:
        first = await call_ask(connected)
        assert first["resultType"] == "input_required"
        await wait_until(lambda: not router.bridge.pending_count)
        assert upstream.state == "started"


async def test_client_can_decline(router: McpRouter) -> None:
    async def elicit(ctx: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    for revision in ("legacy", STATELESS):
        async with connect_client(router, revision, elicitation_callback=elicit) as connected:
            for server in ("old", "new"):
                arguments = {"method": "elicitation/create", "params": FORM}
                assert "decline" in await call_text(connected, f"{server}___ask", arguments)


async def test_late_input_is_not_used_for_the_next_request(router: McpRouter) -> None:
    """The server gives up on a request and sends another; then input for the first arrives."""
    call = PendingInputCall(cast(Any, SimpleNamespace(key=1)), (None, "old", "tools/call", "ask"))
    try:
        with anyio.move_on_after(0.05):
            await call.send_request("roots/list", None)
        first = await call.next_outcome()
        async with anyio.create_task_group() as tasks:
            responses: list[Any] = []

            async def send_second() -> None:
                responses.append(await call.send_request("roots/list", {"second": True}))

            tasks.start_soon(send_second)
            second = await call.next_outcome()
            assert isinstance(first, tuple)
            assert isinstance(second, tuple)
            for number, response in ((first[0], {"to": 1}), (second[0], {"to": 2})):
                call.open_request = number
                call.submit_input(call.client, response)
        assert responses == [{"to": 2}]
        for _ in range(MAX_INPUT_REQUESTS):
            with anyio.move_on_after(0.02), suppress(MCPError):
                await call.send_request("roots/list", None)
        with pytest.raises(MCPError, match="at most 10 requests"):
            await call.send_request("roots/list", None)
        # The final result fits, however many requests the server has sent.
        call.finish({})
    finally:
        call.close()


async def test_background_failure_is_logged_and_does_not_stop_the_gateway(
    router: McpRouter, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise RuntimeError("of no importance")

    router.pool.run_in_background(fail)
    await wait_until(lambda: "a background task failed" in caplog.text)
    async with connect_client(router) as connected:
        assert await call_text(connected, "old___echo", {"text": "on"}) == "on"
