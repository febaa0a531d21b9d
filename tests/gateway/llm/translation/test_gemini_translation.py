"""Google's official client in front of an upstream that has only Chat Completions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types

from tests.gateway.llm.gemini.test_gemini import TOOL, both, generate, styles
from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from tests.gateway.llm.serving_openai import chat_functions
from tests.gateway.llm.translation.test_translation import (
    MESSAGES_TOOL,
    PIXEL,
    RESPONSES_TOOL,
    TIDE,
    chat_gateway,
    tide,
)
from tests.support.scripted_model.server import Request, Script, ScriptedModel
from tests.support.scripted_model.turn import Failure, ToolCall, Turn
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig, ModelTarget
from toolcrib.gateway.llm.gateway import LlmGateway

HI = {"contents": [{"parts": [{"text": "Hi"}]}]}
ALIASES = {"alias": (ModelTarget("local", "org/qwen3:8b"),)}


def read_tide(day: str) -> str:
    """Tell when the water is high."""
    assert day == "today"
    return "noon"


def build_client(url: str) -> genai.Client:
    options = types.HttpOptions(base_url=url, retry_options=types.HttpRetryOptions(attempts=1))
    return genai.Client(api_key="theirs", http_options=options, vertexai=False)


@contextmanager
def gemini_client(script: Script, **settings: Any) -> Iterator[tuple[genai.Client, ScriptedModel]]:
    with chat_gateway(script, **settings) as (url, model):
        yield build_client(url), model


@both
@pytest.mark.parametrize("name", ["qwen3", "org/qwen3:8b", "alias"])
def test_gemini_client_completes_a_task_with_a_function_that_it_calls(stream: bool, name: str) -> None:
    with gemini_client(tide, aliases=ALIASES) as (client, model):
        config = types.GenerateContentConfig(
            tools=[read_tide],
            system_instruction="Be brief.",
            temperature=0.5,
            top_p=0.9,
            top_k=7,
            seed=3,
            max_output_tokens=99,
            stop_sequences=["END"],
            presence_penalty=0.1,
            frequency_penalty=0.2,
            safety_settings=[
                types.SafetySetting(
                    category=types.HarmCategory.HARM_CATEGORY_HARASSMENT, threshold=types.HarmBlockThreshold.BLOCK_NONE
                )
            ],
        )
        image = types.Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png")
        options: Any = {"model": name, "contents": ["When is high tide?", image], "config": config}
        if stream:
            chunks = list(client.models.generate_content_stream(**options))
            text, last = "".join(chunk.text or "" for chunk in chunks), chunks[-1]
        else:
            last = client.models.generate_content(**options)
            text = last.text or ""
    assert text.endswith("High tide is at noon.")
    assert last.candidates and last.candidates[0].finish_reason == "STOP"
    usage = last.usage_metadata
    assert usage and usage.total_token_count and usage.prompt_token_count and usage.candidates_token_count
    sent = model.requests[1].body
    assert sent["model"] == ("qwen3" if name == "qwen3" else "org/qwen3:8b")
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool"]
    assert sent["messages"][0]["content"] == "Be brief."
    assert sent["messages"][1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    (call,) = sent["messages"][2]["tool_calls"]
    assert call["id"] == sent["messages"][3]["tool_call_id"] and json.loads(call["function"]["arguments"])
    assert sent["messages"][3]["content"] == "noon"
    names = ("temperature", "top_p", "top_k", "seed", "max_tokens", "stop", "presence_penalty", "frequency_penalty")
    assert [sent[name] for name in names] == [0.5, 0.9, 7, 3, 99, ["END"], 0.1, 0.2]
    assert sent["tools"][0]["function"]["parameters"]["properties"]["day"]["type"] == "string"


@styles
@both
def test_gemini_client_gets_tool_search(stream: bool, style: Any) -> None:
    def work(request: Request) -> Turn:
        if not request.results:
            return Turn("One moment. ", ToolCall("search_tools", {"query": "electronic letter to somebody"}))
        arguments = {"recipient": "ann"}
        if style == "reveal":
            return Turn(ToolCall("send_email", arguments))
        return Turn(ToolCall("call_tool", {"tool_name": "send_email", "tool_input": arguments}))

    with ScriptedModel(work) as model:
        one = LlmUpstreamConfig("local", api="chat", url=model.url, tool_search="on", style=style)
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served:
            parts, last = generate(build_client(served.url), stream, "Write to Ann")
    calls = [part.function_call for part in parts if part.function_call]
    assert [(call.name, call.args) for call in calls] == [("send_email", {"recipient": "ann"})]
    assert last.candidates[0].finish_reason == "STOP"
    assert len(model.requests) == 2 and "send_email" not in model.requests[0].tool_names
    assert all(request.headers["authorization"] == "Bearer theirs" for request in model.requests)
    assert all(not name.startswith("x-goog-") for request in model.requests for name in request.headers)


def test_calls_without_ids_are_matched_with_their_results_in_order() -> None:
    call = {"functionCall": {"name": "read_tide", "args": {"day": "a"}}, "thoughtSignature": "c2ln"}
    image = {"inline_data": {"mime_type": "image/png", "data": PIXEL.replace("+", "-").replace("/", "_")}}
    results = [
        {"functionResponse": {"name": "read_tide", "response": {"error": "no tide"}}},
        {"functionResponse": {"name": "read_tide", "response": {"at": [6, 12]}, "parts": [image]}},
    ]
    contents = [
        {"role": "user", "parts": [{"text": "Tides?"}]},
        {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Sure."}, call, call]},
        {"role": "user", "parts": results},
    ]
    with chat_gateway([Turn("Six and noon.")]) as (url, model):
        body = {"contents": contents, "system_instruction": {"parts": [{"text": "Be brief."}]}}
        reply = httpx2.post(f"{url}/v1beta/models/qwen3:generateContent", json=body).json()
    assert reply["candidates"][0]["content"]["parts"] == [{"text": "Six and noon."}]
    _, _, answer, first, second, images = model.requests[0].body["messages"]
    assert (answer["reasoning_content"], answer["content"]) == ("Hm.", "Sure.")
    ids = [call["id"] for call in answer["tool_calls"]]
    assert ids == [first["tool_call_id"], second["tool_call_id"]] and len(set(ids)) == 2
    assert first["content"] == "Error: no tide" and second["content"].startswith('{"at":[6,12]}')
    assert images["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"


@pytest.mark.parametrize(
    ("config", "sent"),
    [
        ({"response_mime_type": "application/json"}, {"response_format": {"type": "json_object"}}),
        ({"thinking_config": {"thinking_budget": 1024}}, {"reasoning_effort": None}),
        ({"thinking_config": {"thinking_level": "MEDIUM"}}, {"reasoning_effort": "medium"}),
        ({"tools": [TOOL], "tool_config": {"function_calling_config": {"mode": "ANY"}}}, {"tool_choice": "required"}),
        ({"tools": [TOOL], "tool_config": {"function_calling_config": {"mode": "NONE"}}}, {"tool_choice": "none"}),
        ({"candidate_count": 1, "response_modalities": ["TEXT"], "labels": {"a": "b"}}, {"n": None}),
    ],
)
def test_settings_are_translated(config: Any, sent: dict[str, Any]) -> None:
    with gemini_client([Turn("{}")]) as (client, model):
        labels = config.pop("labels", None)
        options = types.GenerateContentConfig(
            **config, automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
        )
        if labels:
            options.http_options = types.HttpOptions(extra_body={"labels": labels})
        client.models.generate_content(model="qwen3", contents="Hi", config=options)
    assert {name: model.requests[0].body.get(name) for name in sent} == sent


def test_schemas_of_answers_are_converted_and_allowed_names_select_functions() -> None:
    calling = {"mode": "ANY", "allowed_function_names": ["send_email"]}
    config = types.GenerateContentConfig(
        tools=[TOOL],
        tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(**calling)),  # type: ignore[arg-type]
        response_mime_type="application/json",
        response_schema=types.Schema(type=types.Type.ARRAY, items=types.Schema(type=types.Type.STRING, nullable=True)),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    with gemini_client([Turn("[]")]) as (client, model):
        client.models.generate_content(model="qwen3", contents="Hi", config=config)
    sent = model.requests[0].body
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "array", "items": {"type": ["string", "null"]}}
    assert list(model.requests[0].tool_names) == ["send_email"] and sent["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("`cachedContent`", {"cachedContent": "cachedContents/1"}),
        ("tools.0: the tool googleSearch", {"tools": [{"google_search": {}}]}),
        ("`generationConfig.responseLogprobs`", {"generationConfig": {"responseLogprobs": True}}),
        ("generationConfig.candidateCount", {"generationConfig": {"candidateCount": 2}}),
        ("generationConfig.responseModalities", {"generationConfig": {"responseModalities": ["AUDIO"]}}),
        ("generationConfig.responseMimeType: the type text/x.enum", {"generationConfig": {"responseMimeType": "text/x.enum"}}),
        ("`generationConfig.thinkingConfig.depth`", {"generationConfig": {"thinkingConfig": {"depth": 1}}}),
        ("safetySettings.0: the threshold BLOCK_LOW_AND_ABOVE", {"safetySettings": [{"threshold": "BLOCK_LOW_AND_ABOVE"}]}),
        (
            "contents.0: a part with inlineData of type audio/wav",
            {"contents": [{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": "AA=="}}]}]},
        ),
        (
            "contents.0: a part with fileData",
            {"contents": [{"parts": [{"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/a"}}]}]},
        ),
        ("contents.0: a part with executableCode", {"contents": [{"role": "model", "parts": [{"executableCode": {}}]}]}),
        ("contents: must be a list", {"contents": "Hi"}),
    ],
)  # fmt: skip
def test_what_gemini_cannot_carry_over_is_refused_by_name(name: str, body: dict[str, Any]) -> None:
    with chat_gateway([]) as (url, model):
        reply = httpx2.post(f"{url}/v1beta/models/qwen3:generateContent", json={**HI, **body})
    assert (reply.status_code, reply.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert name in reply.json()["error"]["message"]
    assert model.requests == []


@both
def test_errors_have_the_format_of_gemini(stream: bool) -> None:
    with gemini_client([Failure(429, "slow down")]) as (client, _):
        with pytest.raises(errors.ClientError, match="slow down") as raised:
            generate(client, stream, "Hi", "qwen3")
        assert (raised.value.code, raised.value.status) == (429, "RESOURCE_EXHAUSTED")
        with pytest.raises(errors.ClientError, match="cannot count tokens"):
            client.models.count_tokens(model="qwen3", contents="Hi")
        with pytest.raises(errors.ClientError, match="has no batchEmbedContents"):
            client.models.embed_content(model="qwen3", contents="Hi")


def test_stream_without_events_is_a_json_array_and_thoughts_are_sent_on_request() -> None:
    reply = (
        b'{"id": "x", "model": "qwen3", "choices": [{"index": 0, "finish_reason": "length", "message": '
        b'{"role": "assistant", "content": "42", "reasoning_content": "Hm."}}], "usage": {"prompt_tokens": 9, '
        b'"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}}}'
    )
    answer = ScriptedAnswer((reply,), content_type="application/json", length=len(reply))
    bodies = [HI, {**HI, "generationConfig": {"thinkingConfig": {"includeThoughts": True}}}]
    with raw_upstream(always=answer) as upstream:
        one = LlmUpstreamConfig("local", api="chat", url=upstream.url)
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served:
            url = f"{served.url}/v1beta/models/qwen3:streamGenerateContent"
            plain, thoughtful = (httpx2.post(url, json=body).json() for body in bodies)
    parts = [part for chunk in plain for part in chunk["candidates"][0]["content"]["parts"]]
    assert parts == [{"text": "42"}]
    assert thoughtful[0]["candidates"][0]["content"]["parts"][0] == {"text": "Hm.", "thought": True}
    last = plain[-1]
    assert (last["responseId"], last["modelVersion"]) == ("x", "qwen3")
    assert last["candidates"][0]["finishReason"] == "MAX_TOKENS"
    counts = last["usageMetadata"]
    assert (counts["promptTokenCount"], counts["candidatesTokenCount"], counts["thoughtsTokenCount"]) == (9, 2, 3)


def stream_calls(*calls: list[dict[str, Any]]) -> ScriptedAnswer:
    """Return a stream with these lists of calls, one per chunk."""
    choices: list[Any] = [{"index": 0, "delta": {"tool_calls": each}} for each in calls]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    chunks = [{"id": "x", "model": "m", "choices": [choice]} for choice in choices]
    events = (f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)
    return ScriptedAnswer((*events, b"data: [DONE]\n\n"))


def piece(id: str, day: str, **more: Any) -> dict[str, Any]:
    arguments = json.dumps({"day": day})
    return {"id": id, "type": "function", "function": {"name": "read_tide", "arguments": arguments}, **more}


@pytest.mark.parametrize(
    "answer",
    [
        stream_calls([piece("a", "today")], [piece("b", "tomorrow")]),
        stream_calls([piece("a", "today", index=0)], [piece("b", "tomorrow", index=0)]),
        stream_calls([piece("a", "today", index=0), piece("b", "tomorrow", index=0)]),
        stream_calls([piece("a", "today"), piece("b", "tomorrow")]),
    ],
)
def test_calls_of_servers_that_do_not_number_them_stay_apart(answer: ScriptedAnswer) -> None:
    days = [{"day": "today"}, {"day": "tomorrow"}]
    question: Any = [{"role": "user", "content": "Hi"}]
    with raw_upstream(always=answer) as upstream:
        one = LlmUpstreamConfig("local", api="chat", url=upstream.url)
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served:
            parts, _ = generate(build_client(served.url), True, "Hi")
            assert [part.function_call.args for part in parts if part.function_call] == days
            with (
                anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0) as client,
                client.messages.stream(model="m", max_tokens=9, messages=question, tools=[MESSAGES_TOOL]) as events,
            ):
                blocks: Any = events.get_final_message().content
            assert [block.input for block in blocks] == days
            with openai.OpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=0) as other:
                *_, last = other.responses.create(model="m", input="Hi", tools=[RESPONSES_TOOL], stream=True)
            output: Any = last
            assert [json.loads(item.arguments) for item in output.response.output] == days
        searched = LlmUpstreamConfig(
            "local", url=upstream.url, api="chat", tool_search="on", always_expose=("read_tide",)
        )
        tool = {"type": "function", "function": {"name": "read_tide", "parameters": TIDE}}
        with (
            running_llm_gateway(LlmGateway(LlmGatewayConfig((searched,)))) as served,
            openai.OpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=0) as other,
        ):
            asked: Any = {"model": "m", "messages": question, "tools": [tool, *chat_functions()], "stream": True}
            deltas = [choice.delta for chunk in other.chat.completions.create(**asked) for choice in chunk.choices]
        calls: dict[int, str] = {}
        for call in (call for delta in deltas for call in delta.tool_calls or ()):
            calls[call.index] = calls.get(call.index, "") + call.function.arguments
        assert [json.loads(arguments) for arguments in calls.values()] == days


def test_alias_of_an_openai_upstream_answers_a_gemini_client() -> None:
    with ScriptedModel([Turn("Hello")]) as model:
        one = LlmUpstreamConfig("openai", api="openai", url=model.url, key="own")
        aliases = {"gemini-3-pro": (ModelTarget("openai", "gpt-4.1"),)}
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,), aliases))) as served:
            client = build_client(served.url)
            reply = client.models.generate_content(model="gemini-3-pro", contents="Hi")
    assert reply.text == "Hello"
    assert (model.requests[0].path, model.requests[0].body["model"]) == ("/v1/chat/completions", "gpt-4.1")
