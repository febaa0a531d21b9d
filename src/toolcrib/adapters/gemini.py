"""Tools, calls and results as the Gemini API has them.

What is read may be in camel case, as its JSON, or in snake case, as its SDK.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolcrib.adapters.fields import Fields, seen
from toolcrib.adapters.history import History
from toolcrib.adapters.plain_json import objects, plain, plain_list, text
from toolcrib.core.calls import Answer, Call, Exchange
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name
from toolcrib.errors import InvalidSchema, InvalidTool

MAX_DEPTH = 100

_DECLARATIONS = ("functionDeclarations", "function_declarations")
_JSON_SCHEMAS = ("parametersJsonSchema", "parameters_json_schema")
_RESPONSE_JSON_SCHEMAS = ("responseJsonSchema", "response_json_schema")
_RUN_BY_GEMINI = (
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
_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
_MAX_DIGITS = 19
# What these hold are values, not schemas.
_VALUES = ("const", "default", "enum", "example", "examples")


def recognises(entry: Mapping[str, Any]) -> bool:
    """Whether this is a list of declarations, one bare declaration, or a tool that Gemini runs."""
    if any(field in entry for field in (*_DECLARATIONS, *_JSON_SCHEMAS)):
        return True
    if "type" in entry:
        return False
    return _is_run_by_gemini(entry) or _has_upper_case_types(entry.get("parameters"))


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """The tools of one entry of a request's `tools`."""
    container = _given(entry, _DECLARATIONS)
    if entry.get(container) is not None:
        return [_tool(declaration) for declaration in Fields(entry).objects(container)]
    if _is_run_by_gemini(entry):
        raise InvalidTool(
            f"{seen(entry)}: this is not a function tool but one that Gemini runs, "
            "so there is nothing to search; leave this entry out"
        )
    return [_tool(entry)]


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """A request's `tools`: one entry with all declarations."""
    declarations = [
        {
            "name": public_name(tool),
            "description": tool.description,
            "parametersJsonSchema": _sent({"type": "object", **tool.input_schema}, 0),
        }
        for tool in tools
    ]
    return [{"functionDeclarations": declarations}] if declarations else []


def calls_from_wire(reply: object) -> list[Call]:
    """The calls of a response's first candidate, or of its content."""
    return _calls(_content(plain(reply)))


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """The model's content as it is sent back."""
    return [{**_content(plain(reply)), "role": "model"}]


