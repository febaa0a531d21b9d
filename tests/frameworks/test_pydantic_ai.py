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

from examples import with_pydantic_ai
from tests.frameworks.script import (
    REFUND,
    SEARCH,
    SMALL_BUDGET,
    TIGHT_TURNS,
    TURNS,
    assert_conversation,
    assert_eviction_is_noted,
    build_lexical_engine,
    found_names,
    search_call,
)
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.core.rights import allow_all
from toolcrib.demo import office
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


def _without_announcements(request: Request) -> Request:
    """Return a request without Pydantic AI's own messages about new tools."""
    remaining = [item for item in request.body["messages"] if item["role"] != "system"]
    return replace(request, body={**request.body, "messages": remaining})


def _run(turns: Iterable[Turn], tools: Sequence[Any] = (), deps: Any = None, **options: Any) -> Sequence[Request]:
    async def act(llm: Any) -> None:
        capability = ToolcribCapability(engine=build_lexical_engine, **options)
        agent = Agent(llm, tools=tools or office.tools(), capabilities=[capability])
        await agent.run(office.TASK, deps=deps)

    with ScriptedModel(turns) as model:
        asyncio.run(_with_openai(model.url, act))
        return [*map(_without_announcements, model.requests)]


@pytest.mark.parametrize("provider", [_with_openai, _with_anthropic])
def test_example_finds_its_tool_and_keeps_it(provider: Any) -> None:
    async def act(llm: Any) -> None:
        agent = with_pydantic_ai.agent(llm)
        first = await agent.run(office.TASK)
        assert first.output == "It is sunny."
        await agent.run("And in Paris?", message_history=first.all_messages())
        await agent.run("And in Paris?")

    with ScriptedModel([*TURNS, Turn("Again."), Turn("New.")]) as model:
        asyncio.run(provider(model.url, act))
        requests = [item if item.wire.name == "anthropic" else _without_announcements(item) for item in model.requests]
        assert_conversation(requests, field_error="Field required")
        assert model.requests[3].tool_names == (SEARCH, "get_weather", "refund_charge")
        assert model.requests[4].tool_names == (SEARCH,)


def test_example_works_with_streaming() -> None:
    async def act(llm: Any) -> str:
        capability = ToolcribCapability(engine=build_lexical_engine)
        agent = Agent(llm, tools=office.tools(), capabilities=[capability])
        async with agent.run_stream(office.TASK) as reply:
            texts: str = await reply.get_output()
            return texts

    with ScriptedModel([*TURNS]) as model:
        assert asyncio.run(_with_openai(model.url, act)) == "It is sunny."
        expected = [*map(_without_announcements, model.requests)]
        assert_conversation(expected, field_error="Field required")


def test_concurrent_runs_are_isolated() -> None:
    def script(request: Request) -> Turn:
        if request.results:
            return Turn("Done.")
        return Turn(search_call(request.user_text, limit=1))

    async def act(llm: Any) -> None:
        capability = ToolcribCapability(engine=build_lexical_engine)
        agent = Agent(llm, tools=office.tools(), capabilities=[capability])
        await asyncio.gather(*(agent.run(prompts_seen) for prompts_seen in ("weather", "refund a charge")))

    with ScriptedModel(script) as model:
        asyncio.run(_with_openai(model.url, act))
        visible = {request.user_text: request.tool_names for request in model.requests if request.results}
    assert visible == {"weather": (SEARCH, "get_weather"), "refund a charge": (SEARCH, "refund_charge")}


def test_forbidden_tool_is_neither_found_nor_run_nor_named() -> None:
    def select_rights(ctx: Any) -> Any:
        return allow_all if ctx.deps == "chief" else lambda tool: tool.name != "refund_charge"

    turns = [Turn(search_call("refund a charge")), Turn(REFUND), Turn("No.")]
    requests = _run(turns, deps="clerk", allowed=select_rights)
    assert "refund_charge" not in found_names(requests[1])
    assert 'There is no tool "refund_charge"' in requests[2].results[0]
    requests = _run(turns, deps="chief", allowed=select_rights)
    assert found_names(requests[1]) == ["refund_charge"]
    assert "refunded" in requests[2].results[0]


def test_async_rights_are_awaited() -> None:
    async def may_use(tool: Any) -> bool:
        return bool(tool.name != "refund_charge")

    async def select_rights(ctx: Any) -> Any:
        return may_use

    turns = [Turn(search_call("refund a charge")), Turn(REFUND), Turn("No.")]
    requests = _run(turns, allowed=select_rights)
    assert "refund_charge" not in found_names(requests[1])
    assert 'There is no tool "refund_charge"' in requests[2].results[0]


