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

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses the paths of Linux")


class UserAccount:
    """A user with a home folder, a project folder and the files of all clients."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = machine(folder)
        self.files = put_all(self.machine)
        self.config = self.machine.home / ".config" / "toolcrib" / "toolcrib.json"
        self._variables = {"HOME": str(self.machine.home), "COLUMNS": "120", **ENVIRONMENT}
        self._variables |= {"TOOLCRIB_CONFIG": "", "XDG_CONFIG_HOME": "", "CODEX_HOME": ""}
        self._variables |= {"CLAUDE_CONFIG_DIR": "", "NO_COLOR": "1"}
        monkeypatch.chdir(self.machine.project_folder)

    def run(self, *arguments: str, code: int = 0) -> Result:
        """Run a command and check its exit code."""
        result = CliRunner(env=self._variables).invoke(toolcrib, arguments)
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command and return its JSON output."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def contents(self) -> dict[Path, bytes]:
        """Return the content of every file."""
        root = self.machine.home.parent
        return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserAccount:
    return UserAccount(tmp_path, monkeypatch)


def test_servers_are_imported_and_listed(user: UserAccount) -> None:
    result = user.run("import")
    words = " ".join(result.stdout.split())
    assert "Cursor github added as github-cursor, because the name is already used" in words
    assert "not set: UNSET_KEY" in result.stdout
    assert f"19 added to {user.config}" in result.stdout
    assert "hush" not in result.stdout
    assert user.config.stat().st_mode & 0o777 == 0o600
    result = user.run("config", "check", code=1)
    assert "is valid: 19 servers (3 disabled)" in " ".join(result.stdout.split())
    assert "needy cannot be started: the environment variable UNSET_KEY is not set" in result.stderr
    assert "No new servers." in user.run("import").stdout


def test_dry_run_writes_nothing(user: UserAccount) -> None:
    before = user.contents()
    result = user.run("import", "--write-back", "--dry-run")
    assert f"19 would be added to {user.config}" in result.stdout
    assert "Cursor: 3 would be replaced by Toolcrib" in result.stdout
    assert user.contents() == before


def test_write_back_and_undo(user: UserAccount) -> None:
    before = user.contents()
    document = user.json("import", "--write-back")
    assert document["config"] == str(user.config)
    assert {item["client"] for item in document["writtenBack"]} == {
        "claude-desktop",
        "claude-code",
        "cursor",
        "vscode",
        "windsurf",
        "codex",
        "gemini",
    }
    cursor = json.loads(user.files["cursor"].read_text(encoding="utf-8"))
    entry = cursor["mcpServers"]["toolcrib"]
    assert [entry["command"], *entry["args"]][-3:] == ["stdio", "--config", str(user.config)]
    claude = json.loads(user.files["claude-code"].read_text(encoding="utf-8"))
    assert list(claude["mcpServers"]) == ["toolcrib"]
    assert claude["projects"][str(user.machine.project_folder)]["mcpServers"] == {}
    assert list(claude["projects"]["/other/project"]["mcpServers"]) == ["elsewhere"]
    # Files that are shared with other people are not rewritten.
    shared = user.files["claude-code project"]
    assert shared.read_bytes() == before[shared]
    again = user.json("import", "--write-back")
    assert again["servers"] and again["writtenBack"] == []
    would = user.json("import", "--undo", "--dry-run")
    assert len(would["restored"]) == 8
    restored = user.json("import", "--undo")
    assert would == {**restored, "dryRun": True}
    assert all(item["whole"] for item in restored["restored"])
    after = user.contents()
    assert after.pop(user.config)
    assert after == before
    assert "Nothing to undo" in user.run("import", "--undo").stdout


def test_import_from_one_client(user: UserAccount) -> None:
    document = user.json("import", "--from", "gemini", "--config", "mine.json", "--write-back")
    assert [item["name"] for item in document["servers"]] == ["python", "http"]
    assert [item["client"] for item in document["writtenBack"]] == ["gemini"]
    assert document["config"] == str(user.machine.project_folder / "mine.json")
    result = user.run("import", "--undo", "--from", "gemini")
    assert result.stdout == f"Gemini CLI: {user.files['gemini']} restored\n"


def test_import_from_all_projects_of_claude_code(user: UserAccount) -> None:
    document = user.json("import", "--from", "claude-code", "--all-projects", "--write-back")
    assert "elsewhere" in [item["as"] for item in document["servers"]]
    claude = json.loads(user.files["claude-code"].read_text(encoding="utf-8"))
    assert claude["projects"]["/other/project"]["mcpServers"] == {}
    user.run("import", "--undo")
    claude = json.loads(user.files["claude-code"].read_text(encoding="utf-8"))
    assert list(claude["projects"]["/other/project"]["mcpServers"]) == ["elsewhere"]


def test_broken_file_does_not_stop_the_import_of_others(user: UserAccount) -> None:
    put(user.files["cursor"], "{")
    result = user.run("import", code=1)
    assert "the text ends in the middle of a value" in " ".join(result.stderr.split())
    assert "added to" in result.stdout
    assert user.config.exists()


def test_file_that_cannot_be_edited_is_not_changed(user: UserAccount) -> None:
    text = 'mcp_servers = { a = { command = "x" } }\n'
    put(user.files["codex"], text)
    document = user.json("import", "--write-back", code=1)
    assert "is left as it is" in document["faults"][0] or "not valid TOML" in document["faults"][0]
    assert user.files["codex"].read_text(encoding="utf-8") == text
    assert "codex" not in [item["client"] for item in document["writtenBack"]]
    assert len(document["writtenBack"]) == 7


def test_file_without_a_free_backup_name_is_reported(user: UserAccount) -> None:
    cursor = user.files["cursor"]
    before = cursor.read_bytes()
    for number in range(1, MAX_BACKUPS + 1):
        ending = "" if number == 1 else f"-{number}"
        put(cursor.with_name(f"{cursor.name}.toolcrib-backup{ending}"), "{}")
    dry_run = user.json("import", "--write-back", "--dry-run", code=1)
    document = user.json("import", "--write-back", code=1)
    assert dry_run["faults"] == document["faults"]
    assert [fault.partition(":")[0] for fault in document["faults"]] == [str(cursor)]
    assert "remove some of" in document["faults"][0]
    assert cursor.read_bytes() == before
    written = {item["client"]: item["backup"] for item in document["writtenBack"]}
    assert set(written) == {"claude-desktop", "claude-code", "vscode", "windsurf", "codex", "gemini"}
    assert all(Path(backup).is_file() for backup in written.values())


def test_undo_reports_files_that_cannot_be_restored(user: UserAccount) -> None:
    before = user.contents()
    user.run("import", "--write-back")
    broken = user.files["claude-code"]
    put(broken, "{")
    moved = user.files["windsurf"]
    moved.unlink()
    moved.mkdir()
    written = user.contents()
    would = user.json("import", "--undo", "--dry-run", code=1)
    assert user.contents() == written
    result = user.run("import", "--undo", code=1)
    # A dry run predicts both the restored files and the errors.
    assert [item["file"] for item in would["restored"]] == [line.split()[-2] for line in result.stdout.splitlines()]
    printed = "".join(result.stderr.split())
    assert len(would["faults"]) == 2
    assert all("".join(fault.split()) in printed for fault in would["faults"])
    moved.rmdir()
    assert user.json("import", "--undo", code=1)["restored"][0]["file"] == str(moved)
    assert "the text ends in the middle of a value" in " ".join(result.stderr.split())
    assert "Restart the clients." in result.stderr
    assert str(user.files["gemini"]) in result.stdout and str(broken) not in result.stdout
    others = {path: content for path, content in before.items() if path != broken}
    assert {path: user.contents()[path] for path in others} == others
    again = user.json("import", "--undo", code=1)
    assert again["restored"] == [] and len(again["faults"]) == 1
    put(broken, before[broken].decode())
    assert [item["client"] for item in user.json("import", "--undo")["restored"]] == ["claude-code"]


def test_invalid_server_is_skipped_and_stays_in_the_client(user: UserAccount) -> None:
    put(user.files["cursor"], '{"mcpServers": {"a": {"command": "x"}, "b": {}, "c": {"command": "x", "args": [1]}}}')
    result = user.run("import", "--from", "cursor", "--write-back")
    assert 'skipped: has neither "command" nor "url"' in result.stdout
    assert "skipped: args[0]: must be a string" in result.stdout
    cursor = json.loads(user.files["cursor"].read_text(encoding="utf-8"))
    assert list(cursor["mcpServers"]) == ["b", "c", "toolcrib"]


def test_files_of_projects_are_named_because_they_are_not_rewritten(user: UserAccount) -> None:
    output = user.run("import", "--from", "claude-code", "--write-back").stdout
    project_file = user.files["claude-code project"]
    assert f"{project_file} belongs to a project and is not rewritten" in " ".join(output.split())
    assert f"{user.files['claude-code']} belongs" not in " ".join(output.split())
    assert "belongs to a project" not in user.run("import", "--from", "claude-code").stdout


def test_no_clients(user: UserAccount) -> None:
    for path in user.files.values():
        path.unlink()
    assert "No files of MCP clients were found. To add a server, run: toolcrib add" in user.run("import").stdout
    assert not user.config.exists()


@pytest.mark.parametrize("arguments", [["--undo", "--write-back"], ["--from", "emacs"]])
def test_wrong_usage(user: UserAccount, arguments: Sequence[str]) -> None:
    assert "Usage: " in user.run("import", *arguments, code=2).stderr


def test_config_path_and_check(user: UserAccount) -> None:
    document = user.json("config", "path")
    here = user.machine.project_folder / "toolcrib.json"
    assert document == {"used": None, "places": [str(here), str(user.config)], "variable": "TOOLCRIB_CONFIG"}
    put(here, '{"mcpServers": {"a": {"command": "x", "envFile": "y"}}}')
    lines = user.run("config", "path").stdout.splitlines()
    assert lines == [f"used      {here}", f"missing   {user.config}"]
    document = user.json("config", "check")
    assert document["servers"] == {"a": {"transport": "stdio", "enabled": True, "problem": ""}}
    printed = " ".join(user.run("config", "check").stdout.split())
    assert "1 server (0 disabled), 0 profiles, 0 models, 0 keys" in printed
    assert "envFile is not read here" in printed


def test_config_check_reports_errors_with_their_line(user: UserAccount) -> None:
    put(user.machine.project_folder / "toolcrib.json", '{\n"htp": {}}')
    result = user.run("config", "check", code=1)
    assert result.stderr == ('Error: toolcrib.json, line 2: htp: unknown key; did you mean "http"?\n')
    (user.machine.project_folder / "toolcrib.json").unlink()
    assert "run: toolcrib import, or toolcrib add" in user.run("config", "check", code=1).stderr


def test_config_check_has_a_line_for_each_server_with_a_problem(user: UserAccount) -> None:
    servers = {name: {"command": f"${{UNSET_{name}}}"} for name in ("ONE", "TWO")}
    put(user.machine.project_folder / "toolcrib.json", json.dumps({"mcpServers": servers}))
    assert user.run("config", "check", code=1).stderr == (
        "Error: ONE cannot be started: the environment variable UNSET_ONE is not set\n"
        "TWO cannot be started: the environment variable UNSET_TWO is not set\n"
    )


def test_config_schema(user: UserAccount) -> None:
    document = json.loads(user.run("config", "schema").stdout)
    assert document["title"] == "Toolcrib configuration"
