"""Tools as the Gemini API takes them: in camel case as its JSON, or in snake case as its SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.adapters.field import Fields, seen
from toolcrib.core.tool import Tool
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
        elif name != "nullable":
            plain[name] = value
    if schema.get("nullable") is True and isinstance(plain.get("type"), str):
        plain["type"] = [plain["type"], "null"]
    return plain


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