def test_result_of_a_call_notes_evicted_tools() -> None:
    assert_eviction_is_noted(_run(TIGHT_TURNS, budget=SMALL_BUDGET))


def test_each_call_of_a_turn_notes_its_evicted_tools() -> None:
    turns = [Turn(search_call("weather forecast", limit=1), REFUND), Turn("Done.")]
    requests = _run(turns, budget=SMALL_BUDGET)
    assert requests[1].tool_names == (SEARCH, "refund_charge")
    assert ["put away" in result for result in requests[1].results] == [False, True]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ({"sheep": 7}, ['tool: {"sheep":7}', "user: To make room"]),
        (ToolReturn("Seven."), ["tool: Seven.\n\nTo make room"]),
        (ToolReturn([7], content="As ever."), ["tool: [7]", "user: As ever.", "user: To make room"]),
    ],
)
def test_note_is_extra_content_for_non_text_results(returned: Any, expected: list[str]) -> None:
    def count_sheep() -> Any:
        """Count sheep."""
        return returned

    turns = [Turn(search_call("weather", limit=1)), Turn(ToolCall("count_sheep", {})), Turn("Done.")]
    requests = _run(turns, [*office.tools(), count_sheep], budget=SMALL_BUDGET)
    messages = requests[2].body["messages"]
    after = next(at for at, item in enumerate(messages) if "count_sheep" in str(item)) + 1
    texts = [f"{item['role']}: {text}" for item in messages[after:] for text in _texts(item)]
    assert len(texts) == len(expected)
    assert all(item.startswith(start) for item, start in zip(texts, expected, strict=True)), texts


def _texts(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def test_no_match_answers_with_text() -> None:
    requests = _run([Turn(search_call("quantum knitting")), Turn("No.")])
    assert "No tool" in requests[1].results[0]
    assert requests[1].tool_names == (SEARCH,)


def test_few_tools_are_all_visible_except_explicitly_deferred_ones() -> None:
    requests = _run([Turn("Hi.")], office.tools()[:3])
    assert requests[0].tool_names == ("get_weather", "send_email", "refund_charge")

    deferred = Tool(office.refund_charge, defer_loading=True)
    tools = [*office.tools()[:2], deferred]
    requests = _run([Turn(search_call("refund")), Turn("Hi.")], tools)
    assert requests[0].tool_names == (SEARCH, "get_weather", "send_email")
    assert requests[1].tool_names == (SEARCH, "get_weather", "send_email", "refund_charge")


def test_structured_output_works() -> None:
    async def act(llm: Any) -> Any:
        capability = ToolcribCapability(engine=build_lexical_engine)
        agent = Agent(llm, tools=office.tools(), capabilities=[capability], output_type=Forecast)
        return (await agent.run(office.TASK)).output

    turns = [Turn(search_call("weather", limit=1)), Turn(ToolCall("final_result", {"city": "Rome"}))]
    with ScriptedModel(turns) as model:
        assert asyncio.run(_with_openai(model.url, act)) == Forecast(city="Rome")
        assert set(model.requests[1].tool_names) == {SEARCH, "get_weather", "final_result"}


def test_stubs_have_no_parameters() -> None:
    turns = [Turn(search_call("weather", limit=1)), Turn("Hi.")]
    requests = _run(turns, disclosure=Disclosure(tier="stub"))
    assert len(requests[1].tool_names) == len(office.tools()) + 1
    parameters = {item["function"]["name"]: item["function"]["parameters"] for item in requests[1].body["tools"]}
    assert "city" in parameters["get_weather"]["properties"]
    assert not parameters["send_email"].get("properties")


def test_tools_loaded_by_a_capability_are_left_alone() -> None:
    async def act(llm: Any) -> None:
        later = Capability(
            id="accounts", description="Accounts of users.", tools=[Tool(_close_account)], defer_loading=True
        )
        capabilities = [ToolcribCapability(engine=build_lexical_engine), later]
        agent = Agent(llm, tools=office.tools(), capabilities=capabilities)
        await agent.run(office.TASK)

    turns = [Turn(ToolCall(FALLBACK_SEARCH_NAME, {"query": "close account"})), Turn("Hi.")]
    with ScriptedModel(turns) as model:
        asyncio.run(_with_openai(model.url, act))
        assert "load_capability" in model.requests[0].tool_names
        assert FALLBACK_SEARCH_NAME in model.requests[0].tool_names
        assert "_close_account" not in found_names(_without_announcements(model.requests[1]))


def _close_account(user: str) -> str:
    """Close the account of a user."""
    return "closed"
