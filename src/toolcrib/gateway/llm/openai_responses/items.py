"""Convert the `input` of a response for a model that knows neither tool search nor namespaces.

Searches become calls of a function, namespaces become part of a name, and tools that were loaded in
the history are revealed. Items that were hidden from the client are restored.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from toolcrib.adapters.plain_json import dicts_or_empty, parse_arguments, str_or_empty
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.conversation_memory import ReplyMemory, strip_formatting
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.openai_responses.tools import (
    ResponsesToolIndex,
    parse_client_definitions,
    render_found_entries,
    tool_path,
)
from toolcrib.gateway.llm.tools.tool_index import IndexedTool, render_loaded_tools, shorten_description, to_wire_name
from toolcrib.gateway.llm.tools.tool_selection import ToolSelection

Item = dict[str, Any]

NO_NAMESPACE: Final = (
    "Missing namespace for function_call '{name}'. It does not exist in the default namespace. "
    "Round-trip the model's function_call item with its namespace field included."
)
CALL_TYPES: Final = ("function_call", "custom_tool_call")

_SEARCH_TYPES: Final = ("tool_search_call", "tool_search_output", "additional_tools")
_SEARCH_ID: Final = "tsc_"
_CALL_ID: Final = "call_"
_REFERENCE: Final = "item_reference"


def uses_tool_search(items: Iterable[Item]) -> bool:
    """Return whether a history has items of tool search, or calls with a namespace."""
    return any(item.get("type") in _SEARCH_TYPES or item.get("namespace") for item in items)


def make_search_item_id(call_id: str) -> str:
    """Return the id of the item for a search, which contains the id of the model's call."""
    return _SEARCH_ID + call_id.removeprefix(_CALL_ID)


def render_search_output(tools: Sequence[IndexedTool]) -> str:
    """Return the text that tells the model which tools were loaded."""
    return render_loaded_tools(
        [{"name": each.wire_name, "description": shorten_description(each.tool.description)} for each in tools]
    )


def render_search_arguments(paths: Iterable[str]) -> str:
    """Return the arguments of a search as its function takes them."""
    return _to_json({"queries": list(paths)})


