"""An agent of Google ADK, over the real HTTP API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed; run ./scripts/test-framework google-adk")

from google.adk.agents import Agent
from google.adk.models.google_llm import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from examples import with_google_adk
from tests.frameworks.script import REFUND, SEARCH, build_lexical_engine, found_names, search_call, weather_call
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import Turn
from toolcrib.demo import office
from toolcrib.frameworks.google_adk import ToolcribToolset
from toolcrib.session.disclosure import Activation, Disclosure

EXECUTE = "execute_dynamic_tool"
FEW = Disclosure(Activation(tools=1_000))


async def _run_agent(agent: Agent, messages: Sequence[str]) -> str:
    runner = InMemoryRunner(agent=agent)
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="user")
    text = ""
    for message in messages:
        content = types.Content(role="user", parts=[types.Part(text=message)])
        async for event in runner.run_async(user_id="user", session_id=session.id, new_message=content):
            text = "".join(part.text or "" for part in (event.content.parts or [])) if event.content else text
    return text


def _run(
    turns: Iterable[Turn], build: Any = None, messages: Sequence[str] = (office.TASK,), **options: Any
) -> tuple[str, Sequence[Request]]:
    def build_agent(llm: Gemini) -> Agent:
        toolset = ToolcribToolset(office.tools(), engine=build_lexical_engine, **options)
        return Agent(name="office", model=llm, tools=[toolset])

    with ScriptedModel(turns) as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_API_KEY", "any")
        llm = Gemini(model="gemini-3-flash", base_url=model.url)
        return asyncio.run(_run_agent((build or build_agent)(llm), messages)), model.requests


def test_example_finds_and_calls_its_tool() -> None:
    turns = [Turn(search_call("weather in a city", limit=1)), Turn(weather_call("Rome")), Turn("It is sunny.")]
    text, requests = _run(turns, with_google_adk.agent)
    assert text == "It is sunny."
    assert [request.tool_names for request in requests] == [(SEARCH,), (SEARCH, "get_weather"), (SEARCH, "get_weather")]
    assert requests[2].results == ("sunny in Rome",)


def test_unrevealed_tool_can_be_called_and_found_tools_stay_in_the_session() -> None:
    turns = [Turn(search_call("weather forecast", limit=1)), Turn(REFUND), Turn("Done."), Turn("Again.")]
    _, requests = _run(turns, messages=[office.TASK, "And now?"])
    assert found_names(requests[1]) == ["get_weather"]
    assert "5 cents of c1 refunded" in requests[2].results[0]
    assert requests[2].tool_names == requests[3].tool_names == (SEARCH, "get_weather", "refund_charge")


def test_tools_that_are_not_allowed_are_not_found_or_declared() -> None:
    turns = [Turn(search_call("refund a charge")), Turn("No.")]
    _, requests = _run(turns, allowed=lambda context: {"get_weather"})
    assert "refund_charge" not in requests[1].results[0]
    _, requests = _run([Turn("No tools.")], allowed=lambda context: 1 / 0)
    assert requests[0].tool_names == ()


def test_few_tools_and_tools_of_toolsets_are_declared_directly() -> None:
    class Inner(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return [FunctionTool(office.tools()[0])]

    def build(llm: Gemini) -> Agent:
        return Agent(name="office", model=llm, tools=[ToolcribToolset([Inner()], disclosure=FEW)])

    _, requests = _run([Turn("Hello.")], build)
    assert requests[0].tool_names == (office.tools()[0].__name__,)


def test_stubs_are_declared_without_parameters() -> None:
    turns = [Turn(search_call("get_weather", limit=1)), Turn("Hm.")]
    _, requests = _run(turns, disclosure=Disclosure(tier="stub"))
    [declared] = requests[0].body["tools"]
    functions = {function["name"]: function for function in declared["functionDeclarations"]}
    assert len(functions) == len(office.tools()) + 1
    assert '"city"' not in json.dumps(functions["get_weather"])
    assert requests[1].tool_names[-1] == "get_weather"
