"""Tools, calls and results in the format of the Gemini API.

Input may be in camel case, like the JSON of the API, or in snake case, like its SDK.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolcrib.adapters.plain_json import (
    FieldReader,
    describe_entry,
    dict_or_empty,
    dicts_or_empty,
    str_or_empty,
    to_plain_dict,
    to_plain_dicts,
)
from toolcrib.core.calls import CallHistory, CallReply, PastCall, ToolCall
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name
from toolcrib.errors import InvalidSchema, InvalidTool

MAX_SCHEMA_DEPTH = 100

_DECLARATIONS = ("functionDeclarations", "function_declarations")
_JSON_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema")
_RESPONSE_JSON_SCHEMAS = ("responseJsonSchema", "response_json_schema")
_HOSTED_TOOLS = (
    "codeExecution", "computerUse", "enterpriseWebSearch", "exaAiSearch", "fileSearch", "googleMaps",
    "googleSearch", "googleSearchRetrieval", "mcpServers", "parallelAiSearch", "retrieval", "urlContext",
)  # fmt: skip

_KEYWORDS = {
    "additional_properties": "additionalProperties",
    "any_of": "anyOf",
    "defs": "$defs",
    "max_items": "maxItems",
    "max_length": "maxLength",
    "max_properties": "maxProperties",
    "min_items": "minItems",
    "min_length": "minLength",
    "min_properties": "minProperties",
    "property_ordering": "propertyOrdering",
    "ref": "$ref",
}
# 64-bit numbers, which the JSON of the API has as strings.
_COUNT_KEYWORDS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
_MAX_DIGITS = 19
# Keywords whose values are not schemas.
_VALUE_KEYWORDS = ("const", "default", "enum", "example", "examples")


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is a list of declarations, one declaration, or a tool Gemini runs."""
    if any(field in entry for field in (*_DECLARATIONS, *_JSON_SCHEMAS)):
        return True
    if "type" in entry:
        return False
    return _is_hosted_tool(entry) or _has_upper_case_types(entry.get("parameters"))


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """Return the tools of one entry of a request's `tools`."""
    container = _used_spelling(entry, _DECLARATIONS)
    if entry.get(container) is not None:
        return [_parse_declaration(declaration) for declaration in FieldReader(entry).read_objects(container)]
    if _is_hosted_tool(entry):
        raise InvalidTool(
            f"{describe_entry(entry)}: this is not a function tool but one that Gemini runs, "
            "so there is nothing to search; leave this entry out"
        )
    return [_parse_declaration(entry)]


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the `tools` of a request: one entry with all declarations."""
    declarations = [
        {
            "name": public_name(tool),
            "description": tool.description,
            "parametersJsonSchema": _without_null_enums({"type": "object", **tool.input_schema}, 0),
        }
        for tool in tools
    ]
    return [{"functionDeclarations": declarations}] if declarations else []


def calls_from_wire(reply: object) -> list[ToolCall]:
    """Return the calls of a response's first candidate, or of a content."""
    return _parse_calls(_first_content(to_plain_dict(reply)))


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """Return the model's content in the form in which it is sent back."""
    return [{**_first_content(to_plain_dict(reply)), "role": "model"}]


def answers_to_wire(answers: Sequence[CallReply]) -> list[dict[str, Any]]:
    """Return the one content that holds all results of a turn."""
    return [{"role": "user", "parts": [_render_answer(answer) for answer in answers]}]


def turns_from_wire(messages: Iterable[object]) -> list[list[PastCall]]:
    """Return the calls of each turn of a history, with their results."""
    history = CallHistory()
    for content in to_plain_dicts(messages):
        if content.get("role") == "model":
            history.add_turn(_parse_calls(content))
            continue
        for response in _select_parts(content, "functionResponse", "function_response"):
            key = str_or_empty(response.get("id")) or str_or_empty(response.get("name"))
            history.add_result(key, _response_text(response))
    return history.turns


def _parse_declaration(declaration: Mapping[str, Any]) -> Tool:
    fields = FieldReader(declaration)
    return Tool(
        fields.read_name(),
        fields.read_text("description"),
        _read_schema(declaration, "parameters", _used_spelling(declaration, _JSON_SCHEMAS)),
        output_schema=_read_schema(declaration, "response", _used_spelling(declaration, _RESPONSE_JSON_SCHEMAS)),
    )


def _read_schema(declaration: Mapping[str, Any], dialect_field: str, json_field: str) -> Mapping[str, Any]:
    """Return a JSON Schema, given as such or in Gemini's dialect."""
    fields = FieldReader(declaration)
    schema = fields.read_object(json_field)
    if not schema:
        return to_json_schema(fields.read_object(dialect_field), describe_entry(declaration))
    if fields.read_object(dialect_field):
        raise InvalidTool(f"{describe_entry(declaration)}: has both {dialect_field} and {json_field}; keep one")
    return schema


