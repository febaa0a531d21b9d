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


def test_search_has_items_of_api() -> None:
    rewriter = build_rewriter()
    assert rewriter.handle_reply(response(assistant_message("I look."), search_call())) is None
    done = rewriter.handle_reply(response(function_call("get_exchange_rate", currency="USD"), id="resp_2"))
    assert done is not None
    assert item_types(done["output"]) == ["message", "tool_search_call", "tool_search_output", "function_call"]
    _, request, found, used = done["output"]
    assert request == {
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
    assert done["usage"] == {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}


def test_next_request_starts_with_same_input() -> None:
    first = build_rewriter([USER])
    first.handle_reply(response(assistant_message("I look."), search_call()))
    request = first.next_request()
    done = first.handle_reply(response(function_call("get_exchange_rate", currency="USD")))
    assert done is not None
    again = build_rewriter([USER, *done["output"], RESULT]).next_request()
    assert again["tools"] == request["tools"]
    for before, after in zip(request["input"], again["input"], strict=False):
        memory = {name: before[name] for name in after if name in before}
        assert memory == after


def test_namespace_query_loads_all_its_tools() -> None:
    rewriter = build_rewriter(tools=[SEARCH, CRM, *functions(defer_loading=True)])
    both = function_call("search_tools", "call_s", queries=["crm", "play music"])
    assert rewriter.handle_reply(response(both)) is None
    assert tool_names(rewriter.next_request()) == [
        "crm___get_profile",
        "search_tools",
        "crm___list_orders",
        "crm___cancel_order",
        "play_song",
    ]
    done = rewriter.handle_reply(response(function_call("crm___list_orders", customer="a")))
    assert done is not None
    request, found, used = done["output"]
    assert request["arguments"] == {"paths": ["crm.list_orders", "crm.cancel_order", "play_song"]}
    assert [entry["type"] for entry in found["tools"]] == ["namespace", "function"]
    assert found["tools"][0] == {**CRM, "tools": CRM["tools"][1:]}
    assert (used["name"], used["namespace"]) == ("list_orders", "crm")


def test_found_mcp_server_is_sent_with_credentials() -> None:
    rewriter = build_rewriter(tools=[SEARCH, MCP])
    assert rewriter.handle_reply(response(function_call("search_tools", query="wiki"))) is None
    assert rewriter.next_request()["tools"][-1] == {name: MCP[name] for name in MCP if name != "defer_loading"}
    direct = build_rewriter(tools=[SEARCH, MCP])
    assert direct.handle_reply(response(function_call("wiki", page="x"))) is None
    assert item_types(direct.next_request()["tools"]) == ["function", "mcp"]


def test_search_without_match_has_empty_output() -> None:
    rewriter = build_rewriter()
    assert rewriter.handle_reply(response(search_call("quantum chromodynamics lattice"))) is None
    assert tool_names(rewriter.next_request()) == ["search_tools"]
    done = rewriter.handle_reply(response(assistant_message("There is none.")))
    assert done is not None
    request, found, _ = done["output"]
    assert request["arguments"] == {"paths": ["quantum chromodynamics lattice"]}
    assert found["tools"] == []


def test_search_next_to_client_call_is_answered() -> None:
    tools = [{**functions()[0], "name": "now"}, *deferred_functions()]
    done = build_rewriter(tools=tools).handle_reply(response(function_call("now", currency="x"), search_call()))
    assert done is not None
    assert item_types(done["output"]) == ["function_call", "tool_search_call", "tool_search_output"]
    body = build_rewriter([USER, *done["output"], RESULT], tools).next_request()
    assert tool_names(body) == ["now", "search_tools", "get_exchange_rate"]
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    results = [item["call_id"] for item in body["input"] if "output" in item]
    assert sorted(calls) == sorted(results) == ["call_1", "call_s"]


def test_client_search_ends_turn() -> None:
    rewriter = build_rewriter(tools=[CLIENT, *functions(defer_loading=True)])
    assert tool_names(rewriter.next_request()) == ["tool_search"]
    done = rewriter.handle_reply(response(function_call("tool_search", goal="send a letter")))
    assert done is not None
    (request,) = done["output"]
    assert request["type"] == "tool_search_call" and request["execution"] == "client"
    assert (request["call_id"], request["arguments"]) == ("call_1", {"goal": "send a letter"})


def test_transparent_client_gets_plain_response() -> None:
    memory = new_memory()
    rewriter = build_rewriter(index=transparent_index(), tools=functions(), memory=memory)
    assert tool_names(rewriter.next_request()) == ["search_tools"]
    assert rewriter.handle_reply(response(assistant_message("I look."), search_call())) is None
    request = rewriter.next_request()
    done = rewriter.handle_reply(response(function_call("get_exchange_rate", currency="USD")))
    assert done is not None
    assert item_types(done["output"]) == ["message", "function_call"]
    assert "namespace" not in done["output"][1]
    history = [USER, *done["output"], RESULT]
    again = build_rewriter(history, functions(), index=transparent_index(), memory=memory).next_request()
    assert again["input"][: len(request["input"])] == request["input"]
    assert again["tools"] == request["tools"]
    lost = build_rewriter(history, functions(), index=transparent_index()).next_request()
    assert lost["input"] == history
    assert tool_names(lost) == ["search_tools", "get_exchange_rate"]


def test_reasoning_is_restored_with_its_item() -> None:
    memory = new_memory()
    thought = [{"type": "reasoning", "id": f"rs_{at}", "summary": []} for at in range(2)]
    rewriter = build_rewriter(index=transparent_index(), tools=functions(), memory=memory)
    assert rewriter.handle_reply(response(thought[0], search_call())) is None
    done = rewriter.handle_reply(response(thought[1], function_call("get_exchange_rate", currency="USD")))
    assert done is not None
    assert item_types(done["output"]) == ["reasoning", "reasoning", "function_call"]
    history = [USER, *done["output"], RESULT]
    again = build_rewriter(history, functions(), index=transparent_index(), memory=memory).next_request()["input"]
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
        build_rewriter(bare, functions(), index=transparent_index(), memory=memory).next_request()["input"]
    )


