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


def test_deferred_functions_are_sent_without_defer_field() -> None:
    index = build_responses_index(deferred_functions())
    assert index.always_sent == () and list(index.deferred) == NAMES
    assert index.uses_tool_search and index.client_search is None and index.offers_search
    indexed = index.deferred["send_email"]
    assert indexed.wire_entry == functions()[1]
    assert indexed.namespace == "send_email"


def test_namespace_members_become_prefixed_functions() -> None:
    index = build_responses_index([SEARCH, CRM])
    assert tool_names({"tools": index.always_sent}) == ["crm___get_profile"]
    assert list(index.deferred) == ["crm___list_orders", "crm___cancel_order"]
    assert index.namespaces == {"crm": ["crm___list_orders", "crm___cancel_order"]}
    assert {indexed.namespace for indexed in index.tools.values()} == {"crm"}
    assert tool_path(index.deferred["crm___list_orders"]) == "crm.list_orders"


def test_deferred_mcp_server_is_one_tool_without_credentials() -> None:
    index = build_responses_index([SEARCH, MCP])
    indexed = index.deferred["wiki"]
    assert indexed.wire_entry == {name: MCP[name] for name in MCP if name != "defer_loading"}
    assert "a secret" not in json.dumps(render_found_entries([indexed]))


def test_search_description_lists_sources_up_to_limit() -> None:
    about = build_responses_index([SEARCH, *functions(defer_loading=True), CRM, MCP]).search_entry["description"]
    lines = about.split("\n")
    assert lines[2] == "- crm: Customers and what they have ordered"
    assert lines[3] == "- wiki: Pages of the company's encyclopedia"
    assert lines[4] == "- get_exchange_rate: Look up the exchange rate of two currencies"
    many = [{**functions(defer_loading=True)[0], "name": f"tool_{at}"} for at in range(500)]
    about = build_responses_index([SEARCH, *many]).search_entry["description"]
    assert len(about) < 7_000
    shown = about.count("\n- tool_")
    assert about.endswith(f"- and {500 - shown} more")


def test_client_search_has_its_own_definition() -> None:
    index = build_responses_index([CLIENT, *functions(defer_loading=True)])
    entry = index.search_entry
    assert entry["name"] == "tool_search"
    assert (entry["description"], entry["parameters"]) == ("Find tools", CLIENT["parameters"])
    assert not index.offers_search
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
        ([CRM], "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search.", ""),
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
def test_invalid_requests_are_refused_with_messages_of_api(tools: list[Any], message: str, param: str) -> None:
    with pytest.raises(RequestFailed) as raised:
        build_responses_index(tools)
    assert str(raised.value) == message
    assert raised.value.status == 400
    assert raised.value.param == (param or "tools.defer_loading")


def test_functions_are_deferred_by_disclosure() -> None:
    custom = {"type": "custom", "name": "shell", "description": "x"}
    index = transparent_index([*functions(), custom, {"type": "web_search"}, {"type": "mcp", "server_label": "w"}])
    assert tool_names({"tools": index.always_sent}) == ["shell", "web_search", "mcp"]
    assert list(index.deferred) == NAMES
    assert not index.uses_tool_search
    assert {indexed.namespace for indexed in index.deferred.values()} == {None}
    assert index.search_entry["description"].count("\n") == 0


def test_namespaces_without_deferred_tools() -> None:
    space = {**CRM, "tools": CRM["tools"][:1]}
    assert uses_tool_search([space]) and not uses_tool_search(functions())
    index = build_responses_index([space])
    assert tool_names({"tools": index.always_sent}) == ["crm___get_profile"]
    assert not index.uses_tool_search and not index.offers_search


def test_names_may_start_with_digit() -> None:
    printing = {"type": "function", "name": "3d_print", "parameters": parameters("body")}
    assert "3d_print" in transparent_index([*functions(), printing]).deferred
    space = {**CRM, "name": "3d", "tools": [{**printing, "defer_loading": True}]}
    index = build_responses_index([SEARCH, {**printing, "defer_loading": True}, space])
    assert {id: indexed.wire_entry["name"] for id, indexed in index.deferred.items()} == {
        "3d_print": "3d_print",
        "3d___3d_print": "3d___3d_print",
    }


def test_invalid_names_are_changed_only_for_deferred_tools() -> None:
    odd = {"type": "function", "name": "a.b", "parameters": parameters("x")}
    index = build_responses_index([SEARCH, {**odd, "defer_loading": True}, {**odd, "name": "c.d"}])
    assert index.deferred["a.b"].wire_entry["name"].startswith("a_b_")
    assert tool_names({"tools": index.always_sent}) == ["c.d"]