def to_json_schema(schema: Mapping[str, Any], owner: str, depth: int = 0) -> dict[str, Any]:
    """Convert a schema from Gemini's dialect: lower-case the types, turn `nullable` into a type."""
    if depth > MAX_SCHEMA_DEPTH:
        raise InvalidSchema(f"{owner}: parameters are nested more than {MAX_SCHEMA_DEPTH} deep")
    converted: dict[str, Any] = {}
    for keyword, value in schema.items():
        name = _KEYWORDS.get(keyword, keyword)
        if name == "type":
            converted |= _convert_type(value)
        elif name == "$ref":
            converted[name] = value.replace("#/defs/", "#/$defs/") if isinstance(value, str) else value
        elif name in ("properties", "$defs") and isinstance(value, Mapping):
            converted[name] = {key: _convert_inner(inner, owner, depth) for key, inner in value.items()}
        elif name == "anyOf" and isinstance(value, list | tuple):
            converted[name] = [_convert_inner(inner, owner, depth) for inner in value]
        elif name in ("items", "additionalProperties"):
            converted[name] = _convert_inner(value, owner, depth)
        elif name in _COUNT_KEYWORDS:
            converted[name] = _parse_count(value)
        elif name != "nullable":
            converted[name] = value
    return {**converted, **dict(_allow_null(converted))} if schema.get("nullable") is True else converted


def _allow_null(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keywords of a schema that exclude null, changed so that they accept it."""
    type, choices, values = (schema.get(keyword) for keyword in ("type", "anyOf", "enum"))
    if isinstance(type, str):
        yield "type", [type, "null"]
    if isinstance(choices, list):
        yield "anyOf", [*choices, {"type": "null"}]
    if isinstance(values, list | tuple):
        yield "enum", [*values, None]


def _parse_count(value: object) -> object:
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_DIGITS:
        return int(value)
    return value


def _without_null_enums(schema: Any, depth: int) -> Any:
    """Return a JSON Schema without null in its enums, which Gemini rejects."""
    if depth > MAX_SCHEMA_DEPTH:
        return schema
    if isinstance(schema, list):
        return [_without_null_enums(item, depth + 1) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {
        keyword: value if keyword in _VALUE_KEYWORDS else _without_null_enums(value, depth + 1)
        for keyword, value in schema.items()
    }
    match converted:
        case {"type": [type_name, "null"], "enum": [*values, None], **rest} if values and "anyOf" not in rest:
            return {**rest, "anyOf": [{"type": type_name, "enum": values}, {"type": "null"}]}
    return converted


def _convert_inner(value: object, owner: str, depth: int) -> object:
    return to_json_schema(value, owner, depth + 1) if isinstance(value, Mapping) else value


def _convert_type(value: object) -> dict[str, Any]:
    if value == "TYPE_UNSPECIFIED":
        return {}
    return {"type": value.lower() if isinstance(value, str) else value}


def _used_spelling(entry: Mapping[str, Any], spellings: tuple[str, str]) -> str:
    """Return the spelling of a field that an entry uses."""
    camel, snake = spellings
    return snake if snake in entry else camel


def _is_hosted_tool(entry: Mapping[str, Any]) -> bool:
    fields = (field for field, value in entry.items() if value is not None)
    return "name" not in entry and any(to_camel_case(field) in _HOSTED_TOOLS for field in fields)


def to_camel_case(field: object) -> str:
    """Return the name of a field as in the JSON of the API."""
    first, *rest = str(field).split("_")
    return first + "".join(word.capitalize() for word in rest)


def name_fields(value: object) -> dict[str, Any]:
    """Return an object with its names in camel case; empty if the value is not an object."""
    return {to_camel_case(name): field for name, field in dict_or_empty(value).items()}


def _has_upper_case_types(parameters: object) -> bool:
    return isinstance(parameters, Mapping) and str(parameters.get("type")).isupper()


def _first_content(reply: Mapping[str, Any]) -> dict[str, Any]:
    candidates = dicts_or_empty(reply.get("candidates"))
    content = candidates[0].get("content") if candidates else reply
    return content if isinstance(content, dict) else {}


def _select_parts(content: Mapping[str, Any], camel: str, snake: str) -> list[dict[str, Any]]:
    parts = dicts_or_empty(content.get("parts"))
    values = (part.get(camel, part.get(snake)) for part in parts)
    return [value for value in values if isinstance(value, dict)]


def _parse_calls(content: Mapping[str, Any]) -> list[ToolCall]:
    return [_parse_call(call) for call in _select_parts(content, "functionCall", "function_call")]


def _parse_call(call: Mapping[str, Any]) -> ToolCall:
    arguments = call.get("args", {})
    return ToolCall(
        str_or_empty(call.get("id")), str_or_empty(call.get("name")), arguments if isinstance(arguments, dict) else None
    )


def _render_answer(answer: CallReply) -> dict[str, Any]:
    response = {"error" if answer.is_error else "output": answer.text}
    id = {"id": answer.call.id} if answer.call.id else {}
    return {"functionResponse": {**id, "name": answer.call.name, "response": response}}


def _response_text(response: Mapping[str, Any]) -> str:
    output = response.get("response")
    return str_or_empty(output.get("output")) if isinstance(output, dict) else ""
