"""The diagnosis of servers that do not start. `tests/cli/test_gateway.py` runs the whole doctor."""

from __future__ import annotations

import pytest

from toolcrib.config.server_settings import ServerConfig
from toolcrib.gateway.mcp.admin.doctor import diagnose_server

PYTHON = ServerConfig("old", command="python3", args=("-m", "old"))
UVX = ServerConfig("old", command="/usr/bin/uvx", args=("old",))
NPX = ServerConfig("node", command="npx", args=("-y", "node-server"))
REMOTE = ServerConfig("remote", url="https://example.com/mcp", transport="http")
EXIT_1 = "its program ended with exit code 1"


@pytest.mark.parametrize(
    ("server", "stderr", "fix"),
    [
        (UVX, "ModuleNotFoundError: No module named 'mcp.server.fastmcp'", 'use "args": ["--with", "mcp<2", …]'),
        (
            PYTHON,
            "ImportError: cannot import name 'McpError' from 'mcp.shared.exceptions' (/x.py)",
            "python3 -m pip install 'mcp<2'",
        ),
        (PYTHON, "AttributeError: 'Server' object has no attribute 'list_tools'", "python3 -m pip install 'mcp<2'"),
        (
            ServerConfig("old", command="uv", args=("run", "old")),
            "ModuleNotFoundError: No module named 'mcp.types'",
            '["run", "--with", "mcp<2", …]',
        ),
        (
            ServerConfig("old", command="pipx", args=("run", "old")),
            "ModuleNotFoundError: No module named 'mcp.server.fastmcp'",
            "start it with uvx",
        ),
        # A script of a virtual environment is not Python: it has no option -m.
        (
            ServerConfig("old", command="/venv/bin/mcp-server-old"),
            "AttributeError: 'Server' object has no attribute 'list_resources'",
            "start it with uvx",
        ),
        (PYTHON, "ModuleNotFoundError: No module named 'pandas'", "install pandas in"),
        (NPX, "npm warn EBADENGINE Unsupported engine", "newer Node.js"),
        (NPX, "npm error code E404", "no such package"),
        (NPX, "getaddrinfo EAI_AGAIN registry.example", "could not reach the network"),
        (NPX, "Error: Cannot find module 'left-pad'", "install left-pad in"),
        (NPX, "Error: GITHUB_TOKEN is required", "it requires GITHUB_TOKEN: set this variable"),
        (NPX, "Please set the API_KEY environment variable", "it requires API_KEY"),
        (PYTHON, "KeyError: 'SLACK_BOT_TOKEN'", "it requires SLACK_BOT_TOKEN"),
        (NPX, "Error: environment variable TOKEN is undefined", "it requires TOKEN"),
        (NPX, "expected NOTION_KEY to be set", "it requires NOTION_KEY"),
        (
            ServerConfig("strict", command="npx", inherit_env=("A_*",)),
            "HELD_BACK_KEY is not set",
            'HELD_BACK_KEY, which is set but not passed on: add it to "inheritEnv"',
        ),
        (NPX, "401 Unauthorized", "renew the one in its `env`"),
        (PYTHON, "usage: old [-h] --path PATH", "it requires other arguments"),
        (PYTHON, "Segmentation fault", "run its command by hand"),
    ],
)
def test_stderr_determines_the_fix(
    server: ServerConfig, stderr: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELD_BACK_KEY", "1")
    error = f"{EXIT_1}; last line on stderr: {stderr}"
    finding = diagnose_server(server, error, ["Traceback:", stderr])
    assert finding.severity == "error"
    assert finding.server == server.name
    assert fix in finding.fix
    assert finding.problem == f"it does not start: {error}"


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        (401, "toolcrib login remote; or add a token"),
        (403, "it requires a token"),
        (404, "correct its `url`"),
        (405, '"type": "sse"'),
        (502, "the server itself fails"),
        (200, "answers, but not with MCP"),
        (None, "whether the server is running"),
    ],
)
def test_http_status_determines_the_fix(status: int | None, fix: str) -> None:
    finding = diagnose_server(REMOTE, "it could not be reached", [], status)
    assert fix in finding.fix
    assert (f"HTTP {status}" in finding.problem) == (status is not None and status >= 400)


def test_rejected_token_is_distinguished_from_missing_token() -> None:
    server = ServerConfig("remote", url="https://example.com", transport="http", headers={"A": "b"})
    assert "it rejects the token" in diagnose_server(server, "HTTP 401", [], 401).fix


def test_timeout_suggests_another_try_and_a_longer_timeout() -> None:
    finding = diagnose_server(NPX, "it did not answer in time; raise `connectSeconds`", [])
    assert "may include a download" in finding.fix
    assert "now 30" in finding.fix
