"""Tools in Toolcrib's own JSON format: the keyword arguments of `Tool`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from toolcrib.adapters.plain_json import FieldReader, describe_entry
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

TOOL_FIELDS = (
    "name", "description", "input_schema", "id", "title", "server", "server_description", "category", "tags",
    "hint", "version", "examples", "output_schema", "annotations", "policy",
)  # fmt: skip

# Fields that no other wire format has. An entry in any format, or a list of tools, may have them.
COMMON_FIELDS = ("server", "server_description", "category", "tags", "hint", "version", "policy")

_OBJECT_FIELDS = ("input_schema", "output_schema", "annotations")
_FOREIGN_FIELDS = ("type", "function", "parameters", "inputSchema")


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry has our name or schema field and no field of another format."""
    if {"name", "input_schema"}.isdisjoint(entry) or not set(_FOREIGN_FIELDS).isdisjoint(entry):
        return False
    if {"input_schema", "description"}.intersection(entry) or set(TOOL_FIELDS).issuperset(entry):
        return True
    return any(_suggest_field(str(field)) for field in entry)


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """Return the tool of one entry. Unknown fields are ignored unless they look misspelled."""
    for field in entry:
        if suggestion := _suggest_field(str(field)):
            raise InvalidTool(f"{describe_entry(entry)}: unknown field {field!r}; did you mean {suggestion!r}?")
    present = (field for field in TOOL_FIELDS if entry.get(field) is not None)
    return [Tool(**{"name": FieldReader(entry).read_name(), **_read_fields(entry, present)})]


def read_common_fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that Toolcrib adds to other formats, such as `server` or `tags`."""
    return _read_fields(entry, (field for field in COMMON_FIELDS if entry.get(field) is not None))


def _read_fields(entry: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    fields = FieldReader(entry)
    values: dict[str, Any] = {}
    for name in names:
        if name in _OBJECT_FIELDS:
            values[name] = fields.read_object(name)
        elif name == "examples":
            values[name] = fields.read_list(name)
        elif name == "tags":
            values[name] = fields.read_texts(name)
        else:
            values[name] = fields.read_text(name)
    return values


@lru_cache(maxsize=256)
def _suggest_field(field: str) -> str:
    """Return the known field closest to an unknown one; empty if none is close."""
    if field in TOOL_FIELDS:
        return ""
    return next(iter(difflib.get_close_matches(field, TOOL_FIELDS, n=1, cutoff=0.8)), "")
