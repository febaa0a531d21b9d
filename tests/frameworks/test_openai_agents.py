"""The OpenAI Agents SDK, over both of its real HTTP APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed")

from agents import (
    Agent,
    ModelBehaviorError,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolOutputText,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from examples import with_openai_agents
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
from toolcrib.frameworks.openai_agents import ToolcribAgent
from toolcrib.session.disclosure import Disclosure

TOOLS = [function_tool(function) for function in office.tools()]
Act = Callable[[Any], Awaitable[Any]]


@pytest.fixture(autouse=True)
def _no_tracing() -> None:
    set_tracing_disabled(True)


def _run(turns: Iterable[Turn], act: Act, llm: Any = OpenAIResponsesModel) -> tuple[Any, Sequence[Request]]:
    async def within(url: str) -> Any:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            return await act(llm("scripted", client))

    with ScriptedModel(turns) as model:
        return asyncio.run(within(model.url)), model.requests


def _agent(llm: Any, tools: Sequence[Any] = TOOLS, **options: Any) -> ToolcribAgent:
    return ToolcribAgent("office", tools=[*tools], model=llm, engine=build_lexical_engine, **options)


@pytest.mark.parametrize("api", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_example_finds_its_tool_and_keeps_it(api: Any) -> None:
    async def act(llm: Any) -> None:
        agent = with_openai_agents.agent(llm)
        first = await Runner.run(agent, office.TASK, run_config=agent.run_config())
        assert first.final_output == "It is sunny."
        more = {"role": "user", "content": "And in Paris?"}
        await Runner.run(agent, [*first.to_input_list(), more])
        await Runner.run(agent, "And in Paris?")

    _, requests = _run([*TURNS, Turn("Again."), Turn("New.")], act, api)
    assert_conversation(requests)
    assert requests[3].tool_names == (SEARCH, "get_weather", "refund_charge")
    assert requests[4].tool_names == (SEARCH,)


@pytest.mark.parametrize("api", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_example_works_with_streaming(api: Any) -> None:
    async def act(llm: Any) -> Any:
        agent = _agent(llm)
        reply = Runner.run_streamed(agent, office.TASK, run_config=agent.run_config())
        async for _ in reply.stream_events():
            pass
        return reply.final_output

    texts, requests = _run(TURNS, act, api)
    assert texts == "It is sunny."
    assert_conversation(requests)


def test_sdk_session_keeps_revealed_tools() -> None:
    async def act(llm: Any) -> None:
        session = SQLiteSession("1")
        for _ in range(2):
            await Runner.run(_agent(llm), office.TASK, session=session)
        session.close()

    _, requests = _run([Turn(search_call("weather", limit=1)), Turn("Yes?"), Turn("Again.")], act)
    assert requests[2].tool_names == (SEARCH, "get_weather")


def test_provider_side_conversation_keeps_revealed_tools_within_a_run() -> None:
    async def act(llm: Any) -> None:
        agent = _agent(llm)
        await Runner.run(agent, office.TASK, auto_previous_response_id=True)

    turns = [Turn(search_call("weather", limit=1)), Turn(weather_call("Rome")), Turn("Sunny.")]
    _, requests = _run(turns, act)
    assert [request.tool_names for request in requests] == [(SEARCH,), (SEARCH, "get_weather"), (SEARCH, "get_weather")]
    assert len(requests[2].body["input"]) == 1


@pytest.mark.parametrize("api", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
def test_note_about_evicted_tools_is_repeated_in_later_runs(api: Any) -> None:
    async def act(llm: Any) -> None:
        agent = _agent(llm, budget=SMALL_BUDGET)
        first = await Runner.run(agent, office.TASK)
        items: Any = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
        await Runner.run(_agent(llm, budget=SMALL_BUDGET), items)

    _, requests = _run([*TIGHT_TURNS, Turn("Bye.")], act, api)
    assert_eviction_is_noted(requests)
    # The prefix of the conversation is unchanged, so a prompt cache keeps it.
    field = "input" if api is OpenAIResponsesModel else "messages"
    sent = requests[2].body[field]
    assert requests[3].body[field][: len(sent)] == sent


def test_note_is_sent_with_provider_side_conversations() -> None:
    async def act(llm: Any) -> None:
        agent = _agent(llm, budget=SMALL_BUDGET)
        await Runner.run(agent, office.TASK, auto_previous_response_id=True)

    _, requests = _run(TIGHT_TURNS, act)
    assert_eviction_is_noted(requests)


def test_note_appears_once_and_as_an_extra_part() -> None:
    @function_tool
    def count_sheep() -> ToolOutputText:
        """Count sheep."""
        return ToolOutputText(text="Seven.")

    async def act(llm: Any) -> None:
        agent = _agent(llm, [*TOOLS, count_sheep], budget=SMALL_BUDGET)
        await Runner.run(agent, office.TASK, run_config=agent.run_config())

    turns = [
        Turn(search_call("weather forecast", limit=1)),
        Turn(ToolCall("refund_charge", {})),
        Turn(ToolCall("count_sheep", {})),
        Turn("Done."),
    ]
    _, requests = _run(turns, act)
    assert requests[2].results[-1].count("put away") == 1
    last = requests[3].body["input"][-1]["output"]
    assert [part["text"].partition(":")[0] for part in last] == [
        "Seven.",
        "To make room, these tools were put away; search to load them again",
    ]


def test_concurrent_runs_are_isolated() -> None:
    def script(request: Request) -> Turn:
        if request.results:
            return Turn("Done.")
        return Turn(search_call(request.user_text, limit=1))

    async def act(llm: Any) -> None:
        agent = _agent(llm)
        await asyncio.gather(*(Runner.run(agent, questions) for questions in ("weather", "refund a charge")))

    _, requests = _run(script, act)  # type: ignore[arg-type]
    visible = {request.user_text: request.tool_names for request in requests if request.results}
    assert visible == {"weather": (SEARCH, "get_weather"), "refund a charge": (SEARCH, "refund_charge")}


def test_forbidden_tool_is_neither_found_nor_run_nor_named() -> None:
    async def act(llm: Any) -> None:
        agent = _agent(llm, allowed=lambda run: lambda tool: tool.name not in run.context)
        await Runner.run(agent, office.TASK, context={"refund_charge"}, run_config=agent.run_config())

    _, requests = _run([Turn(search_call("refund a charge")), Turn(REFUND), Turn("No.")], act)
    assert "refund_charge" not in found_names(requests[1])
    assert 'There is no tool "refund_charge"' in requests[2].results[0]


def test_without_run_config_unknown_tool_raises_sdk_error() -> None:
    async def act(llm: Any) -> None:
        await Runner.run(_agent(llm), office.TASK)

    with pytest.raises(ModelBehaviorError, match="get_wether not found"):
        _run(TURNS, act)


def test_run_config_keeps_other_settings() -> None:
    settings = _agent("scripted").run_config(RunConfig(workflow_name="mine"))
    assert settings.workflow_name == "mine"
    assert settings.tool_not_found_behavior == "return_error_to_model"


def test_few_tools_are_all_visible_except_explicitly_deferred_ones() -> None:
    async def few(llm: Any) -> None:
        await Runner.run(_agent(llm, TOOLS[:3]), office.TASK)

    _, requests = _run([Turn("Hi.")], few)
    assert requests[0].tool_names == ("get_weather", "send_email", "refund_charge")

    async def act(llm: Any) -> None:
        refund = function_tool(office.refund_charge, defer_loading=True)
        await Runner.run(_agent(llm, [*TOOLS[:2], refund]), office.TASK)

    _, requests = _run([Turn(search_call("refund")), Turn("Hi.")], act)
    assert requests[0].tool_names == (SEARCH, "get_weather", "send_email")
    assert requests[1].tool_names == (SEARCH, "get_weather", "send_email", "refund_charge")


def test_stubs_have_no_parameters() -> None:
    async def act(llm: Any) -> None:
        await Runner.run(_agent(llm, disclosure=Disclosure(tier="stub")), office.TASK)

    _, requests = _run([Turn(search_call("weather", limit=1)), Turn("Hi.")], act)
    assert len(requests[1].tool_names) == len(TOOLS) + 1
    parameters = {item["name"]: item["parameters"] for item in requests[1].body["tools"]}
    assert "city" in parameters["get_weather"]["properties"]
    assert not parameters["send_email"].get("properties")


def test_model_names_clones_and_handoffs_work() -> None:
    async def act(llm: Any) -> Any:
        set_default_openai_client(llm._client, use_for_tracing=False)
        office_agent = _agent("scripted").clone(instructions="Be brief.")
        front = Agent("front", handoffs=[office_agent], model=llm)
        return (await Runner.run(front, office.TASK)).last_agent.name

    from tests.support.scripted_model.turn import ToolCall

    turns = [Turn(ToolCall("transfer_to_office", {})), Turn(weather_call("Rome")), Turn("Sunny.")]
    last, requests = _run(turns, act)
    assert last == "office"
    assert requests[0].tool_names == ("transfer_to_office",)
    assert requests[1].tool_names == (SEARCH,)
    assert requests[1].body["instructions"] == "Be brief."
    assert requests[2].results == ("sunny in Rome",)
