from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.llm.openai_responses.requests import (
    CLIENT,
    CRM,
    MCP,
    SEARCH,
    deferred_functions,
    tool_names,
    transparent_index,
)
from tests.gateway.llm.serving_openai import WORDS, functions, parameters
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.openai_responses.tools import (
    build_responses_index,
    render_found_entries,
    tool_path,
    uses_tool_search,
)

NAMES = [name for name, _, _ in WORDS]


def test_deferred_functions_wait_and_are_sent_without_the_field() -> None:
    rack = build_responses_index(deferred_functions())
    assert rack.always_sent == () and list(rack.deferred) == NAMES
    assert rack.uses_tool_search and rack.client_search is None and rack.offers_search
    ware = rack.deferred["send_email"]
    assert ware.wire_entry == functions()[1]
    assert ware.namespace == "send_email"


def test_members_of_a_namespace_are_functions_whose_names_tell_it() -> None:
    rack = build_responses_index([SEARCH, CRM])
    assert tool_names({"tools": rack.always_sent}) == ["crm___get_profile"]
    assert list(rack.deferred) == ["crm___list_orders", "crm___cancel_order"]
    assert rack.namespaces == {"crm": ["crm___list_orders", "crm___cancel_order"]}
    assert {ware.namespace for ware in rack.tools.values()} == {"crm"}
    assert tool_path(rack.deferred["crm___list_orders"]) == "crm.list_orders"


def test_a_deferred_server_waits_as_one_and_its_secret_is_never_told() -> None:
    rack = build_responses_index([SEARCH, MCP])
    ware = rack.deferred["wiki"]
    assert ware.wire_entry == {name: MCP[name] for name in MCP if name != "defer_loading"}
    assert "a secret" not in json.dumps(render_found_entries([ware]))


def test_the_model_is_told_what_there_is_to_search_as_far_as_there_is_room() -> None:
    about = build_responses_index([SEARCH, *functions(defer_loading=True), CRM, MCP]).search_entry[
        "description"
    ]
    lines = about.split("\n")
    assert lines[2] == "- crm: Customers and what they have ordered"
    assert lines[3] == "- wiki: Pages of the company's encyclopedia"
    assert lines[4] == "- get_exchange_rate: Look up the exchange rate of two currencies"
    many = [{**functions(defer_loading=True)[0], "name": f"tool_{at}"} for at in range(500)]
    about = build_responses_index([SEARCH, *many]).search_entry["description"]
    assert len(about) < 7_000
    shown = about.count("\n- tool_")
    assert about.endswith(f"- and {500 - shown} more")


def test_a_client_that_searches_gives_its_own_description_and_parameters() -> None:
    rack = build_responses_index([CLIENT, *functions(defer_loading=True)])
    entry = rack.search_entry
    assert entry["name"] == "tool_search"
    assert (entry["description"], entry["parameters"]) == ("Find tools", CLIENT["parameters"])
    assert not rack.offers_search
    mine = {**functions()[0], "name": "tool_search"}
    assert build_responses_index([CLIENT, mine]).search_name == "_tool_search"


@pytest.mark.parametrize(
    ("tools", "message", "param"),
    [
        (
            functions(defer_loading=True),
            "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search.",
            "tools.defer_loading",
        ),
        (
            [CRM],
            "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search.",
            "",
        ),
        (
            [{"type": "tool_search", "execution": "client"}],
            "Missing required parameter: 'tools[0].description'.",
            "tools[0].description",
        ),
        (
            [SEARCH, {**CRM, "description": None}],
            "Missing required parameter: 'tools[1].description'.",
            "tools[1].description",
        ),
        (
            [SEARCH, {**CRM, "defer_loading": True}],
            "Unknown parameter: 'tools[1].defer_loading'.",
            "tools[1].defer_loading",
        ),
        (
            [SEARCH, *functions(defer_loading="yes")],
            "Invalid type for 'tools[1].defer_loading': expected a boolean, but got text instead.",
            "tools[1].defer_loading",
        ),
        (
            [SEARCH, *functions(defer_loading=True), functions(defer_loading=True)[2]],
            "Invalid Value: 'tools[7]'. There are two tools with the name 'book_flight'.",
            "tools[7]",
        ),
        (
            [SEARCH, {"type": "function", "defer_loading": True}],
            "an object with type, defer_loading: name is missing; add one",
            "tools[1]",
        ),
    ],
)
def test_what_the_api_refuses_is_refused_in_its_words(
    tools: list[Any], message: str, param: str
) -> None:
    with pytest.raises(RequestFailed) as raised:
        build_responses_index(tools)
    assert str(raised.value) == message
    assert raised.value.status == 400
    assert raised.value.param == (param or "tools.defer_loading")


def test_a_request_that_asks_for_nothing_has_its_many_tools_held_back() -> None:
    custom = {"type": "custom", "name": "shell", "description": "x"}
    rack = transparent_index(
        [*functions(), custom, {"type": "web_search"}, {"type": "mcp", "server_label": "w"}]
    )
    assert tool_names({"tools": rack.always_sent}) == ["shell", "web_search", "mcp"]
    assert list(rack.deferred) == NAMES
    assert not rack.uses_tool_search
    assert {ware.namespace for ware in rack.deferred.values()} == {None}
    assert rack.search_entry["description"].count("\n") == 0


def test_namespaces_work_also_where_nothing_is_searched() -> None:
    space = {**CRM, "tools": CRM["tools"][:1]}
    assert uses_tool_search([space]) and not uses_tool_search(functions())
    rack = build_responses_index([space])
    assert tool_names({"tools": rack.always_sent}) == ["crm___get_profile"]
    assert not rack.uses_tool_search and not rack.offers_search


def test_a_name_that_begins_with_a_digit_is_as_good_as_any_other() -> None:
    printing = {"type": "function", "name": "3d_print", "parameters": parameters("body")}
    assert "3d_print" in transparent_index([*functions(), printing]).deferred
    space = {**CRM, "name": "3d", "tools": [{**printing, "defer_loading": True}]}
    rack = build_responses_index([SEARCH, {**printing, "defer_loading": True}, space])
    assert {id: ware.wire_entry["name"] for id, ware in rack.deferred.items()} == {
        "3d_print": "3d_print",
        "3d___3d_print": "3d___3d_print",
    }


def test_names_that_models_do_not_take_are_changed_where_they_wait_and_left_where_not() -> None:
    odd = {"type": "function", "name": "a.b", "parameters": parameters("x")}
    rack = build_responses_index([SEARCH, {**odd, "defer_loading": True}, {**odd, "name": "c.d"}])
    assert rack.deferred["a.b"].wire_entry["name"].startswith("a_b_")
    assert tool_names({"tools": rack.always_sent}) == ["c.d"]
