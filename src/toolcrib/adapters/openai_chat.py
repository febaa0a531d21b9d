"""Tools, calls and results as the OpenAI Chat Completions API has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.fields import Fields, not_a_function
from toolcrib.adapters.history import History
from toolcrib.adapters.plain_json import arguments_from_text, objects, plain, plain_list, text
from toolcrib.core.calls import Answer, Call, Exchange
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name


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


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """A request's `tools`."""
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


def calls_from_wire(reply: object) -> list[Call]:
    """The calls of a completion, or of its message."""
    return _calls(_message(plain(reply)))


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """The model's message as it is sent back."""
    return [{"role": "assistant", **_message(plain(reply))}]


def answers_to_wire(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """A message for each result."""
    return [
        {"role": "tool", "tool_call_id": answer.call.id, "content": answer.text}
        for answer in answers
    ]


def turns_from_wire(messages: Iterable[object]) -> list[list[Exchange]]:
    """What the model called, turn by turn, and what came back."""
    history = History()
    for message in plain_list(messages):
        if message.get("role") == "assistant":
            history.turn(_calls(message))
        elif message.get("role") == "tool":
            content = message.get("content")
            history.result(text(message.get("tool_call_id")), _text(content), references(content))
    return history.turns


def references(content: object) -> list[str]:
    """The tools that a result refers to, on the servers that know of such parts."""
    parts = objects(content)
    return [text(one.get("tool_name")) for one in parts if one.get("type") == "tool_reference"]


def _message(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The message of a completion's first choice; a message is itself."""
    choices = objects(reply.get("choices"))
    message = choices[0].get("message") if choices else reply
    return message if isinstance(message, dict) else {}


def _calls(message: Mapping[str, Any]) -> list[Call]:
    calls = []
    for entry in objects(message.get("tool_calls")):
        function = entry.get("function")
        if isinstance(function, dict):
            arguments = arguments_from_text(function.get("arguments"))
            calls.append(Call(text(entry.get("id")), text(function.get("name")), arguments))
    return calls


def _text(content: object) -> str:
    return "".join(text(part.get("text")) for part in objects(content)) or text(content)
