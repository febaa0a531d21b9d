"""A CrewAI agent, over the real HTTP API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

pytest.importorskip("crewai", reason="crewai is not installed; run ./scripts/test-framework crewai")

from crewai import LLM

from examples import with_crewai
from tests.frameworks.script import REFUND, SEARCH, build_lexical_engine, found_names, search_call
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.demo import office
from toolcrib.frameworks.crewai import build_search_tools
from toolcrib.session.disclosure import Activation, Disclosure

EXECUTE = "execute_dynamic_tool"
FEW = Disclosure(Activation(tools=1_000))


def _run(turns: Iterable[Turn]) -> tuple[str, Sequence[Request]]:
    with ScriptedModel(turns) as model:
        llm = LLM(model="openai/gpt-4o", base_url=f"{model.url}/v1", api_key="any")
        return str(with_crewai.agent(llm).kickoff(office.TASK)), model.requests


def test_example_finds_and_calls_its_tool() -> None:
    turns = [
        Turn(search_call("weather in a city", limit=1)),
        Turn(ToolCall(EXECUTE, {"tool_name": "get_weather", "tool_input": {"city": "Rome"}})),
        Turn("It is sunny."),
    ]
    text, requests = _run(turns)
    assert text == "It is sunny."
    assert {request.tool_names for request in requests} == {(SEARCH, EXECUTE)}
    assert found_names(requests[1]) == ["get_weather"]
    assert "sunny in Rome" in requests[2].results[0]


def test_errors_and_rights_are_those_of_the_library() -> None:
    always = Disclosure(Activation(tools=0))
    search, execute = build_search_tools(
        office.tools(), allowed={"get_weather"}, disclosure=always, engine=build_lexical_engine
    )
    assert REFUND.name not in search.run(query="refund a charge")
    assert "There is no tool" in execute.run(tool_name=REFUND.name, tool_input=dict(REFUND.arguments))
    assert "`city` is missing" in execute.run(tool_name="get_weather", tool_input={})


def test_few_tools_are_listed_directly() -> None:
    names = [tool.name for tool in build_search_tools(office.tools(), disclosure=FEW)]
    assert names == [function.__name__ for function in office.tools()]
