from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.llm.openai_responses.requests import (
    CLIENT,
    CRM,
    MCP,
    SEARCH,
    USER,
    Json,
    build_rewriter,
    deferred_functions,
    function_call,
    item_types,
    tool_names,
)
from tests.gateway.llm.serving_openai import functions
from toolcrib.errors import RequestFailed

ALL = [*deferred_functions(), CRM, MCP]


def search_output(*tools: Json, id: str | None = None, **more: Any) -> Json:
    return {
        "type": "tool_search_output",
        "execution": "server",
        "call_id": id,
        "status": "completed",
        "tools": list(tools),
        **more,
    }


def search_item(*paths: str, id: str | None = None, **more: Any) -> Json:
    return {
        "type": "tool_search_call",
        "execution": "server",
        "call_id": id,
        "status": "completed",
        "arguments": {"paths": list(paths)},
        **more,
    }


def answered_names(body: Json) -> list[list[str]]:
    """Return the names of the tools in the output of each search."""
    output = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    return [[item["name"] for item in json.loads(text)["found"]] for text in output if "found" in text]


def test_search_in_history_becomes_call_and_loads_tools() -> None:
    tool = functions(defer_loading=True)[1]
    body = build_rewriter([USER, {**search_item("send_email"), "id": "tsc_7"}, search_output(tool)]).next_request()
    assert tool_names(body) == ["search_tools", "send_email"]
    assert item_types(body["input"]) == ["message", "function_call", "function_call_output"]
    search, output = body["input"][1:]
    assert search["call_id"] == output["call_id"] == "call_7"
    assert search["arguments"] == '{"queries":["send_email"]}'
    assert answered_names(body) == [["send_email"]]


@pytest.mark.parametrize("key", ["paths", "queries"])
def test_outputs_without_ids_are_matched_to_calls(key: str) -> None:
    tools = functions(defer_loading=True)
    calls = [{**search_item(), "arguments": {key: [tool["name"]]}} for tool in tools[:2]]
    body = build_rewriter([USER, *calls, search_output(tools[0]), search_output(tools[1])]).next_request()
    ids = [item["call_id"] for item in body["input"][1:]]
    assert ids[:2] == ids[2:] and len(set(ids)) == 2
    assert answered_names(body) == [["get_exchange_rate"], ["send_email"]]


def test_search_without_output_is_answered_from_its_paths() -> None:
    paths = ["play_song", "crm", "wiki", "gone"]
    body = build_rewriter([USER, search_item(*paths)], ALL).next_request()
    assert answered_names(body) == [["play_song", "crm___list_orders", "crm___cancel_order", "wiki"]]
    assert tool_names(body)[-4:] == ["play_song", "crm___list_orders", "crm___cancel_order", "mcp"]
    assert body["tools"][-1]["authorization"] == "a secret"


def test_output_without_call_gets_call() -> None:
    body = build_rewriter([USER, search_output(functions(defer_loading=True)[4])]).next_request()
    assert item_types(body["input"]) == ["message", "function_call", "function_call_output"]
    assert body["input"][1]["arguments"] == '{"queries":["play_song"]}'


def test_history_can_define_tools() -> None:
    new = {"type": "function", "name": "new_tool", "parameters": {}, "defer_loading": True}
    space = {**CRM, "tools": CRM["tools"][1:2]}
    history = [
        USER,
        {**search_item(id="call_9"), "execution": "client", "arguments": {"goal": "anything"}},
        search_output(new, space, functions(defer_loading=True)[0], id="call_9", execution="client"),
        {**function_call("new_tool", "call_a"), "namespace": "new_tool"},
        {"type": "function_call_output", "call_id": "call_a", "output": "done"},
    ]
    body = build_rewriter(history, [CLIENT, *functions(defer_loading=True)]).next_request()
    assert tool_names(body) == ["tool_search", "new_tool", "crm___list_orders", "get_exchange_rate"]
    assert "defer_loading" not in json.dumps(body["tools"])
    assert body["input"][1]["arguments"] == '{"goal":"anything"}'
    assert body["input"][3]["name"] == "new_tool" and "namespace" not in body["input"][3]


def test_additional_tools_are_sent_without_search() -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [functions()[0]]}
    rewriter = build_rewriter([USER, more, function_call("get_exchange_rate", currency="USD")], [])
    body = rewriter.next_request()
    assert tool_names(body) == ["get_exchange_rate"]
    assert item_types(body["input"]) == ["message", "function_call"]
    assert "namespace" not in rewriter.render_item(function_call("get_exchange_rate"))


def test_namespace_is_part_of_wire_name_and_restored() -> None:
    item = {**function_call("list_orders", customer="a"), "namespace": "crm"}
    rewriter = build_rewriter([USER, item], ALL)
    (sent,) = rewriter.next_request()["input"][1:]
    assert sent["name"] == "crm___list_orders" and "namespace" not in sent
    assert rewriter.render_item(sent) == item
    assert "crm___list_orders" in tool_names(rewriter.next_request())


def test_call_of_plain_function_has_no_namespace() -> None:
    tools = [SEARCH, functions()[0], *functions(defer_loading=True)[1:]]
    rewriter = build_rewriter([USER, function_call("get_exchange_rate")], tools)
    assert rewriter.next_request()["input"][1] == function_call("get_exchange_rate")
    assert rewriter.render_item(function_call("get_exchange_rate")) == function_call("get_exchange_rate")
    assert rewriter.render_item(function_call("send_email"))["namespace"] == "send_email"
    assert rewriter.render_item(function_call("unheard_of")) == function_call("unheard_of")


@pytest.mark.parametrize("name", ["send_email", "list_orders"])
def test_call_without_its_namespace_is_refused(name: str) -> None:
    with pytest.raises(RequestFailed) as raised:
        build_rewriter([USER, USER, function_call(name)], ALL)
    assert str(raised.value) == (
        f"Missing namespace for function_call '{name}'. It does not exist in the default "
        "namespace. Round-trip the model's function_call item with its namespace field included."
    )
    assert raised.value.param == "input[2].namespace"


def test_call_of_removed_tool_is_accepted() -> None:
    history = [USER, function_call("gone"), {**function_call("away", "call_2"), "namespace": "old"}]
    body = build_rewriter(history, ALL).next_request()
    assert [item["name"] for item in body["input"][1:]] == ["gone", "old___away"]


def test_custom_tools_can_have_namespaces() -> None:
    custom = {"type": "custom", "name": "shell", "description": "Run", "defer_loading": True}
    used = {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"}
    rewriter = build_rewriter([USER, {**used, "namespace": "shell"}], [SEARCH, custom])
    assert rewriter.next_request()["input"][1] == used
    assert rewriter.render_item(used) == {**used, "namespace": "shell"}
    assert rewriter.next_request()["tools"][-1] == {"type": "custom", "name": "shell", "description": "Run"}


def test_text_input_and_unknown_items_are_unchanged() -> None:
    assert build_rewriter("Hello").next_request()["input"] == "Hello"
    strange = {"type": "item_reference", "id": "rs_1"}
    body = build_rewriter([USER, strange], body={"unheard_of": [1]}).next_request()
    assert body["input"] == [USER, strange] and body["unheard_of"] == [1]
