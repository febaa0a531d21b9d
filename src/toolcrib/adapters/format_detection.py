"""Which wire format an entry is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.adapters import anthropic, gemini, mcp, openai_chat, openai_responses, toolcrib_json
from toolcrib.adapters.field_reader import (
    describe_entry,
    describe_json_type,
    format_field_names,
    not_a_function_error,
)
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _EntryFormat:
    description: str
    is_tool_entry: Callable[[Mapping[str, Any]], bool]
    tools_from_wire: Callable[[Mapping[str, Any]], list[Tool]]


_TOOLCRIB = _EntryFormat(
    "our own (name, description, input_schema, server, …)",
    toolcrib_json.is_tool_entry,
    toolcrib_json.tools_from_wire,
)
_ENTRY_FORMATS = (
    _EntryFormat(
        "Anthropic (name, input_schema)", anthropic.is_tool_entry, anthropic.tools_from_wire
    ),
    _EntryFormat(
        "OpenAI chat (type, function)", openai_chat.is_tool_entry, openai_chat.tools_from_wire
    ),
    _EntryFormat(
        "OpenAI responses (type, name, parameters)",
        openai_responses.is_tool_entry,
        openai_responses.tools_from_wire,
    ),
    _EntryFormat("Gemini (functionDeclarations)", gemini.is_tool_entry, gemini.tools_from_wire),
    _EntryFormat("MCP (name, inputSchema)", mcp.is_tool_entry, mcp.tools_from_wire),
    _TOOLCRIB,
)

# Each format keeps the arguments' schema in a field of another name.
_SCHEMA_FIELDS = (
    "input_schema",
    "inputSchema",
    "parameters",
    "parametersJsonSchema",
    "parameters_json_schema",
    "function",
    "functionDeclarations",
    "function_declarations",
)
_LISTS = ("tools", "functionDeclarations", "function_declarations")


def tools_from_any(document: object) -> list[Tool]:
    """The tools of an entry in any known format, or of a list of them, mixed freely."""
    return [tool for _, part in split_document(document) for tool in _parse_entry(part)]


def split_document(document: object) -> Iterator[tuple[Path, object]]:
    """A document taken apart into one tool at a time, each with the path that leads to it."""
    if isinstance(document, list | tuple):
        for number, entry in enumerate(document):
            for path, part in _split_entry(entry):
                yield (number, *path), part
    else:
        yield from _split_entry(document)


def _split_entry(entry: object) -> Iterator[tuple[Path, object]]:
    if not isinstance(entry, Mapping):
        yield (), entry
    elif "jsonrpc" in entry and isinstance(entry.get("result"), Mapping):
        # What an MCP server's answer looks like when it is saved as it came.
        for path, part in _split_container(entry["result"]):
            yield ("result", *path), part
    else:
        yield from _split_container(entry)


def _split_container(entry: Mapping[str, Any]) -> Iterator[tuple[Path, object]]:
    for field in _LISTS:
        members = entry.get(field)
        if isinstance(members, list | tuple):
            for number, member in enumerate(members):
                yield (field, number), _isolate_member(entry, field, member)
            return
    yield (), entry


def _isolate_member(container: Mapping[str, Any], field: str, member: object) -> object:
    """One member as if the container held no other."""
    if field != "tools" or "type" in container:
        return {**container, field: [member]}
    if not isinstance(member, Mapping):
        return member
    given = {name: container[name] for name in toolcrib_json.COMMON_FIELDS if name in container}
    return {**given, **member}


def _parse_entry(entry: object) -> list[Tool]:
    if not isinstance(entry, Mapping):
        raise InvalidTool(f"a tool is an object, not {describe_json_type(entry)}")
    wire = _detect_format(entry)
    tools = wire.tools_from_wire(entry)
    additions = toolcrib_json.read_common_fields(entry) if wire is not _TOOLCRIB else {}
    return [tool.replace(**additions) for tool in tools] if additions else tools


def _detect_format(entry: Mapping[str, Any]) -> _EntryFormat:
    schemas = [field for field in _SCHEMA_FIELDS if entry.get(field) is not None]
    if len(schemas) > 1:
        raise InvalidTool(
            f"{describe_entry(entry)}: has {' and '.join(schemas)}, which belong to different formats; "
            "keep the one that describes the arguments"
        )
    if isinstance(entry.get("mcpServers"), Mapping):
        raise InvalidTool(
            "this is the configuration of an MCP client, not a list of tools; "
            "save what its servers answer to tools/list"
        )
    for candidate in _ENTRY_FORMATS:
        if candidate.is_tool_entry(entry):
            return candidate
    if entry.get("type") not in (None, "function"):
        raise not_a_function_error(entry)
    raise _unknown_format_error(entry)


def _unknown_format_error(entry: Mapping[str, Any]) -> InvalidTool:
    """The error for a shape we do not know: what was seen, and what we know."""
    subject, fields = describe_entry(entry), format_field_names(entry)
    if fields not in subject:
        subject = f"{subject} ({fields})"
    known = "; ".join(candidate.description for candidate in _ENTRY_FORMATS)
    return InvalidTool(f"{subject} is not in a known format; known are {known}")
