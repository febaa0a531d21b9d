"""Overrides: the operator's own texts, parameters and annotations for the tools of servers.

They are applied to the tools before indexing. Pins and safety checks use the definitions of the servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final

from toolcrib.adapters.mcp import tools_from_wire
from toolcrib.config.settings import AccessProfile, ToolOverride, ToolSearchConfig
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.core.validation import find_problems
from toolcrib.errors import InvalidSchema, ToolcribError
from toolcrib.hub.directory import (
    DirectoryEntry,
    QuarantinedTool,
    ServerTools,
    ToolDirectory,
    build_public_name,
    limit_problems,
)
from toolcrib.safety.pinning import compute_fingerprint

_UNPINNED: Final = "its definition differs from the pin of your access profile, which an operator has to update first"


def apply_overrides(
    tools: ServerTools, overrides: Mapping[str, ToolOverride], settings: ToolSearchConfig
) -> ServerTools:
    """Return the tools of a server with their overrides; an unusable override is reported as a problem."""
    if not overrides:
        return tools
    entries: list[DirectoryEntry] = []
    problems = [f"the override of {name} matches no tool" for name in _find_unmatched(tools, overrides)]
    for entry in tools.entries:
        override = find_override(overrides, entry, tools.server.id)
        if override is not None:
            try:
                problems += find_override_problems(entry, override)
                entry = override_entry(entry, override, settings)
            except ToolcribError as error:
                problems.append(f"the override of {entry.name} is not used: {error}")
        entries.append(entry)
    all_problems = (*tools.override_problems, *limit_problems(problems))
    return replace(tools, entries=tuple(entries), override_problems=all_problems)


def find_override(overrides: Mapping[str, ToolOverride], entry: DirectoryEntry, server_id: str) -> ToolOverride | None:
    """Return the merged override of a tool.

    Patterns apply in the order of the file, and then the entry with the exact name.
    """
    names = {f"{server_id}{SERVER_SEPARATOR}{entry.remote_name}", entry.name}
    patterns = [one for one in overrides.values() if any(fnmatchcase(name, one.pattern) for name in names)]
    merged: ToolOverride | None = None
    for override in sorted(patterns, key=lambda one: one.pattern in names):
        merged = override if merged is None else _merge(merged, override)
    return merged


def _find_unmatched(tools: ServerTools, overrides: Iterable[str]) -> list[str]:
    """Return the overrides that name a tool of a server that the server does not have."""
    if not tools.entries:
        # The tools may not be known yet.
        return []
    prefix = f"{tools.server.id}{SERVER_SEPARATOR}"
    known = {entry.name for entry in tools.entries} | {f"{prefix}{entry.remote_name}" for entry in tools.entries}
    known.update(tools.quarantined)
    names = [name for name in overrides if name.startswith(prefix) and not set(name) & set("*?[")]
    return [name for name in names if name not in known]


def _merge(first: ToolOverride, second: ToolOverride) -> ToolOverride:
    """Return both overrides as one; the second has priority."""
    return ToolOverride(
        second.pattern,
        name=second.name or first.name,
        title=first.title if second.title is None else second.title,
        description=first.description if second.description is None else second.description,
        hint=first.hint if second.hint is None else second.hint,
        tags=first.tags if second.tags is None else second.tags,
        hidden_parameters=tuple(dict.fromkeys((*first.hidden_parameters, *second.hidden_parameters))),
        fixed_parameters={**first.fixed_parameters, **second.fixed_parameters},
        annotations={**first.annotations, **second.annotations},
        result_budget_tokens=(
            first.result_budget_tokens if second.result_budget_tokens is None else second.result_budget_tokens
        ),
    )


def override_entry(entry: DirectoryEntry, override: ToolOverride, settings: ToolSearchConfig) -> DirectoryEntry:
    """Return a tool with its override."""
    tool = entry.tool
    definition = _override_definition(entry.definition, override)
    wire = definition if isinstance(definition.get("inputSchema"), Mapping) else {**definition, "inputSchema": {}}
    (changed,) = tools_from_wire(wire, server=tool.server, server_description=tool.server_description)
    id = build_public_name(tool.server, settings, override.name) if override.name else tool.id
    changed = changed.replace(
        id=id,
        policy=tool.policy,
        hint=tool.hint if override.hint is None else override.hint,
        tags=tool.tags if override.tags is None else override.tags,
    )
    if tool.example_requests:
        changed = changed.with_example_requests(tool.example_requests)
    # The override of a profile comes after the shared one.
    merged = override if entry.override is None else _merge(entry.override, override)
    original = entry.definition if entry.original is None else entry.original
    return replace(entry, definition=definition, tool=changed, override=merged, original=original)


def apply_profile(directory: ToolDirectory, profile: AccessProfile, settings: ToolSearchConfig) -> ToolDirectory:
    """Return the directory with the overrides of a profile, and without tools that differ from its pins."""
    servers = (_quarantine_unpinned(tools, profile.pins) for tools in directory.servers)
    changed = tuple(apply_overrides(tools, profile.overrides, settings) for tools in servers)
    return replace(directory, servers=changed)


def _quarantine_unpinned(tools: ServerTools, pins: Mapping[str, str]) -> ServerTools:
    """Quarantine the tools of a server whose definitions differ from the pins of a profile."""
    kept: list[DirectoryEntry] = []
    quarantined = dict(tools.quarantined)
    for entry in tools.entries:
        names = (f"{tools.server.id}{SERVER_SEPARATOR}{entry.remote_name}", entry.name)
        wanted = [pins[name] for name in names if name in pins]
        if wanted and any(pin != compute_fingerprint(entry.original or entry.definition) for pin in wanted):
            quarantined[entry.name] = QuarantinedTool(entry.name, names[0], _UNPINNED)
        else:
            kept.append(entry)
    return tools if len(kept) == len(tools.entries) else replace(tools, entries=tuple(kept), quarantined=quarantined)


def restore_entry(entry: DirectoryEntry, settings: ToolSearchConfig) -> DirectoryEntry:
    """Return a tool without its override."""
    if entry.original is None:
        return entry
    tool = entry.tool
    wire = {**entry.original, "inputSchema": entry.original.get("inputSchema") or {}}
    (original,) = tools_from_wire(wire, server=tool.server, server_description=tool.server_description)
    id = build_public_name(tool.server, settings, entry.remote_name)
    original = original.replace(id=id, policy=tool.policy)
    return replace(entry, definition=entry.original, tool=original, override=None, original=None)


def _override_definition(definition: Mapping[str, Any], override: ToolOverride) -> dict[str, Any]:
    changed = dict(definition)
    if override.name:
        changed["name"] = override.name
    if override.title is not None:
        changed["title"] = override.title
    if override.description is not None:
        changed["description"] = override.description
    if override.annotations:
        annotations = definition.get("annotations")
        changed["annotations"] = {**(annotations if isinstance(annotations, Mapping) else {}), **override.annotations}
    hidden = override.removed_parameters
    schema = definition.get("inputSchema")
    if hidden and isinstance(schema, Mapping):
        properties, required = schema.get("properties"), schema.get("required")
        changed["inputSchema"] = dict(schema)
        if isinstance(properties, Mapping):
            kept = {name: value for name, value in properties.items() if name not in hidden}
            changed["inputSchema"]["properties"] = kept
        if isinstance(required, list):
            changed["inputSchema"]["required"] = [name for name in required if name not in hidden]
    return changed


def find_override_problems(entry: DirectoryEntry, override: ToolOverride) -> Iterator[str]:
    """Yield what does not fit between an override and the definition of the server."""
    schema = entry.definition.get("inputSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    for name in override.hidden_parameters:
        is_required = isinstance(required, list) and name in required
        if is_required and name not in override.fixed_parameters:
            yield f"the override of {entry.name} hides the required parameter {name!r}; add it to `fixedParameters`"
    if "*" in override.pattern:
        # A pattern may name parameters that only some of its tools have.
        return
    for name in sorted(override.removed_parameters - set(properties)):
        yield f"the override of {entry.name} names a parameter {name!r} that the tool does not have"
    for name, value in override.fixed_parameters.items():
        if name in properties:
            member = {
                **{key: schema[key] for key in ("$defs", "definitions") if key in schema},
                "properties": properties,
            }
            try:
                problems = find_problems(member, {name: value})
            except InvalidSchema:
                continue
            if problems:
                yield f"the override of {entry.name} fixes {name!r} to an invalid value: {problems[0]}"
