"""A Haystack agent, over the real HTTP API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

pytest.importorskip("haystack", reason="haystack-ai is not installed; run ./scripts/test-framework haystack")

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.core.serialization import allow_deserialization_module
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from examples import with_haystack
from tests.frameworks.script import REFUND, SEARCH, build_lexical_engine, found_names, search_call, weather_call
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import Turn
from toolcrib.demo import office
from toolcrib.frameworks.haystack import ToolcribSearchableToolset
from toolcrib.session.disclosure import Activation, Disclosure

EXECUTE = "execute_dynamic_tool"
FEW = Disclosure(Activation(tools=1_000))

TOOLS = [create_tool_from_function(function) for function in office.tools()]


def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


def _run(turns: Iterable[Turn], build: Any = None, **options: Any) -> tuple[str, Sequence[Request]]:
    def build_agent(generator: Any) -> Agent:
        toolset = ToolcribSearchableToolset(TOOLS, engine=build_lexical_engine, **options)
        return Agent(chat_generator=generator, tools=toolset)

    with ScriptedModel(turns) as model:
        generator = OpenAIChatGenerator(
            api_key=Secret.from_token("any"), model="scripted", api_base_url=f"{model.url}/v1", max_retries=0
        )
        result = (build or build_agent)(generator).run([ChatMessage.from_user(office.TASK)])
        return result["last_message"].text, model.requests


def test_example_finds_and_calls_its_tool() -> None:
    turns = [Turn(search_call("weather in a city", limit=1)), Turn(weather_call("Rome")), Turn("It is sunny.")]
    text, requests = _run(turns, with_haystack.agent)
    assert text == "It is sunny."
    assert [request.tool_names for request in requests] == [(SEARCH,), (SEARCH, "get_weather"), (SEARCH, "get_weather")]
    assert requests[2].results == ("sunny in Rome",)


def test_runs_do_not_share_what_they_found() -> None:
    toolset = ToolcribSearchableToolset(TOOLS, engine=build_lexical_engine)
    for _ in range(2):
        _, requests = _run(
            [Turn(search_call("weather forecast", limit=1)), Turn("Done.")],
            lambda generator: Agent(chat_generator=generator, tools=toolset),
        )
        assert requests[0].tool_names == (SEARCH,)
        assert found_names(requests[1]) == ["get_weather"]


def test_searches_of_one_step_are_all_kept() -> None:
    searches = [search_call("weather forecast", limit=1), search_call("refund a charge", limit=1)]
    _, requests = _run([Turn(*searches), Turn("Done.")])
    assert set(requests[1].tool_names) == {SEARCH, "get_weather", "refund_charge"}


def test_tools_that_are_not_allowed_or_selected_are_not_found() -> None:
    _, requests = _run([Turn(search_call("refund a charge")), Turn("No.")], allowed={"get_weather"})
    assert REFUND.name not in requests[1].results[0]
    spawned = ToolcribSearchableToolset(TOOLS, disclosure=FEW).spawn({"get_weather"})
    assert [tool.name for tool in spawned] == [weather_call("Rome").name]


def test_few_tools_are_listed_directly_and_the_catalog_can_be_stored() -> None:
    toolset = ToolcribSearchableToolset([create_tool_from_function(greet)])
    assert [tool.name for tool in toolset] == ["greet"]
    allow_deserialization_module(__name__)
    restored = ToolcribSearchableToolset.from_dict(toolset.to_dict())
    assert [tool.name for tool in restored] == ["greet"]
    restored.clear()
    assert "greet" in restored
