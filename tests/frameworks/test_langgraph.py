"""LangGraph's agent, over the real HTTP API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

from typing import Annotated

from langchain_core.tools import InjectedToolCallId, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState
from langgraph.pregel import Pregel

from examples import with_langgraph
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
from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.core.rights import allow_all
from toolcrib.demo import office
from toolcrib.frameworks.langgraph import create_agent

ASKED: Any = {"messages": [("user", office.TASK)]}


def _llm(model: ScriptedModel) -> ChatOpenAI:
    return ChatOpenAI(model="scripted", base_url=f"{model.url}/v1", api_key="any", max_retries=0)


def _thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def test_example_finds_its_tool_and_isolates_threads() -> None:
    with ScriptedModel([*TURNS, Turn("Again."), Turn("New.")]) as model:
        agent = with_langgraph.agent(_llm(model))
        texts = agent.invoke(ASKED, _thread("1"))
        assert texts["messages"][-1].content == "It is sunny."
        assert_conversation(model.requests)
        agent.invoke(ASKED, _thread("1"))
        agent.invoke(ASKED, _thread("2"))
        assert model.requests[3].tool_names == (SEARCH, "get_weather", "refund_charge")
        assert model.requests[4].tool_names == (SEARCH,)


def test_thread_continues_with_a_new_agent() -> None:
    remaining = InMemorySaver()
    with ScriptedModel([Turn(search_call("weather", limit=1)), Turn("Yes?"), Turn("Again.")]) as model:
        for _ in range(2):
            graph = create_agent(_llm(model), office.tools(), engine=build_lexical_engine)
            graph.compile(checkpointer=remaining).invoke(ASKED, _thread("1"))
        assert model.requests[2].tool_names == (SEARCH, "get_weather")


def test_example_works_in_an_event_loop() -> None:
    with ScriptedModel([*TURNS]) as model:
        agent = create_agent(_llm(model), office.tools(), engine=build_lexical_engine).compile()
        texts = asyncio.run(agent.ainvoke(ASKED))
        assert texts["messages"][-1].content == "It is sunny."
        assert_conversation(model.requests)


def test_result_of_a_call_notes_evicted_tools() -> None:
    for invoke in (Pregel.invoke, lambda *state_tools: asyncio.run(Pregel.ainvoke(*state_tools))):
        with ScriptedModel(TIGHT_TURNS) as model:
            graph = create_agent(_llm(model), office.tools(), engine=build_lexical_engine, budget=SMALL_BUDGET)
            invoke(graph.compile(), ASKED)
            assert_eviction_is_noted(model.requests)


def test_rights_depend_on_the_run() -> None:
    def select_rights(runtime: Any) -> Any:
        return allow_all if runtime.context == "chief" else lambda tool: tool.name != "refund_charge"

    with ScriptedModel([Turn(search_call("refund")), Turn(REFUND), Turn("Hi.")] * 2) as model:
        agent = create_agent(_llm(model), office.tools(), allowed=select_rights, engine=build_lexical_engine).compile()
        for user in ("chief", "clerk"):
            agent.invoke(ASKED, context=user)
        requests = model.requests
    assert "refund_charge" in found_names(requests[1])
    assert "refunded" in requests[2].results[0]
    assert "refund_charge" not in found_names(requests[4])
    assert 'There is no tool "refund_charge"' in requests[5].results[0]


def test_tool_receives_injected_state() -> None:
    @tool
    def count_messages(
        state: Annotated[dict[str, Any], InjectedState], call: Annotated[str, InjectedToolCallId]
    ) -> str:
        """Count the messages so far."""
        return f"{len(state['messages'])} messages in {call}"

    tools = [count_messages, *office.tools()]
    with ScriptedModel([Turn(ToolCall("count_messages", {}, "c1")), Turn("Hi.")]) as model:
        create_agent(_llm(model), tools, engine=build_lexical_engine).compile().invoke(ASKED)
        assert model.requests[1].results == ("2 messages in c1",)
