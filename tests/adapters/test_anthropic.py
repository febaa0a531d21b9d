from __future__ import annotations

from typing import Any

import pytest

from toolcrib.adapters.anthropic import is_tool_entry, tools_from_wire, tools_to_wire
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

WEATHER: dict[str, Any] = {
    "type": "custom",
    "name": "get_weather",
    "description": "The weather of a place.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "input_examples": [{"city": "Paris"}],
    "cache_control": {"type": "ephemeral"},
    "strict": True,
}


def test_tool_keeps_name_description_schema_and_examples() -> None:
    (tool,) = tools_from_wire(WEATHER)
    assert tool.name == "get_weather"
    assert tool.description == "The weather of a place."
    assert tool.input_schema == WEATHER["input_schema"]
    assert tool.examples == [{"city": "Paris"}]


@pytest.mark.parametrize(
    ("deferral", "policy"),
    [
        ({}, "automatic"),
        ({"defer_loading": None}, "automatic"),
        ({"defer_loading": True}, "always"),
        ({"defer_loading": False}, "never"),
    ],
)
def test_defer_loading_becomes_the_policy(deferral: dict[str, Any], policy: str) -> None:
    assert tools_from_wire(WEATHER | deferral)[0].policy == policy


def test_non_boolean_defer_loading_is_rejected_by_name() -> None:
    with pytest.raises(InvalidTool, match="'get_weather': defer_loading must be true or false"):
        tools_from_wire(WEATHER | {"defer_loading": "yes"})


@pytest.mark.parametrize(
    "entry",
    [
        WEATHER,
        {"name": "a", "input_schema": {}},
        {"name": "a", "description": "b", "input_schema": {}},
        {"name": "a", "input_schema": {}, "defer_loading": True, "server": "s"},
    ],
)
def test_tools_of_the_format_are_recognised(entry: dict[str, Any]) -> None:
    assert is_tool_entry(entry)


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "a"},
        {"name": "a", "inputSchema": {}},
        {"name": "a", "input_schema": {}, "category": "b"},
        {"type": "function", "name": "a", "input_schema": {}},
    ],
)
def test_other_formats_are_not_recognised(entry: dict[str, Any]) -> None:
    assert not is_tool_entry(entry)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        {"type": "mcp_toolset", "mcp_server_name": "calendar"},
    ],
)
def test_hosted_tool_is_rejected_with_its_type(entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidTool, match=rf"'{entry['type']}' is not a function tool"):
        tools_from_wire(entry)


def test_example_requests_are_not_sent_as_example_inputs() -> None:
    tool = Tool("send", "Send", examples=["write to my boss", {"to": "boss"}])
    assert tools_to_wire([tool])[0]["input_examples"] == [{"to": "boss"}]
