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

from toolcrib.adapters.plain_json import objects, text
from toolcrib.core import prompts
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.openai_responses.tools import Rack, brought_wares, found_entries, path_of
from toolcrib.gateway.llm.tool_index import Desk, Ware, sent_name
from toolcrib.session.turn import DESCRIPTION_CHARS

Item = dict[str, Any]

NO_NAMESPACE: Final = (
    "Missing namespace for function_call '{name}'. It does not exist in the default namespace. "
    "Round-trip the model's function_call item with its namespace field included."
)
CALLS: Final = ("function_call", "custom_tool_call")

_SEARCH_ID: Final = "tsc_"
_CALL_ID: Final = "call_"


def knows_search(items: Iterable[Item]) -> bool:
    """Whether a history tells of tool search."""
    kinds = ("tool_search_call", "tool_search_output", "additional_tools")
    return any(one.get("type") in kinds or one.get("namespace") for one in items)


def search_item_id(call_id: str) -> str:
    """The id of the item that tells of a search, in which that of the model's call is kept."""
    return _SEARCH_ID + call_id.removeprefix(_CALL_ID)


def told(wares: Sequence[Ware]) -> str:
    """What the model is told of the tools that were loaded."""
    found = [_shown(ware) for ware in wares]
    answer = {"found": found, "message": prompts.LOADED if found else prompts.NOTHING_FOUND}
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def asked(paths: Iterable[str]) -> str:
    """The arguments of a search, as its function takes them."""
    return json.dumps({"queries": list(paths)}, ensure_ascii=False, separators=(",", ":"))


def output(call_id: str, answer: str) -> Item:
    """The item by which a call is answered."""
    return {"type": "function_call_output", "call_id": call_id, "output": answer}


class Reader:
    """Reads a client's items for one request; what they load is handed out by the desk."""

    def __init__(self, rack: Rack, desk: Desk) -> None:
        self._rack = rack
        self._desk = desk
        self._brought: dict[str, Ware] = {}

    @property
    def brought(self) -> list[Item]:
        """The definitions that only the history has."""
        return found_entries(self._brought.values())

    def ware(self, name: str) -> Ware | None:
        """The tool that the model knows by a name."""
        return self._rack.shelf.ware(name) or self._brought.get(name)

    def read(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items for the upstream."""
        ids = _call_ids(items)
        called = {ids[at] for at in ids if items[at]["type"] == "tool_search_call"}
        answered = {ids[at] for at in ids if items[at]["type"] == "tool_search_output"}
        for number, item in enumerate(items):
            kind = item.get("type")
            if kind == "tool_search_call":
                yield self._search(ids[number], _arguments(item))
                if ids[number] not in answered and item.get("execution") != "client":
                    yield output(ids[number], told(self._named(_paths(item) or ())))
            elif kind == "tool_search_output":
                wares = self.load(objects(item.get("tools")))
                if ids[number] not in called:
                    yield self._search(ids[number], asked(map(path_of, wares)))
                yield output(ids[number], told(wares))
            elif kind == "additional_tools":
                self.load(objects(item.get("tools")), searched=False)
            elif kind in CALLS:
                yield self._call(item, number)
            else:
                yield item

    def load(self, entries: Iterable[Item], *, searched: bool = True) -> list[Ware]:
        """Hand out the tools of these definitions. The request's own are the ones that count."""
        loaded = []
        for ware in brought_wares(entries):
            known = self._rack.shelf.wares.get(ware.tool.id)
            if known is None:
                namespace = ware.tool.server or (ware.tool.name if searched else None)
                known = replace(ware, namespace=namespace)
                self._brought[sent_name(ware.tool.id)] = known
                self._desk.bring(ware.tool.id, ware.sent)
            elif known.held:
                self._desk.load([known.tool.id])
            loaded.append(known)
        return loaded

    def _named(self, paths: Iterable[str]) -> list[Ware]:
        """Hand out the tools of these paths: of functions, servers and whole namespaces."""
        shelf = self._rack.shelf
        wares = []
        for path in paths:
            ids = self._rack.groups.get(path, (path.replace(".", SERVER_SEPARATOR, 1), path))
            wares += [shelf.held[id] for id in dict.fromkeys(ids) if id in shelf.held]
        self._desk.load(ware.tool.id for ware in wares)
        return wares

    def _search(self, id: str, arguments: str) -> Item:
        return {
            "type": "function_call",
            "call_id": id,
            "name": self._rack.search_name,
            "arguments": arguments,
        }

    def _call(self, item: Item, number: int) -> Item:
        """A call under the name by which the model knows the tool; such a tool stays loaded."""
        name, namespace = text(item.get("name")), item.get("namespace")
        if not isinstance(namespace, str):
            self._check_default(name, number)
            self._desk.load([name])
            return item
        id = name if namespace == name and self.ware(name) else _joined(namespace, name)
        ware = self.ware(id)
        sent = {field: value for field, value in item.items() if field != "namespace"}
        if ware is None:
            return {**sent, "name": name if namespace == name else sent_name(id)}
        self._desk.load([ware.tool.id])
        return {**sent, "name": sent_name(ware.tool.id)}

    def _check_default(self, name: str, number: int) -> None:
        """A call without a namespace has to be of a tool that stands in none."""
        if not self._rack.asked:
            return
        ware = self.ware(name)
        spaces = self._rack.groups.values()
        if ware is None:
            alone = not any(id.endswith(SERVER_SEPARATOR + name) for ids in spaces for id in ids)
        else:
            alone = ware.namespace is None
        if not alone:
            message = NO_NAMESPACE.format(name=name)
            raise RequestFailed(message, param=f"input[{number}].namespace")


def _call_ids(items: Sequence[Item]) -> dict[int, str]:
    """The ids of searches and of their outputs, by their places. Without one, the first waits first."""
    ids: dict[int, str] = {}
    waiting: deque[str] = deque()
    for number, item in enumerate(items):
        kind, id = item.get("type"), text(item.get("call_id"))
        if kind == "tool_search_call":
            own = text(item.get("id"))
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


def _paths(item: Item) -> list[str] | None:
    """What was searched for, in the words of the API or of those who rewrite them."""
    arguments = item.get("arguments")
    if not isinstance(arguments, dict):
        return None
    listed = arguments.get("paths", arguments.get("queries"))
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else None


def _arguments(item: Item) -> str:
    paths = _paths(item)
    if paths is not None and item.get("execution") != "client":
        return asked(paths)
    given = item.get("arguments")
    if isinstance(given, str):
        return given
    return json.dumps(given or {}, ensure_ascii=False, separators=(",", ":"))


def _joined(namespace: str, name: str) -> str:
    return f"{namespace}{SERVER_SEPARATOR}{name}"


def _shown(ware: Ware) -> Item:
    about = ware.tool.description
    if len(about) > DESCRIPTION_CHARS:
        about = f"{about[: DESCRIPTION_CHARS - 1]}…"
    return {"name": sent_name(ware.tool.id), "description": about}
