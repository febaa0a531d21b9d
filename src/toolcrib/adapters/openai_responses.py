"""Tools, calls and results as the OpenAI Responses API has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.fields import Fields, not_a_function
from toolcrib.adapters.history import History
from toolcrib.adapters.plain_json import arguments_from_text, objects, plain, plain_list, text
from toolcrib.core.calls import Answer, Call, Exchange
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.core.tool_names import public_name, safe_name

_FOUND = "tool_search_output"


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


def tools_to_wire(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """A request's `tools`."""
    return [_entry(tool) for tool in tools]


def client_search_to_wire(search: Tool) -> dict[str, Any]:
    """The search tool in OpenAI's own shape, answered by us."""
    return {
        "type": "tool_search",
        "execution": "client",
        "description": search.description,
        "parameters": search.input_schema,
    }


def hosted_to_wire(shown: Iterable[Tool], held: Iterable[Tool]) -> list[dict[str, Any]]:
    """A request's `tools` where OpenAI searches: what is shown, then namespaces, then its search.

    There is a namespace for each category, from A to Z; tools without one follow.
    """
    categories: dict[str, list[dict[str, Any]]] = {}
    for tool in held:
        categories.setdefault(tool.category, []).append({**_entry(tool), "defer_loading": True})
    namespaces = [
        {
            "type": "namespace",
            "name": safe_name(category),
            "description": f"Tools for {category}",
            "tools": members,
        }
        for category, members in sorted(categories.items())
        if category
    ]
    alone = categories.get("", [])
    return [*tools_to_wire(shown), *namespaces, *alone, {"type": "tool_search"}]


def calls_from_wire(reply: object) -> list[Call]:
    """The calls of a response: those of functions, and those that ask us to search."""
    return _calls(objects(plain(reply).get("output")))


def loaded_from_wire(reply: object) -> list[str]:
    """The tools that OpenAI's own search has found in a response."""
    return _loaded(objects(plain(reply).get("output")))


def reply_to_messages(reply: object) -> list[dict[str, Any]]:
    """The response's items as they are sent back, namespaces included."""
    return list(objects(plain(reply).get("output")))


def answers_to_wire(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """An item for each result; a search in OpenAI's shape is answered with definitions."""
    return [_item(answer) for answer in answers]


def turns_from_wire(messages: Iterable[object]) -> list[list[Exchange]]:
    """What the model called, turn by turn, and what came back.

    Items have no turns: one is what the model says between what it is told.
    """
    history = History()
    said: list[dict[str, Any]] = []
    for item in plain_list(messages):
        if item.get("role") in (None, "assistant") and not _is_result(item):
            said.append(item)
            continue
        if said:
            history.turn(_calls(said), _loaded(said))
            said = []
        if _is_result(item):
            history.result(text(item.get("call_id")), text(item.get("output")), _names(item))
    if said:
        history.turn(_calls(said), _loaded(said))
    return history.turns


def _entry(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": public_name(tool),
        "description": tool.description,
        "parameters": {"type": "object", **tool.input_schema},
        # Strict would refuse every schema that does not list all its fields as required.
        "strict": False,
    }


def _calls(items: Iterable[Mapping[str, Any]]) -> list[Call]:
    calls = []
    for item in items:
        arguments = arguments_from_text(item.get("arguments"))
        id = text(item.get("call_id"))
        if item.get("type") == "function_call":
            namespace = text(item.get("namespace"))
            calls.append(Call(id, text(item.get("name")), arguments, namespace=namespace))
        elif item.get("type") == "tool_search_call" and item.get("execution") == "client":
            calls.append(Call(id, "", arguments, is_search=True))
    return calls


def _item(answer: Answer) -> dict[str, Any]:
    if not answer.call.is_search:
        return {
            "type": "function_call_output",
            "call_id": answer.call.id,
            "output": answer.text,
        }
    return {
        "type": "tool_search_output",
        "execution": "client",
        "call_id": answer.call.id,
        "status": "completed",
        "tools": [{**_entry(tool), "defer_loading": True} for tool in answer.found],
    }


def _is_result(item: Mapping[str, Any]) -> bool:
    kind = item.get("type")
    return kind == "function_call_output" or (kind == _FOUND and not _is_hosted(item))


def _is_hosted(item: Mapping[str, Any]) -> bool:
    return item.get("type") == _FOUND and item.get("execution") == "server"


def _loaded(items: Iterable[Mapping[str, Any]]) -> list[str]:
    return [name for item in items if _is_hosted(item) for name in _names(item)]


def _names(found: Mapping[str, Any]) -> list[str]:
    """The tools that a search has found. Those of a namespace may be named with it or without."""
    names: list[str] = []
    for entry in objects(found.get("tools")):
        if entry.get("type") == "namespace":
            server = text(entry.get("name"))
            inside = [text(one.get("name")) for one in objects(entry.get("tools"))]
            names += [each for one in inside for each in (f"{server}{SERVER_SEPARATOR}{one}", one)]
        else:
            names.append(text(entry.get("name")))
    return names
