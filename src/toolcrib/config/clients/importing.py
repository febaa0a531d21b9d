"""Bringing servers from the files of MCP clients into ours, and our one entry into theirs.

Everything is planned first, as texts; then each file is written whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from toolcrib.config.clients.locations import CLAUDE_CODE_USER, Machine, Place, places
from toolcrib.config.clients.toml_edit import read_toml
from toolcrib.config.clients.translation import is_ours, translated
from toolcrib.config.json_edit import with_member
from toolcrib.config.jsonc import parsed
from toolcrib.config.loader import HOLDS, interpreted
from toolcrib.config.problems import Steps
from toolcrib.config.reading import SERVERS, SERVERS_OF_VSCODE
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import read_json_file

Outcome = Literal["added", "there already", "skipped"]

MAX_SERVERS_OF_FILE = 1000
MAX_PROJECTS = 1000
_BLANK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Found:
    """A server in a client's file, as it would be in ours; with a `fault`, why it cannot be."""

    place: Place
    name: str
    entry: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Discovery:
    """What the clients' files hold, and what is wrong with the files that cannot be read."""

    found: tuple[Found, ...]
    files: tuple[Path, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Brought:
    """What becomes of a server that was found: under which name, or why not."""

    found: Found
    outcome: Outcome
    name: str = ""


@dataclass(frozen=True, slots=True)
class Merger:
    """Our file with the servers brought in, and what it was before; None for no file."""

    path: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    brought: tuple[Brought, ...]


def discover(
    machine: Machine, clients: Iterable[str] = (), all_projects: bool = False
) -> Discovery:
    """Every server in the files of the clients; of those named, where any are.

    Claude Code keeps servers of many folders in one file: those of this folder are found, or all.
    """
    wanted = set(clients)
    found: list[Found] = []
    files: dict[Path, None] = {}
    faults: dict[str, None] = {}
    for place, project in _places(machine, all_projects):
        if (wanted and place.client not in wanted) or not place.path.is_file():
            continue
        files[place.path] = None
        try:
            servers = section_of(place, read_text(place.path))
        except InvalidConfig as fault:
            faults[str(fault)] = None
            continue
        for name, entry in servers.items():
            if not is_ours(entry):
                ours = translated(place, name, entry, replace(machine, project=project))
                found.append(Found(place, name, ours.entry, ours.notes, ours.fault))
    return Discovery(tuple(found), tuple(files), tuple(faults))


def _places(machine: Machine, all_projects: bool) -> Iterator[tuple[Place, Path]]:
    """The places to look in, each with the folder its servers are for."""
    for place in places(machine):
        yield place, machine.project
        if all_projects and place.client == "claude-code" and place.section == CLAUDE_CODE_USER:
            for folder in claude_code_projects(place.path):
                if Path(folder) != machine.project:
                    steps = ("projects", folder, *CLAUDE_CODE_USER)
                    yield replace(place, section=steps, scope="project"), Path(folder)


def claude_code_projects(path: Path) -> list[str]:
    """The folders Claude Code's own file has settings for."""
    try:
        document = _json(str(path), read_text(path)) if path.is_file() else {}
    except InvalidConfig:
        # The place of the user's servers is in the same file, and tells what is wrong with it.
        return []
    projects = document.get("projects") if isinstance(document, Mapping) else None
    return list(projects)[:MAX_PROJECTS] if isinstance(projects, Mapping) else []


def read_text(path: Path) -> str:
    """The text of a client's file. One without any is made by clients, for no settings yet."""
    try:
        with path.open("rb") as file:
            start = file.read(_BLANK_BYTES)
        if len(start) < _BLANK_BYTES and not start.strip():
            return ""
    except OSError as fault:
        raise InvalidConfig(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    return read_json_file(path, InvalidConfig, "settings").text


def section_of(place: Place, text: str) -> Mapping[str, Any]:
    """The entries in the text of a client's file; none where it has no such section."""
    file = str(place.path)
    value: Any = read_toml(file, text) if place.format == "toml" else _json(file, text)
    for step in place.section:
        if not isinstance(value, Mapping):
            raise InvalidConfig(f"{file}: {step} should be in an object; correct the file")
        value = value.get(step, {})
    if not isinstance(value, Mapping):
        name = place.section[-1]
        raise InvalidConfig(f"{file}: {name} should be an object of servers; correct the file")
    if len(value) > MAX_SERVERS_OF_FILE:
        raise InvalidConfig(f"{file}: more than {MAX_SERVERS_OF_FILE:,} servers; remove some")
    return value


def merge(path: Path, found: Iterable[Found], environment: Mapping[str, str]) -> Merger:
    """Our file with servers brought in: those it has already stay, and clashing names are changed.

    A file that could not be used afterwards is refused, with what is wrong with it.
    """
    before = path.read_bytes() if path.is_file() else None
    text = "{}\n" if before is None else read_json_file(path, InvalidConfig, HOLDS).text
    document = parsed(str(path), text, InvalidConfig)
    interpreted(document, path, environment, tolerant=True)
    key = SERVERS_OF_VSCODE if SERVERS_OF_VSCODE in document.value else SERVERS
    section: Steps = (key,)
    there = dict(section_of(Place("vscode", path, section), text))
    brought: list[Brought] = []
    for one in found:
        if one.fault:
            brought.append(Brought(one, "skipped"))
            continue
        same = next((name for name, entry in there.items() if _same(entry, one.entry)), None)
        if same is not None:
            brought.append(Brought(one, "there already", same))
            continue
        name = _free_name(one, there)
        there[name] = one.entry
        text = with_member(text, section, name, one.entry)
        brought.append(Brought(one, "added", name))
    if section_of(Place("vscode", path, section), text) != there:
        raise InvalidConfig(f"{path}: its layout cannot be edited; put the servers in by hand")
    interpreted(parsed(str(path), text, InvalidConfig), path, environment, tolerant=True)
    mark = b"\xef\xbb\xbf" if (before or b"").startswith(b"\xef\xbb\xbf") else b""
    # Half a character, which UTF-8 has no bytes for, becomes the escape JSON has for it.
    return Merger(path, before, mark + text.encode("utf-8", "backslashreplace"), tuple(brought))


def _same(one: object, other: Mapping[str, Any]) -> bool:
    """Whether two entries are of one server, whether or not it is switched on."""
    if not isinstance(one, Mapping):
        return False
    first, second = (
        {key: value for key, value in entry.items() if key != "enabled" and value not in ([], {})}
        for entry in (one, other)
    )
    return first == second


def _free_name(found: Found, taken: Mapping[str, Any]) -> str:
    """Its own name, or one with the client's name after it, or with a number after that."""
    if found.name not in taken:
        return found.name
    base = f"{found.name}-{found.place.client}"
    names = (base, *(f"{base}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _json(file: str, text: str) -> Any:
    # Clients make an empty file, and mean by it that there are no servers.
    return parsed(file, text, InvalidConfig).value if re.search(r"\S", text) else {}
