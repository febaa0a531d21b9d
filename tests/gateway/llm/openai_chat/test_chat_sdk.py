"""Chat Completions through the gateway, with OpenAI's official client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.gateway.llm.serving_openai import OpenAiSetup, chat_functions, openai_setup
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import Failure, ToolCall, Turn

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "What is a dollar in euros?"}
SEARCH = ToolCall("search_tools", {"query": "exchange rate of currencies"})
RATE = ToolCall("get_exchange_rate", {"currency": "USD"})
FEW: Any = {"threshold_tools": 3}


def complete(setup: OpenAiSetup, messages: list[Json] | None = None, **more: Any) -> Any:
    given: Json = {"model": "m", "messages": messages or [USER], "tools": chat_functions(), **more}
    return setup.client.chat.completions.create(**given)


def complete_streamed(setup: OpenAiSetup, messages: list[Json] | None = None, **more: Any) -> Any:
    given: Json = {"model": "m", "messages": messages or [USER], "tools": chat_functions(), **more}
    with setup.client.chat.completions.stream(**given) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


@pytest.mark.parametrize("way", [complete, complete_streamed])
def test_transparent_search(way: Any) -> None:
    with openai_setup([Turn("I look.", SEARCH), Turn(RATE), Turn("0.9 euros.")], **FEW) as setup:
        first = way(setup)
        (call,) = first.choices[0].message.tool_calls
        assert first.choices[0].finish_reason == "tool_calls"
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_exchange_rate", {"currency": "USD"})
        assert first.choices[0].message.content == "I look."
        message = first.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "0.9"}
        last = way(setup, [USER, message, result])
        assert last.choices[0].message.content == "0.9 euros."
        assert [request.tool_names for request in setup.requests] == [
            ("search_tools",),
            ("search_tools", "get_exchange_rate"),
            ("search_tools", "get_exchange_rate"),
        ]
        before, after = (request.body["messages"] for request in setup.requests[1:])
        assert after[: len(before)] == before


def test_async_client_gets_same_reply_whole_and_streamed() -> None:
    async def both(url: str) -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client:
            given: Json = {"model": "m", "messages": [USER], "tools": chat_functions()}
            create: Any = client.chat.completions.create
            whole = await create(**given)
            pieces = [
                piece.function.arguments
                async for chunk in await create(**given, stream=True)
                for choice in chunk.choices
                for piece in choice.delta.tool_calls or []
            ]
            return whole.choices[0].message.tool_calls[0].function.arguments, "".join(pieces)

    with openai_setup([Turn(SEARCH), Turn(RATE)] * 2, **FEW) as setup:
        whole, streamed = asyncio.run(both(setup.url))
        assert json.loads(whole) == json.loads(streamed) == {"currency": "USD"}


def test_usage_is_sum_of_all_rounds() -> None:
    with openai_setup([Turn(SEARCH), Turn("Hm.")] * 3, **FEW) as setup:
        whole = complete(setup).usage
        counted = complete_streamed(setup, stream_options={"include_usage": True}).usage
        assert complete_streamed(setup).usage is None
        spent = [len(json.dumps(request.body, ensure_ascii=False)) // 4 for request in setup.requests]
        assert whole.prompt_tokens == sum(spent[:2])
        assert counted.prompt_tokens == sum(spent[2:4])


def test_response_headers_report_savings_and_follow_switch() -> None:
    with openai_setup(lambda request: Turn("Hm."), **FEW) as setup:

        def headers(**more: Any) -> Any:
            create: Any = setup.client.chat.completions.with_raw_response.create
            return create(model="m", messages=[USER], tools=chat_functions(), **more).headers

        sent_headers = headers()
        assert sent_headers["x-toolcrib-treatment"] == "transparent"
        assert (sent_headers["x-toolcrib-tools"], sent_headers["x-toolcrib-tools-shown"]) == ("6", "0")
        assert int(sent_headers["x-toolcrib-tokens-saved"]) > 100
        switch = "x-toolcrib-tool-search"
        assert headers(extra_headers={switch: "off"})["x-toolcrib-treatment"] == "off"
        assert headers(extra_headers={switch: "native"})["x-toolcrib-treatment"] == "native"
        assert len(setup.requests[-1].body["tools"]) == 6
        with pytest.raises(openai.BadRequestError, match="is not one of"):
            headers(extra_headers={switch: "perhaps"})


def test_few_tools_are_forwarded_unless_switch_is_on() -> None:
    with openai_setup(lambda request: Turn("Hm."), threshold_tools=7) as setup:
        complete(setup, extra_body={"unheard_of": {"a": [1]}})
        assert setup.requests[0].body["tools"] == chat_functions()
        assert setup.requests[0].body["unheard_of"] == {"a": [1]}
        complete(setup, extra_headers={"x-toolcrib-tool-search": "on"})
        assert setup.requests[1].tool_names == ("search_tools",)


@pytest.mark.parametrize(
    "more", [{"n": 2}, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}]
)
def test_unsupported_requests_are_forwarded(more: Json) -> None:
    with openai_setup(lambda request: Turn("Hm."), **FEW) as setup:
        complete(setup, **more)
        assert setup.requests[0].body["tools"] == chat_functions()


def test_deferred_tools_are_searched_when_switch_is_off() -> None:
    tools = chat_functions(defer_loading=True)
    with openai_setup([Turn(SEARCH), Turn(RATE)], {"tool_search": "off"}) as setup:
        done = complete(setup, tools=tools)
        assert done.choices[0].message.tool_calls[0].function.name == "get_exchange_rate"
        assert "defer_loading" not in json.dumps(setup.requests[1].body["tools"])
        with pytest.raises(openai.BadRequestError, match="send n=1"):
            complete(setup, tools=tools, n=2)


def test_client_can_search_itself_with_tool_references() -> None:
    find = {"type": "function", "function": {"name": "find_tools", "parameters": {}}}
    tools = [find, *chat_functions(defer_loading=True)]
    call = {"id": "call_1", "type": "function", "function": {"name": "find_tools", "arguments": "{}"}}
    reference = [{"type": "tool_reference", "tool_name": "send_email"}]
    history = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": reference},
    ]
    with openai_setup([Turn("Let me."), Turn(ToolCall("send_email", {"recipient": "a"}))]) as setup:
        complete(setup, tools=tools)
        done = complete(setup, history, tools=tools)
        assert setup.requests[0].tool_names == ("find_tools",)
        assert setup.requests[1].tool_names == ("find_tools", "send_email")
        assert "send_email" in setup.requests[1].results[0]
        assert done.choices[0].message.tool_calls[0].function.name == "send_email"


def test_too_many_tools_are_refused() -> None:
    with openai_setup([], max_tools=5) as setup, pytest.raises(openai.BadRequestError) as raised:
        complete(setup, tools=chat_functions(defer_loading=True))
    assert "6 tools; the limit is 5" in raised.value.message
    assert raised.value.param == "tools"


def test_error_in_later_round_is_forwarded() -> None:
    for way in (complete, complete_streamed):
        script: list[Turn | Failure] = [Turn("I look.", SEARCH), Failure(400, "no more")]
        with openai_setup(script, **FEW) as setup, pytest.raises(openai.APIError, match="no more"):
            way(setup)


def test_endless_searches_stop_after_maximum_rounds() -> None:
    def script(request: Request) -> Turn:
        return Turn(SEARCH) if "search_tools" in request.tool_names else Turn("I give up.")

    with openai_setup(script, max_rounds=3, **FEW) as setup:
        assert complete(setup).choices[0].message.content == "I give up."
        assert len(setup.requests) == 4
        assert complete_streamed(setup).choices[0].message.content == "I give up."
