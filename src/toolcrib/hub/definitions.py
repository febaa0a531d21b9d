"""Parse the tool definitions of upstream servers.

Parsing is lenient and leaves definitions unchanged. An unusable definition is reported as a problem
and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.adapters.mcp import tools_from_wire
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolcribError
from toolcrib.safety.hidden_text import escape_invisible

# The largest definition found in published servers has 89,000 characters.
MAX_DEFINITION_BYTES: Final = 4 * 1024 * 1024
MAX_PROBLEMS: Final = 20
MAX_DISPLAYED_NAME_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as its server defines it (`raw`) and as the search engine indexes it (`tool`)."""

    name: str
    raw: Mapping[str, Any]
    tool: Tool


@dataclass(frozen=True, slots=True)
class ParsedDefinitions:
    """The usable definitions of a server, and the problems of the others."""

    definitions: tuple[ToolDefinition, ...] = ()
    problems: tuple[str, ...] = ()


def parse_definitions(
    entries: Iterable[object], *, server: str, server_description: str = ""
) -> ParsedDefinitions:
    """Parse a server's tool list, keeping its order."""
    definitions: dict[str, ToolDefinition] = {}
    usable, problems = _split_usable(entries)
    for number, entry in usable:
        # Some servers omit the schema of a tool without parameters.
        wire = (
            entry if isinstance(entry.get("inputSchema"), Mapping) else {**entry, "inputSchema": {}}
        )
        try:
            (tool,) = tools_from_wire(wire, server=server, server_description=server_description)
        except ToolcribError as error:
            problems[number] = f"{describe_tool(entry, number)}: {error}"
            continue
        if tool.name in definitions:
            problems[number] = f"tool {number}: an earlier tool has the same name {tool.name!r}"
            continue
        definitions[tool.name] = ToolDefinition(tool.name, entry, tool)
    return ParsedDefinitions(tuple(definitions.values()), _sort_problems(problems))


def filter_storable(
    entries: Iterable[object],
) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Return the definitions that can be stored, and the problems of the others."""
    usable, problems = _split_usable(entries)
    return tuple(dict(entry) for _, entry in usable), _sort_problems(problems)


def _split_usable(
    entries: Iterable[object],
) -> tuple[list[tuple[int, Mapping[str, Any]]], dict[int, str]]:
    """Return the entries that are objects of acceptable size, and the problems of the others.

    Both are numbered by the position in the list, from 1.
    """
    usable: list[tuple[int, Mapping[str, Any]]] = []
    problems: dict[int, str] = {}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            problems[number] = f"tool {number} is not an object"
        elif exceeds_size(entry, MAX_DEFINITION_BYTES):
            name = describe_tool(entry, number)
            problems[number] = f"{name} has more than {MAX_DEFINITION_BYTES:,} bytes"
        else:
            usable.append((number, entry))
    return usable, problems


def _sort_problems(problems: Mapping[int, str]) -> tuple[str, ...]:
    return limit_problems([problems[number] for number in sorted(problems)])


def describe_tool(definition: Mapping[str, Any], number: int) -> str:
    """Return a tool's position and its name, escaped for display, if it has one."""
    name = definition.get("name")
    if isinstance(name, str) and name:
        return f"tool {number} ({escape_invisible(name, MAX_DISPLAYED_NAME_CHARS)})"
    return f"tool {number}"


def limit_problems(problems: list[str]) -> tuple[str, ...]:
    """Return the first `MAX_PROBLEMS` problems and the number of the rest."""
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], f"and {more:,} more") if more > 0 else tuple(problems)


def render_definition(definition: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a definition for a client's tool list: unchanged except for its name.

    A schema without `"type": "object"` gets it: strict clients reject the whole list otherwise.
    """
    schema = definition.get("inputSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    if schema.get("type") != "object":
        schema = {**schema, "type": "object"}
    return {**definition, "name": name, "inputSchema": schema}


def exceeds_size(value: object, limit: int) -> bool:
    """Return whether a JSON value takes more than about `limit` bytes."""
    bytes_left = limit
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            bytes_left -= len(item) + 2
        # `dict` first: the check for `Mapping` is slow, and parsed JSON contains only dicts.
        elif isinstance(item, dict | Mapping):
            bytes_left -= sum(map(len, item)) + 4 * len(item)
            pending.extend(item.values())
        elif isinstance(item, list):
            bytes_left -= 2
            pending.extend(item)
        else:
            bytes_left -= 4
        if bytes_left < 0:
            return True
    return False
