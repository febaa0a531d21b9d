from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.llm.serving_openai import WORDS, chat_functions
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.openai_chat.endpoint import build_deferred_index, build_transparent_index
from toolcrib.gateway.llm.openai_chat.rewriter import ChatRewriter
from toolcrib.gateway.llm.tools.exposure import Exposure
from toolcrib.gateway.llm.tools.tool_index import ToolIndex

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "What is a dollar in euros?"}
NAMES = [name for name, _, _ in WORDS]


def transparent_index(tools: list[Json] | None = None) -> ToolIndex:
    return build_transparent_index(tools or chat_functions(), Exposure(style="reveal"))


def new_memory() -> ScopedMemory:
    return ScopedMemory(ConversationMemory(100), "somebody")


def build_rewriter(messages: list[Json] | None = None, index: ToolIndex | None = None, **more: Any) -> ChatRewriter:
    body = {"model": "m", "messages": messages or [USER], "tools": [], **more.pop("body", {})}
    settings: Json = {"memory": new_memory(), "max_rounds": 10, **more}
    return ChatRewriter(body, index or transparent_index(), **settings)


def tool_call(name: str, id: str = "call_1", **arguments: Any) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def search_call(query: str = "exchange rate of currencies", id: str = "call_s") -> Json:
    return tool_call("search_tools", id, query=query)


def reply(*calls: Json, content: str | None = None, reason: str = "", **usage: int) -> Json:
    message: Json = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    finish = reason or ("tool_calls" if calls else "stop")
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "c", "model": "m", "choices": [choice], "usage": usage or {"total_tokens": 1}}


def tool_names(body: Json) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", [])]


def test_model_gets_search_tool_then_found_tools() -> None:
    rewriter = build_rewriter(body={"temperature": 0.5, "unheard_of": {"a": 1}})
    assert tool_names(rewriter.next_request()) == ["search_tools"]
    assert rewriter.handle_reply(reply(search_call())) is None
    later = rewriter.next_request()
    assert tool_names(later) == ["search_tools", "get_exchange_rate"]
    assert [message["role"] for message in later["messages"]] == ["user", "assistant", "tool"]
    assert (later["temperature"], later["unheard_of"]) == (0.5, {"a": 1})


def test_client_gets_one_message_with_all_texts_and_usage() -> None:
    rewriter = build_rewriter()
    assert rewriter.handle_reply(reply(search_call(), content="I look.", total_tokens=5)) is None
    done = rewriter.handle_reply(
        reply(tool_call("get_exchange_rate", currency="USD"), content="Found.", total_tokens=7)
    )
    assert done is not None
    (choice,) = done["choices"]
    assert choice["message"]["content"] == "I look.\n\nFound."
    assert [item["function"]["name"] for item in choice["message"]["tool_calls"]] == ["get_exchange_rate"]
    assert choice["finish_reason"] == "tool_calls"
    assert done["usage"] == {"total_tokens": 12}


def test_next_request_starts_with_same_messages() -> None:
    memory = new_memory()
    first = build_rewriter(memory=memory)
    first.handle_reply(reply(search_call(), content="I look."))
    request = first.next_request()
    done = first.handle_reply(reply(tool_call("get_exchange_rate", currency="USD"), content="Found."))
    assert done is not None
    result = {"role": "tool", "tool_call_id": "call_1", "content": "0.9"}
    history = [USER, done["choices"][0]["message"], result]
    again = build_rewriter(history, memory=memory).next_request()
    assert again["messages"][: len(request["messages"])] == request["messages"]
    assert again["tools"] == request["tools"]
    assert again["messages"][-1] == result


def test_called_tool_stays_loaded_without_memory() -> None:
    used = {"role": "assistant", "content": None, "tool_calls": [tool_call("send_email", recipient="a")]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "sent"}
    body = build_rewriter([USER, used, result]).next_request()
    assert tool_names(body) == ["search_tools", "send_email"]
    assert body["messages"] == [USER, used, result]


def test_search_next_to_client_call_is_restored() -> None:
    memory = new_memory()
    tools = [*chat_functions(), *chat_functions(defer_loading=False)[:1]]
    tools[-1]["function"]["name"] = "now"
    first = build_rewriter(index=transparent_index(tools), memory=memory)
    done = first.handle_reply(reply(tool_call("now", currency="x"), search_call()))
    assert done is not None
    message = done["choices"][0]["message"]
    assert [item["function"]["name"] for item in message["tool_calls"]] == ["now"]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "noon"}
    body = build_rewriter([USER, message, result], transparent_index(tools), memory=memory).next_request()
    assert tool_names(body) == ["now", "search_tools", "get_exchange_rate"]
    whole = body["messages"][1]
    assert [item["id"] for item in whole["tool_calls"]] == ["call_1", "call_s"]
    assert [item["tool_call_id"] for item in body["messages"][2:]] == ["call_s", "call_1"]