def test_hidden_search_is_restored_before_the_references_of_a_client() -> None:
    # The Vercel AI SDK refers to the reasoning and the texts that OpenAI has stored.
    memory = new_memory()
    thought = [{"type": "reasoning", "id": f"rs_{at}", "summary": []} for at in range(2)]
    said = {**assistant_message("At noon."), "id": "msg_1"}
    rewriter = build_rewriter(index=transparent_index(), tools=functions(), memory=memory)
    assert rewriter.handle_reply(response(thought[0], search_call())) is None
    assert rewriter.handle_reply(response(thought[1], said, search_call(id="call_t"))) is None
    done = rewriter.handle_reply(response({**function_call("book_flight", destination="Rome"), "id": "fc_1"}))
    assert done is not None
    references = [{"type": "item_reference", "id": item["id"]} for item in done["output"]]
    history = [USER, *references, RESULT]
    again = build_rewriter(history, functions(), index=transparent_index(), memory=memory).next_request()["input"]
    result = "function_call_output"
    assert [item.get("id", item.get("type")) for item in again][1:] == [
        "rs_0", "fc_call_s", result, "rs_1", "msg_1", "fc_call_t", result, "fc_1", result,
    ]  # fmt: skip
    lost = build_rewriter(history, functions(), index=transparent_index()).next_request()["input"]
    assert [item.get("id") for item in lost][1:4] == ["rs_1", "msg_1", "fc_1"]


def test_hidden_search_after_last_call_is_restored_before_it() -> None:
    memory = new_memory()
    now = {**functions(defer_loading=False)[0], "name": "now"}
    tools = [*functions(), now]
    done = build_rewriter(index=transparent_index(tools), tools=tools, memory=memory).handle_reply(
        response(function_call("now", currency="x"), search_call())
    )
    assert done is not None
    assert item_types(done["output"]) == ["function_call"]
    body = build_rewriter(
        [USER, *done["output"], RESULT], tools, index=transparent_index(tools), memory=memory
    ).next_request()
    assert [item.get("call_id") for item in body["input"]] == [None, "call_s", "call_s", "call_1", "call_1"]
    assert "get_exchange_rate" in tool_names(body)


def test_call_of_unrevealed_tool_is_checked() -> None:
    done = build_rewriter().handle_reply(response(function_call("book_flight", destination="Rome")))
    assert done is not None and done["output"][0]["namespace"] == "book_flight"
    rewriter = build_rewriter()
    assert rewriter.handle_reply(response(function_call("book_flight", where="Rome"))) is None
    assert tool_names(rewriter.next_request()) == ["search_tools", "book_flight"]
    assert "destination" in rewriter.next_request()["input"][-1]["output"]


