"""The `input` of a response, as a model is sent it that knows no tool search and no namespaces.

Searches become calls of a function, namespaces become part of a name, and what was loaded on the
way is handed out.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.core import prompts
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.openai_responses.tools import (
    ResponsesToolIndex,
    parse_client_definitions,
    render_found_entries,
    tool_path,
)
from toolcrib.gateway.llm.tool_index import IndexedTool, ToolSelection, wire_name
from toolcrib.session.turn import MAX_DESCRIPTION_CHARS

Item = dict[str, Any]

NO_NAMESPACE: Final = (
    "Missing namespace for function_call '{name}'. It does not exist in the default namespace. "
    "Round-trip the model's function_call item with its namespace field included."
)
CALL_TYPES: Final = ("function_call", "custom_tool_call")

_SEARCH_ID: Final = "tsc_"
_CALL_ID: Final = "call_"


def uses_tool_search(items: Iterable[Item]) -> bool:
    """Whether a history tells of tool search."""
    kinds = ("tool_search_call", "tool_search_output", "additional_tools")
    return any(one.get("type") in kinds or one.get("namespace") for one in items)


def make_search_item_id(call_id: str) -> str:
    """The id of the item that tells of a search, in which that of the model's call is kept."""
    return _SEARCH_ID + call_id.removeprefix(_CALL_ID)


def render_search_output(wares: Sequence[IndexedTool]) -> str:
    """What the model is told of the tools that were loaded."""
    found = [_render_found_tool(ware) for ware in wares]
    answer = {"found": found, "message": prompts.TOOLS_LOADED if found else prompts.NO_MATCH}
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def render_search_arguments(paths: Iterable[str]) -> str:
    """The arguments of a search, as its function takes them."""
    return json.dumps({"queries": list(paths)}, ensure_ascii=False, separators=(",", ":"))


def make_call_output(call_id: str, answer: str) -> Item:
    """The item by which a call is answered."""
    return {"type": "function_call_output", "call_id": call_id, "output": answer}


