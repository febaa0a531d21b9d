"""Official clients of Messages and Responses in front of an upstream that has only Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from tests.gateway.llm.serving_openai import functions
from tests.support.scripted_model.server import Request, Script, ScriptedModel
from tests.support.scripted_model.turn import Failure, ToolCall, Turn
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway

both = pytest.mark.parametrize("stream", [False, True])
TIDE = {"type": "object", "properties": {"day": {"type": "string"}}}
MESSAGES_TOOL: Any = {"name": "read_tide", "description": "Tell when the water is high", "input_schema": TIDE}
RESPONSES_TOOL: Any = {"type": "function", "name": "read_tide", "parameters": TIDE, "strict": False}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


def tide(request: Request) -> Turn:
    """Call a tool, then report its result."""
    if request.results:
        return Turn(f"High tide is at {request.results[-1]}.")
    return Turn("Let me look.", ToolCall("read_tide", {"day": "today"}))


@contextmanager
def chat_gateway(script: Script, **settings: Any) -> Iterator[tuple[str, ScriptedModel]]:
    with ScriptedModel(script) as model:
        upstream = LlmUpstreamConfig("local", api="chat", url=model.url, key="own-key", search="exact")
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((upstream,), **settings))) as served:
            yield served.url, model
    assert all(request.path == "/v1/chat/completions" for request in model.requests)
    assert all(request.headers["authorization"] == "Bearer own-key" for request in model.requests)


def create_message(client: anthropic.Anthropic, stream: bool, **body: Any) -> Any:
    options: Any = {"model": "qwen3", "max_tokens": 99, **body}
    if not stream:
        return client.messages.create(**options)
    with client.messages.stream(**options) as events:
        return events.get_final_message()


def create_response(client: openai.OpenAI, stream: bool, **body: Any) -> Any:
    options: Any = {"model": "qwen3", **body}
    if not stream:
        return client.responses.create(**options)
    with client.responses.stream(**options) as events:
        return events.get_final_response()


@both
def test_messages_client_completes_a_task(stream: bool) -> None:
    with chat_gateway(tide) as (url, model), anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
        history: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "When is high tide?"}, image]}]
        options: Any = {
            "tools": [MESSAGES_TOOL],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "stop_sequences": ["END"],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        }
        first = create_message(client, stream, messages=history, **options)
        assert first.stop_reason == "tool_use" and first.usage.input_tokens > 0 and first.usage.output_tokens > 0
        assert [block.type for block in first.content] == ["text", "tool_use"]
        assert first.content[1].input == {"day": "today"}
        result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "noon"}
        history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second = create_message(client, stream, messages=history, **options)
        assert second.stop_reason == "end_turn" and second.content[0].text == "High tide is at noon."
    sent = model.requests[1].body
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool"]
    assert sent["messages"][1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    assert sent["messages"][2]["tool_calls"][0]["id"] == sent["messages"][3]["tool_call_id"] == first.content[1].id
    assert sent["tool_choice"] == "required" and sent["parallel_tool_calls"] is False and sent["stop"] == ["END"]


@both
def test_responses_client_completes_a_task(stream: bool) -> None:
    with chat_gateway(tide) as (url, model), openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
        question = {"role": "user", "content": [{"type": "input_text", "text": "When is high tide?"}, image]}
        options: Any = {"tools": [RESPONSES_TOOL], "instructions": "Be brief.", "store": False}
        first = create_response(client, stream, input=[question], **options)
        assert first.status == "completed" and first.usage.input_tokens > 0
        assert [item.type for item in first.output] == ["message", "function_call"]
        call = first.output[1]
        assert call.name == "read_tide" and call.arguments == '{"day": "today"}'
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "noon"}
        second = create_response(client, stream, input=[question, *first.output, output], **options)
        assert second.output_text == "High tide is at noon."
    sent = model.requests[1].body["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[2]["content"] == "Let me look." and sent[2]["tool_calls"][0]["id"] == sent[3]["tool_call_id"]


@both
def test_custom_tool_of_a_responses_client_becomes_a_function_and_back(stream: bool) -> None:
    def patch(request: Request) -> Turn:
        return Turn("Done.") if request.results else Turn(ToolCall("apply_patch", {"input": "*** Begin"}))

    tool = {"type": "custom", "name": "apply_patch", "description": "Edit files", "format": {"type": "text"}}
    with chat_gateway(patch) as (url, _), openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        first = create_response(client, stream, input="Edit", tools=[tool])
        call = first.output[0]
        assert (call.type, call.name, call.input) == ("custom_tool_call", "apply_patch", "*** Begin")
        output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "ok"}
        second = create_response(client, stream, input=[*first.output, output], tools=[tool])
        assert second.output_text == "Done."


@both
def test_tools_are_searched_through_a_translation(stream: bool) -> None:
    def search(request: Request) -> Turn:
        if request.results:
            return Turn(ToolCall("send_email", {"recipient": "ann"}))
        return Turn(ToolCall("search_tools", {"query": "electronic letter"}))

    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in functions()
    ]
    with chat_gateway(search, threshold_tools=2) as (url, model):
        headers = {"x-toolcrib-tool-search": "on"}
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, default_headers=headers) as client:
            question = [{"role": "user", "content": "Write to Ann"}]
            message = create_message(client, stream, messages=question, tools=tools)
            assert [(block.type, block.name) for block in message.content] == [("tool_use", "send_email")]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, default_headers=headers) as other:
            response = create_response(other, stream, input="Write to Ann", tools=functions())
            assert [(item.type, item.name) for item in response.output] == [("function_call", "send_email")]
    assert len(model.requests) == 4
    assert "send_email" not in model.requests[0].tool_names


def test_system_message_in_the_middle_keeps_its_role() -> None:
    question: list[Any] = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}]
    with (
        chat_gateway([Turn("Hello.")]) as (url, model),
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client,
    ):
        create_message(client, False, messages=question)
        question[1]["clear_at"] = "next_user_message"
        with pytest.raises(anthropic.BadRequestError, match=r"`messages\.1\.clear_at`"):
            create_message(client, False, messages=question)
    (request,) = model.requests
    assert request.body["messages"][1] == {"role": "system", "content": "Be brief."}


def test_images_in_results_of_tools_follow_in_a_message_of_the_user() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    seen: Any = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    calls: list[Any] = [{"type": "tool_use", "id": id, "name": "read_tide", "input": {}} for id in ("a", "b")]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "A chart:"}, image]},
        {"type": "tool_result", "tool_use_id": "b", "content": [image, image], "is_error": True},
    ]
    history: list[Any] = [
        {"role": "user", "content": "When is high tide?"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [*results, {"type": "text", "text": "Look closely."}]},
    ]
    output = [
        {"type": "input_text", "text": "A chart:"},
        {"type": "input_image", "image_url": seen["image_url"]["url"]},
    ]
    items: list[Any] = [
        {"role": "user", "content": "When is high tide?"},
        {"type": "function_call", "call_id": "a", "name": "read_tide", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": output},
    ]
    with chat_gateway([Turn("At six.")] * 2) as (url, model):
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
            create_message(client, False, messages=history, tools=[MESSAGES_TOOL])
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as other:
            create_response(other, False, input=items, tools=[RESPONSES_TOOL])
    first, second = (request.body["messages"] for request in model.requests)
    assert [message["role"] for message in first] == ["user", "assistant", "tool", "tool", "user"]
    assert first[2]["content"].startswith("A chart:") and first[3]["content"].startswith("Error: [2 image(s)")
    parts = first[4]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text", "image_url", "image_url", "text"]
    assert "call a" in parts[0]["text"] and parts[1] == seen and parts[-1]["text"] == "Look closely."
    assert [message["role"] for message in second] == ["user", "assistant", "tool", "user"]
    assert second[3]["content"][1] == seen


@pytest.mark.parametrize(
    ("model", "thinking", "effort"),
    [
        ("gpt-oss-120b", {"type": "enabled", "budget_tokens": 1024}, "low"),
        ("openai/gpt-5.2", {"type": "enabled", "budget_tokens": 16_000}, "medium"),
        ("o3", {"type": "enabled", "budget_tokens": 60_000}, "high"),
        ("gpt-5.2", {"type": "adaptive"}, None),
        ("qwen3", {"type": "enabled", "budget_tokens": 1024}, None),
    ],
)
def test_budget_of_thinking_becomes_an_effort_where_the_model_has_one(
    model: str, thinking: dict[str, Any], effort: str | None
) -> None:
    with (
        chat_gateway([Turn("Hello")]) as (url, upstream),
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client,
    ):
        question: Any = [{"role": "user", "content": "Hi"}]
        create_message(client, False, model=model, max_tokens=64_000, messages=question, thinking=thinking, timeout=60)
    assert upstream.requests[0].body.get("reasoning_effort") == effort


@both
@pytest.mark.parametrize("thinking", [{"type": "disabled"}, {"type": "adaptive", "display": "omitted"}])
def test_client_that_wants_no_thinking_gets_none(stream: bool, thinking: dict[str, Any]) -> None:
    reply = b'{"id": "x", "choices": [{"finish_reason": "stop", "message": {"content": "42", "reasoning": "Hm."}}]}'
    answer = ScriptedAnswer((reply,), content_type="application/json", length=len(reply))
    with raw_upstream(always=answer) as upstream:
        one = LlmUpstreamConfig("local", api="chat", url=upstream.url)
        with (
            running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served,
            anthropic.Anthropic(base_url=served.url, api_key="theirs", max_retries=0) as client,
        ):
            question: Any = [{"role": "user", "content": "Hi"}]
            message = create_message(client, stream, messages=question, thinking=thinking)
    assert [(block.type, block.text) for block in message.content] == [("text", "42")]


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("tools.0: the tool web_search_20250305", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ("thinking.type: the type forever", {"thinking": {"type": "forever"}}),
    ("`thinking.interleaved`", {"thinking": {"type": "adaptive", "interleaved": True}}),
    ("`mcp_servers`", {"extra_body": {"mcp_servers": [{"type": "url", "url": "https://a", "name": "a"}]}}),
    (
        "messages.0.content.0: a block of type document with a base64 source",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="},
                        }
                    ],
                }
            ]
        },
    ),
]


@pytest.mark.parametrize(("name", "body"), REFUSED)
def test_what_chat_completions_cannot_carry_is_refused_by_name(name: str, body: dict[str, Any]) -> None:
    with chat_gateway([]) as (url, model), anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        with pytest.raises(anthropic.BadRequestError) as raised:
            create_message(client, False, **{"messages": [{"role": "user", "content": "Hi"}], **body})
        assert name in str(raised.value)
        assert model.requests == []


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("tools.0: the tool web_search", {"tools": [{"type": "web_search"}]}),
        ("`previous_response_id`", {"previous_response_id": "resp_1"}),
        ("input.0: an item of type item_reference", {"input": [{"type": "item_reference", "id": "x"}]}),
    ],
)
def test_what_responses_cannot_carry_over_is_refused_by_name(name: str, body: dict[str, Any]) -> None:
    with chat_gateway([]) as (url, _), openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as raised:
            create_response(client, False, **{"input": "Hi", **body})
        assert name in str(raised.value)


@both
def test_errors_of_the_upstream_have_the_format_of_the_client(stream: bool) -> None:
    with chat_gateway([Failure(429, "slow down")] * 2) as (url, _):
        client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        with client, pytest.raises(anthropic.RateLimitError, match="slow down"):
            create_message(client, stream, messages=[{"role": "user", "content": "Hi"}])
        other = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        with other, pytest.raises(openai.RateLimitError, match="slow down"):
            create_response(other, stream, input="Hi")


def test_reasoning_is_shown_and_upstream_that_does_not_stream_is_replayed_as_events() -> None:
    reply = (
        b'{"id": "x", "model": "qwen3", "choices": [{"index": 0, "finish_reason": "length", "message": '
        b'{"role": "assistant", "content": "42", "reasoning_content": "Hm."}}], '
        b'"usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}}'
    )
    answer = ScriptedAnswer((reply,), content_type="application/json", length=len(reply))
    with raw_upstream(always=answer) as upstream:
        one = LlmUpstreamConfig("local", api="chat", url=upstream.url)
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served:
            with anthropic.Anthropic(base_url=served.url, api_key="theirs", max_retries=0) as client:
                message = create_message(client, True, messages=[{"role": "user", "content": "Hi"}])
            with openai.OpenAI(base_url=f"{served.url}/v1", api_key="theirs", max_retries=0) as other:
                *_, last = other.responses.create(model="qwen3", input="Hi", stream=True)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.stop_reason == "max_tokens"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (1, 8)
    assert last.type == "response.incomplete"
    response: Any = last.response
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert [headers["authorization"] for headers in upstream.headers] == ["Bearer theirs"] * 2