def test_hidden_messages_are_not_shared_between_clients() -> None:
    memory = ConversationMemory(100)
    first = build_rewriter(memory=ScopedMemory(memory, "ann"))
    first.handle_reply(reply(search_call()))
    done = first.handle_reply(reply(tool_call("get_exchange_rate", currency="USD")))
    assert done is not None
    history = [USER, done["choices"][0]["message"]]
    assert len(build_rewriter(history, memory=ScopedMemory(memory, "ann")).next_request()["messages"]) == 4
    assert len(build_rewriter(history, memory=ScopedMemory(memory, "bob")).next_request()["messages"]) == 2


def test_valid_call_of_unrevealed_tool_is_forwarded() -> None:
    done = build_rewriter().handle_reply(reply(tool_call("book_flight", destination="Rome")))
    assert done is not None
    assert done["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "book_flight"


def test_invalid_call_of_unrevealed_tool_is_corrected_by_model() -> None:
    rewriter = build_rewriter()
    assert rewriter.handle_reply(reply(tool_call("book_flight", where="Rome"))) is None
    body = rewriter.next_request()
    assert tool_names(body) == ["search_tools", "book_flight"]
    assert "destination" in body["messages"][-1]["content"]


def test_call_of_unknown_tool_is_forwarded() -> None:
    done = build_rewriter().handle_reply(reply(tool_call("nonsense")))
    assert done is not None
    assert done["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "nonsense"


def test_search_tool_is_removed_after_maximum_rounds() -> None:
    rewriter = build_rewriter(max_rounds=2)
    assert rewriter.handle_reply(reply(search_call("music"))) is None
    assert rewriter.handle_reply(reply(search_call("plants"))) is None
    assert "search_tools" not in tool_names(rewriter.next_request())
    done = rewriter.handle_reply(reply(search_call("again"), content="I give up."))
    assert done is not None
    message = done["choices"][0]["message"]
    assert message["content"] == "I give up." and "tool_calls" not in message
    assert done["choices"][0]["finish_reason"] == "stop"
    assert (rewriter.rounds, rewriter.searches) == (2, 2)


def test_search_of_truncated_reply_does_not_run() -> None:
    done = build_rewriter().handle_reply(reply(search_call(), content="I am", reason="length"))
    assert done is not None
    assert done["choices"][0]["finish_reason"] == "length"
    assert "tool_calls" not in done["choices"][0]["message"]


def test_forced_tool_is_sent() -> None:
    choice = {"type": "function", "function": {"name": "play_song"}}
    assert tool_names(build_rewriter(body={"tool_choice": choice}).next_request()) == ["search_tools", "play_song"]


def test_references_load_tools_and_become_text() -> None:
    index = build_deferred_index(chat_functions(defer_loading=True), client_loads=True)
    loads = {"role": "assistant", "content": None, "tool_calls": [tool_call("look", "call_1", q="x")]}
    parts = [
        {"type": "tool_reference", "tool_name": "send_email"},
        {"type": "tool_reference", "tool_name": "gone"},
        {"type": "text", "text": "Here."},
    ]
    result = {"role": "tool", "tool_call_id": "call_1", "content": parts}
    body = build_rewriter([USER, loads, result], index).next_request()
    assert tool_names(body) == ["send_email"]
    sent = body["messages"][-1]["content"]
    assert sent.startswith("Here.\n") and "send_email" in sent and "gone" not in sent


def test_empty_tool_list_is_omitted() -> None:
    index = build_deferred_index(chat_functions(defer_loading=True), client_loads=True)
    body = build_rewriter(index=index, body={"tool_choice": "auto", "parallel_tool_calls": True}).next_request()
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


def test_reply_without_single_choice_is_unchanged() -> None:
    strange: Json = {"choices": [], "usage": None}
    assert build_rewriter().handle_reply(strange) is strange


def test_searches_over_limit_get_error() -> None:
    rewriter = build_rewriter()
    assert rewriter.handle_reply(reply(*(search_call(id=f"call_{at}") for at in range(65)))) is None
    sent = [message["content"] for message in rewriter.next_request()["messages"][2:]]
    assert len(sent) == 65 and all("times in a row" in text for text in sent)


@pytest.mark.parametrize("name", ["3d_print", "-print", "7_" + "x" * 62])
def test_tool_name_may_start_with_digit_or_sign(name: str) -> None:
    odd = {"name": name, "description": "Print a solid body", "parameters": {"type": "object"}}
    index = transparent_index([*chat_functions(), {"type": "function", "function": odd}])
    rewriter = build_rewriter(index=index)
    assert tool_names(rewriter.next_request()) == ["search_tools"]
    assert rewriter.handle_reply(reply(search_call("print a solid body"))) is None
    later = rewriter.next_request()
    assert tool_names(later) == ["search_tools", name]
    assert json.loads(later["messages"][-1]["content"])["found"][0]["name"] == name
    done = rewriter.handle_reply(reply(tool_call(name)))
    assert done is not None
    (used,) = done["choices"][0]["message"]["tool_calls"]
    assert used["function"]["name"] == name