class InputReader:
    """Reads a client's items for one request; what they load is handed out by the desk."""

    def __init__(self, rack: ResponsesToolIndex, desk: ToolSelection) -> None:
        self._rack = rack
        self._desk = desk
        self._brought: dict[str, IndexedTool] = {}

    @property
    def client_definitions(self) -> list[Item]:
        """The definitions that only the history has."""
        return render_found_entries(self._brought.values())

    def find_tool(self, name: str) -> IndexedTool | None:
        """The tool that the model knows by a name."""
        return self._rack.tools.find(name) or self._brought.get(name)

    def convert(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items for the upstream."""
        ids = _assign_call_ids(items)
        called = {ids[at] for at in ids if items[at]["type"] == "tool_search_call"}
        answered = {ids[at] for at in ids if items[at]["type"] == "tool_search_output"}
        for number, item in enumerate(items):
            kind = item.get("type")
            if kind == "tool_search_call":
                yield self._make_search_call(ids[number], _search_arguments(item))
                if ids[number] not in answered and item.get("execution") != "client":
                    yield make_call_output(
                        ids[number],
                        render_search_output(self._reveal_paths(_searched_paths(item) or ())),
                    )
            elif kind == "tool_search_output":
                wares = self.load_definitions(dicts_or_empty(item.get("tools")))
                if ids[number] not in called:
                    yield self._make_search_call(
                        ids[number], render_search_arguments(map(tool_path, wares))
                    )
                yield make_call_output(ids[number], render_search_output(wares))
            elif kind == "additional_tools":
                self.load_definitions(dicts_or_empty(item.get("tools")), searched=False)
            elif kind in CALL_TYPES:
                yield self._convert_call(item, number)
            else:
                yield item

    def load_definitions(
        self, entries: Iterable[Item], *, searched: bool = True
    ) -> list[IndexedTool]:
        """Hand out the tools of these definitions. The request's own are the ones that count."""
        loaded = []
        for ware in parse_client_definitions(entries):
            known = self._rack.tools.tools.get(ware.tool.id)
            if known is None:
                namespace = ware.tool.server or (ware.tool.name if searched else None)
                known = replace(ware, namespace=namespace)
                self._brought[wire_name(ware.tool.id)] = known
                self._desk.add_client_tool(ware.tool.id, ware.wire_entry)
            elif known.is_deferred:
                self._desk.reveal([known.tool.id])
            loaded.append(known)
        return loaded

    def _reveal_paths(self, paths: Iterable[str]) -> list[IndexedTool]:
        """Hand out the tools of these paths: of functions, servers and whole namespaces."""
        shelf = self._rack.tools
        wares = []
        for path in paths:
            ids = self._rack.namespaces.get(path, (path.replace(".", SERVER_SEPARATOR, 1), path))
            wares += [shelf.deferred[id] for id in dict.fromkeys(ids) if id in shelf.deferred]
        self._desk.reveal(ware.tool.id for ware in wares)
        return wares

    def _make_search_call(self, id: str, arguments: str) -> Item:
        return {
            "type": "function_call",
            "call_id": id,
            "name": self._rack.search_name,
            "arguments": arguments,
        }

    def _convert_call(self, item: Item, number: int) -> Item:
        """A call under the name by which the model knows the tool; such a tool stays loaded."""
        name, namespace = str_or_empty(item.get("name")), item.get("namespace")
        if not isinstance(namespace, str):
            self._check_default_namespace(name, number)
            self._desk.reveal([name])
            return item
        id = (
            name if namespace == name and self.find_tool(name) else _join_namespace(namespace, name)
        )
        ware = self.find_tool(id)
        sent = {field: value for field, value in item.items() if field != "namespace"}
        if ware is None:
            return {**sent, "name": name if namespace == name else wire_name(id)}
        self._desk.reveal([ware.tool.id])
        return {**sent, "name": wire_name(ware.tool.id)}

    def _check_default_namespace(self, name: str, number: int) -> None:
        """A call without a namespace has to be of a tool that stands in none."""
        if not self._rack.uses_tool_search:
            return
        ware = self.find_tool(name)
        spaces = self._rack.namespaces.values()
        if ware is None:
            alone = not any(id.endswith(SERVER_SEPARATOR + name) for ids in spaces for id in ids)
        else:
            alone = ware.namespace is None
        if not alone:
            message = NO_NAMESPACE.format(name=name)
            raise RequestFailed(message, param=f"input[{number}].namespace")


def _assign_call_ids(items: Sequence[Item]) -> dict[int, str]:
    """The ids of searches and of their outputs, by their places. Without one, the first waits first."""
    ids: dict[int, str] = {}
    waiting: deque[str] = deque()
    for number, item in enumerate(items):
        kind, id = item.get("type"), str_or_empty(item.get("call_id"))
        if kind == "tool_search_call":
            own = str_or_empty(item.get("id"))
            kept = _CALL_ID + own.removeprefix(_SEARCH_ID) if own else ""
            ids[number] = id or kept or f"{_CALL_ID}search_{number}"
            waiting.append(ids[number])
        elif kind == "tool_search_output":
            if id in waiting:
                waiting.remove(id)
            elif not id:
                id = waiting.popleft() if waiting else f"{_CALL_ID}search_{number}"
            ids[number] = id
    return ids


def _searched_paths(item: Item) -> list[str] | None:
    """What was searched for, in the words of the API or of those who rewrite them."""
    arguments = item.get("arguments")
    if not isinstance(arguments, dict):
        return None
    listed = arguments.get("paths", arguments.get("queries"))
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else None


def _search_arguments(item: Item) -> str:
    paths = _searched_paths(item)
    if paths is not None and item.get("execution") != "client":
        return render_search_arguments(paths)
    given = item.get("arguments")
    if isinstance(given, str):
        return given
    return json.dumps(given or {}, ensure_ascii=False, separators=(",", ":"))


def _join_namespace(namespace: str, name: str) -> str:
    return f"{namespace}{SERVER_SEPARATOR}{name}"


def _render_found_tool(ware: IndexedTool) -> Item:
    about = ware.tool.description
    if len(about) > MAX_DESCRIPTION_CHARS:
        about = f"{about[: MAX_DESCRIPTION_CHARS - 1]}…"
    return {"name": wire_name(ware.tool.id), "description": about}
