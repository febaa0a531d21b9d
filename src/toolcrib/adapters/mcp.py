"""Tools, calls and results in the format of MCP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.plain_json import FieldReader, join_texts, str_or_empty, to_plain_dict, to_plain_dicts
from toolcrib.core.calls import CallHistory, CallReply, PastCall, ToolCall
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is a tool of an MCP server, or a result of `tools/list`."""
    tools = entry.get("tools")
    if isinstance(tools, list | tuple):
        return all(isinstance(tool, Mapping) and "inputSchema" in tool for tool in tools)
    return "inputSchema" in entry


def tools_from_wire(entry: Mapping[str, Any], *, server: str = "", server_description: str = "") -> list[Tool]:
    """Return the tool of one entry, or all tools of a `tools/list` result."""
    entries = FieldReader(entry).read_objects("tools") if "tools" in entry else [entry]
    return [_parse_tool(item, server, server_description) for item in entries]


def _parse_tool(entry: Mapping[str, Any], server: str, server_description: str) -> Tool:
    fields = FieldReader(entry)
    annotations, meta = fields.read_object("annotations"), fields.read_object("_meta")
    return Tool(
        fields.read_name(),
        fields.read_text("description"),
        fields.read_object("inputSchema"),
        title=fields.read_text("title") or FieldReader(annotations, prefix="annotations.").read_text("title"),
        server=server,
        server_description=server_description,
        output_schema=fields.read_object("outputSchema"),
        annotations=annotations,
        # MCP has no field for deferral; clients agreed on this key.
        policy="never" if meta.get("anthropic/alwaysLoad") is True else "automatic",
    )


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the `tools` of a `tools/list` result."""
    return [_render_tool(tool) for tool in tools]


def calls_from_wire(request: object) -> list[ToolCall]:
    """Return the call of a `tools/call` request, or of its parameters alone."""
    call = _parse_call(to_plain_dict(request))
    return [call] if call.name else []


def reply_to_messages(request: object) -> list[dict[str, Any]]:
    """Return the request itself, as it is kept in a log."""
    return [to_plain_dict(request)]


def answers_to_wire(answers: Sequence[CallReply]) -> list[dict[str, Any]]:
    """Return one response per call."""
    return [
        {"jsonrpc": "2.0", "id": _decode_id(answer.call.id), "result": result_to_wire(answer)} for answer in answers
    ]


def result_to_wire(answer: CallReply) -> dict[str, Any]:
    """Return the result of one call."""
    return {"content": [{"type": "text", "text": answer.text}], "isError": answer.is_error}


def turns_from_wire(messages: Iterable[object]) -> list[list[PastCall]]:
    """Return the calls of a log of requests and responses, one per turn, with their results."""
    history = CallHistory()
    for message in to_plain_dicts(messages):
        if message.get("method") == "tools/call":
            history.add_turn([_parse_call(message)])
        elif isinstance(message.get("result"), dict):
            history.add_result(_encode_id(message), join_texts(message["result"].get("content")))
    return history.turns


def _render_tool(tool: Tool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": public_name(tool),
        "title": tool.title,
        "description": tool.description,
        "inputSchema": {"type": "object", **tool.input_schema},
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    return {field: value for field, value in entry.items() if value}


def _parse_call(request: Mapping[str, Any]) -> ToolCall:
    params = request.get("params", request)
    fields = params if isinstance(params, dict) else {}
    arguments = fields.get("arguments", {})
    name = str_or_empty(fields.get("name"))
    return ToolCall(_encode_id(request), name, arguments if isinstance(arguments, dict) else None)


def _encode_id(message: Mapping[str, Any]) -> str:
    """Return a message's id as a string that `_decode_id` turns back into a string or a number."""
    return json.dumps(message["id"]) if "id" in message else ""


def _decode_id(key: str) -> object:
    return json.loads(key) if key else None
