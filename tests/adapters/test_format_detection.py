from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.adapters.format_detection import split_document, tools_from_any
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool, ToolcribError

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}

FORMATS: dict[str, dict[str, Any]] = {
    "own": {"name": "a", "description": "b", "input_schema": SCHEMA, "category": "c"},
    "plain": {"name": "a", "description": "b", "input_schema": SCHEMA},
    "anthropic": {"name": "a", "description": "b", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
    "openai_chat": {"type": "function", "function": {"name": "a", "description": "b", "parameters": SCHEMA}},
    "openai_functions": {"name": "a", "description": "b", "parameters": SCHEMA},
    "openai_responses": {"type": "function", "name": "a", "description": "b", "parameters": SCHEMA, "strict": None},
    "gemini": {"functionDeclarations": [{"name": "a", "description": "b", "parametersJsonSchema": SCHEMA}]},
    "gemini_bare": {
        "name": "a",
        "description": "b",
        "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}},
    },
    "gemini_sdk": {
        "function_declarations": [
            {"name": "a", "description": "b", "parameters": None, "parameters_json_schema": SCHEMA}
        ],
        "google_search": None,
    },
    "mcp": {"name": "a", "description": "b", "inputSchema": SCHEMA},
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["function", "custom", "namespace", "OBJECT", "object"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=5)
            | st.sampled_from(
                [
                    "name",
                    "description",
                    "type",
                    "tools",
                    "function",
                    "input_schema",
                    "inputSchema",
                    "parameters",
                    "parametersJsonSchema",
                    "functionDeclarations",
                    "function_declarations",
                    "defer_loading",
                    "input_examples",
                    "properties",
                    "anyOf",
                    "items",
                    "annotations",
                    "title",
                    "result",
                    "jsonrpc",
                    "id",
                    "tags",
                    "examples",
                    "policy",
                    "server",
                    "googleSearch",
                    "_meta",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_tool(name: str) -> None:
    (tool,) = tools_from_any(FORMATS[name])
    assert (tool.name, tool.description, tool.input_schema) == ("a", "b", SCHEMA)


def test_one_list_may_mix_formats() -> None:
    assert len(tools_from_any([*FORMATS.values()])) == len(FORMATS)


def test_tool_objects_are_returned_unchanged() -> None:
    tool = Tool("refund", "Give money back.")
    assert tools_from_any(tool) == tools_from_any([tool]) == [tool]


@pytest.mark.parametrize("name", FORMATS)
def test_toolcrib_fields_are_accepted_in_every_format(name: str) -> None:
    (tool,) = tools_from_any(FORMATS[name] | {"server": "s", "tags": ["t"], "policy": "never"})
    assert (tool.id, tool.tags, tool.policy) == ("s___a", ("t",), "never")


def test_invalid_toolcrib_field_is_named_in_every_format() -> None:
    with pytest.raises(InvalidTool, match="tags must be a list, not a number"):
        tools_from_any(FORMATS["mcp"] | {"tags": 7})


def test_tools_of_a_request_are_found() -> None:
    request = {"model": "m", "messages": [], "tools": [FORMATS["anthropic"], {"name": "b"}]}
    assert [tool.name for tool in tools_from_any(request)] == ["a", "b"]


def test_saved_response_of_an_mcp_server_is_parsed() -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [FORMATS["mcp"]]}}
    assert [tool.name for tool in tools_from_any(answer)] == ["a"]


def test_tools_inherit_the_server_of_their_list() -> None:
    listing = {"server": "s", "tools": [FORMATS["mcp"], {"name": "b", "server": "own"}]}
    assert [tool.id for tool in tools_from_any(listing)] == ["s___a", "own___b"]


def test_namespace_keeps_its_members_together() -> None:
    members = [{"type": "function", "name": name} for name in "ab"]
    namespace = {"type": "namespace", "name": "crm", "description": "c", "tools": members}
    assert [tool.id for tool in tools_from_any([namespace])] == ["crm___a", "crm___b"]


def test_each_part_is_one_tool_with_its_path() -> None:
    document = [{"name": "a"}, {"tools": [{"name": "b"}, {"name": "c"}]}, FORMATS["gemini"]]
    places = [path for path, _ in split_document(document)]
    assert places == [(0,), (1, "tools", 0), (1, "tools", 1), (2, "functionDeclarations", 0)]
    assert [tools_from_any(part)[0].name for _, part in split_document(document)] == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (7, "a tool is an object, not a number"),
        (None, "a tool is an object, not null"),
        ("get_weather", "a tool is an object, not text"),
        ([["a"]], "a tool is an object, not a list"),
        ({"tools": [True]}, "a tool is an object, not true"),
        ({}, "an object with no fields is not in a known format; known are Anth.*; MCP .*; our"),
        ({"foo": 1, "bar": 2}, "an object with foo, bar is not in a known format"),
        ({"tools": 7}, "an object with tools is not in a known format"),
        ({"type": "function", "name": "a", "input_schema": {}}, r"tool 'a' \(type, name, input_schema\)"),
        ({"type": "web_search"}, "object with type: type 'web_search' is not a function tool"),
        ({"type": "custom", "name": "write"}, "tool 'write': type 'custom' is not a function tool"),
        ({"type": "object", "properties": {}}, "type 'object' is not a function tool"),
        (
            {"name": "a", "inputSchema": {}, "parameters": {}},
            "tool 'a': has inputSchema and parameters, which belong to different formats",
        ),
    ],
)
def test_unknown_format_error_describes_the_entry(entry: object, message: str) -> None:
    with pytest.raises(InvalidTool, match=message):
        tools_from_any(entry)


@given(json_values)
def test_any_json_raises_only_toolcrib_errors(value: object) -> None:
    try:
        tools = tools_from_any(value)
    except ToolcribError:
        return
    assert all(isinstance(tool, Tool) for tool in tools)


def test_client_configuration_is_not_taken_for_a_tool_list() -> None:
    with pytest.raises(InvalidTool, match="the configuration of an MCP client"):
        tools_from_any({"mcpServers": {"files": {"command": "npx"}}})
