"""Replace the imported servers in a client's file by one Toolcrib entry, and undo it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, time
from pathlib import Path
from typing import Any

from toolcrib.config.clients import file_writes
from toolcrib.config.clients.importing import parse_servers
from toolcrib.config.clients.locations import OPENCODE_2_SECTION, ClientFile
from toolcrib.config.clients.translation import starts_toolcrib
from toolcrib.config.clients.yaml_edit import add_entry, remove_entries
from toolcrib.config.jsonc import remove_members, set_member
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import JsonPath

ENTRY_NAME = "toolcrib"

_HEADER = re.compile(r"[ \t]*\[\[?[^\[\]\n]*\]\]?[ \t]*(?:#.*)?$")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_UNESCAPED = re.compile(r"[\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class RewritePlan:
    """The content of a client's file before and after Toolcrib replaces its servers."""

    source: ClientFile
    removed: tuple[str, ...]
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The content of a client's file before and after its servers are restored from a backup.

    `is_exact` is true if the result equals the backup byte by byte.
    """

    source: ClientFile
    backup: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    is_exact: bool


def plan_rewrite(source: ClientFile, sections: Mapping[JsonPath, Collection[str]], command: list[str]) -> RewritePlan:
    """Plan to remove servers from sections of a file and to add our entry to its first section.

    Raises `InvalidConfig` if the layout of the file does not allow it.
    """
    before = _read_content(source.path)
    text = _decode_content(source.path, before)
    if source.client == "opencode" and OPENCODE_2_SECTION in sections:
        source = replace(source, section=OPENCODE_2_SECTION)
    entry = _build_entry(source, command)
    after = _rewrite_text(source, text, sections, entry)
    removed = tuple(name for names in sections.values() for name in names)
    return RewritePlan(source, removed, before, file_writes.encode_like(before, after))


def _build_entry(source: ClientFile, command: list[str]) -> dict[str, Any]:
    """Return the entry that starts Toolcrib, in the format of a client."""
    program, args = command[0], command[1:]
    if source.client == "opencode":
        return {
            "type": "local",
            "command": command,
            **({} if source.section == OPENCODE_2_SECTION else {"enabled": True}),
        }
    if source.client == "goose":
        started = {"type": "stdio", "name": ENTRY_NAME, "description": "All MCP servers", "cmd": program, "args": args}
        return {**started, "envs": {}, "timeout": 300, "enabled": True}
    entry: dict[str, Any] = {"command": program, "args": args}
    if source.client in ("vscode", "claude-code"):
        return {"type": "stdio", **entry}
    return {"name": ENTRY_NAME, **entry} if source.client == "continue" and source.format == "yaml" else entry


def check_rewrite(plan: RewritePlan) -> None:
    """Raise the errors that `apply_rewrite` would raise, without writing."""
    file_writes.check_backup_possible(plan.source.path)
    file_writes.check_writable(plan.source.path, plan.before)


def apply_rewrite(plan: RewritePlan) -> Path:
    """Create a backup of the file, write it, and return the path of the backup."""
    backup = file_writes.create_backup(plan.source.path, plan.before)
    try:
        file_writes.replace_file(plan.source.path, plan.after, plan.before)
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
    return backup


def plan_restore(source: ClientFile, other_sections: Iterable[JsonPath] = ()) -> RestorePlan | None:
    """Plan to remove our entry and to restore the servers; return None without a backup.

    A file that was not edited since is restored byte by byte. In an edited file, such as the state
    file of Claude Code, only the servers are restored.
    """
    backup = file_writes.find_latest_backup(source.path)
    if backup is None:
        return None
    saved = _read_content(backup)
    current = _read_content(source.path) if source.path.is_file() else None
    sections = [source.section, *other_sections]
    if source.client == "opencode" and _has_opencode_2_entry(source, current):
        source, sections = replace(source, section=OPENCODE_2_SECTION), [OPENCODE_2_SECTION]
    after = saved if current is None else _undo_rewrite(source, sections, current, saved)
    file_writes.check_writable(source.path, current)
    return RestorePlan(source, backup, current, after, is_exact=after == saved)


def _has_opencode_2_entry(source: ClientFile, current: bytes | None) -> bool:
    text = _decode_content(source.path, current or b"")
    return starts_toolcrib(_parse_section(source, OPENCODE_2_SECTION, text).get(ENTRY_NAME))


def apply_restore(plan: RestorePlan) -> None:
    """Write the restored file and delete the backup."""
    file_writes.replace_file(plan.source.path, plan.after, plan.before)
    plan.backup.unlink()


def _undo_rewrite(source: ClientFile, sections: list[JsonPath], current: bytes, saved: bytes) -> bytes:
    text, old_text = _decode_content(source.path, current), _decode_content(source.path, saved)
    entry = _parse_section(source, source.section, text).get(ENTRY_NAME)
    kept = {path: dict(_parse_section(source, path, text)) for path in sections}
    if starts_toolcrib(entry):
        del kept[source.section][ENTRY_NAME]
    removed = {
        path: {
            name: server for name, server in _parse_section(source, path, old_text).items() if name not in kept[path]
        }
        for path in sections
    }
    if isinstance(entry, Mapping):
        try:
            if _rewrite_text(source, old_text, removed, dict(entry)) == text:
                return saved
        except InvalidConfig:
            pass  # The file was edited since.
    restored = text
    if starts_toolcrib(entry):
        restored = _remove_servers(source, restored, source.section, [ENTRY_NAME])
    for path in sections:
        for name, server in removed[path].items():
            restored = _add_server(source, restored, path, name, server)
        if _parse_section(source, path, restored) != {**kept[path], **removed[path]}:
            raise _layout_error(source, "copy the servers by hand from the backup beside it")
    return file_writes.encode_like(current, restored)


def _rewrite_text(
    source: ClientFile, text: str, sections: Mapping[JsonPath, Collection[str]], entry: dict[str, Any]
) -> str:
    existing = _parse_section(source, source.section, text).get(ENTRY_NAME)
    removed_names = sections.get(source.section, ())
    if existing is not None and not starts_toolcrib(existing) and ENTRY_NAME not in removed_names:
        raise InvalidConfig(f"{source.path}: there is another server called {ENTRY_NAME}; rename it, and try again")
    after = text
    for path, names in sections.items():
        after = _remove_servers(source, after, path, names)
    if existing is not None and ENTRY_NAME not in removed_names:
        after = _remove_servers(source, after, source.section, [ENTRY_NAME])
    after = _add_server(source, after, source.section, ENTRY_NAME, entry)
    for path in {source.section, *sections}:
        own = {ENTRY_NAME: entry} if path == source.section else {}
        names = {*sections.get(path, ()), *own}
        members = _parse_section(source, path, text).items()
        expected = {name: server for name, server in members if name not in names}
        if _parse_section(source, path, after) != {**expected, **own}:
            raise _layout_error(source, f"remove the servers by hand, and add {entry}")
    return after


def _parse_section(source: ClientFile, path: JsonPath, text: str) -> Mapping[str, Any]:
    return parse_servers(replace(source, section=path), text)


def _remove_servers(source: ClientFile, text: str, path: JsonPath, names: Collection[str]) -> str:
    if not names:
        return text
    if source.format == "toml":
        return remove_tables(text, str(path[0]), names)
    if source.format == "yaml":
        return _edit_yaml(source, lambda: remove_entries(text, str(path[0]), names))
    try:
        return remove_members(text, path, names)
    except KeyError:
        # The whole file is one server.
        raise _layout_error(source, "delete it by hand") from None


def _add_server(source: ClientFile, text: str, path: JsonPath, name: str, entry: Any) -> str:
    if source.format == "toml":
        return append_table(text, str(path[0]), name, entry)
    if source.format == "yaml":
        is_list = source.client == "continue"
        return _edit_yaml(source, lambda: add_entry(text, str(path[0]), name, entry, as_list=is_list))
    return set_member(text, path, name, entry)


def _edit_yaml(source: ClientFile, edit: Callable[[], str]) -> str:
    try:
        return edit()
    except InvalidConfig as error:
        raise _layout_error(source, f"{error}; write each server on lines of its own, and try again") from None


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise InvalidConfig(f"{path}: cannot be read: {reason}; check its permissions") from error


def _decode_content(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: is not UTF-8 text; save it as UTF-8") from error


def _layout_error(source: ClientFile, hint: str) -> InvalidConfig:
    return InvalidConfig(f"{source.path}: unchanged, because its layout cannot be edited; {hint}")


def remove_tables(text: str, parent: str, names: Collection[str]) -> str:
    """Return the text without the tables `[parent.name]` and their subtables.

    Only tables with their own header are removed, so the caller must check the result.
    """
    kept: list[str] = []
    removed: list[str] = []
    is_removing = False
    for line in text.splitlines(keepends=True):
        keys = _parse_header(line)
        if keys is not None:
            was_removing = is_removing
            is_removing = keys[:1] == [parent] and len(keys) > 1 and keys[1] in names
            if was_removing and not is_removing:
                # Comments above a header belong to its table.
                kept += _trailing_comments(removed)
            removed = []
        (removed if is_removing else kept).append(line)
    return "".join(kept)


def append_table(text: str, parent: str, name: str, values: Mapping[str, object]) -> str:
    """Return the text with the table `[parent.name]` at its end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    key = name if _BARE_KEY.fullmatch(name) else _format_toml(name)
    rows = [f"{word} = {_format_toml(value)}" for word, value in values.items()]
    before = text.rstrip()
    separator = newline * 2 if before else ""
    return before + separator + newline.join([f"[{parent}.{key}]", *rows]) + newline


def _parse_header(line: str) -> list[str] | None:
    """Return the keys of a table header, or None for another line."""
    if not _HEADER.match(line.rstrip("\r\n")):
        return None
    try:
        value: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    keys: list[str] = []
    while isinstance(value, dict | list) and value:
        if isinstance(value, list):
            value = value[0]
            continue
        name = next(iter(value))
        keys.append(name)
        value = value[name]
    return keys


def _trailing_comments(lines: list[str]) -> list[str]:
    """Return the comments and blank lines at the end of a table, from the first blank line on."""
    start = len(lines)
    while start and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#")):
        start -= 1
    # A comment directly after the last value belongs to the removed table.
    while start < len(lines) and lines[start].strip():
        start += 1
    return lines[start:]


def _format_toml(value: object) -> str:
    if isinstance(value, Mapping):
        members = ", ".join(f"{_format_toml(k)} = {_format_toml(v)}" for k, v in value.items())
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_toml, value))}]"
    if isinstance(value, date | time):
        return value.isoformat()
    text = json.dumps(value, ensure_ascii=False)
    return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
