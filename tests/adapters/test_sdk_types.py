"""Check that the adapters parse what the official SDKs produce."""

from __future__ import annotations

from importlib import import_module

import pytest

from toolcrib.adapters import anthropic, gemini, mcp, openai_chat, openai_responses
from toolcrib.adapters.format_detection import tools_from_any

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_anthropic_sdk_tool_is_parsed() -> None:
    types = import_module("anthropic.types")
    entry = types.ToolParam(name="a", description="b", input_schema=SCHEMA, defer_loading=True)
    assert anthropic.is_tool_entry(entry)
    assert tools_from_any(entry)[0].policy == "always"


def test_openai_sdk_tool_is_parsed_for_chat_and_responses() -> None:
    chat = import_module("openai.types.chat")
    responses = import_module("openai.types.responses")
    function = {"name": "a", "description": "b", "parameters": SCHEMA}
    wrapped = chat.ChatCompletionFunctionToolParam(type="function", function=function)
    flat = responses.FunctionToolParam(type="function", strict=True, **function)
    assert openai_chat.is_tool_entry(wrapped)
    assert openai_responses.is_tool_entry(flat)
    assert tools_from_any(wrapped) == tools_from_any(flat)


@pytest.mark.parametrize("by_alias", [True, False])
def test_gemini_sdk_tool_is_parsed_in_camel_and_snake_case(by_alias: bool) -> None:
    types = import_module("google.genai.types")
    declaration = types.FunctionDeclaration(
        name="a",
        description="b",
        parameters=types.Schema(
            type="OBJECT",
            properties={
                "city": types.Schema(type="STRING", max_length=10),
                "when": types.Schema(any_of=[types.Schema(type="INTEGER")], nullable=True),
            },
        ),
    )
    tool = types.Tool(function_declarations=[declaration])
    entry = tool.model_dump(mode="json", by_alias=by_alias, exclude_none=True)
    assert gemini.is_tool_entry(entry)
    (tools_list,) = tools_from_any(entry)
    properties = tools_list.input_schema["properties"]
    assert properties["city"] == {"type": "string", "maxLength": 10}
    assert properties["when"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert tools_from_any(tool.model_dump(mode="json", by_alias=by_alias)) != []


def test_mcp_sdk_tool_list_is_parsed() -> None:
    types = import_module("mcp.types")
    annotations = types.ToolAnnotations(title="T", readOnlyHint=True)
    tool = types.Tool(name="a", description="b", inputSchema=SCHEMA, annotations=annotations)
    listing = types.ListToolsResult(tools=[tool]).model_dump(by_alias=True, mode="json")
    assert mcp.is_tool_entry(listing)
    (tools_list,) = tools_from_any(listing)
    assert (tools_list.name, tools_list.title, tools_list.read_only) == ("a", "T", True)
    assert tools_list.input_schema == SCHEMA
