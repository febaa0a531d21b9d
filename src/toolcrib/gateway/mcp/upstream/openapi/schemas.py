"""Convert the schemas of an OpenAPI document to one self-contained JSON Schema per tool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolcrib.gateway.mcp.upstream.openapi.document import OpenApiDocument

# A document may be hostile: its schemas may be huge, deep, recursive or expand exponentially.
MAX_SCHEMA_PARTS: Final = 5_000
MAX_SCHEMA_DEPTH: Final = 40
# A model does not need every detail of a response to use it.
MAX_OUTPUT_PARTS: Final = 500
_MAX_EXAMPLE_CHARS: Final = 200

_PLAIN_KEYWORDS: Final = frozenset(
    {
        *("type", "format", "enum", "const", "default", "title", "description", "required", "pattern", "deprecated"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems"),
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains", "dependentRequired", "contentEncoding", "contentMediaType"),
    }
)
_SCHEMA_KEYWORDS: Final = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_LIST_KEYWORDS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAP_KEYWORDS: Final = ("properties", "patternProperties")
_INVALID_NAME_CHARS: Final = re.compile(r"[^A-Za-z0-9_.-]+")


class SchemaConverter:
    """Converts the schemas of one tool; what they refer to is collected in `definitions`.

    Parts over a limit accept any value, so a tool of a huge document can still be called. Requests do not
    have properties that are read-only, and responses do not have those that are write-only.
    """

    def __init__(self, document: OpenApiDocument, *, is_response: bool = False) -> None:
        self._document = document
        self._left_out = "writeOnly" if is_response else "readOnly"
        self._parts_left = MAX_OUTPUT_PARTS if is_response else MAX_SCHEMA_PARTS
        self._names: dict[str, str] = {}
        self.definitions: dict[str, Any] = {}

    def convert(self, schema: object, depth: int = 0) -> Any:
        """Return a schema for the arguments or the result of a call; raise `UnresolvedReference`."""
        self._parts_left -= 1
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping) or self._parts_left < 0 or depth > MAX_SCHEMA_DEPTH:
            return {}
        if isinstance(schema.get("$ref"), str):
            # Other members of a reference are texts about it.
            note = schema.get("description")
            return {"$ref": self._define(schema["$ref"]), **({"description": note} if isinstance(note, str) else {})}
        converted = {key: value for key, value in schema.items() if key in _PLAIN_KEYWORDS}
        for key in _SCHEMA_KEYWORDS:
            if key in schema:
                converted[key] = self.convert(schema[key], depth + 1)
        for key in _LIST_KEYWORDS:
            if isinstance(schema.get(key), list):
                converted[key] = [self.convert(item, depth + 1) for item in schema[key]]
        for key in _MAP_KEYWORDS:
            if isinstance(schema.get(key), Mapping):
                converted[key] = self._convert_members(schema[key], depth)
        self._update_required(schema, converted)
        _convert_examples(schema, converted)
        if self._document.has_old_schemas:
            _convert_old_keywords(schema, converted)
        return converted

    def _convert_members(self, members: Mapping[str, Any], depth: int) -> dict[str, Any]:
        return {str(name): self.convert(member, depth + 1) for name, member in members.items() if self._is_used(member)}

    def _is_used(self, member: object) -> bool:
        return not (isinstance(member, Mapping) and member.get(self._left_out) is True)

    def _update_required(self, schema: Mapping[str, Any], converted: dict[str, Any]) -> None:
        """Do not require properties that are left out."""
        members, required = schema.get("properties"), converted.get("required")
        if not isinstance(required, list):
            # Version 3 has lists only; the boolean of older versions is ignored here.
            converted.pop("required", None)
        elif isinstance(members, Mapping):
            converted["required"] = [name for name in required if self._is_used(members.get(name))]

    def _define(self, reference: str) -> str:
        """Return the reference to a definition, which is converted on first use."""
        name = self._names.get(reference)
        if name is None:
            base = _INVALID_NAME_CHARS.sub("_", reference.rpartition("/")[2])[:60] or "schema"
            taken = self._names.values()
            name = next(free for number in range(1, 10**6) if (free := _number(base, number)) not in taken)
            self._names[reference] = name
            self.definitions[name] = {}
            self.definitions[name] = self.convert(self._document.find_target(reference), 1)
        return f"#/$defs/{name}"


def _number(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _convert_examples(schema: Mapping[str, Any], converted: dict[str, Any]) -> None:
    """Keep short examples, which help a model to write a value."""
    examples = schema.get("examples")
    found = examples if isinstance(examples, list) else [schema["example"]] if "example" in schema else []
    short = [item for item in found if isinstance(item, str | int | float) and len(str(item)) <= _MAX_EXAMPLE_CHARS]
    if short:
        converted["examples"] = short[:3]


def _convert_old_keywords(schema: Mapping[str, Any], converted: dict[str, Any]) -> None:
    """Replace the keywords of version 3.0 that JSON Schema does not have."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(converted.get(exclusive), bool):
            is_exclusive = converted.pop(exclusive)
            if is_exclusive and limit in converted:
                converted[exclusive] = converted.pop(limit)
    if schema.get("nullable") is True:
        if isinstance(converted.get("type"), str):
            converted["type"] = [converted["type"], "null"]
        if isinstance(converted.get("enum"), list) and None not in converted["enum"]:
            converted["enum"] = [*converted["enum"], None]