def make_call_output(call_id: str, output: str) -> Item:
    """Return the item that answers a call."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


class InputReader:
    """Converts the items of one request, and reveals the tools that they load."""

    def __init__(self, index: ResponsesToolIndex, selection: ToolSelection) -> None:
        self._index = index
        self._selection = selection
        # Tools that only the history defines, by wire name.
        self._client_tools: dict[str, IndexedTool] = {}

    @property
    def client_definitions(self) -> list[Item]:
        """The definitions of the tools that only the history defines."""
        return render_found_entries(self._client_tools.values())

    def find_tool(self, name: str) -> IndexedTool | None:
        """Return the tool with this wire name or id."""
        return self._index.find(name) or self._client_tools.get(name)

    def convert(self, items: Sequence[Item]) -> Iterator[Item]:
        """Yield the items for the upstream."""
        ids = _assign_call_ids(items)
        called = {ids[at] for at in ids if items[at]["type"] == "tool_search_call"}
        answered = {ids[at] for at in ids if items[at]["type"] == "tool_search_output"}
        for number, item in enumerate(items):
            type = item.get("type")
            if type == "tool_search_call":
                id = ids[number]
                yield self._make_search_call(id, _search_arguments(item))
                if id not in answered and item.get("execution") != "client":
                    tools = self._reveal_paths(_searched_paths(item) or ())
                    yield make_call_output(id, render_search_output(tools))
            elif type == "tool_search_output":
                id = ids[number]
                tools = self.load_definitions(dicts_or_empty(item.get("tools")))
                if id not in called:
                    arguments = render_search_arguments(map(tool_path, tools))
                    yield self._make_search_call(id, arguments)
                yield make_call_output(id, render_search_output(tools))
            elif type == "additional_tools":
                self.load_definitions(dicts_or_empty(item.get("tools")), from_search=False)
            elif type in CALL_TYPES:
                yield self._convert_call(item, number)
            else:
                yield item

    def load_definitions(self, entries: Iterable[Item], *, from_search: bool = True) -> list[IndexedTool]:
        """Reveal the tools of some definitions; a definition in the request has priority."""
        loaded = []
        for indexed in parse_client_definitions(entries):
            tool = indexed.tool
            known = self._index.tools.get(tool.id)
            if known is None:
                namespace = tool.server or (tool.name if from_search else None)
                known = replace(indexed, namespace=namespace)
                self._client_tools[indexed.wire_name] = known
                self._selection.add_client_tool(tool.id, indexed.wire_entry)
            elif known.is_deferred:
                self._selection.reveal([tool.id])
            loaded.append(known)
        return loaded

    def _reveal_paths(self, paths: Iterable[str]) -> list[IndexedTool]:
        """Reveal the tools of some paths, which name functions, MCP servers and namespaces."""
        deferred = self._index.deferred
        tools = []
        for path in paths:
            ids = self._index.namespaces.get(path, (path.replace(".", SERVER_SEPARATOR, 1), path))
            tools += [deferred[id] for id in dict.fromkeys(ids) if id in deferred]
        self._selection.reveal(indexed.tool.id for indexed in tools)
        return tools

    def _make_search_call(self, id: str, arguments: str) -> Item:
        name = self._index.search_name
        return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}

    def _convert_call(self, item: Item, number: int) -> Item:
        """Return a call under the wire name of its tool, and reveal the tool."""
        name, namespace = str_or_empty(item.get("name")), item.get("namespace")
        if not isinstance(namespace, str):
            self._check_default_namespace(name, number)
            return self._list_or_wrap(item, self.find_tool(name))
        is_own_namespace = namespace == name
        id = f"{namespace}{SERVER_SEPARATOR}{name}"
        indexed = (self.find_tool(name) if is_own_namespace else None) or self.find_tool(id)
        converted = {field: value for field, value in item.items() if field != "namespace"}
        if indexed is None:
            return {**converted, "name": name if is_own_namespace else to_wire_name(id)}
        return self._list_or_wrap({**converted, "name": indexed.wire_name}, indexed)

    def _list_or_wrap(self, item: Item, indexed: IndexedTool | None) -> Item:
        """Reveal the tool of a call, or return it as a call of `call_tool` in dispatch style."""
        if indexed is None:
            return item
        text = item.get("arguments")
        arguments = parse_arguments(text)
        wrapped = self._index.wrap_call(indexed.tool.id, text if arguments is None else arguments)
        if wrapped is not None and item.get("type") == "function_call":
            return {**item, "name": self._index.call_tool.name, "arguments": _to_json(wrapped)}
        self._selection.reveal([indexed.tool.id])
        return item

    def _check_default_namespace(self, name: str, number: int) -> None:
        """Raise an error if a call without a namespace is of a tool in a namespace."""
        if not self._index.uses_tool_search:
            return
        indexed = self.find_tool(name)
        if indexed is None:
            suffix = SERVER_SEPARATOR + name
            members = (id for ids in self._index.namespaces.values() for id in ids)
            has_namespace = any(id.endswith(suffix) for id in members)
        else:
            has_namespace = indexed.namespace is not None
        if has_namespace:
            message = NO_NAMESPACE.format(name=name)
            raise RequestFailed(message, param=f"input[{number}].namespace")


def item_context(items: Iterable[Item]) -> list[object]:
    """Return what identifies the client's items after the last item of the model.

    Results of tools are identified by their calls, because clients shorten old results.
    """
    context: list[object] = []
    for item in items:
        if item_anchor(item) is not None:
            context = []
        elif item.get("role") == "user":
            context.append(content_text(item.get("content")))
        elif item.get("call_id") is not None:
            context.append([item["call_id"]])
    return context


def item_anchor(item: Item) -> tuple[object, ...] | None:
    """Return what identifies an item of the model when the client sends it back, or None."""
    type = item.get("type", "message")
    if type in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments", item.get("input"))
        return type, item.get("call_id"), item.get("name"), strip_formatting(arguments)
    if type in ("reasoning", _REFERENCE):
        return (type, item["id"]) if item.get("id") else None
    if type == "message" and item.get("role") == "assistant":
        return type, content_text(item.get("content"))
    return None


def content_text(content: object) -> object:
    """Return the text of a content, so that a text and a list with this text are equal."""
    parts = (str_or_empty(part.get("text")) for part in dicts_or_empty(content))
    return "".join(parts) or content


class HiddenItems:
    """The hidden items of one reply, and the visible items that they precede."""

    def __init__(self) -> None:
        self._pending: list[Item] = []
        self._anchored: list[tuple[tuple[object, ...], list[Item]]] = []
        # The hidden items before the last visible one.
        self._last: list[Item] = []

    def add_hidden(self, items: Iterable[Item]) -> None:
        """Add items that the client does not see."""
        self._pending += items

    def add_visible(self, item: Item) -> None:
        """Add an item that the client sees."""
        anchor = item_anchor(item)
        if anchor is None:
            return
        hidden = list(self._pending)
        # A client may also refer to an item that the provider has stored.
        self._anchored += [(anchor, hidden), ((_REFERENCE, item.get("id")), hidden)]
        if item.get("type") != "reasoning":
            # Some clients do not send reasoning back, so what precedes it is also stored with the next item.
            self._pending, self._last = [], hidden

    def remember(self, memory: ReplyMemory, context: list[object]) -> None:
        """Store the hidden items for the next request. `context` is that of the reply."""
        self._last += self._pending
        for anchor, hidden in self._anchored:
            if hidden:
                memory.remember(hidden, context, *anchor)


def restore_hidden_items(items: Sequence[Item], memory: ReplyMemory) -> list[Item]:
    """Return the items with those that were hidden from the client and are remembered."""
    restored: list[Item] = []
    seen: set[bytes] = set()
    context: list[object] = []
    client_items: list[Item] = []
    for item in items:
        anchor = item_anchor(item)
        if anchor is None:
            client_items.append(item)
        else:
            context, client_items = item_context(client_items) or context, []
        for hidden in (memory.recall(context, *anchor) if anchor else None) or ():
            # Compared by content, because some upstreams send no call ids.
            content = serialize_json(hidden)
            if content not in seen:
                seen.add(content)
                restored.append(hidden)
        restored.append(item)
    return restored


def drop_orphaned_reasoning(items: Sequence[Item]) -> list[Item]:
    """Return the items without reasoning that is followed by other reasoning.

    The item that belongs to it is missing, and OpenAI refuses such a history.
    """
    following = [*items[1:], {}]
    return [
        item
        for item, after in zip(items, following, strict=False)
        if not (_is_reasoning(item) and _is_reasoning(after))
    ]


def _is_reasoning(item: Item) -> bool:
    is_reference = item.get("type") == _REFERENCE
    return item.get("type") == "reasoning" or (is_reference and str(item.get("id")).startswith("rs_"))


def _assign_call_ids(items: Sequence[Item]) -> dict[int, str]:
    """Return the call ids of searches and their outputs, by the position of the item.

    An output without an id belongs to the first search that has no output yet.
    """
    ids: dict[int, str] = {}
    unanswered: deque[str] = deque()
    for number, item in enumerate(items):
        type, id = item.get("type"), str_or_empty(item.get("call_id"))
        if type == "tool_search_call":
            item_id = str_or_empty(item.get("id"))
            from_item_id = _CALL_ID + item_id.removeprefix(_SEARCH_ID) if item_id else ""
            ids[number] = id or from_item_id or f"{_CALL_ID}search_{number}"
            unanswered.append(ids[number])
        elif type == "tool_search_output":
            if id in unanswered:
                unanswered.remove(id)
            elif not id:
                id = unanswered.popleft() if unanswered else f"{_CALL_ID}search_{number}"
            ids[number] = id
    return ids


def _searched_paths(item: Item) -> list[str] | None:
    """Return the paths of a search: `paths` in the API, `queries` in the gateway's function."""
    arguments = item.get("arguments")
    if not isinstance(arguments, dict):
        return None
    paths = arguments.get("paths", arguments.get("queries"))
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else None


def _search_arguments(item: Item) -> str:
    paths = _searched_paths(item)
    if paths is not None and item.get("execution") != "client":
        return render_search_arguments(paths)
    arguments = item.get("arguments")
    return arguments if isinstance(arguments, str) else _to_json(arguments or {})


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
