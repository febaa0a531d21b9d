"""Tools as the OpenAI Chat Completions API takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.adapters.field import Fields, not_a_function
from toolcrib.core.tool import Tool


def recognises(entry: Mapping[str, Any]) -> bool:
    """Whether this is a function in its wrapper, or bare, as the older `functions` had it."""
    if "type" in entry:
        return entry["type"] == "function" and "function" in entry
    return "function" in entry or ("parameters" in entry and not _speaks_gemini(entry))


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """The tool of one entry of a request's `tools`."""
    if entry.get("type") not in (None, "function"):
        raise not_a_function(entry)
    wrapper = fields = Fields(entry)
    if "function" in entry:
        fields = Fields(wrapper.object("function"), within="function.")
    tool = Tool(
        fields.name(),
        fields.text("description"),
        fields.object("parameters"),
        # OpenAI has no deferral here; the servers that add it put it inside or beside the function.
        policy=fields.policy() if fields.policy() != "automatic" else wrapper.policy(),
    )
    return [tool]


def _speaks_gemini(entry: Mapping[str, Any]) -> bool:
    parameters = entry["parameters"]
    return isinstance(parameters, Mapping) and str(parameters.get("type")).isupper()
