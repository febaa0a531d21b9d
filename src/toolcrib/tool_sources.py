"""What a crib is given: tools of every kind, toolsets that run theirs, and lists of all these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeGuard, runtime_checkable

from toolcrib.adapters.format_detection import tools_from_any
from toolcrib.core.calls import CallResult
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import DuplicateTool, InvalidTool
from toolcrib.registry.registry import Registry


@runtime_checkable
class Toolset(Protocol):
    """A runner that also says which tools it runs, such as a registry."""

    @property
    def tools(self) -> Iterable[Tool]:
        """The tools it runs."""

    def has_tool(self, name: str) -> bool:
        """Whether it runs the tool with this id."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Run it."""


def find_toolsets(entries: Iterable[object]) -> Iterator[Toolset]:
    """The toolsets among entries, and in lists of them."""
    for entry in entries:
        if _is_toolset(entry):
            yield entry
        elif isinstance(entry, list | tuple):
            yield from find_toolsets(entry)


def collect_tools(entries: Iterable[object], functions: Registry) -> Iterator[Tool]:
    """The tools of the entries. Those that are functions are registered, so that they can be run."""
    places: dict[str, str] = {}
    for place, tool in _placed(entries, functions):
        if tool.id in places:
            raise DuplicateTool(
                f"{place}: the id {tool.id!r} is that of {places[tool.id]} already; "
                "rename one, or give each its server"
            )
        places[tool.id] = place
        yield tool


def _is_toolset(entry: object) -> TypeGuard[Toolset]:
    # Asked in this order, as a question to a protocol is slow and most entries are dictionaries.
    return not isinstance(entry, Mapping | Tool) and isinstance(entry, Toolset)


def _placed(entries: Iterable[object], functions: Registry) -> Iterator[tuple[str, Tool]]:
    """The tools of the entries, each with where it stands, so that an error can name it."""
    for number, entry in enumerate(entries, 1):
        place = f"entry {number}"
        if isinstance(entry, Tool):
            yield place, entry
        elif _is_toolset(entry):
            yield from ((place, tool) for tool in entry.tools)
        elif isinstance(entry, list | tuple | Catalog):
            yield from ((f"{place}, {inner}", tool) for inner, tool in _placed(entry, functions))
        elif callable(entry):
            try:
                yield place, _registered(entry, functions)
            except (InvalidTool, DuplicateTool) as fault:
                raise type(fault)(f"{place}: {fault}") from fault
        else:
            try:
                found = tools_from_any(_dumped(entry))
            except InvalidTool as fault:
                raise type(fault)(f"{place}: {fault}") from fault
            yield from ((place, tool) for tool in found)


def _registered(entry: Callable[..., Any], functions: Registry) -> Tool:
    """The tool of a function, or of one that an SDK's decorator has given a definition."""
    described, inner = getattr(entry, "to_dict", None), getattr(entry, "func", None)
    if not callable(described) or not callable(inner):
        return functions.add(entry)
    [tool] = tools_from_any(described())
    functions.register(tool, inner)
    return functions[tool.id].tool


def _dumped(entry: object) -> object:
    """The JSON form of an SDK's object, or of a listing that holds some."""
    if isinstance(entry, Mapping):
        members = entry.get("tools")
        if isinstance(members, list | tuple):
            return {**entry, "tools": [_dumped(one) for one in members]}
        return entry
    dump = getattr(entry, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else entry
