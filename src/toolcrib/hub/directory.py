"""The tool directory: the tools of all servers under their public names.

The directory is the only way from a public name to its server. Names are never split to find it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final, Literal

from toolcrib.adapters.mcp import tools_from_wire
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import ToolOverride, ToolSearchConfig
from toolcrib.core import prompts
from toolcrib.core.tool import SERVER_SEPARATOR, Policy, Tool
from toolcrib.core.tool_names import MAX_TOOL_NAME_CHARS, safe_name
from toolcrib.errors import ToolcribError
from toolcrib.profiles.mcproxy import SEARCH_TOOL_NAME
from toolcrib.safety.hidden_text import SafetyFinding, escape_invisible

# The largest definition found in published servers has 89,000 characters.
MAX_DEFINITION_BYTES: Final = 4 * 1024 * 1024
MAX_PROBLEMS: Final = 20
MAX_DISPLAYED_NAME_CHARS: Final = 80
# The member of a structured content that has the preview of a large result.
RESULT_NOTE_KEY: Final = "_toolcrib"

GATEWAY_TOOL_NAMES: Final = frozenset(
    {
        SEARCH_TOOL_NAME,
        prompts.SEARCH_NAME,
        prompts.DESCRIBE_NAME,
        prompts.CALL_NAME,
        prompts.READ_NAME,
        prompts.CODE_NAME,
        *prompts.RISK_CALL_NAMES.values(),
    }
)
CallRisk = Literal["read", "write", "destructive"]
_POLICIES: Mapping[str, Policy] = {"always": "always", "never": "never"}
# Earlier keys of `_meta` for the user interface of a tool: of MCP Apps, and of the OpenAI Apps SDK.
_APP_URI_KEYS: Final = ("ui/resourceUri", "openai/outputTemplate")


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


def parse_definitions(entries: Iterable[object], *, server: str, server_description: str = "") -> ParsedDefinitions:
    """Parse a server's tool list, keeping its order.

    An unusable definition is reported as a problem and does not affect the others. `filter_storable` has
    checked the sizes.
    """
    definitions: dict[str, ToolDefinition] = {}
    usable, problems = _split_usable(entries, max_bytes=None)
    for number, entry in usable:
        # Some servers omit the schema of a tool without parameters.
        wire = entry if isinstance(entry.get("inputSchema"), Mapping) else {**entry, "inputSchema": {}}
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


def filter_storable(entries: Iterable[object]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Return the definitions that can be stored, and the problems of the others."""
    usable, problems = _split_usable(entries, max_bytes=MAX_DEFINITION_BYTES)
    return tuple(dict(entry) for _, entry in usable), _sort_problems(problems)


def _split_usable(
    entries: Iterable[object], *, max_bytes: int | None
) -> tuple[list[tuple[int, Mapping[str, Any]]], dict[int, str]]:
    """Return the entries that are objects of acceptable size, and the problems of the others.

    Both are numbered by the position in the list, from 1.
    """
    usable: list[tuple[int, Mapping[str, Any]]] = []
    problems: dict[int, str] = {}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            problems[number] = f"tool {number} is not an object"
        elif max_bytes is not None and exceeds_size(entry, max_bytes):
            problems[number] = f"{describe_tool(entry, number)} has more than {max_bytes:,} bytes"
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


def format_tool_count(count: int) -> str:
    """Return "1 tool" or "N tools"."""
    return "1 tool" if count == 1 else f"{count:,} tools"


def limit_problems(problems: list[str]) -> tuple[str, ...]:
    """Return the first `MAX_PROBLEMS` problems and the number of the rest."""
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], f"and {more:,} more") if more > 0 else tuple(problems)


