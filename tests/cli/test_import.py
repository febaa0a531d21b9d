"""`toolcrib import` and `toolcrib config`, as a user runs them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.config.clients.client_files import ENVIRONMENT, machine, put, put_all
from toolcrib.cli.main import toolcrib
from toolcrib.config.clients.file_writes import MAX_BACKUPS

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the files are where Linux has them"
)


class Desk:
    """A user with a home folder and a folder to work in."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = machine(folder)
        self.files = put_all(self.machine)
        self.config = self.machine.home / ".config" / "toolcrib" / "toolcrib.json"
        self._variables = {"HOME": str(self.machine.home), "COLUMNS": "120", **ENVIRONMENT}
        self._variables |= {"TOOLCRIB_CONFIG": "", "XDG_CONFIG_HOME": "", "CODEX_HOME": ""}
        self._variables |= {"CLAUDE_CONFIG_DIR": "", "NO_COLOR": "1"}
        monkeypatch.chdir(self.machine.project_folder)

    def run(self, *arguments: str, code: int = 0) -> Result:
        """Run the command, and see that it ends as it should."""
        done = CliRunner(env=self._variables).invoke(toolcrib, arguments)
        assert done.exit_code == code, done.output
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        """What the command prints, as JSON."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def contents(self) -> dict[Path, bytes]:
        """Every file there is."""
        root = self.machine.home.parent
        return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_servers_are_brought_and_told(desk: Desk) -> None:
    done = desk.run("import")
    words = " ".join(done.stdout.split())
    assert "Cursor github added as github-cursor, as its name was taken" in words
    assert "not set: UNSET_KEY" in done.stdout
    assert f"19 added to {desk.config}" in done.stdout
    assert "hush" not in done.stdout
    assert desk.config.stat().st_mode & 0o777 == 0o600
    done = desk.run("config", "check")
    assert "is fine: 19 servers (5 switched off)" in " ".join(done.stdout.split())
    assert "Nothing new to add." in desk.run("import").stdout


def test_a_dry_run_writes_nothing(desk: Desk) -> None:
    before = desk.contents()
    done = desk.run("import", "--write-back", "--dry-run")
    assert f"19 would be added to {desk.config}" in done.stdout
    assert "Cursor: 3 would be taken out, Toolcrib would be put in" in done.stdout
    assert desk.contents() == before


def test_clients_have_our_entry_afterwards_and_undo_gives_all_back(desk: Desk) -> None:
    before = desk.contents()
    document = desk.json("import", "--write-back")
    assert document["config"] == str(desk.config)
    assert {one["client"] for one in document["writtenBack"]} == {
        "claude-desktop",
        "claude-code",
        "cursor",
        "vscode",
        "windsurf",
        "codex",
        "gemini",
    }
    cursor = json.loads(desk.files["cursor"].read_text(encoding="utf-8"))
    entry = cursor["mcpServers"]["toolcrib"]
    assert [entry["command"], *entry["args"]][-3:] == ["stdio", "--config", str(desk.config)]
    claude = json.loads(desk.files["claude-code"].read_text(encoding="utf-8"))
    assert list(claude["mcpServers"]) == ["toolcrib"]
    assert claude["projects"][str(desk.machine.project_folder)]["mcpServers"] == {}
    assert list(claude["projects"]["/other/project"]["mcpServers"]) == ["elsewhere"]
    # A file that is shared with others has no path of this machine put into it.
    shared = desk.files["claude-code project"]
    assert shared.read_bytes() == before[shared]
    again = desk.json("import", "--write-back")
    assert again["servers"] and again["writtenBack"] == []
    would = desk.json("import", "--undo", "--dry-run")
    assert len(would["restored"]) == 8
    restored = desk.json("import", "--undo")
    assert would == {**restored, "dryRun": True}
    assert all(one["whole"] for one in restored["restored"])
    after = desk.contents()
    assert after.pop(desk.config)
    assert after == before
    assert "There is nothing to undo" in desk.run("import", "--undo").stdout


def test_one_client_can_be_chosen(desk: Desk) -> None:
    document = desk.json("import", "--from", "gemini", "--config", "mine.json", "--write-back")
    assert [one["name"] for one in document["servers"]] == ["python", "http"]
    assert [one["client"] for one in document["writtenBack"]] == ["gemini"]
    assert document["config"] == str(desk.machine.project_folder / "mine.json")
    done = desk.run("import", "--undo", "--from", "gemini")
    assert done.stdout == f"Gemini CLI: {desk.files['gemini']} restored\n"


def test_all_folders_of_claude_code_come_with_an_option(desk: Desk) -> None:
    document = desk.json("import", "--from", "claude-code", "--all-projects", "--write-back")
    assert "elsewhere" in [one["as"] for one in document["servers"]]
    claude = json.loads(desk.files["claude-code"].read_text(encoding="utf-8"))
    assert claude["projects"]["/other/project"]["mcpServers"] == {}
    desk.run("import", "--undo")
    claude = json.loads(desk.files["claude-code"].read_text(encoding="utf-8"))
    assert list(claude["projects"]["/other/project"]["mcpServers"]) == ["elsewhere"]


def test_a_broken_file_is_told_and_the_others_are_brought(desk: Desk) -> None:
    put(desk.files["cursor"], "{")
    done = desk.run("import", code=1)
    assert "the text ends in the middle of a value" in " ".join(done.stderr.split())
    assert "added to" in done.stdout
    assert desk.config.exists()


def test_a_client_whose_file_cannot_be_edited_is_left_and_the_others_are_not(desk: Desk) -> None:
    text = 'mcp_servers = { a = { command = "x" } }\n'
    put(desk.files["codex"], text)
    document = desk.json("import", "--write-back", code=1)
    assert "is left as it is" in document["faults"][0] or "not valid TOML" in document["faults"][0]
    assert desk.files["codex"].read_text(encoding="utf-8") == text
    assert "codex" not in [one["client"] for one in document["writtenBack"]]
    assert len(document["writtenBack"]) == 7


def test_a_client_whose_file_cannot_be_written_is_told_and_the_others_are_done(desk: Desk) -> None:
    cursor = desk.files["cursor"]
    before = cursor.read_bytes()
    for number in range(1, MAX_BACKUPS + 1):
        ending = "" if number == 1 else f"-{number}"
        put(cursor.with_name(f"{cursor.name}.toolcrib-backup{ending}"), "{}")
    foretold = desk.json("import", "--write-back", "--dry-run", code=1)
    document = desk.json("import", "--write-back", code=1)
    assert foretold["faults"] == document["faults"]
    assert [fault.partition(":")[0] for fault in document["faults"]] == [str(cursor)]
    assert "remove some of" in document["faults"][0]
    assert cursor.read_bytes() == before
    written = {one["client"]: one["backup"] for one in document["writtenBack"]}
    assert set(written) == {
        "claude-desktop",
        "claude-code",
        "vscode",
        "windsurf",
        "codex",
        "gemini",
    }
    assert all(Path(backup).is_file() for backup in written.values())


def test_a_client_whose_file_cannot_be_undone_is_told_and_the_others_are_restored(
    desk: Desk,
) -> None:
    before = desk.contents()
    desk.run("import", "--write-back")
    broken = desk.files["claude-code"]
    put(broken, "{")
    moved = desk.files["windsurf"]
    moved.unlink()
    moved.mkdir()
    written = desk.contents()
    would = desk.json("import", "--undo", "--dry-run", code=1)
    assert desk.contents() == written
    done = desk.run("import", "--undo", code=1)
    # A dry run promises what is then done, and refuses what is then refused.
    assert [one["file"] for one in would["restored"]] == [
        line.split()[-2] for line in done.stdout.splitlines()
    ]
    told = "".join(done.stderr.split())
    assert len(would["faults"]) == 2
    assert all("".join(fault.split()) in told for fault in would["faults"])
    moved.rmdir()
    assert desk.json("import", "--undo", code=1)["restored"][0]["file"] == str(moved)
    assert "the text ends in the middle of a value" in " ".join(done.stderr.split())
    assert "Restart the clients." in done.stderr
    assert str(desk.files["gemini"]) in done.stdout and str(broken) not in done.stdout
    others = {path: content for path, content in before.items() if path != broken}
    assert {path: desk.contents()[path] for path in others} == others
    again = desk.json("import", "--undo", code=1)
    assert again["restored"] == [] and len(again["faults"]) == 1
    put(broken, before[broken].decode())
    assert [one["client"] for one in desk.json("import", "--undo")["restored"]] == ["claude-code"]


def test_what_cannot_be_used_is_told_and_stays_with_its_client(desk: Desk) -> None:
    put(desk.files["cursor"], '{"mcpServers": {"a": {"command": "x"}, "b": {}}}')
    done = desk.run("import", "--from", "cursor", "--write-back")
    assert 'skipped: has neither "command" nor "url"' in done.stdout
    cursor = json.loads(desk.files["cursor"].read_text(encoding="utf-8"))
    assert list(cursor["mcpServers"]) == ["b", "toolcrib"]


def test_without_clients_it_says_so(desk: Desk) -> None:
    for path in desk.files.values():
        path.unlink()
    assert "No client's file was found on this machine." in desk.run("import").stdout
    assert not desk.config.exists()


@pytest.mark.parametrize("arguments", [["--undo", "--write-back"], ["--from", "emacs"]])
def test_a_wrong_use_is_told(desk: Desk, arguments: Sequence[str]) -> None:
    assert "Usage: " in desk.run("import", *arguments, code=2).stderr


def test_where_the_configuration_is_can_be_asked(desk: Desk) -> None:
    document = desk.json("config", "path")
    here = desk.machine.project_folder / "toolcrib.json"
    assert document == {
        "used": None,
        "places": [str(here), str(desk.config)],
        "variable": "TOOLCRIB_CONFIG",
    }
    put(here, '{"mcpServers": {"a": {"command": "x", "envFile": "y"}}}')
    lines = desk.run("config", "path").stdout.splitlines()
    assert lines == [f"used      {here}", f"not there {desk.config}"]
    document = desk.json("config", "check")
    assert document["servers"] == {"a": {"transport": "stdio", "enabled": True}}
    told = " ".join(desk.run("config", "check").stdout.split())
    assert "1 server (0 switched off), 0 profiles, 0 models, 0 keys" in told
    assert "envFile is not read here" in told


def test_a_fault_in_the_configuration_is_told_with_its_line(desk: Desk) -> None:
    put(desk.machine.project_folder / "toolcrib.json", '{\n"htp": {}}')
    done = desk.run("config", "check", code=1)
    assert done.stderr == ('Error: toolcrib.json, line 2: htp: unknown key; did you mean "http"?\n')
    (desk.machine.project_folder / "toolcrib.json").unlink()
    assert "run: toolcrib import" in desk.run("config", "check", code=1).stderr


def test_the_schema_is_printed(desk: Desk) -> None:
    document = json.loads(desk.run("config", "schema").stdout)
    assert document["title"] == "Toolcrib configuration"
