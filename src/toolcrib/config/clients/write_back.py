"""Putting our one entry into a client's file in place of the servers we took over, and undoing it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolcrib.config.clients.importing import parse_servers
from toolcrib.config.clients.locations import ClientFile
from toolcrib.config.clients.toml_edit import append_table, remove_tables
from toolcrib.config.clients.translation import starts_toolcrib
from toolcrib.config.file_writes import (
    check_backup_possible,
    check_writable,
    create_backup,
    find_latest_backup,
    write_atomically,
)
from toolcrib.config.json_edit import remove_members, set_member
from toolcrib.config.problems import JsonPath
from toolcrib.errors import InvalidConfig

ENTRY_NAME = "toolcrib"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RewritePlan:
    """A client's file with our entry in it, and what it was before."""

    source: ClientFile
    removed: tuple[str, ...]
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A client's file without our entry, and the copy its servers come from.

    It is `whole` where no byte of it differs from that copy.
    """

    source: ClientFile
    backup: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    is_exact: bool


def plan_rewrite(
    place: ClientFile, sections: Mapping[JsonPath, Collection[str]], command: list[str]
) -> RewritePlan:
    """Plan to take servers out of sections of a file and to put our entry into its first one.

    Whatever else is in the file stays as it is. Where its layout does not allow that, this is
    refused, with what to do by hand.
    """
    before = _read_content(place.path)
    text = _decode_content(place.path, before)
    after = _rewrite_text(place, text, sections, _build_entry(place, command))
    removed = tuple(name for names in sections.values() for name in names)
    return RewritePlan(place, removed, before, _encode_content(before, after))


def check_rewrite(planned: RewritePlan) -> None:
    """Refuse what `apply` would refuse, and write nothing."""
    check_backup_possible(planned.source.path)
    check_writable(planned.source.path, planned.before)


def apply_rewrite(planned: RewritePlan) -> Path:
    """Keep what the file held beside it, then write it; gives where it was kept."""
    backup = create_backup(planned.source.path, planned.before)
    try:
        write_atomically(planned.source.path, planned.after, planned.before)
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
    return backup


def plan_restore(place: ClientFile, others: Iterable[JsonPath] = ()) -> RestorePlan | None:
    """Plan to take our entry out of a file and to put back what it stood for; None with no backup.

    A file that nobody touched since comes back byte by byte. In one that was changed since, such
    as the file in which Claude Code keeps its state, only the servers are put back. What cannot be
    restored is refused here, before anything is written.
    """
    backup = find_latest_backup(place.path)
    if backup is None:
        return None
    kept = _read_content(backup)
    now = _read_content(place.path) if place.path.is_file() else None
    after = kept if now is None else _undo_rewrite(place, _sections(place, others), now, kept)
    check_writable(place.path, now)
    return RestorePlan(place, backup, now, after, is_exact=after == kept)


def apply_restore(planned: RestorePlan) -> None:
    """Write a file as it was planned, then let go of the copy."""
    write_atomically(planned.source.path, planned.after, planned.before)
    planned.backup.unlink()


def _sections(place: ClientFile, others: Iterable[JsonPath]) -> list[JsonPath]:
    return [place.section, *others]


def _undo_rewrite(place: ClientFile, sections: list[JsonPath], now: bytes, kept: bytes) -> bytes:
    text, old = _decode_content(place.path, now), _decode_content(place.path, kept)
    entry = _parse_section(place, place.section, text).get(ENTRY_NAME)
    wanted = {steps: dict(_parse_section(place, steps, text)) for steps in sections}
    taken = {steps: _parse_section(place, steps, old) for steps in sections}
    if starts_toolcrib(entry):
        del wanted[place.section][ENTRY_NAME]
    taken = {steps: _filter_unknown(taken[steps], wanted[steps]) for steps in sections}
    if isinstance(entry, Mapping) and _is_unedited(place, old, taken, dict(entry), text):
        return kept
    restored = text
    if starts_toolcrib(entry):
        restored = _remove_servers(place, restored, place.section, [ENTRY_NAME])
    for steps in sections:
        for name, server in taken[steps].items():
            restored = _add_server(place, restored, steps, name, server)
        if _parse_section(place, steps, restored) != {**wanted[steps], **taken[steps]}:
            raise _layout_error(place, "put the servers back by hand from the copy beside it")
    return _encode_content(now, restored)


def _is_unedited(
    place: ClientFile,
    old: str,
    taken: Mapping[JsonPath, Collection[str]],
    entry: dict[str, Any],
    text: str,
) -> bool:
    """Whether a text is what we made of the old one, and nobody wrote in it since."""
    try:
        return _rewrite_text(place, old, taken, entry) == text
    except InvalidConfig:
        return False


def _rewrite_text(
    place: ClientFile,
    text: str,
    sections: Mapping[JsonPath, Collection[str]],
    entry: dict[str, Any],
) -> str:
    own = _parse_section(place, place.section, text).get(ENTRY_NAME)
    leaving = sections.get(place.section, ())
    if own is not None and not starts_toolcrib(own) and ENTRY_NAME not in leaving:
        raise InvalidConfig(
            f"{place.path}: there is another server called {ENTRY_NAME}; rename it, and try again"
        )
    after = text
    for steps, names in sections.items():
        after = _remove_servers(place, after, steps, names)
    if own is not None and ENTRY_NAME not in leaving:
        after = _remove_servers(place, after, place.section, [ENTRY_NAME])
    after = _add_server(place, after, place.section, ENTRY_NAME, entry)
    for steps in {place.section, *sections}:
        names = {*sections.get(steps, ()), *([ENTRY_NAME] if steps == place.section else [])}
        wanted = {k: v for k, v in _parse_section(place, steps, text).items() if k not in names}
        if steps == place.section:
            wanted[ENTRY_NAME] = entry
        if _parse_section(place, steps, after) != wanted:
            raise _layout_error(place, f"take the servers out by hand, and put in {entry}")
    return after


def _build_entry(place: ClientFile, command: list[str]) -> dict[str, Any]:
    """Our entry, in the words of the client."""
    entry: dict[str, Any] = {"command": command[0], "args": command[1:]}
    return {"type": "stdio", **entry} if place.client in ("vscode", "claude-code") else entry


def _parse_section(place: ClientFile, steps: JsonPath, text: str) -> Mapping[str, Any]:
    return parse_servers(
        ClientFile(place.client, place.path, steps, place.scope, place.format), text
    )


def _remove_servers(place: ClientFile, text: str, steps: JsonPath, names: Collection[str]) -> str:
    if not names:
        return text
    if place.format == "toml":
        return remove_tables(text, str(steps[0]), names)
    return remove_members(text, steps, names)


def _add_server(place: ClientFile, text: str, steps: JsonPath, name: str, entry: Any) -> str:
    if place.format == "toml":
        return append_table(text, str(steps[0]), name, entry)
    return set_member(text, steps, name, entry)


def _filter_unknown(members: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {name: member for name, member in members.items() if name not in known}


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        reason = fault.strerror or fault
        raise InvalidConfig(f"{path}: cannot be read: {reason}; check who may read it") from fault


def _decode_content(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise InvalidConfig(f"{path}: is not UTF-8 text; save it as UTF-8") from fault


def _encode_content(before: bytes, text: str) -> bytes:
    # Half a character, which UTF-8 has no bytes for, becomes the escape JSON has for it.
    return (_BYTE_ORDER_MARK if before.startswith(_BYTE_ORDER_MARK) else b"") + text.encode(
        "utf-8", "backslashreplace"
    )


def _layout_error(place: ClientFile, cure: str) -> InvalidConfig:
    return InvalidConfig(f"{place.path}: is left as it is, as its layout cannot be edited; {cure}")
