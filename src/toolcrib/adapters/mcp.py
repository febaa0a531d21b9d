"""Tools, calls and results as MCP has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.call_history import CallHistory
from toolcrib.adapters.field_reader import FieldReader
from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty, to_plain_dict, to_plain_dicts
from toolcrib.core.calls import CallReply, PastCall, ToolCall
from toolcrib.core.tool import Policy, Tool
from toolcrib.core.tool_names import public_name


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Whether this is a tool of an MCP server, or its answer to `tools/list`."""
    tools = entry.get("tools")
    if isinstance(tools, list | tuple):
        return all(isinstance(tool, Mapping) and "inputSchema" in tool for tool in tools)
    return "inputSchema" in entry


def tools_from_wire(
    entry: Mapping[str, Any], *, server: str = "", server_description: str = ""
) -> list[Tool]:
    """The tools of one listed tool, or of a whole answer to `tools/list`."""
    listed = FieldReader(entry).read_objects("tools") if "tools" in entry else [entry]
    return [_parse_tool(one, server, server_description) for one in listed]


def _parse_tool(entry: Mapping[str, Any], server: str, server_description: str) -> Tool:
    fields = FieldReader(entry)
    annotations = fields.read_object("annotations")
    return Tool(
        fields.read_name(),
        fields.read_text("description"),
        fields.read_object("inputSchema"),
        title=fields.read_text("title")
        or FieldReader(annotations, prefix="annotations.").read_text("title"),
        server=server,
        server_description=server_description,
        output_schema=fields.read_object("outputSchema"),
        annotations=annotations,
        policy=_read_policy(fields.read_object("_meta")),
    )


def _read_policy(meta: Mapping[str, Any]) -> Policy:
    # MCP has no word for deferral; this is the one its clients agreed on.
    return "never" if meta.get("anthropic/alwaysLoad") is True else "automatic"


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The `tools` of an answer to `tools/list`."""
    return [_render_tool(tool) for tool in tools]


def calls_from_wire(request: object) -> list[ToolCall]:
    """The call of a `tools/call` request, or of its parameters alone."""
    call = _parse_call(to_plain_dict(request))
    return [call] if call.name else []


def reply_to_messages(request: object) -> list[dict[str, Any]]:
    """The request itself, which stands in a log as it came."""
    return [to_plain_dict(request)]


def answers_to_wire(answers: Sequence[CallReply]) -> list[dict[str, Any]]:
    """A response for each call."""
    return [
        {"jsonrpc": "2.0", "id": _decode_id(answer.call.id), "result": result_to_wire(answer)}
        for answer in answers
    ]


def result_to_wire(answer: CallReply) -> dict[str, Any]:
    """The result of one call."""
    return {"content": [{"type": "text", "text": answer.text}], "isError": answer.is_error}


def turns_from_wire(messages: Iterable[object]) -> list[list[PastCall]]:
    """What was called, one call a turn, and what came back, of a log of requests and responses."""
    history = CallHistory()
    for message in to_plain_dicts(messages):
        if message.get("method") == "tools/call":
            history.add_turn([_parse_call(message)])
        elif isinstance(message.get("result"), dict):
            history.add_result(_encode_id(message), _result_text(message["result"]))
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
    given = request.get("params", request)
    fields = given if isinstance(given, dict) else {}
    sent = fields.get("arguments", {})
    name = str_or_empty(fields.get("name"))
    return ToolCall(_encode_id(request), name, sent if isinstance(sent, dict) else None)


def _encode_id(message: Mapping[str, Any]) -> str:
    """A message's id as a text. It is a text or a number, and has to come back as it was."""
    return json.dumps(message["id"]) if "id" in message else ""


def _decode_id(key: str) -> object:
    return json.loads(key) if key else None


def _result_text(result: Mapping[str, Any]) -> str:
    return "".join(str_or_empty(part.get("text")) for part in dicts_or_empty(result.get("content")))
