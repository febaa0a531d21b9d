"""Pydantic AI's agent, over the real HTTP APIs of two providers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")

from pydantic import BaseModel
from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import Capability
from pydantic_ai.messages import ToolReturn
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from examples import office, with_pydantic_ai
from tests.frameworks.script import (
    REFUND,
    SEARCH,
    SMALL_BUDGET,
    TIGHT_TURNS,
    TURNS,
    assert_as_told,
    assert_told_what_was_put_away,
    found,
    search,
    words,
)
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.frameworks.pydantic_ai import FALLBACK_SEARCH_NAME, ToolcribCapability
from toolcrib.session.disclosure import Disclosure


class Forecast(BaseModel):
    """What the weather will be."""

    city: str


async def _with_openai(url: str, act: Callable[[Any], Awaitable[Any]]) -> Any:
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="any")
    async with provider.client:
        return await act(OpenAIChatModel("scripted", provider=provider))


async def _with_anthropic(url: str, act: Callable[[Any], Awaitable[Any]]) -> Any:
    provider = AnthropicProvider(base_url=url, api_key="any")
    async with provider.client:
        return await act(AnthropicModel("scripted", provider=provider))


def _unannounced(request: Request) -> Request:
    """A request without what Pydantic AI itself says to the model about tools that are new."""
    kept = [one for one in request.body["messages"] if one["role"] != "system"]
    return replace(request, body={**request.body, "messages": kept})


def _run(
    turns: Iterable[Turn], tools: Sequence[Any] = (), deps: Any = None, **options: Any
) -> Sequence[Request]:
    async def act(llm: Any) -> None:
        capability = ToolcribCapability(engine=words, **options)
        agent = Agent(llm, tools=tools or office.tools(), capabilities=[capability])
        await agent.run(office.TASK, deps=deps)

    with ScriptedModel(turns) as model:
        asyncio.run(_with_openai(model.url, act))
        return [*map(_unannounced, model.requests)]


@pytest.mark.parametrize("provider", [_with_openai, _with_anthropic])
def test_the_example_finds_its_tool_and_goes_on_with_it(provider: Any) -> None:
    async def act(llm: Any) -> None:
        agent = with_pydantic_ai.agent(llm)
        first = await agent.run(office.TASK)
        assert first.output == "It is sunny."
        await agent.run("And in Paris?", message_history=first.all_messages())
        await agent.run("And in Paris?")

    with ScriptedModel([*TURNS, Turn("Again."), Turn("New.")]) as model:
        asyncio.run(provider(model.url, act))
        requests = [
            one if one.wire.name == "anthropic" else _unannounced(one) for one in model.requests
        ]
        assert_as_told(requests, says_field="Field required")
        assert model.requests[3].tool_names == (SEARCH, "get_weather", "refund_charge")
        assert model.requests[4].tool_names == (SEARCH,)


def test_the_same_streamed() -> None:
    async def act(llm: Any) -> str:
        capability = ToolcribCapability(engine=words)
        agent = Agent(llm, tools=office.tools(), capabilities=[capability])
        async with agent.run_stream(office.TASK) as reply:
            said: str = await reply.get_output()
            return said

    with ScriptedModel([*TURNS]) as model:
        assert asyncio.run(_with_openai(model.url, act)) == "It is sunny."
        told = [*map(_unannounced, model.requests)]
        assert_as_told(told, says_field="Field required")


def test_runs_at_the_same_time_do_not_know_of_each_other() -> None:
    def script(request: Request) -> Turn:
        if request.results:
            return Turn("Done.")
        return Turn(search(request.user_text, limit=1))

    async def act(llm: Any) -> None:
        capability = ToolcribCapability(engine=words)
        agent = Agent(llm, tools=office.tools(), capabilities=[capability])
        await asyncio.gather(*(agent.run(asked) for asked in ("weather", "refund a charge")))

    with ScriptedModel(script) as model:
        asyncio.run(_with_openai(model.url, act))
        shown = {
            request.user_text: request.tool_names for request in model.requests if request.results
        }
    assert shown == {
        "weather": (SEARCH, "get_weather"),
        "refund a charge": (SEARCH, "refund_charge"),
    }


def test_a_tool_that_is_not_allowed_is_neither_found_nor_run_nor_named() -> None:
    def allowed(ctx: Any) -> Any:
        return None if ctx.deps == "chief" else lambda tool: tool.name != "refund_charge"

    turns = [Turn(search("refund a charge")), Turn(REFUND), Turn("No.")]
    requests = _run(turns, deps="clerk", allowed=allowed)
    assert "refund_charge" not in found(requests[1])
    assert 'There is no tool "refund_charge"' in requests[2].results[0]
    requests = _run(turns, deps="chief", allowed=allowed)
    assert found(requests[1]) == ["refund_charge"]
    assert "refunded" in requests[2].results[0]


def test_the_model_is_told_what_a_call_has_put_away() -> None:
    assert_told_what_was_put_away(_run(TIGHT_TURNS, budget=SMALL_BUDGET))


def test_the_calls_of_one_turn_tell_each_what_they_have_put_away() -> None:
    turns = [Turn(search("weather forecast", limit=1), REFUND), Turn("Done.")]
    requests = _run(turns, budget=SMALL_BUDGET)
    assert requests[1].tool_names == (SEARCH, "refund_charge")
    assert ["put away" in result for result in requests[1].results] == [False, True]


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ({"sheep": 7}, ['tool: {"sheep":7}', "user: To make room"]),
        (ToolReturn("Seven."), ["tool: Seven.\n\nTo make room"]),
        (
            ToolReturn([7], content="As ever."),
            ["tool: [7]", "user: As ever.", "user: To make room"],
        ),
    ],
)
def test_beside_a_result_that_is_no_text_it_is_told_as_pydantic_ai_can(
    returned: Any, told: list[str]
) -> None:
    def count_sheep() -> Any:
        """Count sheep."""
        return returned

    turns = [Turn(search("weather", limit=1)), Turn(ToolCall("count_sheep", {})), Turn("Done.")]
    requests = _run(turns, [*office.tools(), count_sheep], budget=SMALL_BUDGET)
    messages = requests[2].body["messages"]
    after = next(at for at, one in enumerate(messages) if "count_sheep" in str(one)) + 1
    said = [f"{one['role']}: {text}" for one in messages[after:] for text in _texts(one)]
    assert len(said) == len(told)
    assert all(one.startswith(start) for one, start in zip(said, told, strict=True)), said


def _texts(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def test_nothing_found_is_said_plainly() -> None:
    requests = _run([Turn(search("quantum knitting")), Turn("No.")])
    assert "No tool" in requests[1].results[0]
    assert requests[1].tool_names == (SEARCH,)


def test_few_tools_are_all_shown_and_one_that_is_to_be_deferred_is_not() -> None:
    requests = _run([Turn("Hi.")], office.tools()[:3])
    assert requests[0].tool_names == ("get_weather", "send_email", "refund_charge")

    deferred = Tool(office.refund_charge, defer_loading=True)
    tools = [*office.tools()[:2], deferred]
    requests = _run([Turn(search("refund")), Turn("Hi.")], tools)
    assert requests[0].tool_names == (SEARCH, "get_weather", "send_email")
    assert requests[1].tool_names == (SEARCH, "get_weather", "send_email", "refund_charge")


def test_structured_output_is_left_to_pydantic_ai() -> None:
    async def act(llm: Any) -> Any:
        capability = ToolcribCapability(engine=words)
        agent = Agent(llm, tools=office.tools(), capabilities=[capability], output_type=Forecast)
        return (await agent.run(office.TASK)).output

    turns = [Turn(search("weather", limit=1)), Turn(ToolCall("final_result", {"city": "Rome"}))]
    with ScriptedModel(turns) as model:
        assert asyncio.run(_with_openai(model.url, act)) == Forecast(city="Rome")
        assert set(model.requests[1].tool_names) == {SEARCH, "get_weather", "final_result"}


def test_stubs_have_no_parameters() -> None:
    turns = [Turn(search("weather", limit=1)), Turn("Hi.")]
    requests = _run(turns, disclosure=Disclosure(tier="stub"))
    assert len(requests[1].tool_names) == len(office.tools()) + 1
    parameters = {
        one["function"]["name"]: one["function"]["parameters"] for one in requests[1].body["tools"]
    }
    assert "city" in parameters["get_weather"]["properties"]
    assert not parameters["send_email"].get("properties")


def test_tools_that_wait_for_a_capability_are_left_to_it() -> None:
    async def act(llm: Any) -> None:
        later = Capability(
            id="accounts",
            description="Accounts of users.",
            tools=[Tool(_close_account)],
            defer_loading=True,
        )
        capabilities = [ToolcribCapability(engine=words), later]
        agent = Agent(llm, tools=office.tools(), capabilities=capabilities)
        await agent.run(office.TASK)

    turns = [Turn(ToolCall(FALLBACK_SEARCH_NAME, {"query": "close account"})), Turn("Hi.")]
    with ScriptedModel(turns) as model:
        asyncio.run(_with_openai(model.url, act))
        assert "load_capability" in model.requests[0].tool_names
        assert FALLBACK_SEARCH_NAME in model.requests[0].tool_names
        assert "_close_account" not in found(_unannounced(model.requests[1]))


def _close_account(user: str) -> str:
    """Close the account of a user."""
    return "closed"
