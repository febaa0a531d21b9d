"""A LlamaIndex agent, over the real HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

pytest.importorskip(
    "llama_index.llms.openai",
    reason="llama-index-llms-openai is not installed; run ./scripts/test-framework llama-index",
)

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.schema import QueryBundle
from llama_index.llms.openai import OpenAI

from examples import with_llama_index
from tests.frameworks.script import REFUND, SEARCH, build_lexical_engine, found_names, search_call, weather_call
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.demo import office
from toolcrib.frameworks.llama_index import ToolcribRetriever
from toolcrib.session.disclosure import Activation, Disclosure

EXECUTE = "execute_dynamic_tool"
FEW = Disclosure(Activation(tools=1_000))


def _run(turns: Iterable[Turn], build: Any = None, **options: Any) -> tuple[str, Sequence[Request]]:
    def build_agent(llm: Any) -> FunctionAgent:
        retriever = ToolcribRetriever(office.tools(), engine=build_lexical_engine, **options)
        return FunctionAgent(llm=llm, tool_retriever=retriever)

    async def act(llm: Any) -> str:
        return str(await (build or build_agent)(llm).run(office.TASK))

    with ScriptedModel(turns) as model:
        llm = OpenAI(model="gpt-4o", api_key="any", api_base=f"{model.url}/v1", max_retries=0)
        return asyncio.run(act(llm)), model.requests


def test_example_has_the_tool_for_the_message_at_once() -> None:
    text, requests = _run([Turn(weather_call("Rome")), Turn("It is sunny.")], with_llama_index.agent)
    assert text == "It is sunny."
    assert requests[0].tool_names[:3] == (SEARCH, EXECUTE, "get_weather")
    assert requests[1].results == ("sunny in Rome",)


def test_other_tools_are_found_and_called_through_the_two_tools() -> None:
    turns = [
        Turn(search_call("refund a charge", limit=1)),
        Turn(ToolCall(EXECUTE, {"tool_name": REFUND.name, "tool_input": dict(REFUND.arguments)})),
        Turn(ToolCall(EXECUTE, {"tool_name": "refnd", "tool_input": {}})),
        Turn("Done."),
    ]
    _, requests = _run(turns)
    assert found_names(requests[1]) == ["refund_charge"]
    assert requests[2].results == ("5 cents of c1 refunded",)
    assert "There is no tool" in requests[3].results[0]
    assert requests[0].tool_names == requests[3].tool_names


def test_tools_that_are_not_allowed_are_not_retrieved() -> None:
    retriever = ToolcribRetriever(office.tools(), allowed={"refund_charge"}, engine=build_lexical_engine)
    names = [tool.metadata.name for tool in retriever.retrieve(QueryBundle("weather in Rome"))]
    assert "get_weather" not in names


def test_few_tools_are_all_retrieved_and_calls_work_without_an_event_loop() -> None:
    retriever = ToolcribRetriever(office.tools(), disclosure=FEW)
    assert len(retriever.retrieve("anything")) == len(office.tools())
    search, *_ = ToolcribRetriever(office.tools(), engine=build_lexical_engine).retrieve("")
    assert "get_weather" in str(search(query="weather forecast"))
