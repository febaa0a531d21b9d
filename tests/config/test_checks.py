"""Problems of a configuration that are found without starting a server."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.config.checks import ConfigFinding, check_config, find_plain_secrets, find_unset_variables
from toolcrib.config.parser import parse_config


def _find(document: dict[str, Any], *missing: str) -> list[ConfigFinding]:
    def which(program: str, path: str | None) -> str | None:
        return None if program in missing else f"/bin/{program}"

    return list(check_config(parse_config(document, {}), which, lambda path: path != "/nope"))


def _of_server(entry: dict[str, Any], *missing: str) -> list[ConfigFinding]:
    return _find({"mcpServers": {"one": entry}}, *missing)


def test_valid_config_has_no_findings() -> None:
    servers = {
        "a": {"command": "npx", "args": ["-y", "@scope/server-token-counter", "/tmp"]},
        "b": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer abcdefgh"}},
        "c": {"url": "http://localhost:3000/mcp"},
        "d": {"url": "http://[::1]:3000/mcp"},
        "e": {"command": "uvx", "args": ["mcp-server", "--token-file", "x", "--verbose"]},
    }
    document = {"mcpServers": servers, "toolSearch": {"alwaysExpose": ["a___x", "*___y", "z"]}}
    assert _find(document) == []


@pytest.mark.parametrize(
    ("command", "what", "cure"),
    [
        ("npx", "the program 'npx' was not found", "install Node.js (https://nodejs.org), which includes npx"),
        ("uvx", "the program 'uvx' was not found", "install uv (https://docs.astral.sh/uv), which includes uvx"),
        (
            "/opt/bin/docker",
            "the program '/opt/bin/docker' was not found",
            "install Docker (https://docs.docker.com/get-docker), and start it, or correct the path",
        ),
        ("my-server", "the program 'my-server' was not found", "install it, or use its full path as the command"),
    ],
)
def test_missing_program_is_reported_with_install_hint(command: str, what: str, cure: str) -> None:
    assert _of_server({"command": command}, command) == [ConfigFinding("error", what, cure, "one")]
    assert _of_server({"command": command, "enabled": False}, command) == []


@pytest.mark.parametrize(
    ("command", "others", "cure"),
    [
        ("echo hi there", [], 'put its arguments into "args", and only \'echo\' into "command"'),
        ("npx -y x", ["npx"], 'put its arguments into "args", and only \'npx\' into "command"'),
        ("gone now", ["gone"], 'put its arguments into "args", and only \'gone\' into "command"'),
        ("/my programs/x", ["/my"], "install it, or use its full path as the command"),
        (" ", [], "install it, or use its full path as the command"),
    ],
)
def test_arguments_in_the_command_are_reported(command: str, others: list[str], cure: str) -> None:
    (found,) = _of_server({"command": command}, command, *others)
    assert (found.severity, found.fix) == ("error", cure)


def test_missing_working_directory_is_reported() -> None:
    (found,) = _of_server({"command": "./x", "cwd": "/nope"})
    assert found.severity == "error"
    assert found.problem == "its working directory '/nope' does not exist"
    assert "cwd" in found.fix
    assert _of_server({"command": "./x", "cwd": "/there"}) == []


def test_program_is_searched_in_the_path_and_cwd_of_the_server() -> None:
    asked: list[tuple[str, str | None]] = []

    def which(program: str, path: str | None) -> str | None:
        asked.append((program, path))
        return program

    servers = {"a": {"command": "x", "env": {"PATH": "/only/here"}}, "b": {"command": "./run.sh", "cwd": "/srv"}}
    check_config(parse_config({"mcpServers": servers}, {}), which, bool)
    assert asked == [("x", "/only/here"), ("/srv/run.sh", None)]


@pytest.mark.parametrize(
    "args",
    [
        ["--api-key", "abc"],
        ["--api-key=abc"],
        ["-e", "GITHUB_TOKEN=abc"],
        ["--header", "Authorization: Bearer abcdefghijklmnopqrst"],
        ["sk-ant-api03-abcdefghijklmnop"],
        ["ghp_abcdefghijklmnopqrstuvwxyz"],
        ["postgresql://user:hunter2@host/db"],
    ],
)
def test_secret_argument_is_reported_without_its_value(args: list[str]) -> None:
    found = _of_server({"command": "x", "args": args})
    assert [one.severity for one in found] == ["warning"]
    assert "looks like a secret, and other processes can read it" in found[0].problem
    assert not any(arg in str(found) for arg in args)


def test_secret_in_url_is_reported() -> None:
    for url in ("https://a:b@example.com/mcp", "https://example.com/mcp?api_key=abc"):
        found = _of_server({"url": url})
        assert [one.fix for one in found] == ["pass it in headers"]


def test_plain_http_to_another_machine_is_reported() -> None:
    assert [one.severity for one in _of_server({"url": "http://example.com/mcp"})] == ["warning"]
    entry = {"url": "http://example.com/mcp", "headers": {"Authorization": "x"}}
    assert [one.severity for one in _of_server(entry)] == ["error"]


def test_sse_transport_is_noted() -> None:
    found = _of_server({"url": "https://example.com/sse", "type": "sse"})
    assert [one.severity for one in found] == ["note"]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("s" * 40, "its name leaves 21 characters for tool names; longer ones are cut"),
        ("s" * 100, "its name leaves 0 characters for tool names; longer ones are cut"),
        ("my server", "its name contains characters that tool names cannot have"),
        ("a___b", "its name contains ___, which separates server and tool"),
    ],
)
def test_server_names_that_make_bad_tool_names_are_reported(name: str, what: str) -> None:
    found = _find({"mcpServers": {name: {"command": "x"}}})
    assert [what in one.problem for one in found] == [True]
    assert _find({"mcpServers": {name: {"command": "x", "alias": "ok"}}}) == []


def test_duplicate_server_is_reported() -> None:
    entry = {"command": "x", "args": ["y"], "env": {"A": "b"}}
    servers = {"one": entry, "two": entry, "off": {**entry, "enabled": False}, "else": {**entry, "env": {}}}
    found = _find({"mcpServers": servers})
    assert found == [
        ConfigFinding("warning", "it is the same server as one, so its tools appear twice", "remove one", "two")
    ]


def test_exposed_gateway_is_reported() -> None:
    assert [one.severity for one in _find({"http": {"host": "0.0.0.0"}})] == ["error"]
    keys = {"keys": ["a secret key"]}
    found = _find({"http": {"host": "0.0.0.0"}, "auth": keys})
    assert [one.severity for one in found] == ["warning"]
    named = {"host": "0.0.0.0", "allowedHosts": ["crib.example"]}
    assert _find({"http": named, "auth": keys}) == []
    assert _find({"http": {"host": "::1"}}) == []


def test_always_expose_of_unknown_server_is_reported() -> None:
    document = {
        "mcpServers": {"github": {"command": "x", "alias": "gh"}},
        "toolSearch": {"alwaysExpose": ["githup___x", "gh___y", "github___y"]},
        "profiles": {"p": {"alwaysExpose": ["slack___x"]}},
    }
    assert [one.problem for one in _find(document)] == [
        "toolSearch.alwaysExpose names 'githup___x', but there is no server 'githup'",
        "profiles.p.alwaysExpose names 'slack___x', but there is no server 'slack'",
    ]


def test_override_without_a_server_is_reported() -> None:
    document: dict[str, Any] = {"mcpServers": {}, "overrides": {"list": {"hint": "x"}, "l*": {"hint": "x"}}}
    (found,) = _find(document)
    assert found.problem == "overrides names 'list', which is neither `server___tool` nor a pattern"
    assert _find({**document, "toolSearch": {"prefix": False}}) == []


def test_errors_come_first_and_notes_last() -> None:
    servers = {"my server": {"command": "x", "envFile": ".env", "args": ["--token=x"]}, "b": {"command": "gone"}}
    found = _find({"mcpServers": servers}, "gone")
    assert [one.severity for one in found] == ["error", "warning", "note", "note"]
    assert found[2].problem == "server my server: envFile is not read here; put its variables into env"


def test_every_unset_variable_is_reported() -> None:
    document = {
        "servers": {
            "a": {"command": "x", "env": {"T": "${ONE}", "U": "${TWO:-x}"}},
            "off": {"command": "x", "disabled": True, "env": {"T": "${THREE}"}},
            "broken": 5,
        },
        "auth": {"keys": ["${FOUR}", "${SET}"]},
    }
    found = find_unset_variables(document, {"SET": ""})
    assert [(one.server, one.problem) for one in found] == [
        ("", "the environment variable FOUR is not set"),
        ("a", "the environment variable ONE is not set"),
    ]
    assert find_unset_variables([], {}) == ()


def test_plain_credentials_of_an_api_are_found() -> None:
    entry = {"openapi": "x.json", "basicAuth": "me:swordfish", "query": {"api_key": "abcdefgh"}}
    document = {"mcpServers": {"shop": entry, "safe": {"basicAuth": "${USER}:${PASSWORD}"}}}
    assert find_plain_secrets(document) == ["mcpServers.shop.basicAuth", "mcpServers.shop.query.api_key"]
