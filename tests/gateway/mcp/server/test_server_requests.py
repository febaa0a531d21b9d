"""What servers ask of clients while a call is under way, between the two eras on both sides."""

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
from toolcrib.gateway.mcp.server.server_requests import MAX_INPUT_REQUESTS, _PendingInputCall

pytestmark = pytest.mark.anyio

OLD = plain_server("old", ["ask", "echo"], given={"call_seconds": 20.0})
NEW = plain_server("new", ["ask", "echo"], STATELESS)
FORM = {
    "mode": "form",
    "message": "Which one?",
    "requestedSchema": {"type": "object", "properties": {"which": {"type": "string"}}},
}
SAMPLING = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Say a word."}}],
    "maxTokens": 10,
}


@pytest.fixture(scope="module")
async def front() -> AsyncIterator[McpRouter]:
    async with gateway(build_config(OLD, NEW)) as made:
        yield made


def asked(front: McpRouter, era: str) -> Client:
    """A client that answers all that a server may ask."""

    async def elicit(ctx: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"which": params.message})

    async def sample(ctx: Any, params: Any) -> types.CreateMessageResult:
        said = types.TextContent(text="word")
        return types.CreateMessageResult(role="assistant", content=said, model="scripted")

    async def roots(ctx: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///here")])  # type: ignore[arg-type]

    return connect_client(
        front,
        era,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
    )


@pytest.mark.parametrize("era", ["legacy", STATELESS])
@pytest.mark.parametrize("server", ["old", "new"])
@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        ("elicitation/create", FORM, {"action": "accept", "content": {"which": "Which one?"}}),
        ("sampling/createMessage", SAMPLING, {"model": "scripted", "role": "assistant"}),
        ("roots/list", {}, {"roots": [{"uri": "file:///here"}]}),
    ],
)
async def test_a_server_gets_its_answer_in_all_combinations(
    front: McpRouter, era: str, server: str, method: str, params: Any, answer: dict[str, Any]
) -> None:
    async with asked(front, era) as connected:
        given = {"method": method, "params": params}
        text = await call_text(connected, f"{server}___ask", given)
        through = await call_text(
            connected, "call_tool", {"name": f"{server}___ask", "arguments": given}
        )
    for said in (text, through):
        got = json.loads(said)
        got = got if server == "old" else got[0]["q"]
        assert answer.items() <= got.items()


@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_a_client_that_cannot_be_asked_is_not(front: McpRouter, era: str) -> None:
    async with connect_client(front, era) as connected:
        given = {"method": "elicitation/create", "params": FORM}
        assert "cannot do elicitation/create" in await call_text(connected, "old___ask", given)


async def test_a_server_cannot_ask_anything_else(front: McpRouter) -> None:
    async with asked(front, "legacy") as connected:
        text = await call_text(connected, "old___ask", {"method": "resources/list", "params": {}})
    assert "cannot do resources/list" in text


async def ask_raw(connected: Client, **more: Any) -> dict[str, Any]:
    params = {"name": "old___ask", "arguments": {"method": "roots/list"}, **more}
    data: dict[str, Any] = {"method": "tools/call", "params": params}
    opts: Any = {}
    connected.session._stamp(data, opts)
    return await connected.session._dispatcher.send_raw_request("tools/call", data["params"], opts)


async def test_a_question_can_be_answered_only_once_and_only_about_its_call(
    front: McpRouter,
) -> None:
    async with asked(front, STATELESS) as connected:
        first = await ask_raw(connected)
        assert first["resultType"] == "input_required"
        assert first["inputRequests"] == {"1": {"method": "roots/list"}}
        state = first["requestState"]
        responses: dict[str, Any] = {"1": {"roots": []}}
        done = await ask_raw(connected, requestState=state, inputResponses=responses)
        assert done["resultType"] == "complete"
        # The token is used up. To call anew would do a second time what was done.
        with pytest.raises(MCPError, match="no longer open"):
            await ask_raw(connected, requestState=state, inputResponses=responses)
        again = await ask_raw(connected)
        assert again["resultType"] == "input_required"
        with pytest.raises(MCPError, match="is missing"):
            await ask_raw(connected, requestState=again["requestState"], inputResponses={})
    await wait_until(lambda: front.pool.servers["old"].state == "started")


async def test_a_question_that_nobody_answers_is_forgotten(
    front: McpRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = front.pool.servers["old"]
    monkeypatch.setattr(upstream, "server", plain_server("old", given={"answer_seconds": 0.3}))
    async with asked(front, STATELESS) as connected:
        first = await ask_raw(connected)
        assert first["resultType"] == "input_required"
        await wait_until(lambda: not front._passthrough._bridge._pending)
        assert upstream.state == "started"


async def test_the_answer_may_come_from_the_client_that_says_no(front: McpRouter) -> None:
    async def elicit(ctx: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    for era in ("legacy", STATELESS):
        async with connect_client(front, era, elicitation_callback=elicit) as connected:
            for server in ("old", "new"):
                given = {"method": "elicitation/create", "params": FORM}
                assert "decline" in await call_text(connected, f"{server}___ask", given)


async def test_an_answer_that_comes_too_late_is_not_taken_for_another(front: McpRouter) -> None:
    """The server gives up on a question and asks the next; then the first is answered."""
    held = _PendingInputCall(cast(Any, SimpleNamespace(key=1)), (None, "old", "tools/call", "ask"))
    try:
        with anyio.move_on_after(0.05):
            await held.send_request("roots/list", None)
        first = await held.next_outcome()
        async with anyio.create_task_group() as tasks:
            answers: list[Any] = []

            async def ask() -> None:
                answers.append(await held.send_request("roots/list", {"second": True}))

            tasks.start_soon(ask)
            second = await held.next_outcome()
            assert isinstance(first, tuple)
            assert isinstance(second, tuple)
            for number, answer in ((first[0], {"to": 1}), (second[0], {"to": 2})):
                held.open_request = number
                held.submit_input(held.client, answer)
        assert answers == [{"to": 2}]
        for _ in range(MAX_INPUT_REQUESTS):
            with anyio.move_on_after(0.02), suppress(MCPError):
                await held.send_request("roots/list", None)
        with pytest.raises(MCPError, match="no more than 10 questions"):
            await held.send_request("roots/list", None)
        # There is room for the end of the call whatever the server asked.
        held.finish({})
    finally:
        held.close()


async def test_what_goes_wrong_in_the_background_ends_nothing_else(
    front: McpRouter, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise RuntimeError("of no importance")

    front.pool.run_in_background(fail)
    await wait_until(lambda: "background failed" in caplog.text)
    async with connect_client(front) as connected:
        assert await call_text(connected, "old___echo", {"text": "on"}) == "on"
