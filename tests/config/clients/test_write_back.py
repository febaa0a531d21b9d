"""Our one entry in a client's file, and the way back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from tests.config.clients.client_files import CODEX, machine, put, put_all
from toolcrib.config.clients.importing import section_of
from toolcrib.config.clients.locations import Machine, Place, places
from toolcrib.config.clients.write_back import (
    ENTRY,
    Restoration,
    apply,
    restoration,
    restore,
    rewrite,
)
from toolcrib.config.problems import Steps
from toolcrib.errors import InvalidConfig

_COMMAND = ["/bin/toolcrib", "stdio", "--config", "/home/me/toolcrib.json"]


@pytest.fixture
def made(tmp_path: Path) -> Machine:
    made = machine(tmp_path)
    put_all(made)
    return made


def _place(made: Machine, client: str) -> Place:
    return next(place for place in places(made) if place.client == client)


def _apply(place: Place, *names: str) -> Path:
    sections: dict[Steps, Collection[str]] = {place.section: names}
    return apply(rewrite(place, sections, _COMMAND))


def _undo(place: Place, others: Iterable[Steps] = ()) -> Restoration | None:
    planned = restoration(place, others)
    if planned is not None:
        restore(planned)
    return planned


def _section(place: Place) -> dict[str, object]:
    return dict(section_of(place, place.path.read_text(encoding="utf-8")))


_SERVERS = {
    "claude-desktop": ["filesystem", "github"],
    "claude-code": ["sentry", "airtable"],
    "cursor": ["github", "files", "events"],
    "vscode": ["perplexity", "learn"],
    "windsurf": ["remote", "git"],
    "codex": ["context7", "figma"],
    "gemini": ["python", "http"],
}


@pytest.mark.parametrize("client", _SERVERS)
def test_our_entry_takes_the_servers_place_and_undo_brings_back_every_byte(
    made: Machine, client: str
) -> None:
    place = _place(made, client)
    before = place.path.read_bytes()
    backup = _apply(place, *_SERVERS[client])
    entry = {"command": _COMMAND[0], "args": _COMMAND[1:]}
    if client in ("vscode", "claude-code"):
        entry = {"type": "stdio", **entry}
    assert _section(place) == {ENTRY: entry}
    assert backup.read_bytes() == before
    restored = _undo(place)
    assert restored is not None
    assert restored.whole
    assert place.path.read_bytes() == before
    assert not backup.exists()
    assert _undo(place) is None


def test_what_is_not_ours_to_take_stays(made: Machine) -> None:
    place = _place(made, "vscode")
    _apply(place, "perplexity")
    text = place.path.read_text(encoding="utf-8")
    assert "// Asked for once." in text
    assert '"learn": {"type": "http"' in text
    assert "// open to all" in text
    assert list(_section(place)) == ["learn", ENTRY]


def test_the_rest_of_codex_file_stays(made: Machine) -> None:
    place = _place(made, "codex")
    _apply(place, "context7", "figma")
    after = tomllib.loads(place.path.read_text(encoding="utf-8"))
    before = tomllib.loads(CODEX)
    assert after.pop("mcp_servers") == {ENTRY: {"command": _COMMAND[0], "args": _COMMAND[1:]}}
    del before["mcp_servers"]
    assert after == before


def test_our_entry_is_put_in_once(made: Machine) -> None:
    place = _place(made, "gemini")
    _apply(place, "python")
    first = place.path.read_bytes()
    _apply(place, "http")
    assert list(_section(place)) == [ENTRY]
    # And each undo goes one step back.
    assert _undo(place)
    assert place.path.read_bytes() == first
    assert _undo(place)
    assert list(_section(place)) == ["python", "http"]


def test_a_file_that_was_changed_since_keeps_the_changes(made: Machine) -> None:
    place = _place(made, "claude-code")
    project: Steps = ("projects", str(made.project), "mcpServers")
    sections: dict[Steps, Collection[str]] = {place.section: ["sentry"], project: ["local"]}
    apply(rewrite(place, sections, _COMMAND))
    text = place.path.read_text(encoding="utf-8")
    assert json.loads(text)["projects"][str(made.project)]["mcpServers"] == {}
    changed = text.replace('"numStartups": 42', '"numStartups": 43')
    changed = changed.replace('"mcpServers": {', '"mcpServers": {"new": {"command": "n"},', 1)
    place.path.write_text(changed, encoding="utf-8")
    restored = _undo(place, [project])
    assert restored is not None
    assert not restored.whole
    after = json.loads(place.path.read_text(encoding="utf-8"))
    assert after["numStartups"] == 43
    assert list(after["mcpServers"]) == ["new", "airtable", "sentry"]
    assert after["mcpServers"]["sentry"] == {"type": "http", "url": "https://mcp.sentry.dev/mcp"}
    local = after["projects"][str(made.project)]["mcpServers"]["local"]
    assert local == {"command": "./server.py", "args": ["--here"]}


def test_codex_file_that_was_changed_since_keeps_the_changes(made: Machine) -> None:
    place = _place(made, "codex")
    _apply(place, "context7", "figma")
    with place.path.open("a", encoding="utf-8") as file:
        file.write("\n[tui]\nnotifications = true\n")
    restored = _undo(place)
    assert restored is not None
    assert not restored.whole
    after = tomllib.loads(place.path.read_text(encoding="utf-8"))
    before = tomllib.loads(CODEX)
    assert after.pop("tui") == {"notifications": True}
    assert after == before


def test_an_entry_that_the_user_took_out_is_not_missed(made: Machine) -> None:
    place = _place(made, "cursor")
    _apply(place, "github", "files", "events")
    place.path.write_text('{"mcpServers": {"toolcrib": {"command": "mine"}}}', encoding="utf-8")
    assert _undo(place)
    assert list(_section(place)) == [ENTRY, "github", "files", "events"]
    assert _section(place)[ENTRY] == {"command": "mine"}


def test_a_file_that_is_gone_comes_back(made: Machine) -> None:
    place = _place(made, "cursor")
    before = place.path.read_bytes()
    _apply(place, "github")
    place.path.unlink()
    assert _undo(place)
    assert place.path.read_bytes() == before


def test_another_server_of_our_name_is_not_overwritten(tmp_path: Path) -> None:
    made = machine(tmp_path)
    place = _place(made, "cursor")
    put(place.path, '{"mcpServers": {"toolcrib": {"command": "x"}, "a": {"command": "y"}}}')
    with pytest.raises(InvalidConfig, match="there is another server called toolcrib; rename it"):
        rewrite(place, {place.section: ["a"]}, _COMMAND)
    # If it was brought into ours, its place is free.
    before = place.path.read_bytes()
    _apply(place, "toolcrib", "a")
    assert list(_section(place)) == [ENTRY]
    assert _undo(place)
    assert place.path.read_bytes() == before
    _apply(place, "toolcrib", "a")
    place.path.write_bytes(b"//\n" + place.path.read_bytes())
    assert _undo(place)
    assert _section(place) == {"toolcrib": {"command": "x"}, "a": {"command": "y"}}


def test_servers_come_back_where_even_their_section_is_gone(made: Machine) -> None:
    place = _place(made, "claude-code")
    project: Steps = ("projects", str(made.project), "mcpServers")
    apply(rewrite(place, {place.section: ["sentry"], project: ["local"]}, _COMMAND))
    place.path.write_text('{"numStartups": 1}', encoding="utf-8")
    assert _undo(place, [project])
    after = json.loads(place.path.read_text(encoding="utf-8"))
    assert list(after["mcpServers"]) == ["sentry", "airtable"]
    assert list(after["projects"][str(made.project)]["mcpServers"]) == ["local"]


def test_what_cannot_be_put_back_is_left_with_its_copy(made: Machine) -> None:
    place = _place(made, "codex")
    backup = _apply(place, "context7", "figma")
    text = 'mcp_servers = { toolcrib = { command = "toolcrib" } }\n'
    put(place.path, text)
    with pytest.raises(InvalidConfig):
        _undo(place)
    assert place.path.read_text(encoding="utf-8") == text
    assert backup.exists()


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { a = { command = "x" } }\n',
        '[mcp_servers]\na = { command = "x" }\n',
        'mcp_servers.a.command = "x"\n',
        '[mcp_servers.a]\ncommand = """\n[other]\n"""\n',
    ],
)
def test_a_layout_that_cannot_be_edited_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    made = machine(tmp_path)
    place = _place(made, "codex")
    put(place.path, text)
    with pytest.raises(InvalidConfig) as caught:
        rewrite(place, {place.section: ["a"]}, _COMMAND)
    assert str(place.path) in str(caught.value)
    assert place.path.read_text(encoding="utf-8") == text


def test_a_file_with_windows_lines_and_a_mark_keeps_both(tmp_path: Path) -> None:
    made = machine(tmp_path)
    place = _place(made, "cursor")
    put(place.path, '\ufeff{\r\n  "mcpServers": {\r\n    "a": {"command": "x"}\r\n  }\r\n}\r\n')
    _apply(place, "a")
    after = place.path.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf{\r\n")
    assert b"\n" not in after.replace(b"\r\n", b"")


def test_what_is_no_text_is_left_as_it_is(tmp_path: Path) -> None:
    made = machine(tmp_path)
    place = _place(made, "cursor")
    place.path.parent.mkdir(parents=True)
    place.path.write_bytes(b'{"mcpServers": {"\xff": {}}}')
    with pytest.raises(InvalidConfig, match="is not UTF-8 text; save it as UTF-8"):
        rewrite(place, {place.section: []}, _COMMAND)


def test_a_write_that_fails_leaves_no_backup_behind(made: Machine) -> None:
    place = _place(made, "cursor")
    planned = rewrite(place, {place.section: ["github"]}, _COMMAND)
    put(place.path, "{}")
    with pytest.raises(InvalidConfig, match="somebody else changed it meanwhile"):
        apply(planned)
    assert [path.name for path in place.path.parent.iterdir()] == ["mcp.json"]
