"""Find the servers in the files of MCP clients and plan their import into our file."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from toolcrib.config.clients.file_writes import encode_like
from toolcrib.config.clients.formats import name_list_entries, select_servers
from toolcrib.config.clients.locations import SERVERS, ClientFile, HostSystem, list_client_files
from toolcrib.config.clients.translation import DiscoveredServer, starts_toolcrib, translate_entry, validate_entry
from toolcrib.config.fields import InvalidSetting, escape_variables
from toolcrib.config.jsonc import parse_jsonc, set_member
from toolcrib.config.loader import EXPECTED_CONTENT, parse_document
from toolcrib.config.parser import SERVERS_KEY, VSCODE_SERVERS_KEY
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import read_json_file
from toolcrib.files.yaml_text import parse_yaml

ImportOutcome = Literal["added", "there already", "skipped"]

MAX_SERVERS_PER_FILE = 1000
MAX_PROJECTS = 1000
_BLANK_BYTES = 4096
_SOURCE_KEY = "importedFrom"


@dataclass(frozen=True, slots=True)
class ClientDiscovery:
    """The servers in the files of clients, the files that exist, and the errors of reading them."""

    servers: tuple[DiscoveredServer, ...]
    files: tuple[Path, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """The outcome of the import of a server, and its name in our file."""

    server: DiscoveredServer
    outcome: ImportOutcome
    name: str = ""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The content of our file before and after an import; `before` is None for a new file."""

    path: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    servers: tuple[ImportedServer, ...]


def discover_servers(system: HostSystem, clients: Iterable[str] = (), all_projects: bool = False) -> ClientDiscovery:
    """Return the servers in the files of these clients, or of all clients.

    Claude Code keeps the servers of many projects in one file; only those of the current project
    are returned, unless `all_projects` is true.
    """
    selected = set(clients)
    servers: list[DiscoveredServer] = []
    files: dict[Path, None] = {}
    errors: dict[str, None] = {}
    for source, project in _iter_client_files(system, all_projects):
        if (selected and source.client not in selected) or not source.path.is_file():
            continue
        files[source.path] = None
        try:
            text = read_client_file(source.path)
            entries = _disable_servers(source, parse_servers(source, text), text)
        except InvalidConfig as error:
            errors[str(error)] = None
            continue
        project_system = replace(system, project_folder=project)
        servers += [
            translate_entry(source, name, entry, project_system)
            for name, entry in select_servers(source.client, entries).items()
            if not starts_toolcrib(entry)
        ]
    return ClientDiscovery(tuple(servers), tuple(files), tuple(errors))


def _iter_client_files(system: HostSystem, all_projects: bool) -> Iterator[tuple[ClientFile, Path]]:
    """Yield the files of all clients, each with the project folder of its servers."""
    for source in list_client_files(system):
        yield source, system.project_folder
        is_claude_code = source.client == "claude-code" and source.section == SERVERS
        if all_projects and is_claude_code:
            for folder in list_claude_code_projects(source.path):
                if Path(folder) != system.project_folder:
                    section = ("projects", folder, *SERVERS)
                    yield replace(source, section=section, scope="project"), Path(folder)


def list_claude_code_projects(path: Path) -> list[str]:
    """Return the project folders in Claude Code's user file."""
    try:
        document = _parse_json(str(path), read_client_file(path)) if path.is_file() else {}
    except InvalidConfig:
        # Reading the user's servers from the same file reports the error.
        return []
    projects = document.get("projects") if isinstance(document, Mapping) else None
    return list(projects)[:MAX_PROJECTS] if isinstance(projects, Mapping) else []


def read_client_file(path: Path) -> str:
    """Return the text of a client's file. Clients create blank files when they have no settings."""
    try:
        with path.open("rb") as file:
            start = file.read(_BLANK_BYTES)
        if len(start) < _BLANK_BYTES and not start.strip():
            return ""
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    return read_json_file(path, InvalidConfig, "settings").text


def parse_servers(source: ClientFile, text: str) -> Mapping[str, Any]:
    """Return the entries in the text of a client's file by name."""
    file = str(source.path)
    value: Any = _parse_text(source, text)
    if source.client == "continue" and isinstance(value, Mapping) and ("command" in value or "url" in value):
        # A file of Continue can have one server, which has the name of the file.
        return {source.path.stem: value}
    for step in source.section:
        if not isinstance(value, Mapping):
            raise InvalidConfig(f"{file}: {step} must be in an object; correct the file")
        value = value.get(step, {})
    if source.client == "continue" and isinstance(value, list):
        value = name_list_entries(value[: MAX_SERVERS_PER_FILE + 1])
    if not isinstance(value, Mapping):
        name = source.section[-1]
        raise InvalidConfig(f"{file}: {name} must be an object of servers; correct the file")
    if len(value) > MAX_SERVERS_PER_FILE:
        raise InvalidConfig(f"{file}: more than {MAX_SERVERS_PER_FILE:,} servers; remove some")
    return value


