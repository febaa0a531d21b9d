"""Bringing servers from the files of MCP clients into ours, and our one entry into theirs.

Everything is planned first, as texts; then each file is written whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from toolcrib.config.clients.locations import (
    CLAUDE_CODE_USER_PATH,
    ClientFile,
    HostSystem,
    list_client_files,
)
from toolcrib.config.clients.toml_edit import parse_toml
from toolcrib.config.clients.translation import starts_toolcrib, translate_entry
from toolcrib.config.json_edit import set_member
from toolcrib.config.jsonc import parse_jsonc
from toolcrib.config.loader import EXPECTED_CONTENT, parse_document
from toolcrib.config.problems import JsonPath
from toolcrib.config.reading import SERVERS_KEY, VSCODE_SERVERS_KEY
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import read_json_file

ImportOutcome = Literal["added", "there already", "skipped"]

MAX_SERVERS_PER_FILE = 1000
MAX_PROJECTS = 1000
_BLANK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    """A server in a client's file, as it would be in ours; with a `fault`, why it cannot be."""

    source: ClientFile
    name: str
    entry: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class ClientDiscovery:
    """What the clients' files hold, and what is wrong with the files that cannot be read."""

    servers: tuple[DiscoveredServer, ...]
    files: tuple[Path, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """What becomes of a server that was found: under which name, or why not."""

    server: DiscoveredServer
    outcome: ImportOutcome
    name: str = ""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """Our file with the servers brought in, and what it was before; None for no file."""

    path: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    servers: tuple[ImportedServer, ...]


def discover_servers(
    system: HostSystem, clients: Iterable[str] = (), all_projects: bool = False
) -> ClientDiscovery:
    """Every server in the files of the clients; of those named, where any are.

    Claude Code keeps servers of many folders in one file: those of this folder are found, or all.
    """
    wanted = set(clients)
    found: list[DiscoveredServer] = []
    files: dict[Path, None] = {}
    faults: dict[str, None] = {}
    for place, project in _iter_client_files(system, all_projects):
        if (wanted and place.client not in wanted) or not place.path.is_file():
            continue
        files[place.path] = None
        try:
            servers = parse_servers(place, read_client_file(place.path))
        except InvalidConfig as fault:
            faults[str(fault)] = None
            continue
        for name, entry in servers.items():
            if not starts_toolcrib(entry):
                ours = translate_entry(place, name, entry, replace(system, project_folder=project))
                found.append(DiscoveredServer(place, name, ours.entry, ours.notes, ours.error))
    return ClientDiscovery(tuple(found), tuple(files), tuple(faults))


def _iter_client_files(
    machine: HostSystem, all_projects: bool
) -> Iterator[tuple[ClientFile, Path]]:
    """The places to look in, each with the folder its servers are for."""
    for place in list_client_files(machine):
        yield place, machine.project_folder
        if (
            all_projects
            and place.client == "claude-code"
            and place.section == CLAUDE_CODE_USER_PATH
        ):
            for folder in list_claude_code_projects(place.path):
                if Path(folder) != machine.project_folder:
                    steps = ("projects", folder, *CLAUDE_CODE_USER_PATH)
                    yield replace(place, section=steps, scope="project"), Path(folder)


def list_claude_code_projects(path: Path) -> list[str]:
    """The folders Claude Code's own file has settings for."""
    try:
        document = _parse_json(str(path), read_client_file(path)) if path.is_file() else {}
    except InvalidConfig:
        # The place of the user's servers is in the same file, and tells what is wrong with it.
        return []
    projects = document.get("projects") if isinstance(document, Mapping) else None
    return list(projects)[:MAX_PROJECTS] if isinstance(projects, Mapping) else []


def read_client_file(path: Path) -> str:
    """The text of a client's file. One without any is made by clients, for no settings yet."""
    try:
        with path.open("rb") as file:
            start = file.read(_BLANK_BYTES)
        if len(start) < _BLANK_BYTES and not start.strip():
            return ""
    except OSError as fault:
        raise InvalidConfig(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    return read_json_file(path, InvalidConfig, "settings").text


def parse_servers(source: ClientFile, text: str) -> Mapping[str, Any]:
    """The entries in the text of a client's file; none where it has no such section."""
    file = str(source.path)
    value: Any = parse_toml(file, text) if source.format == "toml" else _parse_json(file, text)
    for step in source.section:
        if not isinstance(value, Mapping):
            raise InvalidConfig(f"{file}: {step} should be in an object; correct the file")
        value = value.get(step, {})
    if not isinstance(value, Mapping):
        name = source.section[-1]
        raise InvalidConfig(f"{file}: {name} should be an object of servers; correct the file")
    if len(value) > MAX_SERVERS_PER_FILE:
        raise InvalidConfig(f"{file}: more than {MAX_SERVERS_PER_FILE:,} servers; remove some")
    return value


def plan_import(
    path: Path, found: Iterable[DiscoveredServer], environment: Mapping[str, str]
) -> ImportPlan:
    """Our file with servers brought in: those it has already stay, and clashing names are changed.

    A file that could not be used afterwards is refused, with what is wrong with it.
    """
    before = path.read_bytes() if path.is_file() else None
    text = "{}\n" if before is None else read_json_file(path, InvalidConfig, EXPECTED_CONTENT).text
    document = parse_jsonc(str(path), text, InvalidConfig)
    parse_document(document, path, environment, allow_unset_variables=True)
    key = VSCODE_SERVERS_KEY if VSCODE_SERVERS_KEY in document.value else SERVERS_KEY
    section: JsonPath = (key,)
    there = dict(parse_servers(ClientFile("vscode", path, section), text))
    brought: list[ImportedServer] = []
    for one in found:
        if one.error:
            brought.append(ImportedServer(one, "skipped"))
            continue
        same = next(
            (name for name, entry in there.items() if _is_same_server(entry, one.entry)), None
        )
        if same is not None:
            brought.append(ImportedServer(one, "there already", same))
            continue
        name = _free_name(one, there)
        there[name] = one.entry
        text = set_member(text, section, name, one.entry)
        brought.append(ImportedServer(one, "added", name))
    if parse_servers(ClientFile("vscode", path, section), text) != there:
        raise InvalidConfig(f"{path}: its layout cannot be edited; put the servers in by hand")
    parse_document(
        parse_jsonc(str(path), text, InvalidConfig), path, environment, allow_unset_variables=True
    )
    mark = b"\xef\xbb\xbf" if (before or b"").startswith(b"\xef\xbb\xbf") else b""
    # Half a character, which UTF-8 has no bytes for, becomes the escape JSON has for it.
    return ImportPlan(path, before, mark + text.encode("utf-8", "backslashreplace"), tuple(brought))


def _is_same_server(one: object, other: Mapping[str, Any]) -> bool:
    """Whether two entries are of one server, whether or not it is switched on."""
    if not isinstance(one, Mapping):
        return False
    first, second = (
        {key: value for key, value in entry.items() if key != "enabled" and value not in ([], {})}
        for entry in (one, other)
    )
    return first == second


def _free_name(found: DiscoveredServer, taken: Mapping[str, Any]) -> str:
    """Its own name, or one with the client's name after it, or with a number after that."""
    if found.name not in taken:
        return found.name
    base = f"{found.name}-{found.source.client}"
    names = (base, *(f"{base}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _parse_json(file: str, text: str) -> Any:
    # Clients make an empty file, and mean by it that there are no servers.
    return parse_jsonc(file, text, InvalidConfig).value if re.search(r"\S", text) else {}
