from __future__ import annotations

import json

from tests.gateway.llm.openai_responses.requests import (
    CLIENT,
    CRM,
    MCP,
    SEARCH,
    USER,
    Json,
    assistant_message,
    build_rewriter,
    deferred_functions,
    function_call,
    item_types,
    new_memory,
    response,
    search_call,
    tool_names,
    transparent_index,
)
from tests.gateway.llm.serving_openai import functions

RESULT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "0.9"}


def test_a_search_is_told_as_the_api_tells_it() -> None:
    one = build_rewriter()
    assert one.handle_reply(response(assistant_message("I look."), search_call())) is None
    done = one.handle_reply(
        response(function_call("get_exchange_rate", currency="USD"), id="resp_2")
    )
    assert done is not None
    assert item_types(done["output"]) == [
        "message",
        "tool_search_call",
        "tool_search_output",
        "function_call",
    ]
    _, asked, found, used = done["output"]
    assert asked == {
        "id": "tsc_s",
        "type": "tool_search_call",
        "status": "completed",
        "execution": "server",
        "call_id": None,
        "arguments": {"paths": ["get_exchange_rate"]},
    }
    assert found["id"].startswith("tso_") and found["call_id"] is None
    assert found["tools"] == [functions(defer_loading=True)[0]]
    assert used["namespace"] == used["name"] == "get_exchange_rate"
    assert done["id"] == "resp_2"
    assert done["tools"] == deferred_functions()
    assert done["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 2,
    }


def test_the_next_request_goes_on_from_the_same_input_byte_for_byte() -> None:
    first = build_rewriter([USER])
    first.handle_reply(response(assistant_message("I look."), search_call()))
    asked = first.next_request()
    done = first.handle_reply(response(function_call("get_exchange_rate", currency="USD")))
    assert done is not None
    again = build_rewriter([USER, *done["output"], RESULT]).next_request()
    assert again["tools"] == asked["tools"]
    for before, after in zip(asked["input"], again["input"], strict=False):
        kept = {name: before[name] for name in after if name in before}
        assert kept == after


def test_who_names_a_namespace_gets_all_of_it_and_others_what_fits() -> None:
    one = build_rewriter(tools=[SEARCH, CRM, *functions(defer_loading=True)])
    both = function_call("search_tools", "call_s", queries=["crm", "play music"])
    assert one.handle_reply(response(both)) is None
    assert tool_names(one.next_request()) == [
        "crm___get_profile",
        "search_tools",
        "crm___list_orders",
        "crm___cancel_order",
        "play_song",
    ]
    done = one.handle_reply(response(function_call("crm___list_orders", customer="a")))
    assert done is not None
    asked, found, used = done["output"]
    assert asked["arguments"] == {"paths": ["crm.list_orders", "crm.cancel_order", "play_song"]}
    assert [entry["type"] for entry in found["tools"]] == ["namespace", "function"]
    assert found["tools"][0] == {**CRM, "tools": CRM["tools"][1:]}
    assert (used["name"], used["namespace"]) == ("list_orders", "crm")


def test_a_server_that_is_found_is_sent_to_the_upstream_whole() -> None:
    one = build_rewriter(tools=[SEARCH, MCP])
    assert one.handle_reply(response(function_call("search_tools", query="wiki"))) is None
    assert one.next_request()["tools"][-1] == {
        name: MCP[name] for name in MCP if name != "defer_loading"
    }
    direct = build_rewriter(tools=[SEARCH, MCP])
    assert direct.handle_reply(response(function_call("wiki", page="x"))) is None
    assert item_types(direct.next_request()["tools"]) == ["function", "mcp"]


def test_nothing_found_is_told_as_such() -> None:
    one = build_rewriter()
    assert one.handle_reply(response(search_call("quantum chromodynamics lattice"))) is None
    assert tool_names(one.next_request()) == ["search_tools"]
    done = one.handle_reply(response(assistant_message("There is none.")))
    assert done is not None
    asked, found, _ = done["output"]
    assert asked["arguments"] == {"paths": ["quantum chromodynamics lattice"]}
    assert found["tools"] == []


def test_a_search_beside_a_call_of_the_client_is_run_and_both_are_told() -> None:
    tools = [{**functions()[0], "name": "now"}, *deferred_functions()]
    done = build_rewriter(tools=tools).handle_reply(
        response(function_call("now", currency="x"), search_call())
    )
    assert done is not None
    assert item_types(done["output"]) == ["function_call", "tool_search_call", "tool_search_output"]
    body = build_rewriter([USER, *done["output"], RESULT], tools).next_request()
    assert tool_names(body) == ["now", "search_tools", "get_exchange_rate"]
    calls = [one["call_id"] for one in body["input"] if one.get("type") == "function_call"]
    results = [one["call_id"] for one in body["input"] if "output" in one]
    assert sorted(calls) == sorted(results) == ["call_1", "call_s"]


