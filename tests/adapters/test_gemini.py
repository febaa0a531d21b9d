from __future__ import annotations

from typing import Any

import pytest

from toolcrib.adapters.gemini import MAX_SCHEMA_DEPTH, is_tool_entry, tools_from_wire, tools_to_wire
from toolcrib.core.tool import Tool
from toolcrib.core.validation import find_problems
from toolcrib.errors import InvalidSchema, InvalidTool

JSON_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}},
    "response": {"type": "OBJECT"},
}


ODD_ENUM = {"type": ["string", "null"], "enum": [None]}


def parse_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    (tool,) = tools_from_wire({"functionDeclarations": [{"name": "a", "parameters": parameters}]})
    return tool.input_schema


@pytest.mark.parametrize("field", ["functionDeclarations", "function_declarations"])
def test_every_declaration_becomes_a_tool(field: str) -> None:
    entry = {field: [WEATHER, {"name": "ping"}], "googleSearch": {}}
    assert is_tool_entry(entry)
    weather, ping = tools_from_wire(entry)
    assert weather.description == "The weather of a place."
    assert weather.input_schema == JSON_SCHEMA
    assert weather.output_schema == {"type": "object"}
    assert (ping.name, ping.input_schema) == ("ping", {})


@pytest.mark.parametrize(
    ("parameters", "response"),
    [("parametersJsonSchema", "responseJsonSchema"), ("parameters_json_schema", "response_json_schema")],
)
def test_json_schema_is_kept_unchanged(parameters: str, response: str) -> None:
    entry = {"name": "get_weather", parameters: JSON_SCHEMA, response: {"type": "string"}}
    assert is_tool_entry(entry)
    (tool,) = tools_from_wire(entry)
    assert tool.input_schema == JSON_SCHEMA
    assert tool.output_schema == {"type": "string"}


def test_bare_declaration_is_recognised_by_its_upper_case_types() -> None:
    assert is_tool_entry(WEATHER)
    assert tools_from_wire(WEATHER)[0].input_schema == JSON_SCHEMA


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "a", "parameters": {"type": "object"}},
        {"type": "function", "name": "a", "parameters": {"type": "OBJECT"}},
        {"name": "a", "description": "b"},
        {"google_search": None},
    ],
)
def test_other_formats_are_not_recognised(entry: dict[str, Any]) -> None:
    assert not is_tool_entry(entry)


def test_types_are_lower_case_at_every_depth() -> None:
    dialect = {
        "type": "OBJECT",
        "properties": {
            "list": {"type": "ARRAY", "items": {"type": "INTEGER"}},
            "choice": {"anyOf": [{"type": "BOOLEAN"}, {"type": "NUMBER"}]},
            "map": {"type": "OBJECT", "additionalProperties": {"type": "STRING"}},
            "open": {"type": "OBJECT", "additionalProperties": True},
        },
    }
    assert parse_parameters(dialect)["properties"] == {
        "list": {"type": "array", "items": {"type": "integer"}},
        "choice": {"anyOf": [{"type": "boolean"}, {"type": "number"}]},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "open": {"type": "object", "additionalProperties": True},
    }


def test_snake_case_keywords_are_converted_but_property_names_are_not() -> None:
    dialect = {
        "type": "OBJECT",
        "properties": {"any_of": {"ref": "#/defs/Pet"}, "max_items": {"type": "INTEGER"}},
        "defs": {"Pet": {"type": "STRING", "max_length": 10}},
    }
    assert parse_parameters(dialect) == {
        "type": "object",
        "properties": {"any_of": {"$ref": "#/$defs/Pet"}, "max_items": {"type": "integer"}},
        "$defs": {"Pet": {"type": "string", "maxLength": 10}},
    }


