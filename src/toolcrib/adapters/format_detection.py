"""Detect the wire format of tool definitions and read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from toolcrib.adapters import anthropic, gemini, mcp, openai_chat, openai_responses, toolcrib_json
from toolcrib.adapters.plain_json import describe_entry, describe_json_type, format_field_names, not_a_function_error
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

Path = tuple[str | int, ...]


class _EntryFormat(Protocol):
    def is_tool_entry(self, entry: Mapping[str, Any], /) -> bool: ...
    def tools_from_wire(self, entry: Mapping[str, Any], /) -> list[Tool]: ...


# The formats in the order in which they are tried, each with its description in errors.
_ENTRY_FORMATS: tuple[tuple[_EntryFormat, str], ...] = (
    (anthropic, "Anthropic (name, input_schema)"),
    (openai_chat, "OpenAI chat (type, function)"),
    (openai_responses, "OpenAI responses (type, name, parameters)"),
    (gemini, "Gemini (functionDeclarations)"),
    (mcp, "MCP (name, inputSchema)"),
    (toolcrib_json, "our own (name, description, input_schema, server, …)"),
)

# The field in which each format keeps the schema of the arguments.
_SCHEMA_FIELDS = (
    "input_schema", "inputSchema", "parameters", "parametersJsonSchema", "parameters_json_schema", "function",
    "functionDeclarations", "function_declarations",
)  # fmt: skip
_LIST_FIELDS = ("tools", "functionDeclarations", "function_declarations")


def tools_from_any(document: object) -> list[Tool]:
    """Return the tools of an entry in any known format, or of a list that may mix formats."""
    return [tool for _, part in split_document(document) for tool in _parse_entry(part)]


def split_document(document: object) -> Iterator[tuple[Path, object]]:
    """Yield each tool entry of a document with its path in the document."""
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
        # A saved JSON-RPC response of an MCP server to `tools/list`.
        for path, part in _split_container(entry["result"]):
            yield ("result", *path), part
    else:
        yield from _split_container(entry)


def _split_container(entry: Mapping[str, Any]) -> Iterator[tuple[Path, object]]:
    for field in _LIST_FIELDS:
        members = entry.get(field)
        if isinstance(members, list | tuple):
            for number, member in enumerate(members):
                yield (field, number), _isolate_member(entry, field, member)
            return
    yield (), entry


def _isolate_member(container: Mapping[str, Any], field: str, member: object) -> object:
    """Return one member of a container in the form it would have as the only member."""
    if field != "tools" or "type" in container:
        return {**container, field: [member]}
    if not isinstance(member, Mapping):
        return member
    inherited = {name: container[name] for name in toolcrib_json.COMMON_FIELDS if name in container}
    return {**inherited, **member}


def _parse_entry(entry: object) -> list[Tool]:
    if isinstance(entry, Tool):
        return [entry]
    if not isinstance(entry, Mapping):
        raise InvalidTool(f"a tool is an object, not {describe_json_type(entry)}")
    if _is_provider_search(entry):
        return []
    entry_format = _detect_format(entry)
    tools = entry_format.tools_from_wire(entry)
    if entry_format is toolcrib_json:
        return tools
    common_fields = toolcrib_json.read_common_fields(entry)
    return [tool.replace(**common_fields) for tool in tools] if common_fields else tools


def _is_provider_search(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of a request enables the search of the provider; it is not a tool to search."""
    entry_type = entry.get("type")
    return isinstance(entry_type, str) and (
        entry_type == "tool_search" or entry_type.startswith(("tool_search_tool_regex", "tool_search_tool_bm25"))
    )


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
            "save the tools/list results of its servers instead"
        )
    for candidate, _ in _ENTRY_FORMATS:
        if candidate.is_tool_entry(entry):
            return candidate
    if entry.get("type") not in (None, "function"):
        raise not_a_function_error(entry)
    raise _unknown_format_error(entry)


def _unknown_format_error(entry: Mapping[str, Any]) -> InvalidTool:
    """Return the error for an unknown format; it lists the entry's fields and the known formats."""
    subject, fields = describe_entry(entry), format_field_names(entry)
    if fields not in subject:
        subject = f"{subject} ({fields})"
    known = "; ".join(description for _, description in _ENTRY_FORMATS)
    return InvalidTool(f"{subject} is not in a known format; known are {known}")
