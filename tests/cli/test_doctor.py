"""`toolcrib doctor`, as far as it looks at the configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolcrib.cli.main import toolcrib


def _run(path: Path, text: str, *arguments: str) -> Result:
    path.write_text(text, encoding="utf-8")
    runner = CliRunner(env={"COLUMNS": "200", "SET_HERE": "1"})
    return runner.invoke(toolcrib, ["doctor", "--no-start", "--config", str(path), *arguments])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "toolcrib.json"


def test_nothing_wrong_is_said_too(path: Path) -> None:
    done = _run(path, '{"mcpServers": {"a": {"url": "https://example.com/mcp"}}}')
    assert (done.exit_code, done.stdout) == (0, f"Nothing is wrong with {path}.\n")


def test_what_is_wrong_is_told_with_the_cure(path: Path) -> None:
    text = """{"mcpServers": {
      "a": {"command": "no-such-program", "args": ["--token=hush"], "env": {"T": "${NOT_SET_HERE}"}}
    }}"""
    done = _run(path, text)
    assert done.exit_code == 1
    assert done.stdout == (
        "error: a: the environment variable NOT_SET_HERE is not set\n"
        "  set it, or add a default: ${NOT_SET_HERE:-…}\n"
        "error: a: the program 'no-such-program' was not found\n"
        "  install it, or use its full path as the command\n"
        "warning: a: argument 1 looks like a secret, and other processes can read it\n"
        "  pass it in env, if the program supports that\n"
        f"3 found in {path}, 2 of them errors.\n"
    )


def test_one_error_is_not_many(path: Path) -> None:
    done = _run(path, '{"mcpServers": {"a": {"command": "no-such-program"}}}')
    assert done.stdout.endswith(f"1 found in {path}, 1 of them an error.\n")


def test_findings_are_printed_for_programs(path: Path) -> None:
    done = _run(path, '{"mcpServers": {"a": {"url": "http://example.com"}}}', "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "config": str(path),
        "findings": [
            {
                "severity": "warning",
                "what": "its URL uses plain http to another machine, so others can read the traffic",
                "cure": "use https",
                "server": "a",
            }
        ],
    }


def test_a_variable_that_nothing_can_stand_in_for_is_told_by_itself(path: Path) -> None:
    done = _run(path, '{"http": {"port": "${NOT_SET_HERE}"}}')
    assert done.exit_code == 1
    assert "the environment variable NOT_SET_HERE is not set" in done.stdout


def test_a_file_that_cannot_be_read_says_why(path: Path) -> None:
    done = _run(path, '{"htp": {"port": "${SET_HERE}"}}')
    assert done.exit_code == 1
    assert done.stderr == f'Error: {path}, line 1: htp: unknown key; did you mean "http"?\n'
