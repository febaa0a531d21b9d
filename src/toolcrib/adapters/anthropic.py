"""Tools, calls and results as the Anthropic Messages API has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.fields import Fields, not_a_function
from toolcrib.adapters.history import History
from toolcrib.adapters.plain_json import objects, plain, plain_list, text
from toolcrib.core.calls import Answer, Call, Exchange
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name

HOSTED_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}

# By this word arguments that are no JSON go back to Anthropic, which takes nothing but an object.
INVALID_JSON = "INVALID_JSON"

_FOUND = "tool_search_tool_result"
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


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """A request's `tools`."""
    return [_entry(tool) for tool in tools]


def deferred_to_wire(held: Iterable[Tool]) -> list[dict[str, Any]]:
    """Tools that are declared but not shown until a search refers to them."""
    return [{**_entry(tool), "defer_loading": True} for tool in held]


def hosted_to_wire(shown: Iterable[Tool], held: Iterable[Tool]) -> list[dict[str, Any]]:
    """A request's `tools` where Anthropic searches: its search tool, what is shown, the rest."""
    return [dict(HOSTED_SEARCH), *tools_to_wire(shown), *deferred_to_wire(held)]


def calls_from_wire(reply: object) -> list[Call]:
    """The calls of a message that are not Anthropic's own to run."""
    return [_call(block) for block in _content(plain(reply)) if block.get("type") == "tool_use"]


def loaded_from_wire(reply: object) -> list[str]:
    """The tools that Anthropic's own search has found in a message."""
    results = [one.get("content") for one in _content(plain(reply)) if one.get("type") == _FOUND]
    found = (objects(one.get("tool_references")) for one in results if isinstance(one, dict))
    return [text(reference.get("tool_name")) for references in found for reference in references]


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """The model's message as it is sent back."""
    return [{"role": "assistant", "content": _content(plain(reply))}]


def answers_to_wire(answers: Sequence[Answer], *, native: bool = False) -> list[dict[str, Any]]:
    """The one message that holds all results of a turn; `native` refers to tools that were found."""
    return [{"role": "user", "content": [_result(answer, native) for answer in answers]}]


def turns_from_wire(messages: Iterable[object]) -> list[list[Exchange]]:
    """What the model called, turn by turn, and what came back."""
    history = History()
    for message in plain_list(messages):
        if message.get("role") == "assistant":
            history.turn(calls_from_wire(message), loaded_from_wire(message))
            continue
        for block in _content(message):
            if block.get("type") == "tool_result":
                history.result(
                    text(block.get("tool_use_id")),
                    _text(block),
                    _references(block),
                    is_error=block.get("is_error") is True,
                )
    return history.turns


def _entry(tool: Tool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": public_name(tool),
        "description": tool.description,
        "input_schema": {"type": "object", **tool.input_schema},
    }
    if tool.examples:
        entry["input_examples"] = tool.examples
    return entry


def _content(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(objects(content))


def _call(block: Mapping[str, Any]) -> Call:
    sent = block.get("input", {})
    is_json = isinstance(sent, dict) and [*sent] != [INVALID_JSON]
    return Call(text(block.get("id")), text(block.get("name")), sent if is_json else None)


def _result(answer: Answer, native: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": answer.call.id}
    if native and answer.found:
        # Anthropic takes references alone: with text beside them it refuses the request.
        names = map(public_name, answer.found)
        return {**result, "content": [{"type": "tool_reference", "tool_name": n} for n in names]}
    result["content"] = answer.text
    return {**result, "is_error": True} if answer.is_error else result


def _text(block: Mapping[str, Any]) -> str:
    return "".join(text(part.get("text")) for part in _content(block))


def _references(block: Mapping[str, Any]) -> list[str]:
    parts = _content(block)
    return [text(part.get("tool_name")) for part in parts if part.get("type") == "tool_reference"]
