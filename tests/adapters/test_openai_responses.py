from __future__ import annotations

from typing import Any

import pytest

from toolcrib.adapters.openai_responses import is_tool_entry, tools_from_wire
from toolcrib.errors import InvalidTool

PROFILE: dict[str, Any] = {
    "type": "function",
    "name": "get_profile",
    "description": "A customer's profile.",
    "parameters": {"type": "object", "properties": {"customer": {"type": "string"}}},
    "output_schema": {"type": "object"},
    "strict": True,
}
CRM: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers and their orders.",
    "tools": [PROFILE, {"type": "function", "name": "list_orders", "defer_loading": True}],
}


def test_function_keeps_its_schemas() -> None:
    assert is_tool_entry(PROFILE)
    (tool,) = tools_from_wire(PROFILE)
    assert tool.id == "get_profile"
    assert tool.description == "A customer's profile."
    assert tool.input_schema == PROFILE["parameters"]
    assert tool.output_schema == {"type": "object"}
    assert tool.policy == "automatic"


def test_namespace_becomes_the_server_of_its_tools() -> None:
    assert is_tool_entry(CRM)
    profile, orders = tools_from_wire(CRM)
    assert [profile.id, orders.id] == ["crm___get_profile", "crm___list_orders"]
    assert profile.server == orders.server == "crm"
    assert orders.server_description == "Customers and their orders."
    assert orders.policy == "always"


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "function", "function": {"name": "a"}},
        {"type": "function", "name": "a", "input_schema": {}},
        {"name": "a", "parameters": {}},
        {"type": "web_search"},
    ],
)
def test_other_formats_are_not_recognised(entry: dict[str, Any]) -> None:
    assert not is_tool_entry(entry)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "web_search"},
        {"type": "tool_search"},
        {"type": "mcp", "server_label": "x", "server_url": "https://example.org"},
        CRM | {"tools": [{"type": "custom", "name": "write"}]},
    ],
)
def test_non_function_is_rejected(entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidTool, match="is not a function tool"):
        tools_from_wire(entry)


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ({"a": 1}, "tools must be a list, not an object"),
        ([PROFILE, 7], "tools must be a list of objects; it holds a number"),
    ],
)
def test_namespace_without_a_tool_list_is_rejected(tools: object, message: str) -> None:
    with pytest.raises(InvalidTool, match=f"tool 'crm': {message}"):
        tools_from_wire(CRM | {"tools": tools})
