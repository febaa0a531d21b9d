"""What the official SDKs write is what the adapters read."""

from __future__ import annotations

from importlib import import_module

import pytest

from toolcrib.adapters import anthropic, gemini, mcp, openai_chat, openai_responses
from toolcrib.adapters.format_detection import tools_from_any

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_a_tool_of_the_anthropic_sdk_is_read() -> None:
    types = import_module("anthropic.types")
    entry = types.ToolParam(name="a", description="b", input_schema=SCHEMA, defer_loading=True)
    assert anthropic.is_tool_entry(entry)
    assert tools_from_any(entry)[0].policy == "always"


def test_a_tool_of_the_openai_sdk_is_read_for_chat_and_responses() -> None:
    chat = import_module("openai.types.chat")
    responses = import_module("openai.types.responses")
    function = {"name": "a", "description": "b", "parameters": SCHEMA}
    wrapped = chat.ChatCompletionFunctionToolParam(type="function", function=function)
    flat = responses.FunctionToolParam(type="function", strict=True, **function)
    assert openai_chat.is_tool_entry(wrapped)
    assert openai_responses.is_tool_entry(flat)
    assert tools_from_any(wrapped) == tools_from_any(flat)


@pytest.mark.parametrize("by_alias", [True, False])
def test_a_tool_of_the_gemini_sdk_is_read_in_both_cases(by_alias: bool) -> None:
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
    (found,) = tools_from_any(entry)
    properties = found.input_schema["properties"]
    assert properties["city"] == {"type": "string", "maxLength": 10}
    assert properties["when"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert tools_from_any(tool.model_dump(mode="json", by_alias=by_alias)) != []


def test_a_listing_of_the_mcp_sdk_is_read() -> None:
    types = import_module("mcp.types")
    annotations = types.ToolAnnotations(title="T", readOnlyHint=True)
    tool = types.Tool(name="a", description="b", inputSchema=SCHEMA, annotations=annotations)
    listing = types.ListToolsResult(tools=[tool]).model_dump(by_alias=True, mode="json")
    assert mcp.is_tool_entry(listing)
    (found,) = tools_from_any(listing)
    assert (found.name, found.title, found.read_only) == ("a", "T", True)
    assert found.input_schema == SCHEMA
