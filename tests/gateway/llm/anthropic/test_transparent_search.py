"""Clients that know nothing of tool search, with more tools than a model should be shown."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.gateway.llm.anthropic.requests import (
    Conversation,
    block_types,
    conversation_with,
    tool,
    tool_result_message,
)
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


@pytest.fixture(autouse=True)
def _use_lexical_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are enough to find these, and take no model that has to be loaded."""
    monkeypatch.setattr("toolcrib.gateway.llm.tool_index.MAX_ENCODED_TOOLS", 0)
    monkeypatch.setattr("toolcrib.gateway.llm.tool_index.MAX_STATIC_TOOLS", 0)


@both
def test_the_client_sees_an_ordinary_reply_that_calls_one_of_its_tools(stream: bool) -> None:
    script = [
        Turn("Let me see.", search_call("read_tide")),
        Turn("Here.", ToolCall("read_tide", {"text": "now"})),
    ]
    with conversation_with(script, stream=stream) as asked:
        reply = asked.send(MANY, f"When is high tide? {stream}")
        first, second = asked.upstream_requests
    assert block_types(reply) == ["text", "text", "tool_use"]
    assert [block.get("text") for block in reply["content"][:2]] == ["Let me see.", "Here."]
    used = reply["content"][2]
    assert (used["name"], used["input"]) == ("read_tide", {"text": "now"})
    assert "caller" not in used and not reply["usage"].get("server_tool_use")
    assert reply["stop_reason"] == "tool_use"
    assert first.tool_names == ("search_tools",)
    assert second.tool_names == ("search_tools", "read_tide")
    assert second.body["tools"][1] == MANY[-2]
    passes = [max(1, len(json.dumps(one.body, ensure_ascii=False)) // 4) for one in (first, second)]
    assert reply["usage"]["input_tokens"] == sum(passes)


@both
def test_what_was_found_stays_loaded_for_the_rest_of_the_conversation(stream: bool) -> None:
    script = [
        Turn(search_call("read_tide")),
        Turn(ToolCall("moor_boat", {})),
        Turn("Moored."),
        Turn("Who?"),
    ]
    with conversation_with(script, stream=stream) as asked:
        first = asked.send(MANY, f"Come in. {stream}")
        asked.send(MANY, tool_result_message(first["content"][0]["id"]))
        asked.history = []
        asked.send(MANY, f"Something else. {stream}")
        shown = [one.tool_names for one in asked.upstream_requests]
    # The one that was found, then the one that was called without a search.
    assert shown[2] == ("search_tools", "read_tide", "moor_boat")
    assert shown[3] == ("search_tools",)


@pytest.mark.parametrize("name", ["3d_print", "tide_" * 25])
def test_the_model_is_told_of_a_tool_by_the_name_it_is_sent_under(name: str) -> None:
    script = [Turn(search_call("print a solid body")), Turn(ToolCall(name, {}))]
    with conversation_with(script) as asked:
        reply = asked.send([*MANY, tool(name, "Print a solid body")], f"Print. {name}")
        assert asked.upstream_requests[1].tool_names == ("search_tools", name)
        (told,) = asked.upstream_requests[1].results
    assert json.loads(told)["found"][0]["name"] == name
    assert reply["content"][0]["name"] == name


def test_without_the_memory_what_was_called_is_still_there() -> None:
    script = [Turn(search_call("read_tide")), Turn(ToolCall("read_tide", {})), Turn("Noon.")]
    with conversation_with(script) as asked:
        first = asked.send(MANY, "Forgetful.")
        asked.server.gateway.memory.clear()
        asked.send(MANY, tool_result_message(first["content"][0]["id"]))
        assert asked.upstream_requests[2].tool_names == ("search_tools", "read_tide")


@both
def test_a_search_beside_a_call_is_answered_and_only_the_call_is_seen(stream: bool) -> None:
    script = [Turn(ToolCall("errand_1", {}), search_call("read_tide")), Turn("Done.")]
    with conversation_with(script, stream=stream) as asked:
        first = asked.send(MANY, f"Both. {stream}")
        asked.send(MANY, tool_result_message(first["content"][0]["id"]))
        assert asked.upstream_requests[1].tool_names == ("search_tools", "read_tide", "errand_1")
    assert block_types(first) == ["tool_use"] and first["stop_reason"] == "tool_use"


@both
def test_a_model_that_only_searches_is_stopped(stream: bool) -> None:
    def endless(request: Request) -> Turn:
        return Turn(search_call("read_tide"))

    with conversation_with(endless, stream=stream, settings={"max_rounds": 3}) as asked:
        reply = asked.send(MANY, "Search for ever.")
        names = [one.tool_names for one in asked.upstream_requests]
    assert len(names) == 4 and "search_tools" not in names[-1]
    assert reply["content"] == [] and reply["stop_reason"] == "end_turn"


def get_treatment(asked: Conversation, tools: list[dict[str, Any]], **headers: str) -> str:
    raw = asked.client.messages.with_raw_response.create(
        model="plain",
        max_tokens=9,
        messages=[{"role": "user", "content": "Hi"}],
        tools=tools,  # type: ignore[arg-type]
        extra_headers=headers,
    )
    treated = str(raw.headers["x-toolcrib-treatment"])
    if treated == "transparent":
        # Those of the client; our search tool is none of them.
        assert raw.headers["x-toolcrib-tools"] == str(len(tools))
        assert raw.headers["x-toolcrib-tools-shown"] == "0"
    return treated


def answer_done(request: Request) -> Turn:
    return Turn("Done.")


def test_it_begins_with_many_tools_or_with_large_ones_or_when_it_is_told_to() -> None:
    with conversation_with(answer_done) as asked:
        assert get_treatment(asked, MANY[:30]) == "off"
        assert get_treatment(asked, MANY[:31]) == "transparent"
        assert get_treatment(asked, [tool("large", "word " * 9_000)]) == "transparent"
        assert get_treatment(asked, MANY[:2], **{"x-toolcrib-tool-search": "on"}) == "transparent"
        assert get_treatment(asked, MANY, **{"x-toolcrib-tool-search": "off"}) == "off"
        # What is wrong with a request is for the upstream to say.
        with pytest.raises(anthropic.BadRequestError, match="must be unique"):
            get_treatment(asked, [*MANY, MANY[0]])
    with conversation_with(answer_done, tool_search="off") as asked:
        assert get_treatment(asked, MANY) == "off"


def test_some_tools_are_never_held_back() -> None:
    bash = {"type": "bash_20250124", "name": "bash"}
    pinned = tool("bell", defer_loading=False)
    tools = [bash, *MANY, pinned]
    with conversation_with(answer_done) as asked:
        asked.send(tools, "Hi", tool_choice={"type": "tool", "name": "errand_7"})
        (request,) = asked.upstream_requests
    assert request.tool_names == ("bash", "errand_7", "bell", "search_tools")


def test_a_cache_breakpoint_moves_to_the_search_tool() -> None:
    mark = {"type": "ephemeral"}
    with conversation_with(answer_done) as asked:
        asked.send([*MANY, tool("last", cache_control=mark)], "Hi")
        (request,) = asked.upstream_requests
    assert request.body["tools"][-1]["cache_control"] == mark
    assert request.body["tools"][-1]["name"] == "search_tools"


def test_an_answer_that_the_client_began_is_gone_on_with() -> None:
    script = [Turn(search_call("read_tide")), Turn("done.")]
    with conversation_with(script) as asked:
        asked.send(MANY, "Begin.", {"role": "assistant", "content": "Well, "})
        second = asked.upstream_requests[1].body["messages"]
    assert [one["role"] for one in second] == ["user", "assistant", "user"]
    assert second[1]["content"][0] == {"type": "text", "text": "Well, "}


def test_tokens_are_counted_of_what_the_model_would_be_sent() -> None:
    with conversation_with(answer_done) as asked:

        def count(tools: Any) -> int:
            said: Any = [{"role": "user", "content": "Hi"}]
            counted = asked.client.messages.count_tokens(model="m", messages=said, tools=tools)
            return counted.input_tokens

        assert count(MANY) < count(MANY[:20])
