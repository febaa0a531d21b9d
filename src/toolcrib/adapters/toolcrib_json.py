"""Tools in our own words: the keyword arguments of `Tool`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from toolcrib.adapters.field_reader import FieldReader, describe_entry
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

TOOL_FIELDS = (
    "name",
    "description",
    "input_schema",
    "id",
    "title",
    "server",
    "server_description",
    "category",
    "tags",
    "hint",
    "version",
    "examples",
    "output_schema",
    "annotations",
    "policy",
)

# No wire format has these, so they may stand beside any of them, and on a list of tools.
COMMON_FIELDS = ("server", "server_description", "category", "tags", "hint", "version", "policy")

_OBJECT_FIELDS = ("input_schema", "output_schema", "annotations")
_FOREIGN_FIELDS = ("type", "function", "parameters", "inputSchema")


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Whether this has a name or a schema as we call it, and nothing that only others have."""
    if {"name", "input_schema"}.isdisjoint(entry) or not set(_FOREIGN_FIELDS).isdisjoint(entry):
        return False
    telling = {"input_schema", "description"}.intersection(entry) or set(TOOL_FIELDS).issuperset(
        entry
    )
    return bool(telling) or any(_suggest_field(str(field)) for field in entry)


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """The tool of one entry. Fields we do not know are left aside, unless they look misspelt."""
    for field in entry:
        if meant := _suggest_field(str(field)):
            raise InvalidTool(
                f"{describe_entry(entry)}: unknown field {field!r}; did you mean {meant!r}?"
            )
    given = (field for field in TOOL_FIELDS if entry.get(field) is not None)
    return [Tool(**{"name": FieldReader(entry).read_name(), **_read_fields(entry, given)})]


def read_common_fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry in another format says in our words: its server, category, tags and so on."""
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
    """The field that was meant by one we do not know; empty when there is none like it."""
    if field in TOOL_FIELDS:
        return ""
    return next(iter(difflib.get_close_matches(field, TOOL_FIELDS, n=1, cutoff=0.8)), "")
