"""The tool directory: the tools of all servers under their public names.

The directory is the only way from a public name to its server. Names are never split to find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

from toolcrib.config.settings import ServerConfig, ToolSearchConfig
from toolcrib.core import prompts
from toolcrib.core.tool import SERVER_SEPARATOR, Policy, Tool
from toolcrib.core.tool_names import MAX_TOOL_NAME_CHARS, safe_name
from toolcrib.hub.definitions import ToolDefinition, render_definition
from toolcrib.profiles.mcproxy import SEARCH_TOOL_NAME
from toolcrib.safety.hidden_text import SafetyFinding

GATEWAY_TOOL_NAMES: Final = frozenset(
    {SEARCH_TOOL_NAME, prompts.SEARCH_NAME, prompts.DESCRIBE_NAME, prompts.CALL_NAME}
)
_POLICIES: Mapping[str, Policy] = {"always": "always", "never": "never"}


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A tool with its public name, its server and its name on that server."""

    server: str
    remote_name: str
    definition: Mapping[str, Any]
    tool: Tool
    findings: tuple[SafetyFinding, ...] = ()

    @property
    def name(self) -> str:
        """The public name, which is also the tool's id."""
        return self.tool.id

    @property
    def wire_definition(self) -> dict[str, Any]:
        """The definition as clients see it."""
        return render_definition(self.definition, self.name)

    def with_name(self, name: str) -> DirectoryEntry:
        """Return the same tool under another public name."""
        tool = self.tool.replace(id=name)
        return DirectoryEntry(self.server, self.remote_name, self.definition, tool, self.findings)


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools of one server; `quarantined` maps public names to reasons."""

    server: ServerConfig
    entries: tuple[DirectoryEntry, ...] = ()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    instructions: str = ""
    # Tools that are usable without the unreadable parts of their definitions.
    repaired_tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolDirectory:
    """The tools of all servers, in the order of the configuration."""

    servers: tuple[ServerTools, ...] = ()
    max_name_chars: int = MAX_TOOL_NAME_CHARS

    @cached_property
    def entries(self) -> Mapping[str, DirectoryEntry]:
        """The tools by public name.

        If two servers claim a name, the first one gets it. The names of the gateway's own tools
        are reserved, because a server that took them would disable search.
        """
        entries: dict[str, DirectoryEntry] = {}
        for server_tools in self.servers:
            for entry in server_tools.entries:
                if entry.name in entries or entry.name in GATEWAY_TOOL_NAMES:
                    qualified = f"{entry.server}{SERVER_SEPARATOR}{entry.remote_name}"
                    entry = entry.with_name(safe_name(qualified, self.max_name_chars))
                entries.setdefault(entry.name, entry)
        return entries

    def __iter__(self) -> Iterator[DirectoryEntry]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)


def build_server_tools(
    server: ServerConfig,
    settings: ToolSearchConfig,
    definitions: Iterable[ToolDefinition],
    *,
    quarantined: Mapping[str, str],
    findings: Mapping[str, tuple[SafetyFinding, ...]],
) -> ServerTools:
    """Return the tools of a server that its configuration exposes, under public names.

    `quarantined` and `findings` are keyed by the names on the server.
    """
    server_id = server.alias or server.name
    entries: list[DirectoryEntry] = []
    reasons: dict[str, str] = {}
    for definition in definitions:
        remote_name = definition.name
        if not _is_exposed(server, remote_name):
            continue
        name = build_public_name(server_id, settings, remote_name)
        if remote_name in quarantined:
            reasons[name] = quarantined[remote_name]
            continue
        policy = _POLICIES.get(server.defer_tools, definition.tool.policy)
        tool = definition.tool.replace(id=name, policy=policy)
        tool_findings = findings.get(remote_name, ())
        entries.append(
            DirectoryEntry(server.name, remote_name, definition.raw, tool, tool_findings)
        )
    return ServerTools(server, tuple(entries), reasons)


def build_public_name(server_id: str, settings: ToolSearchConfig, name: str) -> str:
    """Return the public name of a tool or prompt: prefixed if configured, and valid everywhere."""
    prefix = f"{server_id}{SERVER_SEPARATOR}" if settings.prefix else ""
    return safe_name(f"{prefix}{name}", settings.max_name_chars)


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name equals or matches one of the patterns."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _is_exposed(server: ServerConfig, name: str) -> bool:
    is_allowed = not server.tools_allowed or matches_any(name, server.tools_allowed)
    return is_allowed and not matches_any(name, server.tools_blocked)