def test_a_client_that_searches_is_asked_and_the_turn_ends() -> None:
    one = build_rewriter(tools=[CLIENT, *functions(defer_loading=True)])
    assert tool_names(one.next_request()) == ["tool_search"]
    done = one.handle_reply(response(function_call("tool_search", goal="send a letter")))
    assert done is not None
    (asked,) = done["output"]
    assert asked["type"] == "tool_search_call" and asked["execution"] == "client"
    assert (asked["call_id"], asked["arguments"]) == ("call_1", {"goal": "send a letter"})


def test_a_client_that_knows_nothing_sees_an_ordinary_response() -> None:
    kept = new_memory()
    one = build_rewriter(index=transparent_index(), tools=functions(), memory=kept)
    assert tool_names(one.next_request()) == ["search_tools"]
    assert one.handle_reply(response(assistant_message("I look."), search_call())) is None
    asked = one.next_request()
    done = one.handle_reply(response(function_call("get_exchange_rate", currency="USD")))
    assert done is not None
    assert item_types(done["output"]) == ["message", "function_call"]
    assert "namespace" not in done["output"][1]
    history = [USER, *done["output"], RESULT]
    again = build_rewriter(
        history, functions(), index=transparent_index(), memory=kept
    ).next_request()
    assert again["input"][: len(asked["input"])] == asked["input"]
    assert again["tools"] == asked["tools"]
    lost = build_rewriter(history, functions(), index=transparent_index()).next_request()
    assert lost["input"] == history
    assert tool_names(lost) == ["search_tools", "get_exchange_rate"]


def test_reasoning_stays_before_what_it_led_to_or_goes_with_it() -> None:
    kept = new_memory()
    thought = [{"type": "reasoning", "id": f"rs_{at}", "summary": []} for at in range(2)]
    one = build_rewriter(index=transparent_index(), tools=functions(), memory=kept)
    assert one.handle_reply(response(thought[0], search_call())) is None
    done = one.handle_reply(
        response(thought[1], function_call("get_exchange_rate", currency="USD"))
    )
    assert done is not None
    assert item_types(done["output"]) == ["reasoning", "reasoning", "function_call"]
    history = [USER, *done["output"], RESULT]
    again = build_rewriter(
        history, functions(), index=transparent_index(), memory=kept
    ).next_request()["input"]
    assert item_types(again)[1:6] == [
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "function_call",
    ]
    lost = build_rewriter(history, functions(), index=transparent_index()).next_request()["input"]
    assert item_types(lost)[1:3] == ["reasoning", "function_call"] and lost[1]["id"] == "rs_1"
    bare = [item for item in history if item.get("type") != "reasoning"]
    assert "search_tools" in json.dumps(
        build_rewriter(bare, functions(), index=transparent_index(), memory=kept).next_request()[
            "input"
        ]
    )


def test_a_hidden_search_after_the_last_call_is_put_back_before_it() -> None:
    kept = new_memory()
    now = {**functions(defer_loading=False)[0], "name": "now"}
    tools = [*functions(), now]
    done = build_rewriter(index=transparent_index(tools), tools=tools, memory=kept).handle_reply(
        response(function_call("now", currency="x"), search_call())
    )
    assert done is not None
    assert item_types(done["output"]) == ["function_call"]
    body = build_rewriter(
        [USER, *done["output"], RESULT], tools, index=transparent_index(tools), memory=kept
    ).next_request()
    assert [one.get("call_id") for one in body["input"]] == [
        None,
        "call_s",
        "call_s",
        "call_1",
        "call_1",
    ]
    assert "get_exchange_rate" in tool_names(body)


def test_a_call_before_it_was_shown_goes_through_or_is_mended() -> None:
    done = build_rewriter().handle_reply(response(function_call("book_flight", destination="Rome")))
    assert done is not None and done["output"][0]["namespace"] == "book_flight"
    one = build_rewriter()
    assert one.handle_reply(response(function_call("book_flight", where="Rome"))) is None
    assert tool_names(one.next_request()) == ["search_tools", "book_flight"]
    assert "destination" in one.next_request()["input"][-1]["output"]


def test_after_so_many_rounds_the_model_has_to_do_with_what_it_has() -> None:
    one = build_rewriter(max_rounds=1)
    assert one.handle_reply(response(search_call())) is None
    assert tool_names(one.next_request()) == ["get_exchange_rate"]
    done = one.handle_reply(response(assistant_message("I give up."), search_call(id="call_t")))
    assert done is not None
    assert item_types(done["output"]) == ["tool_search_call", "tool_search_output", "message"]