def test_nullable_becomes_the_type_null() -> None:
    assert parse_parameters({"type": "STRING", "nullable": True}) == {"type": ["string", "null"]}
    assert parse_parameters({"type": "STRING", "nullable": False}) == {"type": "string"}
    assert parse_parameters({"nullable": True, "enum": ["a"]}) == {"enum": ["a", None]}
    assert parse_parameters({"nullable": True, "anyOf": [{"type": "INTEGER"}, {"type": "STRING"}]}) == {
        "anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]
    }


@pytest.mark.parametrize(
    "field",
    [
        {"anyOf": [{"type": "INTEGER"}, {"type": "STRING"}], "nullable": True},
        {"type": "STRING", "enum": ["x"], "nullable": True},
        {"type": "STRING", "nullable": True},
    ],
)
def test_nullable_fields_accept_null_in_both_directions(field: dict[str, Any]) -> None:
    (tool,) = tools_from_wire({"name": "a", "parameters": {"type": "OBJECT", "properties": {"f": field}}})
    (entry,) = tools_to_wire([tool])
    for schema in (tool.input_schema, entry["functionDeclarations"][0]["parametersJsonSchema"]):
        assert find_problems(schema, {"f": None}) == find_problems(schema, {"f": "x"}) == ()
        assert find_problems(schema, {"f": []})


def test_enums_sent_to_gemini_have_no_null() -> None:
    field = {"type": ["string", "null"], "enum": ["x", None], "default": {"enum": ["x", None]}}
    schema = {"properties": {"list": {"items": field}, "odd": ODD_ENUM}}
    (entry,) = tools_to_wire([Tool("a", "", schema)])
    sent = entry["functionDeclarations"][0]["parametersJsonSchema"]
    assert sent["properties"] == {
        "list": {
            "items": {"default": {"enum": ["x", None]}, "anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]}
        },
        "odd": ODD_ENUM,
    }


def test_deeply_nested_schema_is_sent() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    (entry,) = tools_to_wire([Tool("a", "", {"properties": {"x": deep}})])
    assert entry["functionDeclarations"][0]["parametersJsonSchema"]["properties"] == {"x": deep}


def test_counts_given_as_strings_become_numbers() -> None:
    dialect = {"type": "ARRAY", "minItems": "1", "max_items": "9", "maxLength": "x", "minLength": 2}
    assert parse_parameters(dialect) == {
        "type": "array", "minItems": 1, "maxItems": 9, "maxLength": "x", "minLength": 2,
    }  # fmt: skip
    assert parse_parameters({"minItems": "1" * 5_000}) == {"minItems": "1" * 5_000}


def test_unspecified_type_is_dropped() -> None:
    assert parse_parameters({"type": "TYPE_UNSPECIFIED", "title": "Any"}) == {"title": "Any"}


def test_malformed_schema_is_kept_unchanged() -> None:
    odd = {"type": ["STRING"], "ref": 7, "properties": [], "anyOf": {"a": 1}, "items": True}
    assert parse_parameters(odd) == {"type": ["STRING"], "$ref": 7, "properties": [], "anyOf": {"a": 1}, "items": True}


def test_too_deeply_nested_schema_is_rejected() -> None:
    deep: dict[str, Any] = {"type": "STRING"}
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        deep = {"type": "ARRAY", "items": deep}
    with pytest.raises(InvalidSchema, match=f"tool 'a': .* nested more than {MAX_SCHEMA_DEPTH} deep"):
        parse_parameters(deep)


def test_two_schemas_for_one_tool_are_rejected() -> None:
    both = {"name": "a", "parameters": {"type": "OBJECT"}, "parametersJsonSchema": JSON_SCHEMA}
    with pytest.raises(InvalidTool, match="has both parameters and parametersJsonSchema"):
        tools_from_wire({"functionDeclarations": [both]})


@pytest.mark.parametrize("entry", [{"googleSearch": {}}, {"code_execution": {}}])
def test_hosted_tool_is_rejected(entry: dict[str, Any]) -> None:
    assert is_tool_entry(entry)
    with pytest.raises(InvalidTool, match="not a function tool but one that Gemini runs"):
        tools_from_wire(entry)
