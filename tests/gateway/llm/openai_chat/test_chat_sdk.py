"""Chat Completions through the gateway, with OpenAI's own client as the judge."""

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


def complete(one: OpenAiSetup, messages: list[Json] | None = None, **more: Any) -> Any:
    given: Json = {"model": "m", "messages": messages or [USER], "tools": chat_functions(), **more}
    return one.client.chat.completions.create(**given)


def complete_streamed(one: OpenAiSetup, messages: list[Json] | None = None, **more: Any) -> Any:
    given: Json = {"model": "m", "messages": messages or [USER], "tools": chat_functions(), **more}
    with one.client.chat.completions.stream(**given) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


@pytest.mark.parametrize("way", [complete, complete_streamed])
def test_a_client_that_knows_nothing_completes_a_task(way: Any) -> None:
    with openai_setup([Turn("I look.", SEARCH), Turn(RATE), Turn("0.9 euros.")], **FEW) as one:
        first = way(one)
        (call,) = first.choices[0].message.tool_calls
        assert first.choices[0].finish_reason == "tool_calls"
        assert (call.function.name, json.loads(call.function.arguments)) == (
            "get_exchange_rate",
            {"currency": "USD"},
        )
        assert first.choices[0].message.content == "I look."
        said = first.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "0.9"}
        last = way(one, [USER, said, result])
        assert last.choices[0].message.content == "0.9 euros."
        assert [request.tool_names for request in one.requests] == [
            ("search_tools",),
            ("search_tools", "get_exchange_rate"),
            ("search_tools", "get_exchange_rate"),
        ]
        before, after = (request.body["messages"] for request in one.requests[1:])
        assert after[: len(before)] == before


def test_the_async_client_gets_the_same_streamed_and_not() -> None:
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

    with openai_setup([Turn(SEARCH), Turn(RATE)] * 2, **FEW) as one:
        whole, streamed = asyncio.run(both(one.url))
        assert json.loads(whole) == json.loads(streamed) == {"currency": "USD"}


def test_usage_is_summed_over_rounds_streamed_and_not() -> None:
    with openai_setup([Turn(SEARCH), Turn("Hm.")] * 3, **FEW) as one:
        whole = complete(one).usage
        counted = complete_streamed(one, stream_options={"include_usage": True}).usage
        assert complete_streamed(one).usage is None
        spent = [len(json.dumps(request.body, ensure_ascii=False)) // 4 for request in one.requests]
        assert whole.prompt_tokens == sum(spent[:2])
        assert counted.prompt_tokens == sum(spent[2:4])


def test_the_response_says_what_was_saved_and_the_switch_says_what_is_wanted() -> None:
    with openai_setup(lambda request: Turn("Hm."), **FEW) as one:

        def headers(**more: Any) -> Any:
            create: Any = one.client.chat.completions.with_raw_response.create
            return create(model="m", messages=[USER], tools=chat_functions(), **more).headers

        told = headers()
        assert told["x-toolcrib-treatment"] == "transparent"
        assert (told["x-toolcrib-tools"], told["x-toolcrib-tools-shown"]) == ("6", "0")
        assert int(told["x-toolcrib-tokens-saved"]) > 100
        switch = "x-toolcrib-tool-search"
        assert headers(extra_headers={switch: "off"})["x-toolcrib-treatment"] == "off"
        assert headers(extra_headers={switch: "native"})["x-toolcrib-treatment"] == "native"
        assert len(one.requests[-1].body["tools"]) == 6
        with pytest.raises(openai.BadRequestError, match="is not one of"):
            headers(extra_headers={switch: "perhaps"})


def test_few_tools_are_not_touched_unless_search_is_switched_on() -> None:
    with openai_setup(lambda request: Turn("Hm."), threshold_tools=7) as one:
        complete(one, extra_body={"unheard_of": {"a": [1]}})
        assert one.requests[0].body["tools"] == chat_functions()
        assert one.requests[0].body["unheard_of"] == {"a": [1]}
        complete(one, extra_headers={"x-toolcrib-tool-search": "on"})
        assert one.requests[1].tool_names == ("search_tools",)


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
    ],
)
def test_what_we_could_only_break_is_not_touched(more: Json) -> None:
    with openai_setup(lambda request: Turn("Hm."), **FEW) as one:
        complete(one, **more)
        assert one.requests[0].body["tools"] == chat_functions()


def test_deferred_tools_are_searched_also_where_search_is_switched_off_for_others() -> None:
    tools = chat_functions(defer_loading=True)
    with openai_setup([Turn(SEARCH), Turn(RATE)], {"tool_search": "off"}) as one:
        done = complete(one, tools=tools)
        assert done.choices[0].message.tool_calls[0].function.name == "get_exchange_rate"
        assert "defer_loading" not in json.dumps(one.requests[1].body["tools"])
        with pytest.raises(openai.BadRequestError, match="send n=1"):
            complete(one, tools=tools, n=2)


def test_a_client_that_searches_itself_refers_to_tools() -> None:
    find = {"type": "function", "function": {"name": "find_tools", "parameters": {}}}
    tools = [find, *chat_functions(defer_loading=True)]
    made = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "find_tools", "arguments": "{}"},
    }
    reference = [{"type": "tool_reference", "tool_name": "send_email"}]
    history = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_1", "content": reference},
    ]
    with openai_setup([Turn("Let me."), Turn(ToolCall("send_email", {"recipient": "a"}))]) as one:
        complete(one, tools=tools)
        done = complete(one, history, tools=tools)
        assert one.requests[0].tool_names == ("find_tools",)
        assert one.requests[1].tool_names == ("find_tools", "send_email")
        assert "send_email" in one.requests[1].results[0]
        assert done.choices[0].message.tool_calls[0].function.name == "send_email"


def test_too_many_tools_are_refused_with_the_limit() -> None:
    with openai_setup([], max_tools=5) as one, pytest.raises(openai.BadRequestError) as raised:
        complete(one, tools=chat_functions(defer_loading=True))
    assert "6 tools; the limit is 5" in raised.value.message
    assert raised.value.param == "tools"


def test_an_error_in_a_later_round_is_the_upstreams_own() -> None:
    for way in (complete, complete_streamed):
        script: list[Turn | Failure] = [Turn("I look.", SEARCH), Failure(400, "no more")]
        with openai_setup(script, **FEW) as one, pytest.raises(openai.APIError, match="no more"):
            way(one)


def test_a_model_that_only_searches_ends_after_so_many_rounds() -> None:
    def script(request: Request) -> Turn:
        return Turn(SEARCH) if "search_tools" in request.tool_names else Turn("I give up.")

    with openai_setup(script, max_rounds=3, **FEW) as one:
        assert complete(one).choices[0].message.content == "I give up."
        assert len(one.requests) == 4
        assert complete_streamed(one).choices[0].message.content == "I give up."
