"""Tools, calls and results in the format of the OpenAI Responses API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.plain_json import (
    FieldReader,
    dicts_or_empty,
    not_a_function_error,
    parse_arguments,
    str_or_empty,
    to_plain_dict,
    to_plain_dicts,
)
from toolcrib.core.calls import CallHistory, CallReply, PastCall, ToolCall
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.core.tool_names import public_name, safe_name

_SEARCH_OUTPUT = "tool_search_output"


def is_tool_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is a function without a wrapper, or a namespace."""
    entry_type = entry.get("type")
    return entry_type == "namespace" or (
        entry_type == "function" and {"function", "input_schema", "inputSchema"}.isdisjoint(entry)
    )


def tools_from_wire(entry: Mapping[str, Any]) -> list[Tool]:
    """Return the tools of one entry of a request's `tools`. A namespace becomes their server."""
    if entry.get("type") != "namespace":
        return [_parse_function(entry)]
    namespace = FieldReader(entry)
    server, description = namespace.read_name(), namespace.read_text("description")
    return [_parse_function(member, server, description) for member in namespace.read_objects("tools")]


def _parse_function(entry: Mapping[str, Any], server: str = "", server_description: str = "") -> Tool:
    if entry.get("type") != "function":
        raise not_a_function_error(entry)
    fields = FieldReader(entry)
    return Tool(
        fields.read_name(),
        fields.read_text("description"),
        fields.read_object("parameters"),
        server=server,
        server_description=server_description,
        output_schema=fields.read_object("output_schema"),
        policy=fields.read_policy(),
    )


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the `tools` of a request."""
    return [_render_tool(tool) for tool in tools]


def client_search_to_wire(
    own_tools: Iterable[Tool], visible: Iterable[Tool], _deferred: Iterable[Tool]
) -> list[dict[str, Any]]:
    """Return the `tools` of a request in which Toolcrib searches the deferred tools.

    Deferred tools are not declared: the answer to a search has their full definitions.
    """
    searches = [
        {"type": "tool_search", "execution": "client", "description": tool.description, "parameters": tool.input_schema}
        for tool in own_tools
    ]
    return [*tools_to_wire(visible), *searches]


def hosted_search_to_wire(visible: Iterable[Tool], deferred: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the `tools` of a request in which OpenAI searches the deferred tools.

    Deferred tools are grouped into one namespace per category, in alphabetical order; tools without
    a category follow.
    """
    categories: dict[str, list[dict[str, Any]]] = {}
    for tool in deferred:
        categories.setdefault(tool.category, []).append({**_render_tool(tool), "defer_loading": True})
    namespaces = [
        {"type": "namespace", "name": safe_name(category), "description": f"Tools for {category}", "tools": members}
        for category, members in sorted(categories.items())
        if category
    ]
    uncategorized = categories.get("", [])
    return [*tools_to_wire(visible), *namespaces, *uncategorized, {"type": "tool_search"}]


def calls_from_wire(reply: object) -> list[ToolCall]:
    """Return the function calls of a response, and the searches it leaves to the client."""
    return _parse_calls(dicts_or_empty(to_plain_dict(reply).get("output")))


def loaded_names_from_wire(reply: object) -> list[str]:
    """Return the names of the tools that OpenAI's own search found in a response."""
    return _loaded_names(dicts_or_empty(to_plain_dict(reply).get("output")))


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """Return the items of a response in the form in which they are sent back."""
    return list(dicts_or_empty(to_plain_dict(reply).get("output")))


def answers_to_wire(answers: Sequence[CallReply]) -> list[dict[str, Any]]:
    """Return one item per result; a search in OpenAI's form is answered with definitions."""
    return [_render_answer(answer) for answer in answers]


client_answers_to_wire = answers_to_wire


def turns_from_wire(messages: Iterable[object]) -> list[list[PastCall]]:
    """Return the calls of each turn of a history, with their results.

    A turn is a run of consecutive items of the model.
    """
    history = CallHistory()
    turn_items: list[dict[str, Any]] = []
    for item in to_plain_dicts(messages):
        if item.get("role") in (None, "assistant") and not _is_result(item):
            turn_items.append(item)
            continue
        if turn_items:
            history.add_turn(_parse_calls(turn_items), _loaded_names(turn_items))
            turn_items = []
        if _is_result(item):
            history.add_result(str_or_empty(item.get("call_id")), str_or_empty(item.get("output")), _found_names(item))
    if turn_items:
        history.add_turn(_parse_calls(turn_items), _loaded_names(turn_items))
    return history.turns


def _render_tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": public_name(tool),
        "description": tool.description,
        "parameters": {"type": "object", **tool.input_schema},
        # Strict mode rejects every schema that does not mark all its fields as required.
        "strict": False,
    }


def _parse_calls(items: Iterable[Mapping[str, Any]]) -> list[ToolCall]:
    calls = []
    for item in items:
        arguments = parse_arguments(item.get("arguments"))
        id = str_or_empty(item.get("call_id"))
        if item.get("type") == "function_call":
            namespace = str_or_empty(item.get("namespace"))
            calls.append(ToolCall(id, str_or_empty(item.get("name")), arguments, namespace=namespace))
        elif item.get("type") == "tool_search_call" and item.get("execution") == "client":
            calls.append(ToolCall(id, "", arguments, is_search=True))
    return calls


def _render_answer(answer: CallReply) -> dict[str, Any]:
    if not answer.call.is_search:
        return {"type": "function_call_output", "call_id": answer.call.id, "output": answer.text}
    return {
        "type": "tool_search_output",
        "execution": "client",
        "call_id": answer.call.id,
        "status": "completed",
        "tools": [{**_render_tool(tool), "defer_loading": True} for tool in answer.found_tools],
    }


def _is_result(item: Mapping[str, Any]) -> bool:
    item_type = item.get("type")
    return item_type == "function_call_output" or (item_type == _SEARCH_OUTPUT and not _is_hosted(item))


def _is_hosted(item: Mapping[str, Any]) -> bool:
    return item.get("type") == _SEARCH_OUTPUT and item.get("execution") == "server"


def _loaded_names(items: Iterable[Mapping[str, Any]]) -> list[str]:
    return [name for item in items if _is_hosted(item) for name in _found_names(item)]


def _found_names(found: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that a search found; namespace members in both spellings."""
    names: list[str] = []
    for entry in dicts_or_empty(found.get("tools")):
        if entry.get("type") == "namespace":
            server = str_or_empty(entry.get("name"))
            for member in dicts_or_empty(entry.get("tools")):
                name = str_or_empty(member.get("name"))
                names += [f"{server}{SERVER_SEPARATOR}{name}", name]
        else:
            names.append(str_or_empty(entry.get("name")))
    return names
