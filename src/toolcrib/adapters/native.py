"""Tools in our own words: the keyword arguments of `Tool`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from toolcrib.adapters.fields import Fields, seen
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

FIELDS = (
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
ADDITIONS = ("server", "server_description", "category", "tags", "hint", "version", "policy")

_OBJECTS = ("input_schema", "output_schema", "annotations")
_FOREIGN = ("type", "function", "parameters", "inputSchema")


def recognises(entry: Mapping[str, Any]) -> bool:
    """Whether this has a name or a schema as we call it, and nothing that only others have."""
    if {"name", "input_schema"}.isdisjoint(entry) or not set(_FOREIGN).isdisjoint(entry):
        return False
    telling = {"input_schema", "description"}.intersection(entry) or set(FIELDS).issuperset(entry)
    return bool(telling) or any(_misspelt(str(field)) for field in entry)


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """The tool of one entry. Fields we do not know are left aside, unless they look misspelt."""
    for field in entry:
        if meant := _misspelt(str(field)):
            raise InvalidTool(f"{seen(entry)}: unknown field {field!r}; did you mean {meant!r}?")
    given = (field for field in FIELDS if entry.get(field) is not None)
    return [Tool(**{"name": Fields(entry).name(), **_values(entry, given)})]


def additions(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry in another format says in our words: its server, category, tags and so on."""
    return _values(entry, (field for field in ADDITIONS if entry.get(field) is not None))


def _values(entry: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    fields = Fields(entry)
    values: dict[str, Any] = {}
    for name in names:
        if name in _OBJECTS:
            values[name] = fields.object(name)
        elif name == "examples":
            values[name] = fields.items(name)
        elif name == "tags":
            values[name] = fields.texts(name)
        else:
            values[name] = fields.text(name)
    return values


@lru_cache(maxsize=256)
def _misspelt(field: str) -> str:
    """The field that was meant by one we do not know; empty when there is none like it."""
    if field in FIELDS:
        return ""
    return next(iter(difflib.get_close_matches(field, FIELDS, n=1, cutoff=0.8)), "")
