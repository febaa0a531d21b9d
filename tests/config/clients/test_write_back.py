"""The Toolcrib entry in client files, and its removal."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from tests.config.clients.client_files import CODEX, machine, put, put_all
from toolcrib.config.clients.importing import parse_servers
from toolcrib.config.clients.locations import ClientFile, HostSystem, list_client_files
from toolcrib.config.clients.write_back import (
    ENTRY_NAME,
    RestorePlan,
    apply_restore,
    apply_rewrite,
    plan_restore,
    plan_rewrite,
)
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import JsonPath

_COMMAND = ["/bin/toolcrib", "stdio", "--config", "/home/me/toolcrib.json"]


@pytest.fixture
def host(tmp_path: Path) -> HostSystem:
    host = machine(tmp_path)
    put_all(host)
    return host


def _place(host: HostSystem, client: str) -> ClientFile:
    return next(place for place in list_client_files(host) if place.client == client)


def _apply(place: ClientFile, *names: str) -> Path:
    sections: dict[JsonPath, Collection[str]] = {place.section: names}
    return apply_rewrite(plan_rewrite(place, sections, _COMMAND))


def _undo(place: ClientFile, others: Iterable[JsonPath] = ()) -> RestorePlan | None:
    planned = plan_restore(place, others)
    if planned is not None:
        apply_restore(planned)
    return planned


def _section(place: ClientFile) -> dict[str, object]:
    return dict(parse_servers(place, place.path.read_text(encoding="utf-8")))


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
def test_rewrite_and_restore_keep_every_byte(host: HostSystem, client: str) -> None:
    place = _place(host, client)
    before = place.path.read_bytes()
    backup = _apply(place, *_SERVERS[client])
    entry = {"command": _COMMAND[0], "args": _COMMAND[1:]}
    if client in ("vscode", "claude-code"):
        entry = {"type": "stdio", **entry}
    assert _section(place) == {ENTRY_NAME: entry}
    assert backup.read_bytes() == before
    restored = _undo(place)
    assert restored is not None
    assert restored.is_exact
    assert place.path.read_bytes() == before
    assert not backup.exists()
    assert _undo(place) is None


def test_servers_that_were_not_imported_stay(host: HostSystem) -> None:
    place = _place(host, "vscode")
    _apply(place, "perplexity")
    text = place.path.read_text(encoding="utf-8")
    assert "// Asked for once." in text
    assert '"learn": {"type": "http"' in text
    assert "// open to all" in text
    assert list(_section(place)) == ["learn", ENTRY_NAME]


def test_rewrite_keeps_the_rest_of_the_codex_file(host: HostSystem) -> None:
    place = _place(host, "codex")
    _apply(place, "context7", "figma")
    after = tomllib.loads(place.path.read_text(encoding="utf-8"))
    before = tomllib.loads(CODEX)
    assert after.pop("mcp_servers") == {ENTRY_NAME: {"command": _COMMAND[0], "args": _COMMAND[1:]}}
    del before["mcp_servers"]
    assert after == before


def test_entry_is_added_once(host: HostSystem) -> None:
    place = _place(host, "gemini")
    _apply(place, "python")
    first = place.path.read_bytes()
    _apply(place, "http")
    assert list(_section(place)) == [ENTRY_NAME]
    # Each undo restores the previous version.
    assert _undo(place)
    assert place.path.read_bytes() == first
    assert _undo(place)
    assert list(_section(place)) == ["python", "http"]


def test_restore_keeps_later_edits(host: HostSystem) -> None:
    place = _place(host, "claude-code")
    project: JsonPath = ("projects", str(host.project_folder), "mcpServers")
    sections: dict[JsonPath, Collection[str]] = {place.section: ["sentry"], project: ["local"]}
    apply_rewrite(plan_rewrite(place, sections, _COMMAND))
    text = place.path.read_text(encoding="utf-8")
    assert json.loads(text)["projects"][str(host.project_folder)]["mcpServers"] == {}
    changed = text.replace('"numStartups": 42', '"numStartups": 43')
    changed = changed.replace('"mcpServers": {', '"mcpServers": {"new": {"command": "n"},', 1)
    place.path.write_text(changed, encoding="utf-8")
    restored = _undo(place, [project])
    assert restored is not None
    assert not restored.is_exact
    after = json.loads(place.path.read_text(encoding="utf-8"))
    assert after["numStartups"] == 43
    assert list(after["mcpServers"]) == ["new", "airtable", "sentry"]
    assert after["mcpServers"]["sentry"] == {"type": "http", "url": "https://mcp.sentry.dev/mcp"}
    local = after["projects"][str(host.project_folder)]["mcpServers"]["local"]
    assert local == {"command": "./server.py", "args": ["--here"]}


def test_restore_keeps_later_edits_of_the_codex_file(host: HostSystem) -> None:
    place = _place(host, "codex")
    _apply(place, "context7", "figma")
    with place.path.open("a", encoding="utf-8") as file:
        file.write("\n[tui]\nnotifications = true\n")
    restored = _undo(place)
    assert restored is not None
    assert not restored.is_exact
    after = tomllib.loads(place.path.read_text(encoding="utf-8"))
    before = tomllib.loads(CODEX)
    assert after.pop("tui") == {"notifications": True}
    assert after == before


def test_restore_works_without_our_entry(host: HostSystem) -> None:
    place = _place(host, "cursor")
    _apply(place, "github", "files", "events")
    place.path.write_text('{"mcpServers": {"toolcrib": {"command": "mine"}}}', encoding="utf-8")
    assert _undo(place)
    assert list(_section(place)) == [ENTRY_NAME, "github", "files", "events"]
    assert _section(place)[ENTRY_NAME] == {"command": "mine"}


def test_restore_recreates_a_deleted_file(host: HostSystem) -> None:
    place = _place(host, "cursor")
    before = place.path.read_bytes()
    _apply(place, "github")
    place.path.unlink()
    assert _undo(place)
    assert place.path.read_bytes() == before


def test_foreign_server_named_toolcrib_is_not_overwritten(tmp_path: Path) -> None:
    host = machine(tmp_path)
    place = _place(host, "cursor")
    put(place.path, '{"mcpServers": {"toolcrib": {"command": "x"}, "a": {"command": "y"}}}')
    with pytest.raises(InvalidConfig, match="there is another server called toolcrib; rename it"):
        plan_rewrite(place, {place.section: ["a"]}, _COMMAND)
    # After that server has been imported, its entry can be replaced.
    before = place.path.read_bytes()
    _apply(place, "toolcrib", "a")
    assert list(_section(place)) == [ENTRY_NAME]
    assert _undo(place)
    assert place.path.read_bytes() == before
    _apply(place, "toolcrib", "a")
    place.path.write_bytes(b"//\n" + place.path.read_bytes())
    assert _undo(place)
    assert _section(place) == {"toolcrib": {"command": "x"}, "a": {"command": "y"}}


def test_restore_recreates_a_deleted_section(host: HostSystem) -> None:
    place = _place(host, "claude-code")
    project: JsonPath = ("projects", str(host.project_folder), "mcpServers")
    apply_rewrite(plan_rewrite(place, {place.section: ["sentry"], project: ["local"]}, _COMMAND))
    place.path.write_text('{"numStartups": 1}', encoding="utf-8")
    assert _undo(place, [project])
    after = json.loads(place.path.read_text(encoding="utf-8"))
    assert list(after["mcpServers"]) == ["sentry", "airtable"]
    assert list(after["projects"][str(host.project_folder)]["mcpServers"]) == ["local"]


def test_failed_restore_keeps_file_and_backup(host: HostSystem) -> None:
    place = _place(host, "codex")
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
def test_unsupported_layout_is_rejected(tmp_path: Path, text: str) -> None:
    host = machine(tmp_path)
    place = _place(host, "codex")
    put(place.path, text)
    with pytest.raises(InvalidConfig) as caught:
        plan_rewrite(place, {place.section: ["a"]}, _COMMAND)
    assert str(place.path) in str(caught.value)
    assert place.path.read_text(encoding="utf-8") == text


def test_rewrite_keeps_crlf_and_byte_order_mark(tmp_path: Path) -> None:
    host = machine(tmp_path)
    place = _place(host, "cursor")
    put(place.path, '\ufeff{\r\n  "mcpServers": {\r\n    "a": {"command": "x"}\r\n  }\r\n}\r\n')
    _apply(place, "a")
    after = place.path.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf{\r\n")
    assert b"\n" not in after.replace(b"\r\n", b"")


def test_binary_file_is_rejected(tmp_path: Path) -> None:
    host = machine(tmp_path)
    place = _place(host, "cursor")
    place.path.parent.mkdir(parents=True)
    place.path.write_bytes(b'{"mcpServers": {"\xff": {}}}')
    with pytest.raises(InvalidConfig, match="is not UTF-8 text; save it as UTF-8"):
        plan_rewrite(place, {place.section: []}, _COMMAND)


def test_failed_write_removes_the_backup(host: HostSystem) -> None:
    place = _place(host, "cursor")
    planned = plan_rewrite(place, {place.section: ["github"]}, _COMMAND)
    put(place.path, "{}")
    with pytest.raises(InvalidConfig, match="another program changed it meanwhile"):
        apply_rewrite(planned)
    assert [path.name for path in place.path.parent.iterdir()] == ["mcp.json"]
