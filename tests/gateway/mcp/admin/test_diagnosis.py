from __future__ import annotations

import pytest

from toolcrib.config.settings import ServerConfig
from toolcrib.gateway.mcp.admin.diagnosis import diagnose_server

PYTHON = ServerConfig("old", command="python3", args=("-m", "old"))
UVX = ServerConfig("old", command="/usr/bin/uvx", args=("old",))
NPX = ServerConfig("node", command="npx", args=("-y", "node-server"))
REMOTE = ServerConfig("remote", url="https://example.com/mcp", transport="http")
ENDED = "its program ended with exit code 1"


@pytest.mark.parametrize(
    ("server", "said", "cure"),
    [
        (
            UVX,
            "ModuleNotFoundError: No module named 'mcp.server.fastmcp'",
            'write "args": ["--with", "mcp<2", …]',
        ),
        (
            PYTHON,
            "ImportError: cannot import name 'McpError' from 'mcp.shared.exceptions' (/x.py)",
            "python3 -m pip install 'mcp<2'",
        ),
        (
            PYTHON,
            "AttributeError: 'Server' object has no attribute 'list_tools'",
            "python3 -m pip install 'mcp<2'",
        ),
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
        (PYTHON, "ModuleNotFoundError: No module named 'pandas'", "install what it needs (pandas)"),
        (NPX, "npm warn EBADENGINE Unsupported engine", "newer Node.js"),
        (NPX, "npm error code E404", "no such package"),
        (NPX, "getaddrinfo EAI_AGAIN registry.example", "needs the network"),
        (NPX, "Error: Cannot find module 'left-pad'", "install what it needs (left-pad)"),
        (NPX, "Error: GITHUB_TOKEN is required", '"env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}'),
        (NPX, "Please set the API_KEY environment variable", "it wants API_KEY"),
        (NPX, "401 Unauthorized", "renew the one in its `env`"),
        (PYTHON, "usage: old [-h] --path PATH", "it wants other arguments"),
        (PYTHON, "Segmentation fault", "run its command by hand"),
    ],
)
def test_what_a_server_said_leads_to_the_cure(server: ServerConfig, said: str, cure: str) -> None:
    found = diagnose_server(server, f"{ENDED}; it said: {said}", ["Traceback:", said])
    assert found.severity == "error"
    assert found.server == server.name
    assert cure in found.fix
    assert found.problem == f"it does not start: {ENDED}; it said: {said}"


@pytest.mark.parametrize(
    ("status", "cure"),
    [
        (401, "toolcrib login remote; or give it a token"),
        (403, "it wants a token"),
        (404, "correct its `url`"),
        (405, '"type": "sse"'),
        (502, "the server itself fails"),
        (200, "does not speak MCP"),
        (None, "whether the server is running"),
    ],
)
def test_what_an_address_answers_leads_to_the_cure(status: int | None, cure: str) -> None:
    found = diagnose_server(REMOTE, "it could not be reached", [], status)
    assert cure in found.fix
    assert (f"HTTP {status}" in found.problem) == (status is not None and status >= 400)


def test_a_token_that_is_refused_is_told_from_one_that_is_missing() -> None:
    given = ServerConfig("remote", url="https://example.com", transport="http", headers={"A": "b"})
    assert "is not accepted" in diagnose_server(given, "HTTP 401", [], 401).fix


def test_a_slow_server_may_only_be_downloading() -> None:
    found = diagnose_server(NPX, "it did not answer in time; raise `connectSeconds`", [])
    assert "may have to download it" in found.fix
    assert "30 now" in found.fix
