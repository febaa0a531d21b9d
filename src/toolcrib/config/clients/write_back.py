"""Putting our one entry into a client's file in place of the servers we took over, and undoing it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolcrib.config.clients.importing import section_of
from toolcrib.config.clients.locations import Place
from toolcrib.config.clients.toml_edit import with_table, without_tables
from toolcrib.config.clients.translation import is_ours
from toolcrib.config.file_writes import (
    check_backup,
    check_writable,
    keep_backup,
    latest_backup,
    write_atomically,
)
from toolcrib.config.json_edit import with_member, without_members
from toolcrib.config.problems import Steps
from toolcrib.errors import InvalidConfig

ENTRY = "toolcrib"
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A client's file with our entry in it, and what it was before."""

    place: Place
    removed: tuple[str, ...]
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Restoration:
    """A client's file without our entry, and the copy its servers come from.

    It is `whole` where no byte of it differs from that copy.
    """

    place: Place
    backup: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    whole: bool


def rewrite(place: Place, sections: Mapping[Steps, Collection[str]], command: list[str]) -> Rewrite:
    """Plan to take servers out of sections of a file and to put our entry into its first one.

    Whatever else is in the file stays as it is. Where its layout does not allow that, this is
    refused, with what to do by hand.
    """
    before = _content(place.path)
    text = _text(place.path, before)
    after = _rewritten(place, text, sections, _entry(place, command))
    removed = tuple(name for names in sections.values() for name in names)
    return Rewrite(place, removed, before, _bytes(before, after))


def check(planned: Rewrite) -> None:
    """Refuse what `apply` would refuse, and write nothing."""
    check_backup(planned.place.path)
    check_writable(planned.place.path, planned.before)


def apply(planned: Rewrite) -> Path:
    """Keep what the file held beside it, then write it; gives where it was kept."""
    backup = keep_backup(planned.place.path, planned.before)
    try:
        write_atomically(planned.place.path, planned.after, planned.before)
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
    return backup


def restoration(place: Place, others: Iterable[Steps] = ()) -> Restoration | None:
    """Plan to take our entry out of a file and to put back what it stood for; None with no backup.

    A file that nobody touched since comes back byte by byte. In one that was changed since, such
    as the file in which Claude Code keeps its state, only the servers are put back. What cannot be
    restored is refused here, before anything is written.
    """
    backup = latest_backup(place.path)
    if backup is None:
        return None
    kept = _content(backup)
    now = _content(place.path) if place.path.is_file() else None
    after = kept if now is None else _undone(place, _sections(place, others), now, kept)
    check_writable(place.path, now)
    return Restoration(place, backup, now, after, whole=after == kept)


def restore(planned: Restoration) -> None:
    """Write a file as it was planned, then let go of the copy."""
    write_atomically(planned.place.path, planned.after, planned.before)
    planned.backup.unlink()


def _sections(place: Place, others: Iterable[Steps]) -> list[Steps]:
    return [place.section, *others]


def _undone(place: Place, sections: list[Steps], now: bytes, kept: bytes) -> bytes:
    text, old = _text(place.path, now), _text(place.path, kept)
    entry = _section(place, place.section, text).get(ENTRY)
    wanted = {steps: dict(_section(place, steps, text)) for steps in sections}
    taken = {steps: _section(place, steps, old) for steps in sections}
    if is_ours(entry):
        del wanted[place.section][ENTRY]
    taken = {steps: _others(taken[steps], wanted[steps]) for steps in sections}
    if isinstance(entry, Mapping) and _is_rewritten(place, old, taken, dict(entry), text):
        return kept
    restored = text
    if is_ours(entry):
        restored = _without(place, restored, place.section, [ENTRY])
    for steps in sections:
        for name, server in taken[steps].items():
            restored = _with(place, restored, steps, name, server)
        if _section(place, steps, restored) != {**wanted[steps], **taken[steps]}:
            raise _refused(place, "put the servers back by hand from the copy beside it")
    return _bytes(now, restored)


def _is_rewritten(
    place: Place,
    old: str,
    taken: Mapping[Steps, Collection[str]],
    entry: dict[str, Any],
    text: str,
) -> bool:
    """Whether a text is what we made of the old one, and nobody wrote in it since."""
    try:
        return _rewritten(place, old, taken, entry) == text
    except InvalidConfig:
        return False


def _rewritten(
    place: Place, text: str, sections: Mapping[Steps, Collection[str]], entry: dict[str, Any]
) -> str:
    own = _section(place, place.section, text).get(ENTRY)
    leaving = sections.get(place.section, ())
    if own is not None and not is_ours(own) and ENTRY not in leaving:
        raise InvalidConfig(
            f"{place.path}: there is another server called {ENTRY}; rename it, and try again"
        )
    after = text
    for steps, names in sections.items():
        after = _without(place, after, steps, names)
    if own is not None and ENTRY not in leaving:
        after = _without(place, after, place.section, [ENTRY])
    after = _with(place, after, place.section, ENTRY, entry)
    for steps in {place.section, *sections}:
        names = {*sections.get(steps, ()), *([ENTRY] if steps == place.section else [])}
        wanted = {k: v for k, v in _section(place, steps, text).items() if k not in names}
        if steps == place.section:
            wanted[ENTRY] = entry
        if _section(place, steps, after) != wanted:
            raise _refused(place, f"take the servers out by hand, and put in {entry}")
    return after


def _entry(place: Place, command: list[str]) -> dict[str, Any]:
    """Our entry, in the words of the client."""
    entry: dict[str, Any] = {"command": command[0], "args": command[1:]}
    return {"type": "stdio", **entry} if place.client in ("vscode", "claude-code") else entry


def _section(place: Place, steps: Steps, text: str) -> Mapping[str, Any]:
    return section_of(Place(place.client, place.path, steps, place.scope, place.format), text)


def _without(place: Place, text: str, steps: Steps, names: Collection[str]) -> str:
    if not names:
        return text
    if place.format == "toml":
        return without_tables(text, str(steps[0]), names)
    return without_members(text, steps, names)


def _with(place: Place, text: str, steps: Steps, name: str, entry: Any) -> str:
    if place.format == "toml":
        return with_table(text, str(steps[0]), name, entry)
    return with_member(text, steps, name, entry)


def _others(members: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {name: member for name, member in members.items() if name not in known}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        reason = fault.strerror or fault
        raise InvalidConfig(f"{path}: cannot be read: {reason}; check who may read it") from fault


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise InvalidConfig(f"{path}: is not UTF-8 text; save it as UTF-8") from fault


def _bytes(before: bytes, text: str) -> bytes:
    # Half a character, which UTF-8 has no bytes for, becomes the escape JSON has for it.
    return (_MARK if before.startswith(_MARK) else b"") + text.encode("utf-8", "backslashreplace")


def _refused(place: Place, cure: str) -> InvalidConfig:
    return InvalidConfig(f"{place.path}: is left as it is, as its layout cannot be edited; {cure}")