def _disable_servers(source: ClientFile, entries: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the entries with those disabled that the client switches off elsewhere in its file."""
    off_list = {"gemini": ("mcp", "excluded"), "claude-code": (*source.section[:-1], "disabledMcpServers")}
    names: Any = _parse_text(source, text)
    for step in off_list.get(source.client, ()):
        names = names.get(step) if isinstance(names, Mapping) else None
    disabled = names if isinstance(names, list) else []
    return {
        name: {**entry, "disabled": True} if name in disabled and isinstance(entry, Mapping) else entry
        for name, entry in entries.items()
    }


def _parse_text(source: ClientFile, text: str) -> Any:
    file = str(source.path)
    if source.format == "toml":
        return parse_toml(file, text)
    if source.format == "yaml":
        value = parse_yaml(file, text, InvalidConfig)
        # YAML has null for a key without a value.
        return {key: {} if item is None else item for key, item in value.items()} if isinstance(value, dict) else {}
    return _parse_json(file, text)


def _parse_json(file: str, text: str) -> Any:
    return parse_jsonc(file, text).value if text.strip() else {}


def parse_toml(file: str, text: str) -> dict[str, object]:
    """Return the content of a TOML text; raise `InvalidConfig` if it is invalid."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidConfig(f"{file}: not valid TOML: {error}") from error


def plan_addition(
    path: Path,
    name: str,
    entry: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    imported_from: str = "",
    replace_existing: bool = False,
) -> ImportPlan:
    """Return our file with one more server. Raises `InvalidConfig` if the entry is invalid or the name is in use."""
    before, text, target = _open_config(path, environment)
    entries = dict(parse_servers(target, text))
    if name in entries and not replace_existing:
        raise InvalidConfig(f"{path}: there is already a server {name}; choose another name, or pass --replace")
    _validate_entry(name, entry)
    entries[name] = {**entry, **({_SOURCE_KEY: escape_variables(imported_from)} if imported_from else {})}
    text = set_member(text, target.section, name, entries[name])
    _check_edit(path, target, text, entries, environment)
    return ImportPlan(path, before, encode_like(before, text), ())


def _validate_entry(name: str, entry: Mapping[str, Any]) -> None:
    try:
        validate_entry(name, entry)
    except InvalidSetting as error:
        raise InvalidConfig(f"{name}: {error.reason}") from None


def _open_config(path: Path, environment: Mapping[str, str]) -> tuple[bytes | None, str, ClientFile]:
    """Return the content, the text and the section of servers of our file, which may not exist yet."""
    before = path.read_bytes() if path.is_file() else None
    text = "{}\n" if before is None else read_json_file(path, InvalidConfig, EXPECTED_CONTENT).text
    document = parse_jsonc(str(path), text)
    parse_document(document, path, environment)
    key = VSCODE_SERVERS_KEY if VSCODE_SERVERS_KEY in document.value else SERVERS_KEY
    return before, text, ClientFile("vscode", path, (key,))


def _check_edit(
    path: Path, target: ClientFile, text: str, entries: Mapping[str, Any], environment: Mapping[str, str]
) -> None:
    """Raise `InvalidConfig` unless the edited text has exactly these servers and is valid."""
    if parse_servers(target, text) != entries:
        raise InvalidConfig(f"{path}: its layout cannot be edited; add the servers by hand")
    parse_document(parse_jsonc(str(path), text), path, environment)


def plan_import(path: Path, discovered: Iterable[DiscoveredServer], environment: Mapping[str, str]) -> ImportPlan:
    """Return our file with the servers added; keep existing entries and rename on a name clash.

    Raises `InvalidConfig` if the file is invalid before or after the import.
    """
    before, text, target = _open_config(path, environment)
    entries = dict(parse_servers(target, text))
    imported: list[ImportedServer] = []
    for server in discovered:
        if server.error:
            imported.append(ImportedServer(server, "skipped"))
            continue
        same = (name for name, entry in entries.items() if _is_same_server(entry, server.entry))
        existing = next(same, None)
        if existing is not None:
            imported.append(_describe_existing(server, existing, entries[existing]))
            continue
        aliases = {entry["alias"] for entry in entries.values() if isinstance(entry, Mapping) and "alias" in entry}
        name = _find_free_name(server, {*entries, *aliases})
        source = f"{server.source.title}: {server.source.path}"
        entries[name] = {**server.entry, _SOURCE_KEY: escape_variables(source)}
        text = set_member(text, target.section, name, entries[name])
        imported.append(ImportedServer(server, "added", name))
    _check_edit(path, target, text, entries, environment)
    return ImportPlan(path, before, encode_like(before, text), tuple(imported))


def _describe_existing(server: DiscoveredServer, name: str, entry: Mapping[str, Any]) -> ImportedServer:
    """Return the outcome for a server that our file has. One that is disabled there stays in the client."""
    if entry.get("enabled") is False and server.entry.get("enabled") is not False:
        error = f'{name} is disabled in toolcrib.json; remove "enabled": false there'
        return ImportedServer(replace(server, error=error), "skipped")
    return ImportedServer(server, "there already", name)


def _is_same_server(existing: object, entry: Mapping[str, Any]) -> bool:
    """Return whether two entries define the same server, ignoring whether it is enabled and its source."""
    if not isinstance(existing, Mapping):
        return False
    first, second = (
        {key: value for key, value in members.items() if key not in ("enabled", _SOURCE_KEY) and value not in ([], {})}
        for members in (existing, entry)
    )
    return first == second


def _find_free_name(server: DiscoveredServer, used: Collection[str]) -> str:
    """Return the name of the server, with the client and a number appended if it is in use."""
    if server.name not in used:
        return server.name
    base = f"{server.name}-{server.source.client}"
    names = (base, *(f"{base}-{number}" for number in range(2, len(used) + 3)))
    return next(name for name in names if name not in used)
