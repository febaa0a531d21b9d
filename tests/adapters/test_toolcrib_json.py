from __future__ import annotations

import inspect
from typing import Any

import pytest

from toolcrib.adapters.toolcrib_json import COMMON_FIELDS, TOOL_FIELDS, is_tool_entry, tools_from_wire
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

REFUND: dict[str, Any] = {
    "id": "pay.refund",
    "name": "refund_charge",
    "description": "Give money back.",
    "input_schema": {"type": "object", "properties": {"charge": {"type": "string"}}},
    "title": "Refund",
    "server": "payments",
    "server_description": "Cards and payouts.",
    "category": "finance",
    "tags": ["money", "undo"],
    "hint": "When a customer wants money back.",
    "version": "2",
    "examples": [{"charge": "ch_1"}],
    "output_schema": {"type": "object"},
    "annotations": {"destructiveHint": True},
    "policy": "never",
}


def test_every_field_of_a_tool_is_read() -> None:
    assert is_tool_entry(REFUND)
    (tool,) = tools_from_wire(REFUND)
    assert tool == Tool(**REFUND)


def test_tool_json_is_read_back() -> None:
    tool = Tool(**REFUND)
    assert tools_from_wire(tool.to_dict()) == [tool]


def test_known_fields_are_those_of_a_tool() -> None:
    assert list(TOOL_FIELDS) == list(inspect.signature(Tool).parameters)
    assert set(COMMON_FIELDS) < set(TOOL_FIELDS)


def test_null_fields_count_as_absent() -> None:
    nulls = dict.fromkeys(TOOL_FIELDS) | {"name": "ping"}
    assert tools_from_wire(nulls) == [Tool("ping")]


def test_single_tag_is_accepted_without_a_list() -> None:
    assert tools_from_wire({"name": "a", "tags": "money"})[0].tags == ("money",)


def test_unknown_fields_are_ignored() -> None:
    assert tools_from_wire({"name": "a", "description": "b", "author": "c"}) == [Tool("a", "b")]


def test_misspelled_field_error_suggests_the_right_one() -> None:
    with pytest.raises(InvalidTool, match=r"tool 'a': unknown field 'catgory'.*'category'"):
        tools_from_wire({"name": "a", "catgory": "b"})


@pytest.mark.parametrize(
    "entry", [{"name": "a"}, {"name": "a", "description": "b", "x": 1}, {"input_schema": {}, "id": "a"}]
)
def test_name_or_a_schema_is_enough_to_be_recognised(entry: dict[str, Any]) -> None:
    assert is_tool_entry(entry)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"name": "Ada", "age": 36},
        {"description": "b"},
        {"name": "a", "inputSchema": {}},
        {"name": "a", "parameters": {}},
        {"name": "a", "type": "function"},
    ],
)
def test_other_formats_are_not_recognised(entry: dict[str, Any]) -> None:
    assert not is_tool_entry(entry)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": None}, "name is missing"),
        ({"id": 7}, "'refund_charge': id must be text, not a number"),
        ({"input_schema": [1]}, "input_schema must be an object, not a list"),
        ({"tags": 7}, "tags must be a list, not a number"),
        ({"tags": ["a", None]}, "tags must be a list of texts; it holds null"),
        ({"examples": {}}, "examples must be a list, not an object"),
        ({"examples": {1}}, "examples must be a list, not a Python set"),
        ({"policy": "sometimes"}, "policy 'sometimes' is not one of"),
    ],
)
def test_wrong_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTool, match=message):
        tools_from_wire(REFUND | fields)


def test_long_name_and_many_fields_are_shortened_in_errors() -> None:
    with pytest.raises(InvalidTool) as fields:
        tools_from_wire({"name": "a" * 10_000, "description": 7})
    assert len(str(fields.value)) < 200
    with pytest.raises(InvalidTool) as fields:
        tools_from_wire({f"field{number}": number for number in range(1_000)})
    assert len(str(fields.value)) < 200


def test_misspelled_field_is_named_even_if_it_is_the_only_one() -> None:
    entry = {"name": "a", "descripton": "Say something"}
    assert is_tool_entry(entry)
    with pytest.raises(InvalidTool, match="did you mean 'description'"):
        tools_from_wire(entry)
