from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.llm.serving_openai import WORDS, chat_functions
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.openai_chat.rewriter import ChatRewriter
from toolcrib.gateway.llm.openai_chat.tools import build_deferred_index, build_transparent_index
from toolcrib.gateway.llm.tool_index import ToolIndex
from toolcrib.session.disclosure import Activation, Disclosure

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "What is a dollar in euros?"}
NAMES = [name for name, _, _ in WORDS]


def transparent_index(tools: list[Json] | None = None) -> ToolIndex:
    return build_transparent_index(tools or chat_functions(), Disclosure(Activation(tools=1)))


def new_memory() -> ScopedMemory:
    return ScopedMemory(ConversationMemory(100), "somebody")


def build_rewriter(
    messages: list[Json] | None = None, index: ToolIndex | None = None, **more: Any
) -> ChatRewriter:
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


def test_the_model_is_shown_the_search_tool_and_then_what_it_has_found() -> None:
    one = build_rewriter(body={"temperature": 0.5, "unheard_of": {"a": 1}})
    assert tool_names(one.next_request()) == ["search_tools"]
    assert one.handle_reply(reply(search_call())) is None
    later = one.next_request()
    assert tool_names(later) == ["search_tools", "get_exchange_rate"]
    assert [message["role"] for message in later["messages"]] == ["user", "assistant", "tool"]
    assert (later["temperature"], later["unheard_of"]) == (0.5, {"a": 1})


def test_the_client_sees_one_message_with_what_was_said_and_what_it_cost() -> None:
    one = build_rewriter()
    assert one.handle_reply(reply(search_call(), content="I look.", total_tokens=5)) is None
    done = one.handle_reply(
        reply(tool_call("get_exchange_rate", currency="USD"), content="Found.", total_tokens=7)
    )
    assert done is not None
    (choice,) = done["choices"]
    assert choice["message"]["content"] == "I look.\n\nFound."
    assert [one["function"]["name"] for one in choice["message"]["tool_calls"]] == [
        "get_exchange_rate"
    ]
    assert choice["finish_reason"] == "tool_calls"
    assert done["usage"] == {"total_tokens": 12}


def test_the_next_request_goes_on_from_the_same_messages_byte_for_byte() -> None:
    kept = new_memory()
    first = build_rewriter(memory=kept)
    first.handle_reply(reply(search_call(), content="I look."))
    asked = first.next_request()
    done = first.handle_reply(
        reply(tool_call("get_exchange_rate", currency="USD"), content="Found.")
    )
    assert done is not None
    result = {"role": "tool", "tool_call_id": "call_1", "content": "0.9"}
    history = [USER, done["choices"][0]["message"], result]
    again = build_rewriter(history, memory=kept).next_request()
    assert again["messages"][: len(asked["messages"])] == asked["messages"]
    assert again["tools"] == asked["tools"]
    assert again["messages"][-1] == result


def test_without_the_memory_a_tool_that_was_called_is_still_loaded() -> None:
    used = {
        "role": "assistant",
        "content": None,
        "tool_calls": [tool_call("send_email", recipient="a")],
    }
    result = {"role": "tool", "tool_call_id": "call_1", "content": "sent"}
    body = build_rewriter([USER, used, result]).next_request()
    assert tool_names(body) == ["search_tools", "send_email"]
    assert body["messages"] == [USER, used, result]


def test_a_search_beside_a_call_of_the_client_loses_neither() -> None:
    kept = new_memory()
    tools = [*chat_functions(), *chat_functions(defer_loading=False)[:1]]
    tools[-1]["function"]["name"] = "now"
    first = build_rewriter(index=transparent_index(tools), memory=kept)
    done = first.handle_reply(reply(tool_call("now", currency="x"), search_call()))
    assert done is not None
    message = done["choices"][0]["message"]
    assert [one["function"]["name"] for one in message["tool_calls"]] == ["now"]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "noon"}
    body = build_rewriter(
        [USER, message, result], transparent_index(tools), memory=kept
    ).next_request()
    assert tool_names(body) == ["now", "search_tools", "get_exchange_rate"]
    whole = body["messages"][1]
    assert [one["id"] for one in whole["tool_calls"]] == ["call_1", "call_s"]
    assert [one["tool_call_id"] for one in body["messages"][2:]] == ["call_s", "call_1"]


def test_somebody_else_with_the_same_words_is_not_given_what_was_hidden() -> None:
    memory = ConversationMemory(100)
    first = build_rewriter(memory=ScopedMemory(memory, "ann"))
    first.handle_reply(reply(search_call()))
    done = first.handle_reply(reply(tool_call("get_exchange_rate", currency="USD")))
    assert done is not None
    history = [USER, done["choices"][0]["message"]]
    assert (
        len(build_rewriter(history, memory=ScopedMemory(memory, "ann")).next_request()["messages"])
        == 4
    )
    assert (
        len(build_rewriter(history, memory=ScopedMemory(memory, "bob")).next_request()["messages"])
        == 2
    )


