"""Public names and whose they are: the tools of all servers as clients see them.

A name leads to its tool by this table. It is never taken apart again to find the server in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

from toolcrib.config.settings import Server, ToolSearch
from toolcrib.core import prompts
from toolcrib.core.tool import SERVER_SEPARATOR, Policy, Tool
from toolcrib.core.tool_names import MAX_CHARS, safe_name
from toolcrib.hub.definitions import Definition, listed
from toolcrib.profiles.mcproxy import SEARCH_TOOL
from toolcrib.safety.finding import Finding

OWN_NAMES: Final = frozenset(
    {SEARCH_TOOL, prompts.SEARCH_NAME, prompts.DESCRIBE_NAME, prompts.CALL_NAME}
)
_POLICIES: Mapping[str, Policy] = {"always": "always", "never": "never"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool under its public name, which is also its id: whose it is, and what it is called there."""

    server: str
    remote_name: str
    definition: Mapping[str, Any]
    tool: Tool
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """The public name."""
        return self.tool.id

    @property
    def listed(self) -> dict[str, Any]:
        """The definition as it is listed."""
        return listed(self.definition, self.name)

    def renamed(self, name: str) -> Entry:
        """The same tool under another public name."""
        tool = self.tool.replace(id=name)
        return Entry(self.server, self.remote_name, self.definition, tool, self.findings)


@dataclass(frozen=True, slots=True)
class Shelf:
    """What one server has: the tools to be had, those held back and why, and what is unreadable."""

    server: Server
    entries: tuple[Entry, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    instructions: str = ""
    # Tools that are to be had, but without parts of their definitions that nobody could read.
    altered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Directory:
    """The tools of all servers, in the order of the configuration."""

    shelves: tuple[Shelf, ...] = ()
    max_name_chars: int = MAX_CHARS

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """The tools by their public names. Where two servers claim one, the earlier has it.

        The names of our own tools are ours: a server that took them would end all searching.
        """
        found: dict[str, Entry] = {}
        for shelf in self.shelves:
            for entry in shelf.entries:
                if entry.name in found or entry.name in OWN_NAMES:
                    whole = f"{entry.server}{SERVER_SEPARATOR}{entry.remote_name}"
                    entry = entry.renamed(safe_name(whole, self.max_name_chars))
                found.setdefault(entry.name, entry)
        return found

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)


def shelf_of(
    server: Server,
    settings: ToolSearch,
    definitions: Iterable[Definition],
    *,
    held: Mapping[str, str],
    findings: Mapping[str, tuple[Finding, ...]],
    faults: tuple[str, ...] = (),
    instructions: str = "",
) -> Shelf:
    """A server's tools under their public names, as far as the configuration lets them through."""
    entries: list[Entry] = []
    kept_back: dict[str, str] = {}
    for one in definitions:
        if not _is_open(server, one.name):
            continue
        name = _public_name(server, settings, one.name)
        if one.name in held:
            kept_back[name] = held[one.name]
            continue
        policy = _POLICIES.get(server.defer, one.tool.policy)
        tool = one.tool.replace(id=name, policy=policy)
        entries.append(Entry(server.name, one.name, one.raw, tool, findings.get(one.name, ())))
    return Shelf(server, tuple(entries), kept_back, faults, instructions)


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of these patterns, or is one of them."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _is_open(server: Server, name: str) -> bool:
    is_allowed = not server.tools_allowed or fits(name, server.tools_allowed)
    return is_allowed and not fits(name, server.tools_blocked)


def _public_name(server: Server, settings: ToolSearch, name: str) -> str:
    prefix = f"{server.alias or server.name}{SERVER_SEPARATOR}" if settings.prefix else ""
    return safe_name(f"{prefix}{name}", settings.max_name_chars)