def test_search_tool_is_removed_after_maximum_rounds() -> None:
    rewriter = build_rewriter(max_rounds=1)
    assert rewriter.handle_reply(response(search_call())) is None
    assert tool_names(rewriter.next_request()) == ["get_exchange_rate"]
    done = rewriter.handle_reply(response(assistant_message("I give up."), search_call(id="call_t")))
    assert done is not None
    assert item_types(done["output"]) == ["tool_search_call", "tool_search_output", "message"]


def test_incomplete_response_ends_loop() -> None:
    rewriter = build_rewriter()
    done = rewriter.handle_reply(response(search_call(), status="incomplete"))
    assert done is not None and done["status"] == "incomplete"


def test_previous_response_id_restores_loaded_tools() -> None:
    memory = new_memory()
    first = build_rewriter(memory=memory)
    assert first.handle_reply(response(search_call())) is None
    assert first.handle_reply(response(function_call("get_exchange_rate", currency="x"), id="resp_2")) is not None
    later = build_rewriter([RESULT], memory=memory, body={"previous_response_id": "resp_2"}).next_request()
    assert tool_names(later) == ["search_tools", "get_exchange_rate"]
    assert later["previous_response_id"] == "resp_2" and later["input"] == [RESULT]
    lost = build_rewriter([RESULT], body={"previous_response_id": "resp_2"}).next_request()
    assert tool_names(lost) == ["search_tools"] and lost["previous_response_id"] == "resp_2"


def test_stored_search_is_answered_in_next_request() -> None:
    memory = new_memory()
    tools = [{**functions()[0], "name": "now"}, *deferred_functions()]
    first = build_rewriter(tools=tools, memory=memory)
    assert first.handle_reply(response(function_call("now", currency="x"), search_call())) is not None
    body = build_rewriter([RESULT], tools, memory=memory, body={"previous_response_id": "resp_1"}).next_request()
    assert [item["call_id"] for item in body["input"]] == ["call_s", "call_1"]
    text = build_rewriter("Go on", tools, memory=memory, body={"previous_response_id": "resp_1"}).next_request()
    assert item_types(text["input"]) == ["function_call_output", "message"]


def test_upstream_conversation_gets_only_new_items() -> None:
    rewriter = build_rewriter(body={"conversation": "conv_1"})
    assert rewriter.handle_reply(response(search_call())) is None
    assert item_types(rewriter.next_request()["input"]) == ["function_call_output"]


def test_tool_choice_is_converted() -> None:
    def choice(given: object) -> object:
        return build_rewriter(body={"tool_choice": given}).next_request()["tool_choice"]

    ours = {"type": "function", "name": "search_tools"}
    assert choice("required") == "required"
    assert choice({"type": "tool_search"}) == ours
    email = {"type": "function", "name": "send_email"}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [email, {"type": "tool_search"}]}
    assert choice(allowed) == {**allowed, "tools": [email, ours]}
    assert tool_names(build_rewriter(body={"tool_choice": email}).next_request()) == ["search_tools", "send_email"]
    nothing = build_rewriter(tools=[SEARCH], body={"tool_choice": {"type": "tool_search"}}).next_request()
    assert not {"tools", "tool_choice"} & nothing.keys()


def test_hosted_calls_do_not_end_turn() -> None:
    rewriter = build_rewriter()
    web = {"type": "web_search_call", "id": "ws", "status": "completed"}
    assert rewriter.handle_reply(response(web, search_call())) is None
    approval = {"type": "mcp_approval_request", "id": "a", "name": "x"}
    done = rewriter.handle_reply(response(approval, search_call(id="call_t")))
    assert done is not None
    assert item_types(done["output"])[-3:] == ["mcp_approval_request", "tool_search_call", "tool_search_output"]


def test_tool_name_may_start_with_digit() -> None:
    odd = {**functions()[0], "name": "3d_print", "description": "Print a solid body"}
    rewriter = build_rewriter(index=transparent_index([*functions(), odd]), tools=[*functions(), odd])
    assert tool_names(rewriter.next_request()) == ["search_tools"]
    assert rewriter.handle_reply(response(search_call("print a solid body"))) is None
    later = rewriter.next_request()
    assert tool_names(later) == ["search_tools", "3d_print"]
    assert json.loads(later["input"][-1]["output"])["found"][0]["name"] == "3d_print"
    done = rewriter.handle_reply(response(function_call("3d_print", currency="USD"), id="resp_2"))
    assert done is not None
    assert [item["name"] for item in done["output"]] == ["3d_print"]
    space = {**CRM, "name": "3d"}
    request = build_rewriter(tools=[SEARCH, space], input=[{**function_call("gone"), "namespace": "3d"}, RESULT])
    assert request.next_request()["input"][0]["name"] == "3d___gone"
