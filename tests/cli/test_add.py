"""`toolcrib add`: servers by command, by address and from the format of the MCP registry."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.gateway.serving import running_gateway, wait_until
from toolcrib.cli.gateway.servers.add import MAX_REGISTRY_BYTES
from toolcrib.cli.main import toolcrib
from toolcrib.config.loader import load_config
from toolcrib.config.registry_format import read_registry_server

PACKAGES: dict[str, Any] = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.github.example/weather",
    "description": "Weather.",
    "version": "1.2.0",
    "packages": [
        {"registryType": "mcpb", "identifier": "https://example.com/x.mcpb", "transport": {"type": "stdio"}},
        {
            "registryType": "npm",
            "identifier": "@example/weather",
            "version": "1.2.0",
            "transport": {"type": "stdio"},
            "packageArguments": [
                {"type": "positional", "valueHint": "target_dir", "isRequired": True},
                {"type": "named", "name": "--units", "default": "celsius"},
                {"type": "named", "name": "--db", "value": "{host}:${x}", "variables": {"host": {"default": "local"}}},
                {"type": "positional", "valueHint": "optional"},
                {"type": "named", "name": "--verbose"},
            ],
            "environmentVariables": [
                {"name": "WEATHER_KEY", "isRequired": True, "isSecret": True},
                {"name": "LOG_LEVEL", "default": "info"},
                {"name": "UNUSED"},
            ],
        },
        {
            "registryType": "oci",
            "identifier": "docker.io/example/weather:1.2.0",
            "transport": {"type": "stdio"},
            "runtimeArguments": [{"type": "named", "name": "--network", "value": "host"}],
            "environmentVariables": [{"name": "WEATHER_KEY", "isSecret": True}],
        },
        {"registryType": "nuget", "identifier": "Weather", "version": "2.0", "transport": {"type": "stdio"}},
    ],
    "remotes": [
        {
            "type": "streamable-http",
            "url": "https://{tenant}.example.com/mcp",
            "variables": {"tenant": {"isRequired": True}},
            "headers": [{"name": "X-Api-Key", "isSecret": True}, {"name": "X-Region", "default": "eu"}],
        }
    ],
}
# The spelling of 2025-07-09.
OLD = {
    "name": "weather-mcp",
    "packages": [{"registry_type": "pypi", "identifier": "weather", "version": "0.5", "runtime_hint": "uvx"}],
    "remotes": [{"transport_type": "sse", "url": "https://example.com/sse"}],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "toolcrib.json"
    path.write_text(
        '{\n  // mine\n  "mcpServers": {\n    "old": {"command": "x"}, // kept\n  },\n}\n', encoding="utf-8"
    )
    return path


def add(config: Path, *arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(toolcrib, ["add", "--config", str(config), *arguments], input=text)


def read_servers(config: Path) -> dict[str, Any]:
    """Return the entries as written, without the comments of the fixture."""
    text = config.read_text(encoding="utf-8").replace("// mine", "").replace("// kept", "")
    servers: dict[str, Any] = json.loads(text.replace(",\n  }", "\n  }").replace("},\n}", "}\n}"))["mcpServers"]
    return servers


def test_a_server_is_added_by_its_command_and_comments_are_kept(config: Path) -> None:
    result = add(config, "git", "--env", "A=${HOME}", "--", "uvx", "mcp-server-git", "--verbose")
    assert result.exit_code == 0, result.output
    assert f"git added to {config}" in result.stdout
    assert "// mine" in config.read_text() and "// kept" in config.read_text()
    server = load_config(config).servers["git"]
    assert (server.command, server.args) == ("uvx", ("mcp-server-git", "--verbose"))
    again = add(config, "git", "--", "other")
    assert again.exit_code == 1
    assert "there is already a server git; choose another name, or pass --replace" in again.stderr
    assert add(config, "git", "--replace", "--", "other").exit_code == 0
    assert load_config(config).servers["git"].command == "other"


def test_a_server_is_added_by_its_address(config: Path) -> None:
    options = ["--url", "https://example.com/mcp", "--header", "Authorization: Bearer ${UNSET_TOKEN}"]
    result = add(config, "remote", *options)
    assert "Set before you start the gateway: UNSET_TOKEN" in result.stderr
    assert read_servers(config)["remote"]["headers"] == {"Authorization": "Bearer ${UNSET_TOKEN}"}
    before = config.read_bytes()
    assert '"url": "https://example.com"' in add(config, "x", "--url", "https://example.com", "--dry-run").stdout
    assert "must be a URL" in add(config, "bad", "--url", "ftp://example.com").stderr
    assert config.read_bytes() == before


def test_a_new_file_is_created(tmp_path: Path) -> None:
    missing = CliRunner(env={"XDG_CONFIG_HOME": str(tmp_path), "TOOLCRIB_CONFIG": ""}).invoke(
        toolcrib, ["add", "a", "--", "x"]
    )
    assert missing.exit_code == 0, missing.output
    assert list(load_config(tmp_path / "toolcrib" / "toolcrib.json").servers) == ["a"]


def test_every_package_of_a_server_json_becomes_a_command() -> None:
    server = read_registry_server(PACKAGES, "x")
    assert (server.name, server.unsupported) == ("weather", ("mcpb",))
    entries = {option.kind: option.entry for option in server.options}
    assert entries["npm"] == {
        "command": "npx",
        "args": [
            *("-y", "@example/weather@1.2.0", "${TARGET_DIR}", "--units", "${UNITS:-celsius}"),
            *("--db", "${HOST:-local}:$${x}", "--verbose"),
        ],
        "env": {"WEATHER_KEY": "${WEATHER_KEY}", "LOG_LEVEL": "${LOG_LEVEL:-info}"},
    }
    assert entries["oci"]["args"] == [
        *("run", "-i", "--rm", "--network", "host", "-e", "WEATHER_KEY", "docker.io/example/weather:1.2.0")
    ]
    assert entries["nuget"] == {"command": "dnx", "args": ["Weather@2.0", "--yes", "--"]}
    assert entries["remote"] == {
        "type": "http",
        "url": "https://${TENANT}.example.com/mcp",
        "headers": {"X-Api-Key": "${X_API_KEY}", "X-Region": "${X_REGION:-eu}"},
    }
    old = {option.kind: option.entry for option in read_registry_server({"server": OLD}, "x").options}
    assert old["pypi"] == {"command": "uvx", "args": ["weather@0.5"]}
    assert old["remote"] == {"type": "sse", "url": "https://example.com/sse"}


def test_the_note_on_other_packages_does_not_name_the_chosen_one(config: Path) -> None:
    packages = [{"registryType": kind, "identifier": "weather"} for kind in ("npm", "pypi")]
    document = {"name": "io.github.example/weather", "version": "1", "packages": packages}
    note = add(config, "--from", "-", "--dry-run", text=json.dumps(document)).stderr
    chosen, other = ("npm", "pypi") if "Uses npm." in note else ("pypi", "npm")
    assert f"Uses {chosen}. The server also has: {other}; choose with --package." in note


def test_a_server_json_is_added_from_a_file(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    file.write_text(json.dumps(PACKAGES), encoding="utf-8")
    result = add(config, "--from", str(file), "--package", "remote")
    assert result.exit_code == 0, result.output
    entry = read_servers(config)["weather"]
    assert entry["importedFrom"] == f"MCP registry: {file}"
    assert "X_API_KEY" in result.stderr and "TENANT" in result.stderr
    assert (
        "has no package cargo; it has: npm, oci, nuget, remote"
        in add(config, "--from", str(file), "--package", "cargo").stderr
    )
    piped = add(config, "named", "--from", "-", "--package", "pypi", text=json.dumps({"servers": [{"server": OLD}]}))
    assert piped.exit_code == 0, piped.output
    assert "named" in read_servers(config)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "x"}, "has no package that can be started and no address"),
        ({"name": "x", "packages": PACKAGES["packages"][:1]}, "it has only: mcpb"),
        ({"servers": [{}, {}]}, "has 2 servers; pass the address of one server"),
        ([1], "is not a server.json"),
        ({"name": 5}, "is not a server.json"),
    ],
)
def test_a_document_that_cannot_be_used_is_explained(config: Path, document: object, message: str) -> None:
    result = add(config, "--from", "-", text=json.dumps(document))
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "Give either a command after --, or --url, or --from, or --openapi."),
        (["a", "--url", "https://x.example", "--", "x"], "Give either"),
        (["a", "--package", "npm", "--", "x"], "--package needs --from."),
        (["--url", "https://x.example"], "Give the server a name"),
        (["a", "--env", "A", "--", "x"], "--env NAME=VALUE"),
    ],
)
def test_wrong_options_are_explained(config: Path, arguments: list[str], message: str) -> None:
    result = add(config, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


class _Registry(BaseHTTPRequestHandler):
    """Answers like a registry, and badly."""

    def do_GET(self) -> None:
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest/meta-data")
            self.end_headers()
            return
        bodies = {
            "/v0.1/servers/weather/versions/latest": json.dumps({"server": OLD, "_meta": {}}).encode(),
            "/large": b" " * (MAX_REGISTRY_BYTES + 2),
            "/html": b"<html>",
        }
        body = bodies.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_json_is_added_from_an_address(config: Path, registry: str) -> None:
    result = add(config, "--from", f"{registry}/v0.1/servers/weather/versions/latest", "--package", "remote")
    assert result.exit_code == 0, result.output
    assert load_config(config).servers["weather-mcp"].transport == "sse"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/none", "returned HTTP 404"),
        ("/redirect", "redirects to http://169.254.169.254/latest/meta-data; pass that address if you trust it"),
        ("/large", "is larger than 1 MiB"),
        ("/html", "is not JSON"),
    ],
)
def test_an_address_that_cannot_be_used_is_explained(config: Path, registry: str, path: str, message: str) -> None:
    result = add(config, "--from", f"{registry}{path}")
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_running_gateway_starts_an_added_server(tmp_path: Path) -> None:
    config = tmp_path / "toolcrib.json"
    config.write_text('{"mcpServers": {}}', encoding="utf-8")
    with running_gateway(tmp_path) as gateway:
        result = add(config, "demo", "--", sys.executable, "-m", "toolcrib.demo")
        assert result.exit_code == 0, result.output
        wait_until(lambda: gateway.servers().get("demo", {}).get("state") == "started")
        assert gateway.servers()["demo"]["tools"] > 10
