"""Tools, calls and results as the Gemini API has them.

What is read may be in camel case, as its JSON, or in snake case, as its SDK.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolcrib.adapters.call_history import CallHistory
from toolcrib.adapters.field_reader import FieldReader, describe_entry
from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty, to_plain_dict, to_plain_dicts
from toolcrib.core.calls import CallReply, PastCall, ToolCall
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name
from toolcrib.errors import InvalidSchema, InvalidTool

MAX_SCHEMA_DEPTH = 100

_DECLARATIONS = ("functionDeclarations", "function_declarations")
_JSON_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema")
_RESPONSE_JSON_SCHEMAS = ("responseJsonSchema", "response_json_schema")
_HOSTED_TOOLS = (
    "codeExecution",
    "computerUse",
    "enterpriseWebSearch",
    "exaAiSearch",
    "fileSearch",
    "googleMaps",
    "googleSearch",
    "googleSearchRetrieval",
    "mcpServers",
    "parallelAiSearch",
    "retrieval",
    "urlContext",
)

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
# 64-bit numbers, which its JSON has as text.
_COUNT_KEYWORDS = (
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "minProperties",
)
_MAX_DIGITS = 19
# What these hold are values, not schemas.
_VALUE_KEYWORDS = ("const", "default", "enum", "example", "examples")


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Whether this is a list of declarations, one bare declaration, or a tool that Gemini runs."""
    if any(field in entry for field in (*_DECLARATIONS, *_JSON_SCHEMAS)):
        return True
    if "type" in entry:
        return False
    return _is_hosted_tool(entry) or _has_upper_case_types(entry.get("parameters"))


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """The tools of one entry of a request's `tools`."""
    container = _used_spelling(entry, _DECLARATIONS)
    if entry.get(container) is not None:
        return [
            _parse_declaration(declaration)
            for declaration in FieldReader(entry).read_objects(container)
        ]
    if _is_hosted_tool(entry):
        raise InvalidTool(
            f"{describe_entry(entry)}: this is not a function tool but one that Gemini runs, "
            "so there is nothing to search; leave this entry out"
        )
    return [_parse_declaration(entry)]


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """A request's `tools`: one entry with all declarations."""
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
    """The calls of a response's first candidate, or of its content."""
    return _parse_calls(_first_content(to_plain_dict(reply)))


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """The model's content as it is sent back."""
    return [{**_first_content(to_plain_dict(reply)), "role": "model"}]


def answers_to_wire(answers: Sequence[CallReply]) -> list[dict[str, Any]]:
    """The one content that holds all results of a turn."""
    return [{"role": "user", "parts": [_render_answer(answer) for answer in answers]}]


def turns_from_wire(messages: Iterable[object]) -> list[list[PastCall]]:
    """What the model called, turn by turn, and what came back."""
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
        output_schema=_read_schema(
            declaration, "response", _used_spelling(declaration, _RESPONSE_JSON_SCHEMAS)
        ),
    )


def _read_schema(declaration: Mapping[str, Any], own: str, json_schema: str) -> Mapping[str, Any]:
    """The JSON Schema, given as such or in Gemini's dialect."""
    fields = FieldReader(declaration)
    given = fields.read_object(json_schema)
    if not given:
        return _to_json_schema(fields.read_object(own), describe_entry(declaration), 0)
    if fields.read_object(own):
        raise InvalidTool(
            f"{describe_entry(declaration)}: has both {own} and {json_schema}; keep one"
        )
    return given


