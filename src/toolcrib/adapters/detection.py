"""Which wire format an entry is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.adapters import anthropic, gemini, mcp, native, openai_chat, openai_responses
from toolcrib.adapters.fields import field_names, kind, not_a_function, seen
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidTool

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Format:
    shape: str
    recognises: Callable[[Mapping[str, Any]], bool]
    tools_from_wire: Callable[[Mapping[str, Any]], list[Tool]]


_OWN = _Format(
    "our own (name, description, input_schema, server, …)",
    native.recognises,
    native.tools_from_wire,
)
_FORMATS = (
    _Format("Anthropic (name, input_schema)", anthropic.recognises, anthropic.tools_from_wire),
    _Format("OpenAI chat (type, function)", openai_chat.recognises, openai_chat.tools_from_wire),
    _Format(
        "OpenAI responses (type, name, parameters)",
        openai_responses.recognises,
        openai_responses.tools_from_wire,
    ),
    _Format("Gemini (functionDeclarations)", gemini.recognises, gemini.tools_from_wire),
    _Format("MCP (name, inputSchema)", mcp.recognises, mcp.tools_from_wire),
    _OWN,
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
    return [tool for _, part in parts(document) for tool in _tools(part)]


def parts(document: object) -> Iterator[tuple[Path, object]]:
    """A document taken apart into one tool at a time, each with the path that leads to it."""
    if isinstance(document, list | tuple):
        for number, entry in enumerate(document):
            for path, part in _parts(entry):
                yield (number, *path), part
    else:
        yield from _parts(document)


def _parts(entry: object) -> Iterator[tuple[Path, object]]:
    if not isinstance(entry, Mapping):
        yield (), entry
    elif "jsonrpc" in entry and isinstance(entry.get("result"), Mapping):
        # What an MCP server's answer looks like when it is saved as it came.
        for path, part in _members(entry["result"]):
            yield ("result", *path), part
    else:
        yield from _members(entry)


def _members(entry: Mapping[str, Any]) -> Iterator[tuple[Path, object]]:
    for field in _LISTS:
        members = entry.get(field)
        if isinstance(members, list | tuple):
            for number, member in enumerate(members):
                yield (field, number), _alone(entry, field, member)
            return
    yield (), entry


def _alone(container: Mapping[str, Any], field: str, member: object) -> object:
    """One member as if the container held no other."""
    if field != "tools" or "type" in container:
        return {**container, field: [member]}
    if not isinstance(member, Mapping):
        return member
    given = {name: container[name] for name in native.ADDITIONS if name in container}
    return {**given, **member}


def _tools(entry: object) -> list[Tool]:
    if not isinstance(entry, Mapping):
        raise InvalidTool(f"a tool is an object, not {kind(entry)}")
    wire = _format(entry)
    tools = wire.tools_from_wire(entry)
    additions = native.additions(entry) if wire is not _OWN else {}
    return [tool.replace(**additions) for tool in tools] if additions else tools


def _format(entry: Mapping[str, Any]) -> _Format:
    schemas = [field for field in _SCHEMA_FIELDS if entry.get(field) is not None]
    if len(schemas) > 1:
        raise InvalidTool(
            f"{seen(entry)}: has {' and '.join(schemas)}, which belong to different formats; "
            "keep the one that describes the arguments"
        )
    if isinstance(entry.get("mcpServers"), Mapping):
        raise InvalidTool(
            "this is the configuration of an MCP client, not a list of tools; "
            "save what its servers answer to tools/list"
        )
    for candidate in _FORMATS:
        if candidate.recognises(entry):
            return candidate
    if entry.get("type") not in (None, "function"):
        raise not_a_function(entry)
    raise _unknown(entry)


def _unknown(entry: Mapping[str, Any]) -> InvalidTool:
    """The error for a shape we do not know: what was seen, and what we know."""
    subject, fields = seen(entry), field_names(entry)
    if fields not in subject:
        subject = f"{subject} ({fields})"
    known = "; ".join(candidate.shape for candidate in _FORMATS)
    return InvalidTool(f"{subject} is not in a known format; known are {known}")