def test_a_response_that_is_incomplete_ends_it() -> None:
    one = build_rewriter()
    done = one.handle_reply(response(search_call(), status="incomplete"))
    assert done is not None and done["status"] == "incomplete"


def test_what_a_stored_response_has_loaded_is_known_by_its_id() -> None:
    kept = new_memory()
    first = build_rewriter(memory=kept)
    assert first.handle_reply(response(search_call())) is None
    assert (
        first.handle_reply(response(function_call("get_exchange_rate", currency="x"), id="resp_2"))
        is not None
    )
    later = build_rewriter(
        [RESULT], memory=kept, body={"previous_response_id": "resp_2"}
    ).next_request()
    assert tool_names(later) == ["search_tools", "get_exchange_rate"]
    assert later["previous_response_id"] == "resp_2" and later["input"] == [RESULT]
    lost = build_rewriter([RESULT], body={"previous_response_id": "resp_2"}).next_request()
    assert tool_names(lost) == ["search_tools"] and lost["previous_response_id"] == "resp_2"


def test_a_search_that_the_upstream_has_stored_unanswered_is_answered_next_time() -> None:
    kept = new_memory()
    tools = [{**functions()[0], "name": "now"}, *deferred_functions()]
    first = build_rewriter(tools=tools, memory=kept)
    assert (
        first.handle_reply(response(function_call("now", currency="x"), search_call())) is not None
    )
    body = build_rewriter(
        [RESULT], tools, memory=kept, body={"previous_response_id": "resp_1"}
    ).next_request()
    assert [item["call_id"] for item in body["input"]] == ["call_s", "call_1"]
    text = build_rewriter(
        "Go on", tools, memory=kept, body={"previous_response_id": "resp_1"}
    ).next_request()
    assert item_types(text["input"]) == ["function_call_output", "message"]


def test_a_conversation_at_the_upstream_is_only_told_what_is_new() -> None:
    one = build_rewriter(body={"conversation": "conv_1"})
    assert one.handle_reply(response(search_call())) is None
    assert item_types(one.next_request()["input"]) == ["function_call_output"]


def test_a_choice_of_tools_is_told_in_the_words_of_the_upstream() -> None:
    def choice(given: object) -> object:
        return build_rewriter(body={"tool_choice": given}).next_request()["tool_choice"]

    ours = {"type": "function", "name": "search_tools"}
    assert choice("required") == "required"
    assert choice({"type": "tool_search"}) == ours
    email = {"type": "function", "name": "send_email"}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [email, {"type": "tool_search"}]}
    assert choice(allowed) == {**allowed, "tools": [email, ours]}
    assert tool_names(build_rewriter(body={"tool_choice": email}).next_request()) == [
        "search_tools",
        "send_email",
    ]
    nothing = build_rewriter(
        tools=[SEARCH], body={"tool_choice": {"type": "tool_search"}}
    ).next_request()
    assert not {"tools", "tool_choice"} & nothing.keys()


def test_calls_that_the_upstream_answers_itself_wait_for_nobody() -> None:
    one = build_rewriter()
    web = {"type": "web_search_call", "id": "ws", "status": "completed"}
    assert one.handle_reply(response(web, search_call())) is None
    approval = {"type": "mcp_approval_request", "id": "a", "name": "x"}
    done = one.handle_reply(response(approval, search_call(id="call_t")))
    assert done is not None
    assert item_types(done["output"])[-3:] == [
        "mcp_approval_request",
        "tool_search_call",
        "tool_search_output",
    ]


def test_a_tool_whose_name_begins_with_a_digit_is_found_and_called_by_it() -> None:
    odd = {**functions()[0], "name": "3d_print", "description": "Print a solid body"}
    one = build_rewriter(index=transparent_index([*functions(), odd]), tools=[*functions(), odd])
    assert tool_names(one.next_request()) == ["search_tools"]
    assert one.handle_reply(response(search_call("print a solid body"))) is None
    later = one.next_request()
    assert tool_names(later) == ["search_tools", "3d_print"]
    assert json.loads(later["input"][-1]["output"])["found"][0]["name"] == "3d_print"
    done = one.handle_reply(response(function_call("3d_print", currency="USD"), id="resp_2"))
    assert done is not None
    assert [item["name"] for item in done["output"]] == ["3d_print"]
    space = {**CRM, "name": "3d"}
    asked = build_rewriter(
        tools=[SEARCH, space], input=[{**function_call("gone"), "namespace": "3d"}, RESULT]
    )
    assert asked.next_request()["input"][0]["name"] == "3d___gone"
