"""The agent with the official clients, sync and async, against a scripted model."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import Raw, ToolCall, Turn
from toolcrib import Tool, Toolcrib
from toolcrib.agent.agent import Agent, AgentEvent, AgentFinished, TextDelta, ToolAnswered, ToolCalled
from toolcrib.agent.anthropic import Anthropic
from toolcrib.agent.gemini import Gemini
from toolcrib.agent.openai_chat import OpenAIChat
from toolcrib.agent.openai_responses import OpenAIResponses
from toolcrib.agent.provider import Provider
from toolcrib.errors import AgentUnfinished, InvalidConfig

WIRES = ["anthropic", "openai_chat", "openai_responses", "gemini"]
every_wire = pytest.mark.parametrize("wire", WIRES)


@contextmanager
def provider(wire: str, url: str, **options: Any) -> Iterator[Provider]:
    if wire == "anthropic":
        with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as claude:
            yield Anthropic(claude, "scripted", **options)
    elif wire == "gemini":
        with genai.Client(api_key="any", http_options=types.HttpOptions(base_url=url)) as google:
            yield Gemini(google, "scripted", **options)
    else:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as gpt:
            kind = OpenAIChat if wire == "openai_chat" else OpenAIResponses
            yield kind(gpt, "scripted", **options)


@asynccontextmanager
async def async_provider(wire: str, url: str, **options: Any) -> AsyncIterator[Provider]:
    if wire == "anthropic":
        async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as claude:
            yield Anthropic(claude, "scripted", **options)
    elif wire == "gemini":
        client = genai.Client(api_key="any", http_options=types.HttpOptions(base_url=url))
        async with client.aio as google:
            yield Gemini(google, "scripted", **options)
        client.close()
    else:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as gpt:
            kind = OpenAIChat if wire == "openai_chat" else OpenAIResponses
            yield kind(gpt, "scripted", **options)


def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


async def book_table(people: int) -> dict[str, int]:
    """Book a table at a restaurant."""
    return {"table": people}


def build_toolcrib() -> Toolcrib:
    others = [Tool(f"tool_{number}", f"Does thing number {number}.") for number in range(30)]
    return Toolcrib([get_weather, *others, book_table])


SCRIPT = [
    Turn("I will look.", ToolCall("search_tools", {"query": "weather"})),
    Turn(ToolCall("get_weather", {"city": "Zürich"}), ToolCall("search_tools", {"query": "book a restaurant table"})),
    Turn(ToolCall("book_table", {"people": "two"})),
    Turn(ToolCall("book_table", {"people": 2})),
    Turn("It is sunny, and the table is booked."),
]


def check_conversation(model: ScriptedModel, events: list[AgentEvent], streamed: bool = True) -> None:
    """Check the events and messages that every provider has to produce."""
    offered = [request.tool_names for request in model.requests]
    assert offered[0] == ("search_tools",)
    assert offered[1] == ("search_tools", "get_weather")
    assert offered[2][:2] == offered[1]
    assert "book_table" in offered[2]
    assert offered[4] == offered[3] == offered[2]
    assert model.requests[2].results[0] == "sunny in Zürich"
    assert "people" in model.requests[3].results[0]
    assert model.requests[4].results == ('{"table":2}',)
    assert {request.streams for request in model.requests} == {streamed}

    finished = events[-1]
    assert isinstance(finished, AgentFinished)
    assert finished.text == "It is sunny, and the table is booked."
    assert (finished.steps, finished.pending) == (5, ())
    assert finished.usage.input_tokens > finished.usage.output_tokens > 0
    assert finished.usage.output_tokens == sum(turn.tokens for turn in SCRIPT)
    texts_seen = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert texts_seen == "I will look." + finished.text
    assert [event.call.name for event in events if isinstance(event, ToolCalled)] == [
        "search_tools",
        "get_weather",
        "search_tools",
        "book_table",
        "book_table",
    ]
    answers = [event for event in events if isinstance(event, ToolAnswered)]
    assert [answer.call.name for answer in answers][:2] == ["search_tools", "get_weather"]
    assert answers[-1].text == '{"table":2}'


@every_wire
def test_agent_searches_calls_and_corrects_its_calls(wire: str) -> None:
    with ScriptedModel(SCRIPT) as model, provider(wire, model.url) as model_provider:
        check_conversation(
            model, list(Agent(model_provider, build_toolcrib().session()).stream("A sunny dinner, please."))
        )
        assert model.requests[0].user_text == "A sunny dinner, please."


@every_wire
def test_async_agent_does_the_same(wire: str) -> None:
    async def main() -> list[AgentEvent]:
        async with async_provider(wire, model.url) as model_provider:
            agent = Agent(model_provider, build_toolcrib().session())
            return [event async for event in agent.stream_async("A sunny dinner, please.")]

    with ScriptedModel(SCRIPT) as model:
        check_conversation(model, asyncio.run(main()))


def _official_client(wire: str, url: str, is_async: bool) -> Any:
    if wire == "gemini":
        return genai.Client(api_key="any", http_options=types.HttpOptions(base_url=url))
    if wire == "anthropic":
        claude = anthropic.AsyncAnthropic if is_async else anthropic.Anthropic
        return claude(base_url=url, api_key="any", max_retries=0)
    gpt = openai.AsyncOpenAI if is_async else openai.OpenAI
    return gpt(base_url=f"{url}/v1", api_key="any", max_retries=0)


@pytest.mark.parametrize("wire", ["anthropic", "openai_chat", "gemini"])
def test_official_clients_are_accepted(wire: str) -> None:
    with ScriptedModel(SCRIPT) as model:
        agent = Agent(_official_client(wire, model.url, False), build_toolcrib().session(), model="scripted")
        check_conversation(model, list(agent.stream("A sunny dinner, please.")))

    async def may_use(tool: Tool) -> bool:
        return True

    async def main() -> list[AgentEvent]:
        client = _official_client(wire, model.url, True)
        agent = Agent(client, build_toolcrib().session(allowed=may_use), model="scripted")
        return [event async for event in agent.stream_async("A sunny dinner, please.")]

    with ScriptedModel(SCRIPT) as model:
        check_conversation(model, asyncio.run(main()))


def test_unknown_client_and_missing_model_are_errors() -> None:
    session = build_toolcrib().session()
    client = anthropic.Anthropic(api_key="any")
    with pytest.raises(InvalidConfig, match=r"a client of anthropic, openai or google-genai, .* not str"):
        Agent("claude", session)
    with pytest.raises(InvalidConfig, match="needs a model"):
        Agent(client, session)
    with pytest.raises(InvalidConfig, match="has a model already"):
        Agent(Anthropic(client, "a"), session, model="b")


@every_wire
def test_agent_works_without_streaming_too(wire: str) -> None:
    with ScriptedModel(SCRIPT) as model, provider(wire, model.url, stream=False) as model_provider:
        check_conversation(
            model, list(Agent(model_provider, build_toolcrib().session()).stream("A sunny dinner, please.")), False
        )


@every_wire
def test_async_agent_works_without_streaming_too(wire: str) -> None:
    async def main() -> list[AgentEvent]:
        async with async_provider(wire, model.url, stream=False) as model_provider:
            agent = Agent(model_provider, build_toolcrib().session())
            return [event async for event in agent.stream_async("A sunny dinner, please.")]

    with ScriptedModel(SCRIPT) as model:
        check_conversation(model, asyncio.run(main()), False)


@every_wire
def test_conversation_continues_under_a_system_prompt(wire: str) -> None:
    def greet(request: Request) -> Turn:
        assert "Be brief." in str(request.body)
        return Turn(f"Hello {request.user_text}")

    with ScriptedModel(greet) as model, provider(wire, model.url) as model_provider:
        agent = Agent(model_provider, Toolcrib().session(), system="Be brief.")
        first = agent.run("Ann")
        second = agent.run("Bob", first.messages)
    assert (first.text, second.text) == ("Hello Ann", "Hello Bob")
    assert "Hello Ann" in str(model.requests[1].body)


@every_wire
def test_endless_run_stops_at_its_limits(wire: str) -> None:
    endless = [Turn("Hm.", ToolCall("get_weather", {"city": "Bern"}))] * 9
    with ScriptedModel(endless) as model, provider(wire, model.url) as model_provider:
        with pytest.raises(AgentUnfinished, match="not done after 3 steps") as caught:
            Agent(model_provider, build_toolcrib().session(), max_steps=3).run("x")
        assert caught.value.text == "Hm."
        with pytest.raises(AgentUnfinished, match=r"tokens of 10 are used"):
            Agent(model_provider, build_toolcrib().session(), max_tokens=10).run("x")
        assert len(model.requests) == 4


STOPS = {
    "anthropic": "max_tokens",
    "openai_chat": "length",
    "openai_responses": "max_output_tokens",
    "gemini": "MAX_TOKENS",
}


@every_wire
def test_truncated_reply_raises_unfinished(wire: str) -> None:
    cut = Turn("I was about to", stop=STOPS[wire])
    with (
        ScriptedModel([cut]) as model,
        provider(wire, model.url) as model_provider,
        pytest.raises(AgentUnfinished, match=f"because of {STOPS[wire]}") as caught,
    ):
        Agent(model_provider, build_toolcrib().session()).run("x")
    assert caught.value.text == "I was about to"


@every_wire
def test_calls_of_the_program_are_returned_as_pending(wire: str) -> None:
    script = [Turn(ToolCall("tool_7", {"n": 1})), Turn("Done.")]
    with ScriptedModel(script) as model, provider(wire, model.url) as model_provider:
        session = build_toolcrib().session()
        first = Agent(model_provider, session).run("Do thing 7.")
        [task] = first.pending
        assert (task.tool.name, task.arguments) == ("tool_7", {"n": 1})
        answered = [*first.messages, *session.answer(wire, {task.call.id: "seven"})]
        assert Agent(model_provider, session).run(messages=answered).text == "Done."
        assert model.requests[1].user_text == "Do thing 7."
        assert model.requests[1].results == ("seven",)


@every_wire
def test_unfinished_run_can_be_continued(wire: str) -> None:
    turns = [Turn(ToolCall("get_weather", {"city": "Bern"})), Turn("Sunny.")]
    with ScriptedModel(turns) as model, provider(wire, model.url) as model_provider:
        session = build_toolcrib().session()
        with pytest.raises(AgentUnfinished) as caught:
            Agent(model_provider, session, max_steps=1).run("Weather?")
        assert Agent(model_provider, session).run(messages=caught.value.messages).text == "Sunny."
        assert model.requests[1].results == ("sunny in Bern",)
        with pytest.raises(InvalidConfig, match="nothing to work on"):
            Agent(model_provider, session).run()


def test_wrong_client_type_is_reported() -> None:
    async def sync_in_async() -> None:
        with provider("openai_chat", model.url) as model_provider:
            await Agent(model_provider, build_toolcrib().session()).run_async("x")

    async def async_in_sync() -> None:
        async with async_provider("openai_chat", model.url) as model_provider:
            Agent(model_provider, build_toolcrib().session()).run("x")

    with ScriptedModel([Turn("a"), Turn("b")]) as model:
        with pytest.raises(InvalidConfig, match="not async; use run or stream"):
            asyncio.run(sync_in_async())
        with pytest.raises(InvalidConfig, match="is async; use run_async"):
            asyncio.run(async_in_sync())
        with provider("openai_chat", model.url) as model_provider, pytest.raises(InvalidConfig):
            Agent(model_provider, build_toolcrib().session(), max_steps=0)


def test_thinking_and_hosted_search_blocks_are_sent_back_unchanged() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"q": "x"}},
    ]
    turns = [Turn(*map(Raw, blocks), stop="pause_turn"), Turn("Done.")]
    with ScriptedModel(turns) as model, provider("anthropic", model.url) as model_provider:
        assert Agent(model_provider, build_toolcrib().session()).run("x").text == "Done."
    assert model.requests[1].body["messages"][1] == {"role": "assistant", "content": blocks}


def test_gemini_signature_is_sent_back_unchanged() -> None:
    signature = base64.b64encode(bytes(range(250, 256)) * 3).decode()
    call = {"functionCall": {"name": "get_weather", "args": {"city": "Bern"}, "id": "1"}}
    turns = [Turn(Raw({**call, "thoughtSignature": signature})), Turn("Done.")]
    with ScriptedModel(turns) as model, provider("gemini", model.url) as model_provider:
        assert Agent(model_provider, build_toolcrib().session()).run("x").text == "Done."
    [part] = model.requests[1].body["contents"][1]["parts"]
    assert base64.urlsafe_b64decode(part["thoughtSignature"].replace("+", "-").replace("/", "_"))
    assert _plain(part["thoughtSignature"]) == _plain(signature)


def _plain(text: str) -> str:
    return text.replace("-", "+").replace("_", "/").rstrip("=")


def test_leaving_a_stream_closes_it() -> None:
    with (
        ScriptedModel(lambda request: Turn("word " * 1_000)) as model,
        provider("openai_chat", model.url) as model_provider,
    ):
        stream = Agent(model_provider, build_toolcrib().session()).stream("x")
        assert isinstance(next(stream), TextDelta)
        close: Callable[[], None] = stream.close  # type: ignore[attr-defined]
        close()
        assert list(stream) == []


@every_wire
def test_hosted_tools_are_sent_before_session_tools(wire: str) -> None:
    own = {
        "anthropic": {"type": "web_search_20250305", "name": "web_search"},
        "openai_chat": {"type": "custom", "custom": {"name": "grep"}},
        "openai_responses": {"type": "web_search"},
        "gemini": {"googleSearch": {}},
    }[wire]
    options = {"config": {"tools": [own]}} if wire == "gemini" else {"tools": [own]}
    with ScriptedModel([Turn("Hello.")]) as model, provider(wire, model.url, **options) as model_provider:
        Agent(model_provider, build_toolcrib().session()).run("x")
    first, *ours = model.requests[0].body["tools"]
    assert first == own
    assert "search_tools" in str(ours)


@every_wire
def test_fields_set_by_the_agent_are_rejected_as_options(wire: str) -> None:
    name = {"openai_responses": "input", "gemini": "automatic_function_calling"}.get(wire, "messages")
    options: dict[str, Any] = {"config": {name: []}} if wire == "gemini" else {name: []}
    with (
        pytest.raises(InvalidConfig, match=f"'{name}' is set by the agent"),
        provider(wire, "http://127.0.0.1:9", **options),
    ):
        pass


@pytest.mark.parametrize("options", [{"max_steps": 0}, {"max_steps": True}, {"max_tokens": 0}])
def test_invalid_limit_is_rejected(options: dict[str, Any]) -> None:
    with provider("anthropic", "http://127.0.0.1:9") as model_provider, pytest.raises(InvalidConfig):
        Agent(model_provider, build_toolcrib().session(), **options)
