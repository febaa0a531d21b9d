"""Responses through the gateway, with OpenAI's official client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.gateway.llm.openai_responses.requests import CLIENT, CRM, SEARCH, USER, Json, deferred_functions
from tests.gateway.llm.serving_openai import OpenAiSetup, functions, openai_setup
from tests.support.scripted_model.turn import Failure, ToolCall, Turn

LOOK = ToolCall("search_tools", {"query": "exchange rate of currencies"})
RATE = ToolCall("get_exchange_rate", {"currency": "USD"})


def create(setup: OpenAiSetup, input: Any = None, tools: Any = None, **more: Any) -> Response:
    given: Json = {"model": "m", "input": input or [USER], "tools": deferred_functions(), **more}
    if tools is not None:
        given["tools"] = tools
    response: Response = setup.client.responses.create(**given)
    return response


def create_streamed(setup: OpenAiSetup, input: Any = None, tools: Any = None, **more: Any) -> Response:
    given: Json = {"model": "m", "input": input or [USER], "tools": deferred_functions(), **more}
    if tools is not None:
        given["tools"] = tools
    with setup.client.responses.stream(**given) as stream:
        numbers = [event.sequence_number for event in stream]
        assert numbers == list(range(len(numbers)))
        final: Response = stream.get_final_response()
        return final


WAYS = pytest.mark.parametrize("way", [create, create_streamed])


def output_types(response: Response) -> list[str]:
    return [item.type for item in response.output]


def to_input(response: Response) -> list[Json]:
    """Return the output as a client sends it back."""
    dumped: Json = response.model_dump(mode="json", exclude_unset=True)
    for item in dumped["output"]:
        item.pop("parsed_arguments", None)
    items: list[Json] = dumped["output"]
    return items


def call_output(response: Response, text: str = "0.9") -> list[Json]:
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": text}
        for item in response.output
        if item.type == "function_call"
    ]


@WAYS
def test_hosted_search_over_functions(way: Any) -> None:
    with openai_setup([Turn("I look.", LOOK), Turn(RATE), Turn("0.9 euros.")]) as setup:
        first = way(setup)
        assert output_types(first) == ["message", "tool_search_call", "tool_search_output", "function_call"]
        _, search, found, used = first.output
        assert search.type == "tool_search_call" and search.execution == "server"
        assert search.arguments == {"paths": ["get_exchange_rate"]}
        assert found.type == "tool_search_output" and found.tools[0].type == "function"
        assert found.tools[0].defer_loading is True
        assert used.type == "function_call" and used.namespace == "get_exchange_rate"
        last = way(setup, [USER, *to_input(first), *call_output(first)])
        assert last.output_text == "0.9 euros."
        assert [request.tool_names for request in setup.requests] == [
            ("search_tools",),
            ("search_tools", "get_exchange_rate"),
            ("search_tools", "get_exchange_rate"),
        ]


@WAYS
def test_hosted_search_over_namespace(way: Any) -> None:
    look = ToolCall("search_tools", {"queries": ["crm"]})
    used = ToolCall("crm___list_orders", {"customer": "a"})
    with openai_setup([Turn(look), Turn(used), Turn("Two orders.")]) as setup:
        tools = [SEARCH, CRM]
        first = way(setup, tools=tools)
        found, call = first.output[1], first.output[2]
        assert found.type == "tool_search_output" and found.tools[0].type == "namespace"
        assert [member.name for member in found.tools[0].tools] == ["list_orders", "cancel_order"]
        assert call.type == "function_call"
        assert (call.name, call.namespace) == ("list_orders", "crm")
        history = [USER, *to_input(first), *call_output(first)]
        assert way(setup, history, tools).output_text == "Two orders."
        assert setup.requests[2].body["input"][-2]["name"] == "crm___list_orders"
        for item in history:
            item.pop("namespace", None)
        with pytest.raises(openai.BadRequestError) as raised:
            way(setup, history, tools)
        assert raised.value.message.count("Missing namespace for function_call 'list_orders'")
        assert raised.value.param == "input[3].namespace"


@WAYS
def test_search_by_client(way: Any) -> None:
    look = ToolCall("tool_search", {"goal": "send a letter"})
    used = ToolCall("send_letter", {})
    new = {"type": "function", "name": "send_letter", "parameters": {}, "defer_loading": True}
    with openai_setup([Turn(look), Turn(used), Turn("Sent.")]) as setup:
        first = way(setup, tools=[CLIENT])
        (search,) = first.output
        assert search.type == "tool_search_call" and search.execution == "client"
        assert search.arguments == {"goal": "send a letter"}
        output = {
            "type": "tool_search_output",
            "execution": "client",
            "call_id": search.call_id,
            "status": "completed",
            "tools": [new],
        }
        history = [USER, *to_input(first), output]
        second = way(setup, history, [CLIENT])
        (call,) = second.output
        assert call.type == "function_call" and call.namespace == "send_letter"
        history += [*to_input(second), *call_output(second)]
        assert way(setup, history, [CLIENT]).output_text == "Sent."
        assert setup.requests[2].tool_names == ("tool_search", "send_letter")


@WAYS
def test_transparent_search(way: Any) -> None:
    with openai_setup([Turn(LOOK), Turn(RATE), Turn("0.9 euros.")], threshold_tools=3) as setup:
        first = way(setup, tools=functions())
        assert output_types(first) == ["function_call"]
        assert first.usage is not None and first.usage.input_tokens > 300
        history = [USER, *to_input(first), *call_output(first)]
        assert way(setup, history, functions()).output_text == "0.9 euros."
        before, after = (request.body["input"] for request in setup.requests[1:])
        assert after[: len(before)] == before


@WAYS
def test_trimmed_history_defers_tool_again(way: Any) -> None:
    with openai_setup([Turn(LOOK), Turn(RATE), Turn("Yes?")]) as setup:
        way(setup)
        way(setup, [USER])
        assert setup.requests[-1].tool_names == ("search_tools",)


@WAYS
def test_deferred_tools_without_tool_search_are_refused(way: Any) -> None:
    with openai_setup([]) as setup, pytest.raises(openai.BadRequestError) as raised:
        way(setup, tools=functions(defer_loading=True))
    assert raised.value.body == {
        "message": "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search.",
        "type": "invalid_request_error",
        "param": "tools.defer_loading",
        "code": "invalid_value",
    }


def test_async_client_gets_same_reply_whole_and_streamed() -> None:
    async def both(url: str) -> list[list[str]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client:
            given: Json = {"model": "m", "input": "A dollar?", "tools": deferred_functions()}
            whole = await client.responses.create(**given)
            async with client.responses.stream(**given) as stream:
                streamed = await stream.get_final_response()
            return [output_types(whole), output_types(streamed)]

    with openai_setup([Turn(LOOK), Turn(RATE)] * 2) as setup:
        types = asyncio.run(both(setup.url))
        assert types == [["tool_search_call", "tool_search_output", "function_call"]] * 2


def test_models_with_native_search_are_not_rewritten() -> None:
    with openai_setup(lambda request: Turn("Hm.")) as setup:
        for model, header in (("gpt-5.4", ""), ("m", "native")):
            extra = {"x-toolcrib-tool-search": header} if header else {}
            create(setup, model=model, extra_headers=extra)
            assert setup.requests[-1].body["tools"] == deferred_functions()
        create(setup, model="gpt-5.4-nano")
        assert setup.requests[-1].tool_names == ("search_tools",)


def test_background_with_tool_search_is_refused() -> None:
    with openai_setup(lambda request: Turn("Hm."), threshold_tools=3) as setup:
        create(setup, tools=functions(), background=True)
        assert len(setup.requests[0].body["tools"]) == 6
        with pytest.raises(openai.BadRequestError, match="background"):
            create(setup, background=True)


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
def test_errors_of_upstream_are_forwarded(status: int) -> None:
    with openai_setup(lambda request: Failure(status, "so it is")) as setup:
        for way in (create, create_streamed):
            with pytest.raises(openai.APIStatusError, match="so it is") as raised:
                way(setup)
            assert raised.value.status_code == status
        assert len(setup.requests) == 2


def test_error_in_later_round_is_forwarded() -> None:
    for way in (create, create_streamed):
        script: list[Turn | Failure] = [Turn("I look.", LOOK), Failure(400, "no more")]
        with openai_setup(script) as setup, pytest.raises(openai.APIError, match="no more"):
            way(setup)


def test_history_of_mixed_turn_has_all_answers() -> None:
    now = {**functions()[0], "name": "now"}
    both = Turn(ToolCall("now", {"currency": "x"}), LOOK)
    for tools in ([now, *deferred_functions()], [{**now, "defer_loading": False}, *functions()]):
        with openai_setup([both, Turn("Done.")], {"tool_search": "on"}) as setup:
            first = create(setup, tools=tools)
            history = [USER, *to_input(first), *call_output(first)]
            assert create(setup, history, tools).output_text == "Done."
            assert setup.requests[1].tool_names == ("now", "search_tools", "get_exchange_rate")


def test_stored_responses_are_forwarded() -> None:
    with openai_setup([]) as setup, pytest.raises(openai.APIStatusError):
        setup.client.responses.retrieve("resp_1")


def test_credentials_of_mcp_servers_are_not_returned() -> None:
    mcp = {
        "type": "mcp",
        "server_label": "wiki",
        "server_description": "Pages of an encyclopedia",
        "server_url": "https://wiki.example/mcp",
        "authorization": "hush",
        "defer_loading": True,
    }
    with openai_setup([Turn(ToolCall("search_tools", {"query": "wiki"})), Turn("Hm.")]) as setup:
        done = create(setup, tools=[SEARCH, mcp])
        assert "hush" not in json.dumps(done.model_dump(mode="json")["output"])
        assert setup.requests[1].body["tools"][1]["authorization"] == "hush"


@WAYS
def test_items_and_tools_of_programmatic_calling_pass_unchanged(way: Any) -> None:
    program = {
        "type": "program",
        "id": "prog_1",
        "call_id": "call_p",
        "code": "await tools.send_email({})",
        "fingerprint": "f",
    }
    caller = {"type": "program", "caller_id": "call_p"}
    call = {"type": "function_call", "call_id": "c1", "name": "send_email", "arguments": "{}", "caller": caller}
    output = {"type": "function_call_output", "call_id": "c1", "output": "ok", "caller": caller}
    result = {"type": "program_output", "id": "po_1", "call_id": "call_p", "result": "ok", "status": "completed"}
    history = [USER, program, call, output, result]
    first, *others = functions()
    hosted = {"type": "programmatic_tool_calling"}
    tools = [hosted, {**first, "allowed_callers": ["programmatic"]}, *others]
    with openai_setup([Turn("Done.")], {"tool_search": "on"}) as setup:
        assert way(setup, history, tools).output_text == "Done."
        sent = setup.requests[0].body
    assert [
        {name: item[name] for name in wanted} for item, wanted in zip(sent["input"], history, strict=True)
    ] == history
    assert hosted in sent["tools"] and tools[1] in sent["tools"]
    assert "search_tools" in setup.requests[0].tool_names
    assert others[1]["name"] not in setup.requests[0].tool_names
