"""The definitions a server gives of its tools: read leniently, kept as they came.

One that cannot be used is reported and left out; the others are not held up by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.adapters.mcp import tools_from_wire
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolcribError
from toolcrib.safety.display import escape_invisible

# The largest one seen in the wild has 89,000 characters.
MAX_DEFINITION_BYTES: Final = 4 * 1024 * 1024
MAX_PROBLEMS: Final = 20
MAX_DISPLAYED_NAME_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as its server defines it, and as it is searched for."""

    name: str
    raw: Mapping[str, Any]
    tool: Tool


@dataclass(frozen=True, slots=True)
class ParsedDefinitions:
    """What could be read, and what was wrong with the rest."""

    definitions: tuple[ToolDefinition, ...] = ()
    problems: tuple[str, ...] = ()


def parse_definitions(
    entries: Iterable[object], *, server: str, server_description: str = ""
) -> ParsedDefinitions:
    """The usable ones of a server's list, in its order."""
    found: dict[str, ToolDefinition] = {}
    faults: list[str] = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            faults.append(f"tool {number} is not an object")
            continue
        if exceeds_size(entry, MAX_DEFINITION_BYTES):
            faults.append(
                f"{describe_tool(entry, number)} has more than {MAX_DEFINITION_BYTES:,} bytes"
            )
            continue
        # Some servers leave the schema of a tool without parameters away.
        wire = (
            entry if isinstance(entry.get("inputSchema"), Mapping) else {**entry, "inputSchema": {}}
        )
        try:
            (tool,) = tools_from_wire(wire, server=server, server_description=server_description)
        except ToolcribError as fault:
            faults.append(f"{describe_tool(entry, number)}: {fault}")
            continue
        if tool.name in found:
            faults.append(f"tool {number}: the name {tool.name!r} is taken by an earlier one")
            continue
        found[tool.name] = ToolDefinition(tool.name, entry, tool)
    return ParsedDefinitions(tuple(found.values()), limit_problems(faults))


def filter_storable(
    entries: Iterable[object],
) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """What of a server's list there is room to keep, and what was wrong with the rest."""
    kept: list[dict[str, Any]] = []
    faults: list[str] = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            faults.append(f"tool {number} is not an object")
        elif exceeds_size(entry, MAX_DEFINITION_BYTES):
            faults.append(
                f"{describe_tool(entry, number)} has more than {MAX_DEFINITION_BYTES:,} bytes"
            )
        else:
            kept.append(entry)
    return tuple(kept), limit_problems(faults)


def describe_tool(definition: Mapping[str, Any], number: int) -> str:
    """How to speak of a tool that may have no name, or one that is no fit sight."""
    name = definition.get("name")
    if isinstance(name, str) and name:
        return f"tool {number} ({escape_invisible(name, MAX_DISPLAYED_NAME_CHARS)})"
    return f"tool {number}"


def limit_problems(faults: list[str]) -> tuple[str, ...]:
    """As many as somebody might read, and how many more there are."""
    more = len(faults) - MAX_PROBLEMS
    return (*faults[:MAX_PROBLEMS], f"and {more:,} more") if more > 0 else tuple(faults)


def render_definition(definition: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A definition as we list it: as its server wrote it, under our name for it.

    Strict clients drop a whole list for one schema that does not say it is an object; so it is said.
    """
    schema = definition.get("inputSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    if schema.get("type") != "object":
        schema = {**schema, "type": "object"}
    return {**definition, "name": name, "inputSchema": schema}


def exceeds_size(value: object, limit: int) -> bool:
    """Whether something of JSON is heavier than so many bytes, about; it stops counting when it is."""
    left = limit
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            left -= len(one) + 2
        # What comes from JSON is a dict, which is told sooner than that it is a mapping.
        elif isinstance(one, dict | Mapping):
            left -= sum(map(len, one)) + 4 * len(one)
            pending.extend(one.values())
        elif isinstance(one, list):
            left -= 2
            pending.extend(one)
        else:
            left -= 4
        if left < 0:
            return True
    return False
