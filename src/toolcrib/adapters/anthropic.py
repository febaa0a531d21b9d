"""Tools as the Anthropic Messages API takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.adapters.field import Fields, not_a_function
from toolcrib.core.tool import Tool

_PLAIN = {"name", "description", "input_schema"}
_MARKS = {
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "eager_input_streaming",
    "input_examples",
    "strict",
    "type",
}


def recognises(entry: Mapping[str, Any]) -> bool:
    """Whether this has fields that only Anthropic has, or nothing but the plain ones."""
    if "input_schema" not in entry or entry.get("type") not in (None, "custom"):
        return False
    return not _MARKS.isdisjoint(entry) or _PLAIN.issuperset(entry)


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """The tool of one entry of a request's `tools`."""
    if entry.get("type") not in (None, "custom"):
        raise not_a_function(entry)
    fields = Fields(entry)
    tool = Tool(
        fields.name(),
        fields.text("description"),
        fields.object("input_schema"),
        examples=fields.items("input_examples"),
        policy=fields.policy(),
    )
    return [tool]
