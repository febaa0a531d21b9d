from __future__ import annotations

from typing import Any

import pytest

from toolcrib.adapters.openai_chat import is_tool_entry, tools_from_wire
from toolcrib.errors import InvalidTool

FUNCTION: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
WEATHER: dict[str, Any] = {"type": "function", "function": FUNCTION}


@pytest.mark.parametrize("entry", [WEATHER, {"function": FUNCTION}, FUNCTION])
def test_function_is_parsed_with_and_without_wrapper(entry: dict[str, Any]) -> None:
    assert is_tool_entry(entry)
    (tool,) = tools_from_wire(entry)
    assert tool.name == "get_weather"
    assert tool.description == "The weather of a place."
    assert tool.input_schema == FUNCTION["parameters"]
    assert tool.policy == "automatic"


def test_function_needs_neither_description_nor_parameters() -> None:
    bare = {"name": "ping", "description": None, "parameters": None}
    (tool,) = tools_from_wire({"type": "function", "function": bare})
    assert (tool.description, tool.input_schema) == ("", {})


@pytest.mark.parametrize(
    "entry", [WEATHER | {"defer_loading": True}, {"type": "function", "function": FUNCTION | {"defer_loading": True}}]
)
def test_defer_loading_is_read_from_function_and_wrapper(entry: dict[str, Any]) -> None:
    assert tools_from_wire(entry)[0].policy == "always"


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "function", "name": "a", "parameters": {}},
        {"type": "custom", "custom": {"name": "a"}},
        {"name": "a", "parameters": {"type": "OBJECT"}},
        {"name": "a", "description": "b"},
    ],
)
def test_other_formats_are_not_recognised(entry: dict[str, Any]) -> None:
    assert not is_tool_entry(entry)


def test_wrong_field_is_named_with_its_path() -> None:
    wrong = FUNCTION | {"parameters": ["city"]}
    with pytest.raises(InvalidTool, match=r"function\.parameters must be an object, not a list"):
        tools_from_wire({"type": "function", "function": wrong})


def test_function_that_is_not_an_object_is_rejected() -> None:
    with pytest.raises(InvalidTool, match="function must be an object, not text"):
        tools_from_wire({"type": "function", "function": "get_weather"})


def test_missing_name_is_named_with_its_path() -> None:
    with pytest.raises(InvalidTool, match=r"object with description: function\.name is missing"):
        tools_from_wire({"type": "function", "function": {"description": "Nameless."}})


def test_custom_text_tool_is_rejected() -> None:
    with pytest.raises(InvalidTool, match="'custom' is not a function tool"):
        tools_from_wire({"type": "custom", "custom": {"name": "write"}})
