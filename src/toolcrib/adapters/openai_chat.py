"""Tools, calls and results in the format of the OpenAI Chat Completions API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.plain_json import (
    FieldReader,
    dicts_or_empty,
    join_texts,
    not_a_function_error,
    parse_arguments,
    referenced_tool_names,
    str_or_empty,
    to_plain_dict,
    to_plain_dicts,
)
from toolcrib.core.calls import CallHistory, CallReply, PastCall, ToolCall
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is a wrapped function, or a bare one as in the older `functions`."""
    if "type" in entry:
        return entry["type"] == "function" and "function" in entry
    return "function" in entry or ("parameters" in entry and not _is_gemini_declaration(entry))


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """Return the tool of one entry of a request's `tools`."""
    if entry.get("type") not in (None, "function"):
        raise not_a_function_error(entry)
    wrapper = fields = FieldReader(entry)
    if "function" in entry:
        fields = FieldReader(wrapper.read_object("function"), prefix="function.")
    tool = Tool(
        fields.read_name(),
        fields.read_text("description"),
        fields.read_object("parameters"),
        # OpenAI has no deferral here; servers that add it put it in the function or its wrapper.
        policy=fields.read_policy() if fields.read_policy() != "automatic" else wrapper.read_policy(),
    )
    return [tool]


def _is_gemini_declaration(entry: Mapping[str, Any]) -> bool:
    parameters = entry["parameters"]
    return isinstance(parameters, Mapping) and str(parameters.get("type")).isupper()


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the `tools` of a request."""
    return [
        {
            "type": "function",
            "function": {
                "name": public_name(tool),
                "description": tool.description,
                "parameters": {"type": "object", **tool.input_schema},
            },
        }
        for tool in tools
    ]


def calls_from_wire(reply: object) -> list[ToolCall]:
    """Return the calls of a completion, or of a message."""
    return _parse_calls(_first_message(to_plain_dict(reply)))


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """Return the model's message in the form in which it is sent back."""
    return [{"role": "assistant", **_first_message(to_plain_dict(reply))}]


def answers_to_wire(answers: Sequence[CallReply]) -> list[dict[str, Any]]:
    """Return one message per result."""
    return [{"role": "tool", "tool_call_id": answer.call.id, "content": answer.text} for answer in answers]


def turns_from_wire(messages: Iterable[object]) -> list[list[PastCall]]:
    """Return the calls of each turn of a history, with their results."""
    history = CallHistory()
    for message in to_plain_dicts(messages):
        if message.get("role") == "assistant":
            history.add_turn(_parse_calls(message))
        elif message.get("role") == "tool":
            content = message.get("content")
            history.add_result(
                str_or_empty(message.get("tool_call_id")),
                join_texts(content) or str_or_empty(content),
                referenced_tool_names(content),
            )
    return history.turns


def _first_message(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message of a completion's first choice; a message is returned unchanged."""
    choices = dicts_or_empty(reply.get("choices"))
    message = choices[0].get("message") if choices else reply
    return message if isinstance(message, dict) else {}


def _parse_calls(message: Mapping[str, Any]) -> list[ToolCall]:
    calls = []
    for entry in dicts_or_empty(message.get("tool_calls")):
        function = entry.get("function")
        if isinstance(function, dict):
            arguments = parse_arguments(function.get("arguments"))
            id, name = str_or_empty(entry.get("id")), str_or_empty(function.get("name"))
            calls.append(ToolCall(id, name, arguments))
    return calls
