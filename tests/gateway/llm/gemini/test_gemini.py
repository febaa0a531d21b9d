"""Google's official client through the gateway."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from tests.gateway.llm.serving import running_llm_gateway
from tests.gateway.llm.serving_openai import WORDS, parameters
from tests.support.scripted_model.server import Request, Script, ScriptedModel
from tests.support.scripted_model.turn import Failure, ToolCall, Turn
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig, ModelTarget
from toolcrib.gateway.llm import endpoint
from toolcrib.gateway.llm.gateway import LlmGateway

both = pytest.mark.parametrize("stream", [False, True])
styles = pytest.mark.parametrize("style", ["reveal", "dispatch"])
TOOL = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(name=name, description=about, parameters_json_schema=parameters(field))
        for name, about, field in WORDS
    ]
)


@contextmanager
def gemini_gateway(script: Script, **upstream: Any) -> Iterator[tuple[str, ScriptedModel]]:
    with ScriptedModel(script) as model:
        one = LlmUpstreamConfig("google", api="gemini", url=model.url, key="own-key", **upstream)
        aliases = {"fast": (ModelTarget("google", "gemini-3-flash"),)}
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,), aliases))) as served:
            yield served.url, model
    assert all(request.headers["x-goog-api-key"] == "own-key" for request in model.requests)


@contextmanager
def gemini_client(script: Script, **upstream: Any) -> Iterator[tuple[genai.Client, ScriptedModel]]:
    with gemini_gateway(script, **upstream) as (url, model):
        options = types.HttpOptions(base_url=url, retry_options=types.HttpRetryOptions(attempts=1))
        yield genai.Client(api_key="theirs", http_options=options, vertexai=False), model


def generate(client: genai.Client, stream: bool, contents: Any, model: str = "gemini-3-pro") -> tuple[list[Any], Any]:
    """Return the parts of a reply and its last chunk."""
    config = types.GenerateContentConfig(
        tools=[TOOL], automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
    )
    options: Any = {"model": model, "contents": contents, "config": config}
    if not stream:
        reply = client.models.generate_content(**options)
        return list(reply.candidates[0].content.parts), reply  # type: ignore[index, union-attr, arg-type]
    chunks = list(client.models.generate_content_stream(**options))
    parts = [part for chunk in chunks for each in chunk.candidates or () for part in each.content.parts]  # type: ignore[union-attr]
    return parts, chunks[-1]


@styles
@both
def test_official_client_gets_tool_search_transparently(stream: bool, style: str) -> None:
    def work(request: Request) -> Turn:
        if len(request.body["contents"]) == 1:
            return Turn("One moment. ", ToolCall("search_tools", {"query": "electronic letter to somebody"}))
        if "Sent." in str(request.results):
            return Turn("I have written to Ann.")
        arguments = {"recipient": "ann"}
        if style == "reveal":
            return Turn(ToolCall("send_email", arguments))
        return Turn(ToolCall("call_tool", {"tool_name": "send_email", "tool_input": arguments}))

    with gemini_client(work, tool_search="on", style=style) as (client, model):
        history: list[Any] = [types.Content(role="user", parts=[types.Part(text="Write to Ann")])]
        parts, last = generate(client, stream, history)
        calls = [part.function_call for part in parts if part.function_call]
        assert [(call.name, call.args) for call in calls] == [("send_email", {"recipient": "ann"})]
        assert "".join(part.text or "" for part in parts) == "One moment. "
        assert last.candidates[0].finish_reason == "STOP"
        response = types.FunctionResponse(id=calls[0].id, name="send_email", response={"output": "Sent."})
        history.append(types.Content(role="model", parts=[part for part in parts if part.text != ""]))
        history.append(types.Content(role="user", parts=[types.Part(function_response=response)]))
        parts, last = generate(client, stream, history)
        assert "".join(part.text or "" for part in parts) == "I have written to Ann."
    first, second, third = (request.body["contents"] for request in model.requests)
    # The hidden search is at its place, so the prefix of the prompt stays the same.
    assert second[: len(first)] == first and third[: len(second)] == second
    assert last.usage_metadata.prompt_token_count > 0
    listed = [request.tool_names for request in model.requests]
    assert "send_email" not in listed[0]
    assert ("send_email" in listed[2]) == (style == "reveal")


@both
def test_request_with_few_tools_is_forwarded(stream: bool) -> None:
    with gemini_client(lambda request: Turn("Hello")) as (client, model):
        parts, _ = generate(client, stream, "Hi", "fast")
        assert "".join(part.text or "" for part in parts) == "Hello"
        assert len(model.requests[0].tool_names) == len(WORDS)
        assert "/models/gemini-3-flash:" in model.requests[0].path
        assert client.models.count_tokens(model="gemini-3-pro", contents="Hi").total_tokens


@both
def test_errors_are_in_the_format_of_the_api(stream: bool) -> None:
    with gemini_client([Failure(429, "slow down")], tool_search="on") as (client, _):
        with pytest.raises(errors.ClientError, match="slow down") as raised:
            generate(client, stream, "Hi")
        assert raised.value.code == 429
    with running_llm_gateway(LlmGateway(LlmGatewayConfig())) as served:
        reply = httpx2.post(f"{served.url}/v1beta/models/x:generateContent", json={})
    assert reply.status_code == 404
    assert reply.json()["error"]["status"] == "NOT_FOUND"


@both
def test_definitions_are_sent_with_the_message_that_needs_them(stream: bool) -> None:
    arguments = {"tool_name": "send_email", "tool_input": {"recipient": "ann"}}
    script = [Turn(ToolCall("call_tool", arguments)), Turn("Sent.")]
    with gemini_client(script, tool_search="on", style="dispatch", tier="stub") as (client, model):
        history: list[Any] = [types.Content(role="user", parts=[types.Part(text=WORDS[1][1])])]
        parts, _ = generate(client, stream, history)
        (call,) = (part.function_call for part in parts if part.function_call)
        assert (call.name, call.args) == ("send_email", {"recipient": "ann"})
        response = types.FunctionResponse(id=call.id, name="send_email", response={"output": "Done."})
        history.append(types.Content(role="model", parts=[part for part in parts if part.text != ""]))
        history.append(types.Content(role="user", parts=[types.Part(function_response=response)]))
        generate(client, stream, history)
    first, second = (request.body["contents"] for request in model.requests)
    assert '"input_schema"' in first[0]["parts"][1]["text"]
    assert second[: len(first)] == first
    # A stub has the field of the schema that the client uses, which has another dialect than `parameters`.
    (declarations,) = (tool["functionDeclarations"] for tool in model.requests[0].body["tools"])
    stub = next(each for each in declarations if each["name"] == "send_email")
    assert "properties" not in stub["parameters_json_schema"] and "parameters" not in stub


def test_silent_stream_has_one_id_and_nothing_that_google_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "PING_SECONDS", 0.01)
    monkeypatch.setattr(endpoint, "CHECK_INTERVAL_SECONDS", 0.01)
    heard = threading.Event()

    def work(request: Request) -> Turn:
        if not request.results:
            return Turn("One moment.", ToolCall("search_tools", {"query": WORDS[1][1]}))
        assert heard.wait(30)
        return Turn("Sent.")

    body = {"contents": [{"role": "user", "parts": [{"text": "Write to Ann"}]}], "tools": declare_words()}
    lines: list[str] = []
    with gemini_gateway(work, tool_search="on") as (url, _):
        path = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
        with httpx2.stream("POST", url + path, json=body, timeout=60) as reply:
            for line in reply.iter_lines():
                lines.append(line)
                if lines[-3:] == ["", "", ""]:
                    heard.set()
    # The official client takes any other line for an error.
    assert all(line.startswith("data: ") for line in lines if line)
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert len({chunk["responseId"] for chunk in chunks}) == 1
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


def test_client_that_drops_the_ids_of_calls_does_not_lose_a_search() -> None:
    # LangChain sends the calls back without their ids.
    rate = {"tool_name": "send_email", "tool_input": {"recipient": "ann"}}
    script = [Turn(ToolCall("search_tools", {"query": WORDS[1][1]})), Turn(ToolCall("call_tool", rate)), Turn("Sent.")]
    with gemini_client(script, tool_search="on", style="dispatch", prefetch=False) as (client, model):
        history: list[Any] = [types.Content(role="user", parts=[types.Part(text="Write to Ann")])]
        parts, _ = generate(client, False, history)
        call = types.FunctionCall(name=parts[0].function_call.name, args=parts[0].function_call.args)
        response = types.FunctionResponse(name=call.name, response={"output": "Done."})
        history.append(types.Content(role="model", parts=[types.Part(function_call=call)]))
        history.append(types.Content(role="user", parts=[types.Part(function_response=response)]))
        generate(client, False, history)
    first, second, third = (request.body["contents"] for request in model.requests)
    assert second[: len(first)] == first and third[: len(second)] == second


def test_fields_in_snake_case_are_read_too() -> None:
    # Google's documentation and some clients write them so.
    url_path = "/v1beta/models/gemini-3-pro:generateContent"
    allowed = {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["send_email"]}}
    script = [
        Turn(ToolCall("call_tool", {"tool_name": "send_email", "tool_input": {"recipient": "ann"}})),
        Turn("Sent."),
        Turn(ToolCall("send_email", {"recipient": "ann"})),
        Turn("Hello."),
    ]
    with gemini_gateway(script, tool_search="on", style="dispatch", prefetch=False) as (url, model):
        body: dict[str, Any] = {
            "contents": [{"role": "user", "parts": [{"text": "Write to Ann"}]}],
            "tools": [{"function_declarations": declare_words()[0]["functionDeclarations"]}, {"google_search": {}}],
        }
        (part,) = httpx2.post(url + url_path, json=body).json()["candidates"][0]["content"]["parts"]
        assert (part["functionCall"]["name"], part["functionCall"]["args"]) == ("send_email", {"recipient": "ann"})
        call, result = part["functionCall"], {"id": part["functionCall"]["id"], "name": "send_email"}
        history = [
            *body["contents"],
            {"role": "model", "parts": [{"function_call": call}]},
            {"role": "user", "parts": [{"function_response": {**result, "response": {"output": "Done."}}}]},
        ]
        httpx2.post(url + url_path, json={**body, "contents": history})
        httpx2.post(url + url_path, json={**body, "tool_config": allowed})
        httpx2.post(url + url_path, json={**body, "generation_config": {"candidate_count": 2}})
    assert model.requests[0].body["tools"][0] == {"google_search": {}}
    assert model.requests[0].tool_names == ("search_tools", "call_tool")
    sent = [next(iter(content["parts"][0].values())) for content in model.requests[1].body["contents"][1:]]
    assert [each["name"] for each in sent] == ["call_tool", "call_tool"]
    # Requests that select among their functions, or ask for several replies, are forwarded unchanged.
    assert all("function_declarations" in request.body["tools"][0] for request in model.requests[2:])


def declare_words() -> list[dict[str, Any]]:
    """Return the functions as a client without an SDK sends them."""
    words = [{"name": name, "description": about, "parameters": parameters(field)} for name, about, field in WORDS]
    return [{"functionDeclarations": words}]


@pytest.mark.parametrize("tool_search", ["on", "off"])
def test_stream_without_events_is_a_json_array(tool_search: str) -> None:
    turns = [Turn("One moment. ", ToolCall("search_tools", {"query": "electronic letter to somebody"}))]
    script = [*turns[: tool_search == "on"], Turn("I have written to Ann.")]
    with gemini_gateway(script, tool_search=tool_search, style="dispatch") as (url, model):
        body = {"contents": [{"role": "user", "parts": [{"text": "Write to Ann"}]}], "tools": declare_words()}
        reply = httpx2.post(f"{url}/v1beta/models/fast:streamGenerateContent?key=theirs", json=body)
    assert reply.headers["content-type"] == "application/json"
    parts = [part for chunk in reply.json() for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts).endswith("I have written to Ann.")
    assert "functionCall" not in str(parts)
    assert reply.json()[-1]["usageMetadata"]["candidatesTokenCount"] > 0
    assert len(model.requests) == len(script)


@both
def test_failure_of_a_stream_without_events_is_readable(stream: bool) -> None:
    turns = [Turn(ToolCall("search_tools", {"query": "electronic letter to somebody"}))]
    script: list[Turn | Failure] = [*(turns if stream else []), Failure(400, "too long")]
    with gemini_gateway(script, tool_search="on", style="dispatch") as (url, _):
        body = {"contents": [{"role": "user", "parts": [{"text": "Write to Ann"}]}], "tools": declare_words()}
        reply = httpx2.post(f"{url}/v1beta/models/fast:streamGenerateContent", json=body)
    error = reply.json()[-1] if stream else reply.json()
    assert error["error"]["message"] == "too long"


@pytest.mark.parametrize("is_nested", [False, True])
def test_tokens_are_counted_as_the_model_would_be_sent_them(is_nested: bool) -> None:
    contents = [{"role": "user", "parts": [{"text": "Write to Ann"}]}]
    request = {"model": "models/fast", "contents": contents, "tools": declare_words()}
    body = {"generateContentRequest": request} if is_nested else {"contents": contents, "tools": declare_words()}
    counts = {}
    for tool_search in ("on", "off"):
        with gemini_gateway([], tool_search=tool_search, style="dispatch") as (url, _):
            counts[tool_search] = httpx2.post(f"{url}/v1beta/models/fast:countTokens", json=body).json()["totalTokens"]
    assert 0 < counts["on"] < counts["off"]