def test_a_call_of_a_tool_that_was_not_shown_goes_through_if_its_arguments_fit() -> None:
    done = build_rewriter().handle_reply(reply(tool_call("book_flight", destination="Rome")))
    assert done is not None
    assert done["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "book_flight"


def test_arguments_that_do_not_fit_are_mended_by_the_model_and_not_by_the_client() -> None:
    one = build_rewriter()
    assert one.handle_reply(reply(tool_call("book_flight", where="Rome"))) is None
    body = one.next_request()
    assert tool_names(body) == ["search_tools", "book_flight"]
    assert "destination" in body["messages"][-1]["content"]


def test_a_call_of_no_tool_at_all_is_the_clients() -> None:
    done = build_rewriter().handle_reply(reply(tool_call("nonsense")))
    assert done is not None
    assert done["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "nonsense"


def test_after_so_many_rounds_the_model_has_to_do_with_what_it_has() -> None:
    one = build_rewriter(max_rounds=2)
    assert one.handle_reply(reply(search_call("music"))) is None
    assert one.handle_reply(reply(search_call("plants"))) is None
    assert "search_tools" not in tool_names(one.next_request())
    done = one.handle_reply(reply(search_call("again"), content="I give up."))
    assert done is not None
    message = done["choices"][0]["message"]
    assert message["content"] == "I give up." and "tool_calls" not in message
    assert done["choices"][0]["finish_reason"] == "stop"
    assert (one.rounds, one.searches) == (2, 2)


def test_an_answer_that_broke_off_is_not_searched_for() -> None:
    done = build_rewriter().handle_reply(reply(search_call(), content="I am", reason="length"))
    assert done is not None
    assert done["choices"][0]["finish_reason"] == "length"
    assert "tool_calls" not in done["choices"][0]["message"]


def test_a_tool_that_the_model_has_to_call_is_shown() -> None:
    choice = {"type": "function", "function": {"name": "play_song"}}
    assert tool_names(build_rewriter(body={"tool_choice": choice}).next_request()) == [
        "search_tools",
        "play_song",
    ]


def test_references_in_results_load_tools_and_are_spelled_out() -> None:
    index = build_deferred_index(chat_functions(defer_loading=True), client_loads=True)
    loads = {
        "role": "assistant",
        "content": None,
        "tool_calls": [tool_call("look", "call_1", q="x")],
    }
    parts = [
        {"type": "tool_reference", "tool_name": "send_email"},
        {"type": "tool_reference", "tool_name": "gone"},
        {"type": "text", "text": "Here."},
    ]
    result = {"role": "tool", "tool_call_id": "call_1", "content": parts}
    body = build_rewriter([USER, loads, result], index).next_request()
    assert tool_names(body) == ["send_email"]
    told = body["messages"][-1]["content"]
    assert told.startswith("Here.\n") and "send_email" in told and "gone" not in told


def test_where_nothing_is_left_to_send_no_empty_list_is_sent() -> None:
    index = build_deferred_index(chat_functions(defer_loading=True), client_loads=True)
    body = build_rewriter(
        index=index, body={"tool_choice": "auto", "parallel_tool_calls": True}
    ).next_request()
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


def test_what_has_not_one_choice_is_passed_on_as_it_is() -> None:
    strange: Json = {"choices": [], "usage": None}
    assert build_rewriter().handle_reply(strange) is strange


def test_a_model_that_asks_for_everything_at_once_is_told_that_it_is_enough() -> None:
    one = build_rewriter()
    assert one.handle_reply(reply(*(search_call(id=f"call_{at}") for at in range(65)))) is None
    told = [message["content"] for message in one.next_request()["messages"][2:]]
    assert len(told) == 65 and all("times in a row" in text for text in told)


@pytest.mark.parametrize("name", ["3d_print", "-print", "7_" + "x" * 62])
def test_a_tool_whose_name_begins_with_no_letter_waits_and_is_found_by_it(name: str) -> None:
    odd = {"name": name, "description": "Print a solid body", "parameters": {"type": "object"}}
    index = transparent_index([*chat_functions(), {"type": "function", "function": odd}])
    one = build_rewriter(index=index)
    assert tool_names(one.next_request()) == ["search_tools"]
    assert one.handle_reply(reply(search_call("print a solid body"))) is None
    later = one.next_request()
    assert tool_names(later) == ["search_tools", name]
    assert json.loads(later["messages"][-1]["content"])["found"][0]["name"] == name
    done = one.handle_reply(reply(tool_call(name)))
    assert done is not None
    (used,) = done["choices"][0]["message"]["tool_calls"]
    assert used["function"]["name"] == name
