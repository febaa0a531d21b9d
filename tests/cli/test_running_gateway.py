"""The commands that talk to a running gateway."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.gateway.serving import GatewayProcess, running_gateway, server_entry, wait_until, write_json
from toolcrib.cli.main import toolcrib

KEY = "a-key-for-the-tests"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with a key, the demo server, and a server that writes to standard error."""
    folder = tmp_path_factory.mktemp("gateway")
    plain = server_entry("echo", tag="plain")
    command = shlex.join([plain["command"], *plain["args"]])
    servers = {
        "demo": {"command": sys.executable, "args": ["-m", "toolcrib.demo"], "connectSeconds": 300},
        "noisy": {"command": "sh", "args": ["-c", f"echo ready to serve >&2; exec {command}"], "connectSeconds": 300},
    }
    write_json(folder / "toolcrib.json", {"mcpServers": servers, "auth": {"keys": [KEY]}})
    with running_gateway(folder) as gateway:
        wait_until(lambda: all(one["state"] == "started" for one in gateway.servers(KEY).values()))
        yield gateway


def run(gateway: GatewayProcess, *arguments: str, key: str = KEY, text: str = "") -> Result:
    command, *rest = arguments
    environment = {"COLUMNS": "100", "TOOLCRIB_KEY": key}
    return CliRunner(env=environment).invoke(toolcrib, [command, "--url", gateway.url, *rest], input=text)


def test_tools_are_those_of_the_gateway(gateway: GatewayProcess) -> None:
    result = run(gateway, "tools", "--server", "noisy")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("noisy___echo")
    assert f"These are the tools of the gateway at {gateway.url}." in result.stderr
    document = json.loads(run(gateway, "tools", "--json", "--limit", "2").stdout)
    assert len(document["tools"]) == 2
    assert document["total"] == sum(one["tools"] for one in gateway.servers(KEY).values())
    assert document["tools"][0]["input_schema"]["type"] == "object"


def test_search_is_done_by_the_gateway(gateway: GatewayProcess) -> None:
    searches = gateway.request("/api/stats", KEY).json["counts"]
    result = run(gateway, "search", "--why", "noisy___echo", "--explain", "when is easter")
    assert result.exit_code == 0, result.output
    assert "demo___date_of_easter" in result.stdout
    assert "matched" in result.stdout
    assert "Why noisy___echo?" in result.stdout
    assert gateway.url in result.stderr
    assert searches is not None
    document = json.loads(run(gateway, "search", "--json", "--server", "demo", "when is easter").stdout)
    assert document["hits"][0]["tool"]["id"] == "demo___date_of_easter"
    assert document["groups"][0] == ["demo___date_of_easter"]


def test_more_hits_of_a_gateway_are_not_paged_by_offset(gateway: GatewayProcess) -> None:
    printed = run(gateway, "search", "convert a unit", "--limit", "1").stdout
    assert "There are more tools: raise --limit or add words." in printed
    assert "--offset" not in printed


def test_options_of_a_local_search_are_refused(gateway: GatewayProcess) -> None:
    assert "need --catalog" in run(gateway, "search", "--offset", "5", "easter").stderr
    result = run(gateway, "tools", "--catalog", "-", text="[]")
    assert "--catalog and --url cannot be used together" in result.stderr


def test_the_configured_gateway_is_found(
    gateway: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(gateway.url.rpartition(":")[2])
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(write_json(tmp_path / "toolcrib.json", {"http": {"port": port}})))
    result = CliRunner(env={"TOOLCRIB_KEY": KEY}).invoke(toolcrib, ["search", "when is easter"])
    assert f"gateway at {gateway.url}" in result.stderr
    assert "demo___date_of_easter" in result.stdout
    # The gateway is found without a key, but it does not answer.
    refused = CliRunner(env={"TOOLCRIB_KEY": ""}).invoke(toolcrib, ["tools"])
    assert refused.exit_code == 1
    assert "pass its key with --key or in TOOLCRIB_KEY" in refused.stderr


def test_without_a_gateway_the_demo_catalog_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(write_json(tmp_path / "toolcrib.json", {"http": {"port": port}})))
    result = CliRunner().invoke(toolcrib, ["tools", "--limit", "1"])
    assert "this is the demo catalog" in result.stderr
    (tmp_path / "toolcrib.json").write_text("{", encoding="utf-8")
    assert CliRunner().invoke(toolcrib, ["tools", "--limit", "1"]).exit_code == 0


def test_a_tool_is_called_with_validated_arguments(gateway: GatewayProcess) -> None:
    result = run(gateway, "call", "demo___date_of_easter", "--arguments", '{"year": 2026}')
    assert (result.exit_code, result.stdout) == (0, "2026-04-05\n")
    piped = run(gateway, "call", "demo___date_of_easter", "--arguments", "-", "--json", text='{"year": 2026}')
    assert json.loads(piped.stdout)["succeeded"] is True
    wrong = run(gateway, "call", "demo___date_of_easter", "--arguments", '{"year": "soon"}')
    assert wrong.exit_code == 1
    assert "year" in wrong.stderr
    unknown = run(gateway, "call", "demo___nothing")
    assert (unknown.exit_code, unknown.stderr) == (1, "Error: there is no tool 'demo___nothing'; search for its name\n")
    for near in ("date_of_easter", "demo__date_of_easter"):
        assert "did you mean demo___date_of_easter?" in run(gateway, "call", near).stderr
    assert "Pass a JSON object" in run(gateway, "call", "x", "--arguments", "{year: 1}").stderr
    assert "must be a JSON object" in run(gateway, "call", "x", "--arguments", "[1]").stderr


def test_logs_of_a_server_are_printed(gateway: GatewayProcess) -> None:
    assert run(gateway, "logs", "noisy", "--lines", "1").stdout.endswith("ready to serve\n")
    assert json.loads(run(gateway, "logs", "noisy", "--json").stdout)["server"] == "noisy"
    assert "has written nothing" in run(gateway, "logs", "demo").stderr
    assert "there is no server 'none'; `toolcrib status` lists them" in run(gateway, "logs", "none").stderr


def test_a_server_is_restarted(gateway: GatewayProcess) -> None:
    before = gateway.request("/api/servers/noisy", KEY).json["starts"]
    result = run(gateway, "restart", "noisy")
    assert (result.exit_code, result.stdout) == (0, "noisy has restarted: 1 tool.\n")
    assert gateway.request("/api/servers/noisy", KEY).json["starts"] == before + 1
    assert "there is no server" in run(gateway, "restart", "none").stderr
    refused = run(gateway, "restart", "noisy", key="wrong")
    assert "pass its key" in refused.stderr