def _to_json_schema(schema: Mapping[str, Any], whose: str, depth: int) -> dict[str, Any]:
    """A schema of Gemini's dialect in JSON Schema: lower-case types, `null` as a type."""
    if depth > MAX_SCHEMA_DEPTH:
        raise InvalidSchema(f"{whose}: parameters are nested more than {MAX_SCHEMA_DEPTH} deep")
    plain: dict[str, Any] = {}
    for keyword, value in schema.items():
        name = _KEYWORDS.get(keyword, keyword)
        if name == "type":
            plain |= _convert_type(value)
        elif name == "$ref":
            plain[name] = value.replace("#/defs/", "#/$defs/") if isinstance(value, str) else value
        elif name in ("properties", "$defs") and isinstance(value, Mapping):
            plain[name] = {key: _convert_inner(one, whose, depth) for key, one in value.items()}
        elif name == "anyOf" and isinstance(value, list | tuple):
            plain[name] = [_convert_inner(one, whose, depth) for one in value]
        elif name in ("items", "additionalProperties"):
            plain[name] = _convert_inner(value, whose, depth)
        elif name in _COUNT_KEYWORDS:
            plain[name] = _parse_count(value)
        elif name != "nullable":
            plain[name] = value
    return {**plain, **dict(_allow_null(plain))} if schema.get("nullable") is True else plain


def _allow_null(plain: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Those keywords of a schema that would refuse null, so that they take it."""
    type, choices, values = (plain.get(keyword) for keyword in ("type", "anyOf", "enum"))
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
    """A JSON Schema whose enums hold no null, which Gemini does not take there."""
    if depth > MAX_SCHEMA_DEPTH:
        return schema
    if isinstance(schema, list):
        return [_without_null_enums(one, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    sent = {
        keyword: value if keyword in _VALUE_KEYWORDS else _without_null_enums(value, depth + 1)
        for keyword, value in schema.items()
    }
    match sent:
        case {"type": [kind, "null"], "enum": [*values, None], **rest} if (
            values and "anyOf" not in rest
        ):
            return {**rest, "anyOf": [{"type": kind, "enum": values}, {"type": "null"}]}
    return sent


def _convert_inner(value: object, whose: str, depth: int) -> object:
    return _to_json_schema(value, whose, depth + 1) if isinstance(value, Mapping) else value


def _convert_type(value: object) -> dict[str, Any]:
    if value == "TYPE_UNSPECIFIED":
        return {}
    return {"type": value.lower() if isinstance(value, str) else value}


def _used_spelling(entry: Mapping[str, Any], spellings: tuple[str, str]) -> str:
    """The spelling of a field that this entry uses."""
    camel, snake = spellings
    return snake if snake in entry else camel


def _is_hosted_tool(entry: Mapping[str, Any]) -> bool:
    given = (field for field, value in entry.items() if value is not None)
    return "name" not in entry and any(_to_camel_case(field) in _HOSTED_TOOLS for field in given)


def _to_camel_case(field: object) -> str:
    first, *rest = str(field).split("_")
    return first + "".join(word.capitalize() for word in rest)


def _has_upper_case_types(parameters: object) -> bool:
    return isinstance(parameters, Mapping) and str(parameters.get("type")).isupper()


def _first_content(reply: Mapping[str, Any]) -> dict[str, Any]:
    candidates = dicts_or_empty(reply.get("candidates"))
    content = candidates[0].get("content") if candidates else reply
    return content if isinstance(content, dict) else {}


def _select_parts(content: Mapping[str, Any], camel: str, snake: str) -> list[dict[str, Any]]:
    parts = dicts_or_empty(content.get("parts"))
    found = (part.get(camel, part.get(snake)) for part in parts)
    return [one for one in found if isinstance(one, dict)]


def _parse_calls(content: Mapping[str, Any]) -> list[ToolCall]:
    return [_parse_call(call) for call in _select_parts(content, "functionCall", "function_call")]


def _parse_call(call: Mapping[str, Any]) -> ToolCall:
    sent = call.get("args", {})
    return ToolCall(
        str_or_empty(call.get("id")),
        str_or_empty(call.get("name")),
        sent if isinstance(sent, dict) else None,
    )


def _render_answer(answer: CallReply) -> dict[str, Any]:
    response = {"error" if answer.is_error else "output": answer.text}
    id = {"id": answer.call.id} if answer.call.id else {}
    return {"functionResponse": {**id, "name": answer.call.name, "response": response}}


def _response_text(response: Mapping[str, Any]) -> str:
    given = response.get("response")
    return str_or_empty(given.get("output")) if isinstance(given, dict) else ""
