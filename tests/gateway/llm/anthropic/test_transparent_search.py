"""Clients that do not know tool search and send many tools."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.gateway.llm.anthropic.requests import Conversation, block_types, conversation_with, tool, tool_result_message
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import ToolCall, Turn

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
MANY = [
    *(tool(f"errand_{number}", f"Run errand number {number}") for number in range(40)),
    tool("read_tide", "Tell when the water is high"),
    tool("moor_boat", "Tie a boat to the quay"),
]


def search_call(query: str) -> ToolCall:
    return ToolCall("search_tools", {"query": query})


@both
def test_client_gets_reply_without_search(stream: bool) -> None:
    script = [Turn("Let me see.", search_call("read_tide")), Turn("Here.", ToolCall("read_tide", {"text": "now"}))]
    with conversation_with(script, stream=stream) as conversation:
        reply = conversation.send(MANY, f"When is high tide? {stream}")
        first, second = conversation.upstream_requests
    assert block_types(reply) == ["text", "text", "tool_use"]
    assert [block.get("text") for block in reply["content"][:2]] == ["Let me see.", "Here."]
    used = reply["content"][2]
    assert (used["name"], used["input"]) == ("read_tide", {"text": "now"})
    assert "caller" not in used and not reply["usage"].get("server_tool_use")
    assert reply["stop_reason"] == "tool_use"
    assert first.tool_names == ("search_tools",)
    assert second.tool_names == ("search_tools", "read_tide")
    assert second.body["tools"][1] == MANY[-2]
    passes = [max(1, len(json.dumps(item.body, ensure_ascii=False)) // 4) for item in (first, second)]
    assert reply["usage"]["input_tokens"] == sum(passes)


@both
def test_found_tools_stay_loaded_in_conversation(stream: bool) -> None:
    script = [Turn(search_call("read_tide")), Turn(ToolCall("moor_boat", {})), Turn("Moored."), Turn("Who?")]
    with conversation_with(script, stream=stream) as conversation:
        first = conversation.send(MANY, f"Come in. {stream}")
        conversation.send(MANY, tool_result_message(first["content"][0]["id"]))
        conversation.history = []
        conversation.send(MANY, f"Something else. {stream}")
        shown = [item.tool_names for item in conversation.upstream_requests]
    # First the tool that was found, then the tool that was called without a search.
    assert shown[2] == ("search_tools", "read_tide", "moor_boat")
    assert shown[3] == ("search_tools",)


@pytest.mark.parametrize("name", ["3d_print", "tide_" * 25])
def test_search_result_uses_name_of_sent_tool(name: str) -> None:
    script = [Turn(search_call("print a solid body")), Turn(ToolCall(name, {}))]
    with conversation_with(script) as conversation:
        reply = conversation.send([*MANY, tool(name, "Print a solid body")], f"Print. {name}")
        assert conversation.upstream_requests[1].tool_names == ("search_tools", name)
        (text,) = conversation.upstream_requests[1].results
    assert json.loads(text)["found"][0]["name"] == name
    assert reply["content"][0]["name"] == name


def test_called_tool_stays_loaded_without_memory() -> None:
    script = [Turn(search_call("read_tide")), Turn(ToolCall("read_tide", {})), Turn("Noon.")]
    with conversation_with(script) as conversation:
        first = conversation.send(MANY, "Forgetful.")
        conversation.server.gateway.memory.clear()
        conversation.send(MANY, tool_result_message(first["content"][0]["id"]))
        assert conversation.upstream_requests[2].tool_names == ("search_tools", "read_tide")


@both
def test_search_next_to_call_is_hidden(stream: bool) -> None:
    script = [Turn(ToolCall("errand_1", {}), search_call("read_tide")), Turn("Done.")]
    with conversation_with(script, stream=stream) as conversation:
        first = conversation.send(MANY, f"Both. {stream}")
        conversation.send(MANY, tool_result_message(first["content"][0]["id"]))
        assert conversation.upstream_requests[1].tool_names == ("search_tools", "errand_1", "read_tide")
    assert block_types(first) == ["tool_use"] and first["stop_reason"] == "tool_use"


@both
def test_endless_searches_stop_after_maximum_rounds(stream: bool) -> None:
    def endless(request: Request) -> Turn:
        return Turn(search_call("read_tide"))

    with conversation_with(endless, stream=stream, settings={"max_rounds": 3}) as conversation:
        reply = conversation.send(MANY, "Search for ever.")
        names = [item.tool_names for item in conversation.upstream_requests]
    assert len(names) == 4 and "search_tools" not in names[-1]
    assert reply["content"] == [] and reply["stop_reason"] == "end_turn"


def get_treatment(conversation: Conversation, tools: list[dict[str, Any]], **headers: str) -> str:
    raw = conversation.client.messages.with_raw_response.create(
        model="plain",
        max_tokens=9,
        messages=[{"role": "user", "content": "Hi"}],
        tools=tools,  # type: ignore[arg-type]
        extra_headers=headers,
    )
    treated = str(raw.headers["x-toolcrib-treatment"])
    if treated == "transparent":
        # The search tool of the gateway is not counted.
        assert raw.headers["x-toolcrib-tools"] == str(len(tools))
        assert raw.headers["x-toolcrib-tools-shown"] == "0"
    return treated


def answer_done(request: Request) -> Turn:
    return Turn("Done.")


def test_transparent_search_starts_at_threshold_or_switch() -> None:
    with conversation_with(answer_done) as conversation:
        assert get_treatment(conversation, MANY[:30]) == "off"
        assert get_treatment(conversation, MANY[:31]) == "transparent"
        assert get_treatment(conversation, [tool("large", "word " * 9_000)]) == "transparent"
        assert get_treatment(conversation, MANY[:2], **{"x-toolcrib-tool-search": "on"}) == "transparent"
        assert get_treatment(conversation, MANY, **{"x-toolcrib-tool-search": "off"}) == "off"
        # An invalid request is forwarded, and the upstream refuses it.
        with pytest.raises(anthropic.BadRequestError, match="must be unique"):
            get_treatment(conversation, [*MANY, MANY[0]])
    with conversation_with(answer_done, tool_search="off") as conversation:
        assert get_treatment(conversation, MANY) == "off"


def test_pinned_forced_and_provider_tools_are_not_deferred() -> None:
    bash = {"type": "bash_20250124", "name": "bash"}
    pinned = tool("bell", defer_loading=False)
    tools = [bash, *MANY, pinned]
    with conversation_with(answer_done) as conversation:
        conversation.send(tools, "Hi", tool_choice={"type": "tool", "name": "errand_7"})
        (request,) = conversation.upstream_requests
    assert request.tool_names == ("bash", "bell", "search_tools", "errand_7")
    assert "defer_loading" not in request.body["tools"][1]


def test_cache_breakpoint_moves_to_search_tool() -> None:
    mark = {"type": "ephemeral"}
    with conversation_with(answer_done) as conversation:
        conversation.send([*MANY, tool("last", cache_control=mark)], "Hi")
        (request,) = conversation.upstream_requests
    assert request.body["tools"][-1]["cache_control"] == mark
    assert request.body["tools"][-1]["name"] == "search_tools"


def test_prefilled_answer_is_continued() -> None:
    script = [Turn(search_call("read_tide")), Turn("done.")]
    with conversation_with(script) as conversation:
        conversation.send(MANY, "Begin.", {"role": "assistant", "content": "Well, "})
        second = conversation.upstream_requests[1].body["messages"]
    assert [item["role"] for item in second] == ["user", "assistant", "user"]
    assert second[1]["content"][0] == {"type": "text", "text": "Well, "}


def test_token_count_uses_rewritten_request() -> None:
    with conversation_with(answer_done) as conversation:

        def count(tools: Any) -> int:
            messages: Any = [{"role": "user", "content": "Hi"}]
            counted = conversation.client.messages.count_tokens(model="m", messages=messages, tools=tools)
            return counted.input_tokens

        assert count(MANY) < count(MANY[:20])
