"""Tools, calls and results in the format of the Anthropic Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from toolcrib.adapters.plain_json import (
    FieldReader,
    dicts_or_empty,
    join_texts,
    not_a_function_error,
    referenced_tool_names,
    str_or_empty,
    to_plain_dict,
    to_plain_dicts,
)
from toolcrib.core.calls import CallHistory, CallReply, PastCall, ToolCall
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import public_name

HostedVariant = Literal["bm25", "regex"]
HOSTED_SEARCH_TOOLS: Final[Mapping[HostedVariant, Mapping[str, str]]] = {
    "bm25": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    "regex": {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
}

# Anthropic accepts only an object as input; invalid JSON is sent back as the value of this key.
INVALID_JSON_KEY = "INVALID_JSON"

_SEARCH_RESULT = "tool_search_tool_result"
_COMMON_FIELDS = {"name", "description", "input_schema"}
_ANTHROPIC_FIELDS = {
    "allowed_callers", "cache_control", "defer_loading", "eager_input_streaming", "input_examples", "strict",
    "type",
}  # fmt: skip


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry has fields specific to Anthropic, or only the common ones."""
    if "input_schema" not in entry or entry.get("type") not in (None, "custom"):
        return False
    return not _ANTHROPIC_FIELDS.isdisjoint(entry) or _COMMON_FIELDS.issuperset(entry)


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """Return the tool of one entry of a request's `tools`."""
    if entry.get("type") not in (None, "custom"):
        raise not_a_function_error(entry)
    fields = FieldReader(entry)
    tool = Tool(
        fields.read_name(),
        fields.read_text("description"),
        fields.read_object("input_schema"),
        examples=fields.read_list("input_examples"),
        policy=fields.read_policy(),
    )
    return [tool]


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the `tools` of a request."""
    return [_render_tool(tool) for tool in tools]


def hosted_search_to_wire(
    visible: Iterable[Tool], deferred: Iterable[Tool], *, variant: HostedVariant = "bm25"
) -> list[dict[str, Any]]:
    """Return the `tools` of a request in which Anthropic searches the deferred tools."""
    return [dict(HOSTED_SEARCH_TOOLS[variant]), *client_search_to_wire((), visible, deferred)]


def client_search_to_wire(
    own_tools: Iterable[Tool], visible: Iterable[Tool], deferred: Iterable[Tool]
) -> list[dict[str, Any]]:
    """Return the `tools` of a request in which Toolcrib searches the deferred tools."""
    hidden = [{**_render_tool(tool), "defer_loading": True} for tool in deferred]
    return [*tools_to_wire(own_tools), *tools_to_wire(visible), *hidden]


def calls_from_wire(reply: object) -> list[ToolCall]:
    """Return the calls of a message, except those that Anthropic runs."""
    return [_parse_call(block) for block in _content_blocks(to_plain_dict(reply)) if block.get("type") == "tool_use"]


def loaded_names_from_wire(reply: object) -> list[str]:
    """Return the names of the tools that Anthropic's own search found in a message."""
    results = [
        block.get("content") for block in _content_blocks(to_plain_dict(reply)) if block.get("type") == _SEARCH_RESULT
    ]
    return [
        str_or_empty(reference.get("tool_name"))
        for result in results
        if isinstance(result, dict)
        for reference in dicts_or_empty(result.get("tool_references"))
    ]


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """Return the model's message in the form in which it is sent back."""
    return [{"role": "assistant", "content": _content_blocks(to_plain_dict(reply))}]


def answers_to_wire(answers: Sequence[CallReply]) -> list[dict[str, Any]]:
    """Return the one message that holds all results of a turn."""
    return [{"role": "user", "content": [_render_result(answer) for answer in answers]}]


def client_answers_to_wire(answers: Sequence[CallReply]) -> list[dict[str, Any]]:
    """Return the message with all results; a search result refers to the tools it found."""
    return [{"role": "user", "content": [_render_reference(answer) for answer in answers]}]


def turns_from_wire(messages: Iterable[object]) -> list[list[PastCall]]:
    """Return the calls of each turn of a history, with their results."""
    history = CallHistory()
    for message in to_plain_dicts(messages):
        if message.get("role") == "assistant":
            history.add_turn(calls_from_wire(message), loaded_names_from_wire(message))
            continue
        for block in _content_blocks(message):
            if block.get("type") == "tool_result":
                parts = _content_blocks(block)
                history.add_result(
                    str_or_empty(block.get("tool_use_id")),
                    join_texts(parts),
                    referenced_tool_names(parts),
                    is_error=block.get("is_error") is True,
                )
    return history.turns


def _render_tool(tool: Tool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": public_name(tool),
        "description": tool.description,
        "input_schema": {"type": "object", **tool.input_schema},
    }
    if examples := [example for example in tool.examples if isinstance(example, dict)]:
        entry["input_examples"] = examples
    return entry


def _content_blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(dicts_or_empty(content))


def _parse_call(block: Mapping[str, Any]) -> ToolCall:
    arguments = block.get("input", {})
    is_json = isinstance(arguments, dict) and [*arguments] != [INVALID_JSON_KEY]
    return ToolCall(str_or_empty(block.get("id")), str_or_empty(block.get("name")), arguments if is_json else None)


def _render_result(answer: CallReply) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": answer.call.id, "content": answer.text}
    return {**result, "is_error": True} if answer.is_error else result


def _render_reference(answer: CallReply) -> dict[str, Any]:
    if not answer.found_tools:
        return _render_result(answer)
    # Anthropic rejects a result that mixes references with text.
    names = map(public_name, answer.found_tools)
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    return {"type": "tool_result", "tool_use_id": answer.call.id, "content": references}
