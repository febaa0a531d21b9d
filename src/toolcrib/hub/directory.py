"""Public names and whose they are: the tools of all servers as clients see them.

A name leads to its tool by this table. It is never taken apart again to find the server in it.
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
from toolcrib.safety.finding import SafetyFinding

GATEWAY_TOOL_NAMES: Final = frozenset(
    {SEARCH_TOOL_NAME, prompts.SEARCH_NAME, prompts.DESCRIBE_NAME, prompts.CALL_NAME}
)
_POLICIES: Mapping[str, Policy] = {"always": "always", "never": "never"}


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A tool under its public name, which is also its id: whose it is, and what it is called there."""

    server: str
    remote_name: str
    definition: Mapping[str, Any]
    tool: Tool
    findings: tuple[SafetyFinding, ...] = ()

    @property
    def name(self) -> str:
        """The public name."""
        return self.tool.id

    @property
    def wire_definition(self) -> dict[str, Any]:
        """The definition as it is listed."""
        return render_definition(self.definition, self.name)

    def with_name(self, name: str) -> DirectoryEntry:
        """The same tool under another public name."""
        tool = self.tool.replace(id=name)
        return DirectoryEntry(self.server, self.remote_name, self.definition, tool, self.findings)


@dataclass(frozen=True, slots=True)
class ServerTools:
    """What one server has: the tools to be had, those held back and why, and what is unreadable."""

    server: ServerConfig
    entries: tuple[DirectoryEntry, ...] = ()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    instructions: str = ""
    # Tools that are to be had, but without parts of their definitions that nobody could read.
    repaired_tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolDirectory:
    """The tools of all servers, in the order of the configuration."""

    servers: tuple[ServerTools, ...] = ()
    max_name_chars: int = MAX_TOOL_NAME_CHARS

    @cached_property
    def entries(self) -> Mapping[str, DirectoryEntry]:
        """The tools by their public names. Where two servers claim one, the earlier has it.

        The names of our own tools are ours: a server that took them would end all searching.
        """
        found: dict[str, DirectoryEntry] = {}
        for shelf in self.servers:
            for entry in shelf.entries:
                if entry.name in found or entry.name in GATEWAY_TOOL_NAMES:
                    whole = f"{entry.server}{SERVER_SEPARATOR}{entry.remote_name}"
                    entry = entry.with_name(safe_name(whole, self.max_name_chars))
                found.setdefault(entry.name, entry)
        return found

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
    problems: tuple[str, ...] = (),
    instructions: str = "",
) -> ServerTools:
    """A server's tools under their public names, as far as the configuration lets them through."""
    entries: list[DirectoryEntry] = []
    kept_back: dict[str, str] = {}
    for one in definitions:
        if not _is_exposed(server, one.name):
            continue
        name = _build_public_name(server, settings, one.name)
        if one.name in quarantined:
            kept_back[name] = quarantined[one.name]
            continue
        policy = _POLICIES.get(server.defer_tools, one.tool.policy)
        tool = one.tool.replace(id=name, policy=policy)
        entries.append(
            DirectoryEntry(server.name, one.name, one.raw, tool, findings.get(one.name, ()))
        )
    return ServerTools(server, tuple(entries), kept_back, problems, instructions)


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of these patterns, or is one of them."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _is_exposed(server: ServerConfig, name: str) -> bool:
    is_allowed = not server.tools_allowed or matches_any(name, server.tools_allowed)
    return is_allowed and not matches_any(name, server.tools_blocked)


def _build_public_name(server: ServerConfig, settings: ToolSearchConfig, name: str) -> str:
    prefix = f"{server.alias or server.name}{SERVER_SEPARATOR}" if settings.prefix else ""
    return safe_name(f"{prefix}{name}", settings.max_name_chars)