def render_definition(definition: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a definition for a client's tool list: unchanged except for its name.

    A schema without `"type": "object"` gets it: strict clients reject the whole list otherwise. An output
    schema that forbids other members allows the preview of a large result.
    """
    schema = definition.get("inputSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    if schema.get("type") != "object":
        schema = {**schema, "type": "object"}
    rendered = {**definition, "name": name, "inputSchema": schema}
    output: Any = definition.get("outputSchema")
    properties = output.get("properties", {}) if isinstance(output, Mapping) else None
    if isinstance(properties, Mapping) and output.get("additionalProperties") is False:
        rendered["outputSchema"] = {**output, "properties": {**properties, RESULT_NOTE_KEY: {"type": "object"}}}
    return rendered


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


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A tool with its public name, its server and its name on that server."""

    server: str
    remote_name: str
    definition: Mapping[str, Any]
    tool: Tool
    findings: tuple[SafetyFinding, ...] = ()
    # Whether the definition differs from the approved one.
    is_changed: bool = False
    # The operator's override, and the definition of the server that it changes.
    override: ToolOverride | None = None
    original: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The public name, which is also the tool's id."""
        return self.tool.id

    @property
    def wire_definition(self) -> dict[str, Any]:
        """The definition as clients see it."""
        return render_definition(self.definition, self.name)

    @property
    def is_app(self) -> bool:
        """Whether the tool belongs to an MCP App: it has a user interface, or one calls it."""
        meta = self.definition.get("_meta")
        if not isinstance(meta, Mapping):
            return False
        found = meta.get("ui")
        ui = found if isinstance(found, Mapping) else {}
        uris = (ui.get("resourceUri"), *(meta.get(key) for key in _APP_URI_KEYS))
        return any(isinstance(uri, str) and uri.startswith("ui://") for uri in uris) or ui.get("visibility") == ["app"]

    @property
    def risk(self) -> CallRisk:
        """What a call may do, by the annotations. Without annotations, MCP expects the worst."""
        annotations = self.tool.annotations
        if annotations.get("readOnlyHint") is True:
            return "read"
        return "write" if annotations.get("destructiveHint") is False else "destructive"

    def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments as the server gets them: with fixed and without hidden parameters."""
        return arguments if self.override is None else self.override.prepare_arguments(arguments)

    def with_name(self, name: str) -> DirectoryEntry:
        """Return the same tool under another public name."""
        return replace(self, tool=self.tool.replace(id=name))


@dataclass(frozen=True, slots=True)
class QuarantinedTool:
    """A tool that waits for approval: its public name, the id by which it is approved, and the reason."""

    name: str
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools of one server; `quarantined` has public names as keys."""

    server: ServerConfig
    entries: tuple[DirectoryEntry, ...] = ()
    quarantined: Mapping[str, QuarantinedTool] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    # What does not fit in the overrides of its tools. They are usable.
    override_problems: tuple[str, ...] = ()
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
    changed: Container[str],
    findings: Mapping[str, tuple[SafetyFinding, ...]],
) -> ServerTools:
    """Return the tools of a server that its configuration exposes, under public names.

    `quarantined`, `changed` and `findings` have the names on the server.
    """
    entries: list[DirectoryEntry] = []
    quarantined_tools: dict[str, QuarantinedTool] = {}
    for definition in definitions:
        remote_name = definition.name
        if not _is_exposed(server, remote_name):
            continue
        name = build_public_name(server.id, settings, remote_name)
        if remote_name in quarantined:
            id = f"{server.name}{SERVER_SEPARATOR}{remote_name}"
            quarantined_tools[name] = QuarantinedTool(name, id, quarantined[remote_name])
            continue
        tool = definition.tool
        policy = _POLICIES.get(server.defer_tools, tool.policy)
        if (tool.id, tool.policy) != (name, policy):
            tool = tool.replace(id=name, policy=policy)
        found, is_changed = findings.get(remote_name, ()), remote_name in changed
        entries.append(DirectoryEntry(server.name, remote_name, definition.raw, tool, found, is_changed=is_changed))
    return ServerTools(server, tuple(entries), quarantined_tools)


def set_requests(tools: ServerTools, requests: Mapping[str, Sequence[str]]) -> ServerTools:
    """Return the tools with the example requests for their definitions, which clients do not see."""
    entries = [_set_requests(entry, requests.get(entry.tool.definition_fingerprint, ())) for entry in tools.entries]
    return replace(tools, entries=tuple(entries))


def _set_requests(entry: DirectoryEntry, requests: Sequence[str]) -> DirectoryEntry:
    if tuple(requests) == entry.tool.example_requests:
        return entry
    return replace(entry, tool=entry.tool.with_example_requests(requests))


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
