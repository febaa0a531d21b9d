"""An agent of the Microsoft Agent Framework, over the real HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest

pytest.importorskip(
    "agent_framework_openai",
    reason="agent-framework-openai is not installed; run ./scripts/test-framework agent-framework",
)

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

from examples import with_agent_framework
from tests.frameworks.script import REFUND, SEARCH, build_lexical_engine, found_names, search_call, weather_call
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import Turn
from toolcrib.demo import office
from toolcrib.frameworks.agent_framework import ToolcribProvider
from toolcrib.session.disclosure import Activation, Disclosure

EXECUTE = "execute_dynamic_tool"
FEW = Disclosure(Activation(tools=1_000))

pytestmark = pytest.mark.filterwarnings("ignore:.*PROGRESSIVE_TOOLS.*")


def _with_client(turns: Iterable[Turn], act: Callable[[Any], Awaitable[Any]]) -> tuple[Any, Sequence[Request]]:
    with ScriptedModel(turns) as model:

        async def main() -> Any:
            client = OpenAIChatCompletionClient(model="scripted", api_key="any", base_url=f"{model.url}/v1")
            try:
                return await act(client)
            finally:
                await client.client.close()

        return asyncio.run(main()), model.requests


def _agent(client: Any, **options: Any) -> Agent:
    provider = ToolcribProvider(office.tools(), engine=build_lexical_engine, **options)
    return Agent(client=client, context_providers=[provider])


def test_example_finds_and_calls_its_tool() -> None:
    turns = [Turn(search_call("weather in a city", limit=1)), Turn(weather_call("Rome")), Turn("It is sunny.")]

    async def act(client: Any) -> str:
        return (await with_agent_framework.agent(client).run(office.TASK)).text

    text, requests = _with_client(turns, act)
    assert text == "It is sunny."
    assert [request.tool_names for request in requests] == [(SEARCH,), (SEARCH, "get_weather"), (SEARCH, "get_weather")]
    assert requests[2].results == ("sunny in Rome",)


def test_found_tools_are_kept_in_the_session_only() -> None:
    async def act(client: Any) -> None:
        agent = _agent(client)
        session = agent.create_session()
        for message in ("one", "two"):
            await agent.run(message, session=session)
        await agent.run("three", session=agent.create_session())

    turns = [Turn(search_call("weather forecast", limit=1)), Turn("a"), Turn("b"), Turn("c")]
    _, requests = _with_client(turns, act)
    assert found_names(requests[1]) == ["get_weather"]
    assert requests[2].tool_names == (SEARCH, "get_weather")
    assert requests[3].tool_names == (SEARCH,)


def test_tools_that_are_not_allowed_are_not_found() -> None:
    async def allowed(session: Any) -> set[str]:
        return {"get_weather"}

    async def act(client: Any) -> None:
        await _agent(client, allowed=allowed).run(office.TASK)

    _, requests = _with_client([Turn(search_call("refund a charge")), Turn("No.")], act)
    assert REFUND.name not in requests[1].results[0]


def test_few_tools_are_sent_directly() -> None:
    async def act(client: Any) -> None:
        await _agent(client, disclosure=FEW).run(office.TASK)

    _, requests = _with_client([Turn("Hello.")], act)
    assert requests[0].tool_names == tuple(function.__name__ for function in office.tools())
