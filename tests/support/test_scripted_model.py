"""The scripted model, tested with the providers' own clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types

from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import Failure, Raw, ToolCall, Turn

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Turn("Let me look that up.", ToolCall("get_weather", {"city": "Zürich"}))
DONE = Turn("It is sunny in Zürich.")


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel([WEATHER, DONE]) as server:
        yield server


# ------------------------------------------------------------------------------------ Anthropic


def claude(model: ScriptedModel) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=model.url, api_key="any", max_retries=0)


def claude_request(*messages: Any) -> dict[str, Any]:
    return {
        "model": "claude-scripted",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Weather in Zürich?"}, *messages],
        "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
    }


def test_anthropic_returns_a_complete_response(model: ScriptedModel) -> None:
    first = claude(model).messages.create(**claude_request())
    assert first.stop_reason == "tool_use"
    text, call = first.content
    assert text.type == "text" and text.text == "Let me look that up."
    assert call.type == "tool_use" and call.input == {"city": "Zürich"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    second = claude(model).messages.create(
        **claude_request({"role": "assistant", "content": first.content}, {"role": "user", "content": [result]})
    )
    assert second.stop_reason == "end_turn"
    assert second.usage.input_tokens > first.usage.input_tokens
    assert model.requests[0].tool_names == ("get_weather",)
    assert model.requests[1].results == ("sunny",)
    assert model.requests[1].user_text == "Weather in Zürich?"


def test_anthropic_streams_the_same_answer(model: ScriptedModel) -> None:
    with claude(model).messages.stream(**claude_request()) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.content[1].type == "tool_use"
    assert message.content[1].input == {"city": "Zürich"}
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens == WEATHER.tokens


def test_anthropic_events_are_in_order(model: ScriptedModel) -> None:
    raw = claude(model).messages.create(**claude_request(), stream=True)
    kinds = [event.type for event in raw]
    opened = kinds.index("content_block_start"), kinds.index("content_block_stop")
    assert opened[0] < kinds.index("content_block_delta") < opened[1]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2


def test_anthropic_counts_tokens(model: ScriptedModel) -> None:
    request = claude_request()
    del request["max_tokens"]
    assert claude(model).messages.count_tokens(**request).input_tokens > 20
    assert model.requests == []


def test_raw_block_is_sent_unchanged() -> None:
    searched = {
        "type": "server_tool_use",
        "id": "srvtoolu_01",
        "name": "tool_search_tool_bm25",
        "input": {"query": "weather"},
    }
    with (
        ScriptedModel([Turn(Raw(searched), "Found.")]) as model,
        claude(model).messages.stream(**claude_request()) as stream,
    ):
        message = stream.get_final_message()
    assert message.content[0].type == "server_tool_use"
    assert message.content[0].input == {"query": "weather"}


def test_anthropic_rejects_a_call_without_result(model: ScriptedModel) -> None:
    first = claude(model).messages.create(**claude_request())
    messages = [{"role": "assistant", "content": first.content}, {"role": "user", "content": "so?"}]
    with pytest.raises(anthropic.BadRequestError, match="without `tool_result`"):
        claude(model).messages.create(**claude_request(*messages))
    twice = {**claude_request(), "tools": claude_request()["tools"] * 2}
    with pytest.raises(anthropic.BadRequestError, match="must be unique"):
        claude(model).messages.create(**twice)


# ------------------------------------------------------------------------------- OpenAI chat


def gpt(model: ScriptedModel) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{model.url}/v1", api_key="any", max_retries=0)


def chat_request(*messages: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "parameters": SCHEMA}
    return {
        "model": "gpt-scripted",
        "messages": [{"role": "user", "content": "Weather in Zürich?"}, *messages],
        "tools": [{"type": "function", "function": function}],
    }


def test_openai_chat_returns_a_complete_response(model: ScriptedModel) -> None:
    first = gpt(model).chat.completions.create(**chat_request())
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look that up."
    [call] = choice.message.tool_calls or []
    assert call.type == "function" and call.function.arguments == '{"city": "Zürich"}'
    second = gpt(model).chat.completions.create(
        **chat_request(choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    )
    assert second.choices[0].message.content == "It is sunny in Zürich."
    assert second.choices[0].finish_reason == "stop"
    assert model.requests[1].results == ("sunny",)
    assert model.requests[1].user_text == "Weather in Zürich?"


def test_openai_chat_streams_the_same_answer(model: ScriptedModel) -> None:
    with gpt(model).chat.completions.stream(**chat_request(), stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    [call] = final.choices[0].message.tool_calls or []
    assert call.function.arguments == '{"city": "Zürich"}'
    assert final.choices[0].message.content == "Let me look that up."
    assert final.usage and final.usage.completion_tokens == WEATHER.tokens


def test_openai_chat_streams_calls_in_pieces(model: ScriptedModel) -> None:
    chunks = list(gpt(model).chat.completions.create(**chat_request(), stream=True))
    deltas = [
        call.function.arguments for chunk in chunks for call in chunk.choices[0].delta.tool_calls or [] if call.function
    ]
    assert len(deltas) > 2
    assert "".join(delta or "" for delta in deltas) == '{"city": "Zürich"}'


def test_openai_chat_rejects_a_call_without_result(model: ScriptedModel) -> None:
    first = gpt(model).chat.completions.create(**chat_request())
    with pytest.raises(openai.BadRequestError, match="must be followed by tool messages"):
        gpt(model).chat.completions.create(**chat_request(first.choices[0].message))


# ------------------------------------------------------------------------------- OpenAI responses


def responses_request(*items: Any) -> dict[str, Any]:
    return {
        "model": "gpt-scripted",
        "input": [{"role": "user", "content": "Weather in Zürich?"}, *items],
        "tools": [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}],
        "store": False,
    }


def test_openai_responses_returns_a_complete_response(model: ScriptedModel) -> None:
    first = gpt(model).responses.create(**responses_request())
    assert first.output_text == "Let me look that up."
    call = first.output[1]
    assert call.type == "function_call" and call.arguments == '{"city": "Zürich"}'
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = gpt(model).responses.create(**responses_request(*first.output, output))
    assert second.output_text == "It is sunny in Zürich."
    assert model.requests[1].results == ("sunny",)
    assert model.requests[1].user_text == "Weather in Zürich?"
    assert model.requests[1].tool_names == ("get_weather",)


def test_openai_responses_accepts_a_string_input(model: ScriptedModel) -> None:
    gpt(model).responses.create(model="gpt-scripted", input="Weather?")
    assert model.requests[0].user_text == "Weather?"
    assert model.requests[0].results == ()


def test_openai_responses_streams_the_same_answer(model: ScriptedModel) -> None:
    with gpt(model).responses.stream(**responses_request()) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert "response.function_call_arguments.delta" in kinds
    assert [event.sequence_number for event in events] == sorted(event.sequence_number for event in events)
    call = final.output[1]
    assert call.type == "function_call" and call.arguments == '{"city": "Zürich"}'
    assert final.output_text == "Let me look that up."
    assert final.usage and final.usage.output_tokens == WEATHER.tokens


def test_openai_responses_rejects_a_call_without_result(model: ScriptedModel) -> None:
    first = gpt(model).responses.create(**responses_request())
    with pytest.raises(openai.BadRequestError, match="No tool output found"):
        gpt(model).responses.create(**responses_request(*first.output))


def test_stop_reason_can_be_scripted() -> None:
    with ScriptedModel(lambda request: Turn("Half a", stop=_cut(request))) as model:
        assert gpt(model).responses.create(**responses_request()).status == "incomplete"
        assert gpt(model).chat.completions.create(**chat_request()).choices[0].finish_reason == "length"
        assert claude(model).messages.create(**claude_request()).stop_reason == "max_tokens"


def _cut(request: Request) -> str:
    return {"anthropic": "max_tokens", "openai_chat": "length", "openai_responses": "max_output_tokens"}[
        request.wire.name
    ]


# ---------------------------------------------------------------------------------------- Gemini


@pytest.fixture
def gemini(model: ScriptedModel) -> Iterator[genai.Client]:
    # A client without a reference is closed, even during a request.
    with genai.Client(api_key="any", http_options=types.HttpOptions(base_url=model.url)) as client:
        yield client


def gemini_request(*contents: Any) -> dict[str, Any]:
    function = types.FunctionDeclaration(name="get_weather", parameters_json_schema=SCHEMA)
    question = types.Content(role="user", parts=[types.Part(text="Weather in Zürich?")])
    return {
        "model": "gemini-scripted",
        "contents": [question, *contents],
        "config": types.GenerateContentConfig(
            tools=[types.Tool(function_declarations=[function])],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        ),
    }


def test_gemini_returns_a_complete_response(model: ScriptedModel, gemini: genai.Client) -> None:
    first = gemini.models.generate_content(**gemini_request())
    [call] = first.function_calls or []
    assert (call.name, call.args) == ("get_weather", {"city": "Zürich"})
    assert first.candidates and first.candidates[0].content
    response = types.FunctionResponse(id=call.id, name="get_weather", response={"result": "sunny"})
    answered = types.Content(role="user", parts=[types.Part(function_response=response)])
    second = gemini.models.generate_content(**gemini_request(first.candidates[0].content, answered))
    assert second.text == "It is sunny in Zürich."
    assert model.requests[0].tool_names == ("get_weather",)
    assert model.requests[1].results == ("sunny",)
    assert model.requests[1].user_text == "Weather in Zürich?"


def test_gemini_streams_the_same_answer(gemini: genai.Client) -> None:
    chunks = list(gemini.models.generate_content_stream(**gemini_request()))
    reply_text = "".join(
        part.text or ""
        for chunk in chunks
        for part in (chunk.candidates or [])[0].content.parts or []  # type: ignore[union-attr]
    )
    assert reply_text == "Let me look that up."
    assert [call.name for chunk in chunks for call in chunk.function_calls or []] == ["get_weather"]
    usage = chunks[-1].usage_metadata
    assert usage and usage.candidates_token_count == WEATHER.tokens


def test_gemini_counts_tokens(gemini: genai.Client) -> None:
    counted = gemini.models.count_tokens(model="gemini-scripted", contents="Weather?")
    assert counted.total_tokens


def test_gemini_rejects_a_call_without_result(gemini: genai.Client) -> None:
    first = gemini.models.generate_content(**gemini_request())
    assert first.candidates
    request = gemini_request(first.candidates[0].content, types.Content(role="user", parts=[types.Part(text="so?")]))
    with pytest.raises(genai_errors.ClientError, match="number of function response parts"):
        gemini.models.generate_content(**request)


# ----------------------------------------------------------------------------------- the script


def test_script_may_be_a_function_of_the_request() -> None:
    def echo(request: Request) -> Turn:
        return Turn(f"You asked: {request.user_text}")

    with ScriptedModel(echo) as model:
        answer = gpt(model).chat.completions.create(**chat_request())
    assert answer.choices[0].message.content == "You asked: Weather in Zürich?"
    assert model.requests[0].headers["authorization"] == "Bearer any"


def test_scripted_failure_is_a_provider_error() -> None:
    with ScriptedModel([Failure(429, "slow down"), Failure(500, "broken")]) as model:
        with pytest.raises(anthropic.RateLimitError, match="slow down"):
            claude(model).messages.create(**claude_request())
        with pytest.raises(openai.InternalServerError, match="broken"):
            gpt(model).chat.completions.create(**chat_request())


def test_exhausted_script_is_an_error(model: ScriptedModel) -> None:
    for _ in range(2):
        gpt(model).chat.completions.create(**chat_request())
    with pytest.raises(openai.BadRequestError, match="no more turns"):
        gpt(model).chat.completions.create(**chat_request())
    with pytest.raises(openai.NotFoundError, match="no such path"):
        gpt(model).embeddings.create(model="any", input="x", encoding_format="float")


def test_async_clients_are_served_at_the_same_time() -> None:
    async def main() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
            answers = await asyncio.gather(*(client.chat.completions.create(**chat_request()) for _ in range(5)))
        return [answer.id for answer in answers]

    with ScriptedModel(lambda request: DONE) as server:
        assert len(set(asyncio.run(main()))) == len(server.requests) == 5
