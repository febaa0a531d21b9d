"""Collect the tools of a `Toolcrib`: from functions, definitions, toolsets, and lists of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any, Protocol, TypeGuard, runtime_checkable

from toolcrib.adapters.format_detection import tools_from_any
from toolcrib.core.calls import CallResult
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.validation import find_schema_problem
from toolcrib.errors import DuplicateTool, InvalidSchema, InvalidTool
from toolcrib.registry.registry import Registry


@runtime_checkable
class Toolset(Protocol):
    """A runner that also lists the tools it runs, such as a registry."""

    @property
    def tools(self) -> Iterable[Tool]:
        """The tools that it runs."""

    def has_tool(self, name: str) -> bool:
        """Return whether it runs the tool with this id."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Run a tool and return its result."""


def find_toolsets(entries: Iterable[object]) -> Iterator[Toolset]:
    """Yield the toolsets among entries and in lists of entries."""
    for entry in entries:
        if _is_toolset(entry):
            yield entry
        elif isinstance(entry, list | tuple):
            yield from find_toolsets(entry)


def collect_tools(entries: Iterable[object], functions: Registry) -> Iterator[Tool]:
    """Yield the tools of the entries. Functions are added to the registry, which runs them."""
    locations: dict[str, str] = {}
    for location, tool in _locate_tools(entries, functions):
        if tool.id in locations:
            raise DuplicateTool(
                f"{location}: {locations[tool.id]} has the id {tool.id!r} too; rename one, or set the server of each"
            )
        locations[tool.id] = location
        check_tool_schema(tool, f"{location}: ")
        yield tool


def read_tools(entries: Iterable[object]) -> list[Tool]:
    """Return the tools of the entries, for programs that do not run them."""
    return list(collect_tools(entries, Registry()))


def check_tool_schema(tool: Tool, location: str = "") -> None:
    """Raise `InvalidSchema`, with the name of the tool, if its schema is broken."""
    if problem := find_schema_problem(tool.input_schema):
        raise InvalidSchema(f"{location}tool {tool.id!r}: {problem}; correct the schema, or leave the tool out")


def _is_toolset(entry: object) -> TypeGuard[Toolset]:
    # `isinstance` with a protocol is slow, and most entries are dictionaries.
    return not isinstance(entry, Mapping | Tool) and isinstance(entry, Toolset)


def _locate_tools(entries: Iterable[object], functions: Registry) -> Iterator[tuple[str, Tool]]:
    """Yield the tools of the entries, each with its location for error messages."""
    for number, entry in enumerate(entries, 1):
        location = f"entry {number}"
        if isinstance(entry, Tool):
            yield location, entry
        elif _is_toolset(entry):
            yield from ((location, tool) for tool in entry.tools)
        elif isinstance(entry, list | tuple | Catalog):
            for inner, tool in _locate_tools(entry, functions):
                yield f"{location}, {inner}", tool
        else:
            try:
                tools = _convert_entry(entry, functions)
            except (InvalidTool, DuplicateTool) as error:
                raise type(error)(f"{location}: {error}") from error
            yield from ((location, tool) for tool in tools)


def _convert_entry(entry: object, functions: Registry) -> list[Tool]:
    if isinstance(entry, str | PathLike):
        raise InvalidTool("a tool is an object, not text; `toolcrib.read_catalog_file` reads the tools of a file")
    if callable(entry):
        return [_register_function(entry, functions)]
    return list(tools_from_any(_dump_json(entry)))


def _register_function(entry: Callable[..., Any], functions: Registry) -> Tool:
    """Register a function, or one to which an SDK's decorator has added a definition."""
    to_dict, inner = getattr(entry, "to_dict", None), getattr(entry, "func", None)
    if not callable(to_dict) or not callable(inner):
        return functions.add(entry)
    [tool] = tools_from_any(to_dict())
    functions.register(tool, inner)
    return functions[tool.id].tool


def _dump_json(entry: object) -> object:
    """Return the JSON form of an SDK's object, or of a list response that contains some."""
    if isinstance(entry, Mapping):
        members = entry.get("tools")
        if isinstance(members, list | tuple):
            return {**entry, "tools": [_dump_json(member) for member in members]}
        return entry
    dump = getattr(entry, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else entry
