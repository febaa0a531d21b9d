"""Tools as the OpenAI Responses API takes them: functions, and namespaces of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.adapters.field import Fields, not_a_function
from toolcrib.core.tool import Tool


def recognises(entry: Mapping[str, Any]) -> bool:
    """Whether this is a function without a wrapper, or a namespace."""
    kind = entry.get("type")
    return kind == "namespace" or (
        kind == "function" and {"function", "input_schema", "inputSchema"}.isdisjoint(entry)
    )


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """The tools of one entry of a request's `tools`. A namespace becomes their server."""
    if entry.get("type") != "namespace":
        return [_function(entry)]
    namespace = Fields(entry)
    server, description = namespace.name(), namespace.text("description")
    return [_function(member, server, description) for member in namespace.objects("tools")]


def _function(entry: Mapping[str, Any], server: str = "", server_description: str = "") -> Tool:
    if entry.get("type") != "function":
        raise not_a_function(entry)
    fields = Fields(entry)
    return Tool(
        fields.name(),
        fields.text("description"),
        fields.object("parameters"),
        server=server,
        server_description=server_description,
        output_schema=fields.object("output_schema"),
        policy=fields.policy(),
    )
