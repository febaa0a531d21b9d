"""Tools as an MCP server lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.adapters.field import Fields
from toolcrib.core.tool import Policy, Tool


def recognises(entry: Mapping[str, Any]) -> bool:
    """Whether this is a tool of an MCP server, or its answer to `tools/list`."""
    tools = entry.get("tools")
    if isinstance(tools, list | tuple):
        return all(isinstance(tool, Mapping) and "inputSchema" in tool for tool in tools)
    return "inputSchema" in entry


def tools_from_wire(
    entry: Mapping[str, Any], *, server: str = "", server_description: str = ""
) -> list[Tool]:
    """The tools of one listed tool, or of a whole answer to `tools/list`."""
    listed = Fields(entry).objects("tools") if "tools" in entry else [entry]
    return [_tool(one, server, server_description) for one in listed]


def _tool(entry: Mapping[str, Any], server: str, server_description: str) -> Tool:
    fields = Fields(entry)
    annotations = fields.object("annotations")
    return Tool(
        fields.name(),
        fields.text("description"),
        fields.object("inputSchema"),
        title=fields.text("title") or Fields(annotations, within="annotations.").text("title"),
        server=server,
        server_description=server_description,
        output_schema=fields.object("outputSchema"),
        annotations=annotations,
        policy=_policy(fields.object("_meta")),
    )


def _policy(meta: Mapping[str, Any]) -> Policy:
    # MCP has no word for deferral; this is the one its clients agreed on.
    return "never" if meta.get("anthropic/alwaysLoad") is True else "automatic"
