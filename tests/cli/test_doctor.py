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


def test_no_problems(path: Path) -> None:
    result = _run(path, '{"mcpServers": {"a": {"url": "https://example.com/mcp"}}}')
    assert (result.exit_code, result.stdout) == (0, f"No problems in {path}.\n")


def test_problems_are_printed_with_their_fixes(path: Path) -> None:
    text = """{"mcpServers": {
      "a": {"command": "no-such-program", "args": ["--token=hush"], "env": {"T": "${NOT_SET_HERE}"}}
    }}"""
    result = _run(path, text)
    assert result.exit_code == 1
    assert result.stdout == (
        "error: a: the environment variable NOT_SET_HERE is not set\n"
        "  set it, or add a default: ${NOT_SET_HERE:-…}\n"
        "error: a: the program 'no-such-program' was not found\n"
        "  install it, or use its full path as the command\n"
        "warning: a: argument 1 looks like a secret, and other processes can read it\n"
        "  pass it in env, if the program supports that\n"
        f"3 problems in {path}, 2 errors.\n"
    )


def test_singular_counts(path: Path) -> None:
    result = _run(path, '{"mcpServers": {"a": {"command": "no-such-program"}}}')
    assert result.stdout.endswith(f"1 problem in {path}, 1 error.\n")


def test_json_output(path: Path) -> None:
    result = _run(path, '{"mcpServers": {"a": {"url": "http://example.com"}}}', "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
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


def test_unset_variable_without_a_placeholder_is_reported_alone(path: Path) -> None:
    result = _run(path, '{"http": {"port": "${NOT_SET_HERE}"}}')
    assert result.exit_code == 1
    assert "the environment variable NOT_SET_HERE is not set" in result.stdout


def test_unset_variable_does_not_hide_an_invalid_key(path: Path) -> None:
    text = '{"mcpServers": {"a": {"url": "${NOT_SET_HERE}"}}, "overrides": {"a___b": {"descripton": "x"}}}'
    result = _run(path, text)
    assert result.stdout == (
        "error: a: the environment variable NOT_SET_HERE is not set\n"
        "  set it, or add a default: ${NOT_SET_HERE:-…}\n"
        f'error: {path}, line 1: overrides.a___b.descripton: unknown key; did you mean "description"?\n'
        "  correct it\n"
        f"2 problems in {path}, 2 errors.\n"
    )


def test_invalid_file_is_reported(path: Path) -> None:
    result = _run(path, '{"htp": {"port": "${SET_HERE}"}}')
    assert result.exit_code == 1
    assert result.stderr == f'Error: {path}, line 1: htp: unknown key; did you mean "http"?\n'


def test_secrets_in_a_readable_file_are_named(path: Path) -> None:
    text = """{
      "mcpServers": {"a": {
        "url": "https://example.com",
        "headers": {"Authorization": "Bearer abcdefgh12345678", "X-Api-Key": "${KEY:-}", "Accept": "text/html"},
        "env": {"API_TOKEN": "very-secret", "REGION": "eu-central-1"}
      }},
      "auth": {"keys": ["a-long-key-for-me"]}
    }"""
    path.write_text(text)
    path.chmod(0o644)
    result = _run(path, text)
    assert "other users can read the file, which contains secrets in plain text: " in result.stdout
    for name in ("mcpServers.a.headers.Authorization", "mcpServers.a.env.API_TOKEN", "auth.keys[0]"):
        assert name in result.stdout
    for other in ("X-Api-Key", "REGION", "Accept", "very-secret"):
        assert other not in result.stdout
    path.chmod(0o600)
    assert "plain text" not in _run(path, text).stdout
