"""LangChain's agent, over the real HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from examples import with_langchain
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
    weather_call,
)
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.demo import office
from toolcrib.errors import InvalidConfig
from toolcrib.frameworks.langchain import ToolcribMiddleware
from toolcrib.session.disclosure import Disclosure


class WeatherForecast(BaseModel):
    """What the weather will be."""

    city: str


TOOLS = [tool(function) for function in office.tools()]
ASKED = {"messages": [("user", office.TASK)]}


def _llm(model: ScriptedModel) -> ChatOpenAI:
    return ChatOpenAI(model="scripted", base_url=f"{model.url}/v1", api_key="any", max_retries=0)


def _thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def _run(
    turns: Iterable[Turn], tools: Sequence[Any] = TOOLS, others: Sequence[Any] = (), **options: Any
) -> Sequence[Request]:
    with ScriptedModel(turns) as model:
        middleware = [*others, ToolcribMiddleware(engine=build_lexical_engine, **options)]
        create_agent(_llm(model), tools, middleware=middleware).invoke(ASKED)
        return model.requests


def test_example_finds_its_tool_and_reports_errors() -> None:
    with ScriptedModel([*TURNS]) as model:
        agent = with_langchain.agent(_llm(model))
        texts = agent.invoke(ASKED)
        assert texts["messages"][-1].content == "It is sunny."
        assert "toolcrib" not in texts
        assert_conversation(model.requests)


def test_example_works_in_an_event_loop() -> None:
    with ScriptedModel([*TURNS]) as model:
        agent = create_agent(_llm(model), TOOLS, middleware=[ToolcribMiddleware(engine=build_lexical_engine)])
        texts = asyncio.run(agent.ainvoke(ASKED))
        assert texts["messages"][-1].content == "It is sunny."
        assert_conversation(model.requests)


def test_thread_keeps_revealed_tools_and_new_thread_starts_empty() -> None:
    turns = [Turn(search_call("weather", limit=1)), Turn("Yes?"), Turn("Again."), Turn("New.")]
    with ScriptedModel(turns) as model:
        agent = create_agent(
            _llm(model),
            TOOLS,
            middleware=[ToolcribMiddleware(engine=build_lexical_engine)],
            checkpointer=InMemorySaver(),
        )
        for thread in ("1", "1", "2"):
            agent.invoke(ASKED, _thread(thread))
        names = [request.tool_names for request in model.requests]
    assert names == [(SEARCH,), *[(SEARCH, "get_weather")] * 2, (SEARCH,)]


def test_forbidden_tool_is_neither_found_nor_run_nor_named() -> None:
    turns = [Turn(search_call("refund a charge")), Turn(REFUND), Turn("No.")]
    requests = _run(turns, allowed=lambda runtime: lambda tool: tool.name != "refund_charge")
    assert "refund_charge" not in found_names(requests[1])
    assert 'There is no tool "refund_charge"' in requests[2].results[0]
    assert "refunded" not in requests[2].results[0]


def test_tools_removed_by_other_middleware_are_not_found() -> None:
    @wrap_model_call
    def without_refunds(request: Any, handler: Any) -> Any:
        remaining = [item for item in request.tools if item.name != "refund_charge"]
        return handler(request.override(tools=remaining))

    turns = [Turn(search_call("refund a charge")), Turn(REFUND), Turn("No.")]
    requests = _run(turns, others=[without_refunds])
    assert "refund_charge" not in found_names(requests[1])
    assert 'There is no tool "refund_charge"' in requests[2].results[0]


def test_no_match_answers_with_text() -> None:
    requests = _run([Turn(search_call("quantum knitting")), Turn("No.")])
    assert "No tool" in requests[1].results[0]
    assert requests[1].tool_names == (SEARCH,)


def test_search_and_a_call_in_one_turn() -> None:
    requests = _run([Turn(search_call("refund", limit=1), weather_call("Rome")), Turn("Done.")])
    assert len(requests[1].results) == 2
    assert requests[1].tool_names == (SEARCH, "refund_charge", "get_weather")


def test_few_tools_are_all_visible_except_explicitly_deferred_ones() -> None:
    requests = _run([Turn("Hi.")], TOOLS[:3])
    assert requests[0].tool_names == ("get_weather", "send_email", "refund_charge")

    @tool(extras={"defer_loading": True})
    def close_account(user: str) -> str:
        """Close the account of a user."""
        return "closed"

    requests = _run([Turn(search_call("close account")), Turn("Hi.")], [*TOOLS[:2], close_account])
    assert requests[0].tool_names == (SEARCH, "get_weather", "send_email")
    assert requests[1].tool_names[-1] == "close_account"


def test_stubs_have_no_parameters_and_hosted_tools_are_kept() -> None:
    hosted = {"type": "function", "function": {"name": "theirs", "parameters": {}}}
    turns = [Turn(search_call("weather", limit=1)), Turn("Hi.")]
    requests = _run(turns, [hosted, *TOOLS], disclosure=Disclosure(tier="stub"))
    assert requests[0].tool_names[:2] == ("theirs", SEARCH)
    assert len(requests[0].tool_names) == len(TOOLS) + 2
    parameters = {item["function"]["name"]: item["function"]["parameters"] for item in requests[1].body["tools"]}
    assert "city" in parameters["get_weather"]["properties"]
    assert not parameters["send_email"].get("properties")


async def _may_use(tool: Any) -> bool:
    return bool(tool.name != "refund_charge")


async def _select_rights_later(runtime: Any) -> Any:
    return _may_use


def test_async_rights_are_awaited_by_an_async_run_and_refused_by_a_sync_one() -> None:
    turns = [Turn(search_call("refund a charge")), Turn(REFUND), Turn("No.")]
    with ScriptedModel(turns) as model:
        middleware = [ToolcribMiddleware(engine=build_lexical_engine, allowed=_select_rights_later)]
        agent = create_agent(_llm(model), TOOLS, middleware=middleware)
        asyncio.run(agent.ainvoke(ASKED))
        assert "refund_charge" not in found_names(model.requests[1])
        assert 'There is no tool "refund_charge"' in model.requests[2].results[0]
        with pytest.raises(InvalidConfig, match="use its async methods"):
            agent.invoke(ASKED)
    with pytest.raises(InvalidConfig, match="`allowed` returned None"):
        _run(turns, allowed=lambda runtime: None)


def test_least_recently_used_tools_are_evicted_with_a_note() -> None:
    turns = [Turn(search_call("weather", limit=1)), Turn(search_call("refund", limit=1)), Turn("Hi.")]
    requests = _run(turns, budget=SMALL_BUDGET)
    assert requests[2].tool_names == (SEARCH, "refund_charge")
    assert "put away" in requests[2].results[0]


def test_result_of_a_call_notes_evicted_tools() -> None:
    assert_eviction_is_noted(_run(TIGHT_TURNS, budget=SMALL_BUDGET))
    with ScriptedModel(TIGHT_TURNS) as model:
        middleware = [ToolcribMiddleware(engine=build_lexical_engine, budget=SMALL_BUDGET)]
        agent = create_agent(_llm(model), TOOLS, middleware=middleware)
        asyncio.run(agent.ainvoke(ASKED))
        assert_eviction_is_noted(model.requests)


def test_note_is_an_extra_part_and_absent_for_direct_results() -> None:
    @tool
    def count_sheep() -> list[dict[str, Any]]:
        """Count sheep."""
        return [{"type": "text", "text": "Seven."}]

    @tool(return_direct=True)
    def count_goats() -> str:
        """Count goats."""
        return "Eight."

    def results(name: str) -> list[Any]:
        turns = [Turn(search_call("weather", limit=1)), Turn(ToolCall(name, {})), Turn("Done.")]
        with ScriptedModel(turns) as model:
            middleware = [ToolcribMiddleware(engine=build_lexical_engine, budget=195)]
            agent = create_agent(_llm(model), [*TOOLS, count_sheep, count_goats], middleware=middleware)
            texts = agent.invoke(ASKED)["messages"]
            return [item.content for item in texts if isinstance(item, ToolMessage)]

    (counted, note) = results("count_sheep")[-1]
    assert counted == {"type": "text", "text": "Seven."}
    assert "put away" in note["text"]
    assert results("count_goats")[-1] == "Eight."


def test_thread_stored_by_another_version_starts_a_new_session() -> None:
    with ScriptedModel([Turn("Hi."), Turn("Hi.")]) as model:
        agent = create_agent(
            _llm(model),
            TOOLS,
            middleware=[ToolcribMiddleware(engine=build_lexical_engine)],
            checkpointer=InMemorySaver(),
        )
        agent.invoke(ASKED, _thread("1"))
        agent.update_state(_thread("1"), {"toolcrib": {"version": 0}})
        agent.invoke(ASKED, _thread("1"))
        assert model.requests[1].tool_names == (SEARCH,)


def test_structured_output_works() -> None:
    turns = [Turn(search_call("weather", limit=1)), Turn(ToolCall("WeatherForecast", {"city": "Rome"}))]
    with ScriptedModel(turns) as model:
        agent = create_agent(
            _llm(model),
            TOOLS,
            middleware=[ToolcribMiddleware(engine=build_lexical_engine)],
            response_format=ToolStrategy(WeatherForecast),
        )
        assert agent.invoke(ASKED)["structured_response"] == WeatherForecast(city="Rome")
        assert model.requests[1].tool_names == (SEARCH, "get_weather", "WeatherForecast")


def test_tools_are_converted_once() -> None:
    from toolcrib.frameworks import langchain_model

    reader = langchain_model.LangChainToolReader()
    extra_tools: BaseTool = TOOLS[0]
    assert reader.read_tool(extra_tools) is reader.read_tool(extra_tools)
