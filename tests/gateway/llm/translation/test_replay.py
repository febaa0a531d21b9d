"""Upstreams that answer a request for a stream with one JSON body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from tests.gateway.llm.serving_openai import chat_functions, functions
from tests.support.scripted_model.turn import ToolCall, Turn
from tests.support.scripted_model.wires.anthropic import Anthropic
from tests.support.scripted_model.wires.gemini import Gemini
from tests.support.scripted_model.wires.openai_chat import OpenAIChat
from tests.support.scripted_model.wires.openai_responses import OpenAIResponses
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway

TURN = Turn("Let me look.", ToolCall("send_email", {"recipient": "ann"}, "call_1"))
# With `on` the gateway reads the reply, with `off` it forwards it.
switches = pytest.mark.parametrize("switch", ["on", "off"])


@contextmanager
def whole_upstream(wire: Any, api: LlmApi, switch: Any) -> Iterator[str]:
    """Run a gateway whose upstream never streams."""
    body: dict[str, Any] = {"model": "m", "messages": [], "contents": [], "input": "Hi"}
    data = json.dumps(wire.render_response(TURN, body, 1)).encode()
    answer = ScriptedAnswer((data,), content_type="application/json", length=len(data))
    with raw_upstream(always=answer) as upstream:
        one = LlmUpstreamConfig("whole", api=api, url=upstream.url, tool_search=switch, always_expose=("send_email",))
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served:
            yield served.url


@switches
def test_messages_client_gets_events(switch: str) -> None:
    tools: Any = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in functions()
    ]
    with (
        whole_upstream(Anthropic(), "messages", switch) as url,
        anthropic.Anthropic(base_url=url, api_key="k") as client,
    ):
        question: Any = [{"role": "user", "content": "Hi"}]
        with client.messages.stream(model="m", max_tokens=9, messages=question, tools=tools) as events:
            message: Any = events.get_final_message()
    assert message.content[0].text == "Let me look." and message.content[1].input == {"recipient": "ann"}
    assert message.stop_reason == "tool_use" and message.usage.output_tokens > 0


@switches
def test_openai_clients_get_events(switch: str) -> None:
    chat_tools: Any = chat_functions()
    with (
        whole_upstream(OpenAIChat(), "openai", switch) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client,
    ):
        question: Any = [{"role": "user", "content": "Hi"}]
        with client.chat.completions.stream(model="m", messages=question, tools=chat_tools) as chunks:
            completion: Any = chunks.get_final_completion()
    choice = completion.choices[0]
    assert choice.message.content == "Let me look." and choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].function.name == "send_email"
    tools: Any = functions()
    with (
        whole_upstream(OpenAIResponses(), "openai", switch) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client,
        client.responses.stream(model="m", input="Hi", tools=tools) as events,
    ):
        response: Any = events.get_final_response()
    assert response.output_text == "Let me look." and response.output[1].arguments == '{"recipient": "ann"}'


@switches
def test_gemini_client_gets_events(switch: str) -> None:
    declarations = [types.FunctionDeclaration(name=tool["name"]) for tool in functions()]
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=declarations)],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    with whole_upstream(Gemini(), "gemini", switch) as url:
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url), vertexai=False)
        chunks: Any = list(client.models.generate_content_stream(model="m", contents="Hi", config=config))
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    assert "".join(part.text or "" for part in parts) == "Let me look."
    assert [part.function_call.name for part in parts if part.function_call] == ["send_email"]