def answers_to_wire(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The one content that holds all results of a turn."""
    return [{"role": "user", "parts": [_part(answer) for answer in answers]}]


def turns_from_wire(messages: Iterable[object]) -> list[list[Exchange]]:
    """What the model called, turn by turn, and what came back."""
    history = History()
    for content in plain_list(messages):
        if content.get("role") == "model":
            history.turn(_calls(content))
            continue
        for response in _parts(content, "functionResponse", "function_response"):
            key = text(response.get("id")) or text(response.get("name"))
            history.result(key, _output(response))
    return history.turns


def _tool(declaration: Mapping[str, Any]) -> Tool:
    fields = Fields(declaration)
    return Tool(
        fields.name(),
        fields.text("description"),
        _schema(declaration, "parameters", _given(declaration, _JSON_SCHEMAS)),
        output_schema=_schema(declaration, "response", _given(declaration, _RESPONSE_JSON_SCHEMAS)),
    )


def _schema(declaration: Mapping[str, Any], own: str, json_schema: str) -> Mapping[str, Any]:
    """The JSON Schema, given as such or in Gemini's dialect."""
    fields = Fields(declaration)
    given = fields.object(json_schema)
    if not given:
        return _json_schema(fields.object(own), seen(declaration), 0)
    if fields.object(own):
        raise InvalidTool(f"{seen(declaration)}: has both {own} and {json_schema}; keep one")
    return given


def _json_schema(schema: Mapping[str, Any], whose: str, depth: int) -> dict[str, Any]:
    """A schema of Gemini's dialect in JSON Schema: lower-case types, `null` as a type."""
    if depth > MAX_DEPTH:
        raise InvalidSchema(f"{whose}: parameters are nested more than {MAX_DEPTH} deep")
    plain: dict[str, Any] = {}
    for keyword, value in schema.items():
        name = _KEYWORDS.get(keyword, keyword)
        if name == "type":
            plain |= _type(value)
        elif name == "$ref":
            plain[name] = value.replace("#/defs/", "#/$defs/") if isinstance(value, str) else value
        elif name in ("properties", "$defs") and isinstance(value, Mapping):
            plain[name] = {key: _inner(one, whose, depth) for key, one in value.items()}
        elif name == "anyOf" and isinstance(value, list | tuple):
            plain[name] = [_inner(one, whose, depth) for one in value]
        elif name in ("items", "additionalProperties"):
            plain[name] = _inner(value, whose, depth)
        elif name in _COUNTS:
            plain[name] = _count(value)
        elif name != "nullable":
            plain[name] = value
    return {**plain, **dict(_or_null(plain))} if schema.get("nullable") is True else plain


def _or_null(plain: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Those keywords of a schema that would refuse null, so that they take it."""
    type, choices, values = (plain.get(keyword) for keyword in ("type", "anyOf", "enum"))
    if isinstance(type, str):
        yield "type", [type, "null"]
    if isinstance(choices, list):
        yield "anyOf", [*choices, {"type": "null"}]
    if isinstance(values, list | tuple):
        yield "enum", [*values, None]


def _count(value: object) -> object:
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_DIGITS:
        return int(value)
    return value


def _sent(schema: Any, depth: int) -> Any:
    """A JSON Schema whose enums hold no null, which Gemini does not take there."""
    if depth > MAX_DEPTH:
        return schema
    if isinstance(schema, list):
        return [_sent(one, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    sent = {
        keyword: value if keyword in _VALUES else _sent(value, depth + 1)
        for keyword, value in schema.items()
    }
    match sent:
        case {"type": [kind, "null"], "enum": [*values, None], **rest} if (
            values and "anyOf" not in rest
        ):
            return {**rest, "anyOf": [{"type": kind, "enum": values}, {"type": "null"}]}
    return sent


def _inner(value: object, whose: str, depth: int) -> object:
    return _json_schema(value, whose, depth + 1) if isinstance(value, Mapping) else value


def _type(value: object) -> dict[str, Any]:
    if value == "TYPE_UNSPECIFIED":
        return {}
    return {"type": value.lower() if isinstance(value, str) else value}


def _given(entry: Mapping[str, Any], spellings: tuple[str, str]) -> str:
    """The spelling of a field that this entry uses."""
    camel, snake = spellings
    return snake if snake in entry else camel


def _is_run_by_gemini(entry: Mapping[str, Any]) -> bool:
    given = (field for field, value in entry.items() if value is not None)
    return "name" not in entry and any(_camel(field) in _RUN_BY_GEMINI for field in given)


def _camel(field: object) -> str:
    first, *rest = str(field).split("_")
    return first + "".join(word.capitalize() for word in rest)


def _has_upper_case_types(parameters: object) -> bool:
    return isinstance(parameters, Mapping) and str(parameters.get("type")).isupper()


def _content(reply: Mapping[str, Any]) -> dict[str, Any]:
    candidates = objects(reply.get("candidates"))
    content = candidates[0].get("content") if candidates else reply
    return content if isinstance(content, dict) else {}


def _parts(content: Mapping[str, Any], camel: str, snake: str) -> list[dict[str, Any]]:
    parts = objects(content.get("parts"))
    found = (part.get(camel, part.get(snake)) for part in parts)
    return [one for one in found if isinstance(one, dict)]


def _calls(content: Mapping[str, Any]) -> list[Call]:
    return [_call(call) for call in _parts(content, "functionCall", "function_call")]


def _call(call: Mapping[str, Any]) -> Call:
    sent = call.get("args", {})
    return Call(
        text(call.get("id")), text(call.get("name")), sent if isinstance(sent, dict) else None
    )


def _part(answer: Answer) -> dict[str, Any]:
    response = {"error" if answer.is_error else "output": answer.text}
    id = {"id": answer.call.id} if answer.call.id else {}
    return {"functionResponse": {**id, "name": answer.call.name, "response": response}}


def _output(response: Mapping[str, Any]) -> str:
    given = response.get("response")
    return text(given.get("output")) if isinstance(given, dict) else ""
