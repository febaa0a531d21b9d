"""Tools, calls and results as MCP has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.fields import Fields
from toolcrib.adapters.history import History
from toolcrib.adapters.plain_json import objects, plain, plain_list, text
from toolcrib.core.calls import Answer, Call, Exchange
from toolcrib.core.tool import Policy, Tool
from toolcrib.core.tool_names import public_name


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


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The `tools` of an answer to `tools/list`."""
    return [_entry(tool) for tool in tools]


def calls_from_wire(request: object) -> list[Call]:
    """The call of a `tools/call` request, or of its parameters alone."""
    call = _call(plain(request))
    return [call] if call.name else []


def reply_to_messages(request: object) -> list[dict[str, Any]]:
    """The request itself, which stands in a log as it came."""
    return [plain(request)]


def answers_to_wire(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """A response for each call."""
    return [
        {"jsonrpc": "2.0", "id": _id(answer.call.id), "result": result(answer)}
        for answer in answers
    ]


def result(answer: Answer) -> dict[str, Any]:
    """The result of one call."""
    return {"content": [{"type": "text", "text": answer.text}], "isError": answer.is_error}


def turns_from_wire(messages: Iterable[object]) -> list[list[Exchange]]:
    """What was called, one call a turn, and what came back, of a log of requests and responses."""
    history = History()
    for message in plain_list(messages):
        if message.get("method") == "tools/call":
            history.turn([_call(message)])
        elif isinstance(message.get("result"), dict):
            history.result(_key(message), _text(message["result"]))
    return history.turns


def _entry(tool: Tool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": public_name(tool),
        "title": tool.title,
        "description": tool.description,
        "inputSchema": {"type": "object", **tool.input_schema},
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    return {field: value for field, value in entry.items() if value}


def _call(request: Mapping[str, Any]) -> Call:
    given = request.get("params", request)
    fields = given if isinstance(given, dict) else {}
    sent = fields.get("arguments", {})
    name = text(fields.get("name"))
    return Call(_key(request), name, sent if isinstance(sent, dict) else None)


def _key(message: Mapping[str, Any]) -> str:
    """A message's id as a text. It is a text or a number, and has to come back as it was."""
    return json.dumps(message["id"]) if "id" in message else ""


def _id(key: str) -> object:
    return json.loads(key) if key else None


def _text(result: Mapping[str, Any]) -> str:
    return "".join(text(part.get("text")) for part in objects(result.get("content")))
