"""Discovery and import of the servers of opencode, Zed, Cline, Continue, LM Studio, Goose, JetBrains and Kiro."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.config.clients.client_files import machine, put, put_all, put_others
from toolcrib.config.clients.importing import discover_servers, plan_import
from toolcrib.config.clients.locations import KIRO_POWERS_SECTION, HostSystem, list_client_files
from toolcrib.config.clients.translation import DiscoveredServer
from toolcrib.config.clients.write_back import apply_restore, apply_rewrite, plan_restore, plan_rewrite
from toolcrib.config.parser import parse_config
from toolcrib.errors import InvalidConfig
from toolcrib.files.yaml_text import MAX_YAML_DEPTH, parse_yaml

# Seven levels of ten aliases each: ten million values in a few hundred characters.
_ALIAS_BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in pairwise("abcdefg")
)


@pytest.fixture
def host(tmp_path: Path) -> HostSystem:
    host = machine(tmp_path)
    put_others(host)
    return host


def _discover(host: HostSystem, client: str) -> dict[str, DiscoveredServer]:
    return {one.name: one for one in discover_servers(host, [client]).servers}


def test_opencode_is_read_in_both_versions(host: HostSystem) -> None:
    found = _discover(host, "opencode")
    assert list(found) == ["everything", "jira", "files"]
    assert found["everything"].entry == {
        "type": "stdio",
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-everything"],
        "env": {"TOKEN": "${GITHUB_TOKEN}", "COST": "$${5}"},
        "enabled": False,
    }
    # The content of the file is not known here, so the server waits for the user.
    assert found["jira"].entry["enabled"] is False
    assert "{file:~/.key} is not supported: replace it with its value" in found["jira"].notes
    assert found["files"].entry["cwd"] == str(host.project_folder)
    assert found["files"].entry["enabled"] is False


def test_zed_is_read(host: HostSystem) -> None:
    found = _discover(host, "zed")
    assert found["plain"].entry == {"command": "uvx", "args": ["mcp-server-git", "$${HOME}"], "callSeconds": 90}
    assert found["old"].entry == {"command": "node", "args": ["server.js"], "env": {"A": "b"}}
    assert found["remote"].entry == {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer x"}}
    assert "add it with its command" in found["extension"].error


def test_cline_is_read_with_its_timeout_in_seconds(host: HostSystem) -> None:
    found = _discover(host, "cline")
    assert found["slow"].entry == {
        "command": "node",
        "args": ["/srv/index.js"],
        "callSeconds": 60,
        "enabled": False,
        "env": {"KEY": "${DB_KEY}"},
    }
    assert found["remote"].entry["type"] == "http"


def test_continue_is_read_with_both_servers_of_one_name(host: HostSystem) -> None:
    found = _discover(host, "continue")
    assert list(found) == ["SQLite", "SQLite-2", "copied"]
    assert found["SQLite"].entry == {
        "command": "npx",
        "args": ["-y", "mcp-sqlite", "/data/test.db", "costs $${5}"],
        "env": {"KEY": "${DB_KEY}"},
        "connectSeconds": 20,
    }
    assert found["SQLite-2"].entry["headers"] == {"Authorization": "Bearer ${my_token}"}
    assert found["SQLite-2"].notes == ("not set: my_token; set it before you start the gateway",)


def test_goose_is_read_without_its_own_extensions(host: HostSystem) -> None:
    found = _discover(host, "goose")
    assert list(found) == ["github", "remote", "script"]
    assert found["github"].entry == {
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-github", "$HOME"],
        "type": "stdio",
        "enabled": True,
        "toolsAllowed": ["search"],
        "env": {"LOG": "$${x}", "GITHUB_TOKEN": "${GITHUB_TOKEN}", "MISSING_TOKEN": "${MISSING_TOKEN}"},
        "callSeconds": 300,
    }
    assert "not set: MISSING_TOKEN" in found["github"].notes[0]
    assert found["remote"].entry["headers"] == {"Authorization": "Bearer ${DB_KEY}"}
    assert found["remote"].entry["type"] == "http"
    assert "save it as a server of its own" in found["script"].error


def test_lm_studio_jetbrains_and_kiro_are_read(host: HostSystem) -> None:
    assert _discover(host, "lm-studio")["hf-mcp-server"].entry["url"] == "https://huggingface.co/mcp"
    assert _discover(host, "jetbrains")["ide"].entry["args"] == ["ide", "$${x}"]
    kiro = _discover(host, "kiro")["aws"].entry
    assert (kiro["env"], kiro["toolsBlocked"], kiro["enabled"]) == ({"K": "${DB_KEY}"}, ["write"], True)


def test_no_server_of_any_client_is_lost(tmp_path: Path) -> None:
    host = machine(tmp_path, AIRTABLE_KEY="x")
    put_all(host)
    put_others(host)
    discovery = discover_servers(host)
    assert discovery.errors == ()
    plan = plan_import(tmp_path / "toolcrib.json", discovery.servers, host.environment)
    skipped = {item.server.name for item in plan.servers if item.outcome == "skipped"}
    assert skipped == {"extension", "script"}
    config = parse_config(json.loads(plan.after), host.environment)
    assert len(config.servers) == len(plan.servers) - len(skipped)
    sources = {item.server.source.title for item in plan.servers}
    assert {"opencode", "Zed", "Cline", "Continue", "LM Studio", "Goose", "JetBrains", "Kiro"} <= sources
    assert f'"importedFrom": "Goose: {host.home}/.config/goose/config.yaml"' in plan.after.decode()


def test_locations_follow_the_operating_system(tmp_path: Path) -> None:
    windows = HostSystem("win32", tmp_path, {"APPDATA": "/roaming"}, tmp_path / "x")
    paths = {str(file.path) for file in list_client_files(windows)}
    assert "/roaming/Zed/settings.json" in paths
    assert "/roaming/Block/goose/config/config.yaml" in paths
    assert f"{tmp_path}/.config/opencode/opencode.json" in paths
    environment = {"OPENCODE_CONFIG": "/own/opencode.json", "CLINE_DIR": "/cline"}
    mac = {str(file.path) for file in list_client_files(HostSystem("darwin", tmp_path, environment, tmp_path / "x"))}
    assert {"/own/opencode.json", "/cline/data/settings/cline_mcp_settings.json"} <= mac
    assert {f"{tmp_path}/.config/zed/settings.json", f"{tmp_path}/.config/goose/config.yaml"} <= mac
    assert f"{tmp_path}/x/.air/mcp.json" in mac


def test_a_file_with_comments_is_rewritten(host: HostSystem) -> None:
    files = {file.client: file for file in list_client_files(host) if file.path.is_file()}
    after = plan_rewrite(files["zed"], {files["zed"].section: ["plain"]}, ["toolcrib", "stdio"]).after.decode()
    assert "// Fonts" in after
    assert '"toolcrib"' in after


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extensions: [", "not valid YAML: line"),
        ("a: " + "[" * (MAX_YAML_DEPTH + 1), "nested too deeply"),
        (_ALIAS_BOMB, "more than 500,000 values"),
        ("a: 2026-99-99", "not valid YAML"),
    ],
)
def test_bad_yaml_is_an_error_with_the_file(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_yaml("config.yaml", text, InvalidConfig)


def test_yaml_values_become_json_values() -> None:
    text = "2: 2026-01-02\nset: !!set {a}\nempty:\nyes: true\n"
    assert parse_yaml("x", text, InvalidConfig) == {"2": "2026-01-02", "set": ["a"], "empty": None, "True": True}


def test_an_empty_or_broken_yaml_file_does_not_stop_the_import(tmp_path: Path) -> None:
    host = machine(tmp_path)
    put(host.home / ".config" / "goose" / "config.yaml", "extensions:\n")
    put(host.home / ".continue" / "config.yaml", "mcpServers: [")
    put(host.home / ".kiro" / "settings" / "mcp.json", '{"mcpServers": {"a": {"command": "x"}}}')
    discovery = discover_servers(host)
    assert [one.name for one in discovery.servers] == ["a"]
    assert len(discovery.errors) == 1


def test_cline_may_keep_the_command_in_a_transport_object(tmp_path: Path) -> None:
    host = machine(tmp_path)
    nested = {"transport": {"type": "stdio", "command": "npx", "args": ["-y", "notes"]}, "metadata": {"from": "hub"}}
    remote = {"transport": {"type": "streamableHttp", "url": "https://example.com/mcp"}, "disabled": True}
    old = {"transportType": "http", "url": "https://example.com/old"}
    servers = {"mcpServers": {"nested": nested, "remote": remote, "old": old}}
    put(host.home / ".cline" / "data" / "settings" / "cline_mcp_settings.json", json.dumps(servers))
    found = _discover(host, "cline")
    assert found["nested"].entry == {"type": "stdio", "command": "npx", "args": ["-y", "notes"]}
    assert found["remote"].entry == {"type": "http", "url": "https://example.com/mcp", "enabled": False}
    assert found["old"].entry == {"type": "http", "url": "https://example.com/old"}
    assert not any(server.notes for server in found.values())


def test_a_file_of_continue_may_be_one_server(tmp_path: Path) -> None:
    host = machine(tmp_path)
    path = host.home / ".continue" / "mcpServers" / "notes.json"
    put(path, '{"command": "notes-server", "args": ["--all"]}')
    found = _discover(host, "continue")
    assert found["notes"].entry == {"command": "notes-server", "args": ["--all"]}
    with pytest.raises(InvalidConfig, match="delete it by hand"):
        plan_rewrite(found["notes"].source, {("mcpServers",): ["notes"]}, ["toolcrib", "stdio"])


def test_a_block_of_the_continue_hub_is_named_and_its_key_becomes_a_header(tmp_path: Path) -> None:
    host = machine(tmp_path)
    put(
        host.home / ".continue" / "config.yaml",
        "mcpServers:\n  - uses: example/memory\n"
        "  - name: Linear\n    url: https://example.com/mcp\n    apiKey: ${{ secrets.LINEAR }}\n",
    )
    found = _discover(host, "continue")
    assert found["example/memory"].error == "the file names a block of Continue's hub; add the server with its command"
    assert found["Linear"].entry["headers"] == {"Authorization": "Bearer ${LINEAR}"}


def test_servers_of_powers_are_imported_from_kiro_and_restored(tmp_path: Path) -> None:
    host = machine(tmp_path)
    path = host.home / ".kiro" / "settings" / "mcp.json"
    put(path, '{"mcpServers": {"a": {"command": "a"}}, "powers": {"mcpServers": {"power-b": {"command": "b"}}}}')
    found = _discover(host, "kiro")
    assert list(found) == ["a", "power-b"]
    before = path.read_bytes()
    sections = {server.source.section: [name] for name, server in found.items()}
    apply_rewrite(plan_rewrite(found["a"].source, sections, ["toolcrib", "stdio"]))
    assert b"power-b" not in path.read_bytes()
    restore = plan_restore(found["a"].source, [KIRO_POWERS_SECTION])
    assert restore is not None
    apply_restore(restore)
    assert path.read_bytes() == before


def test_an_opencode_server_of_an_organization_is_skipped_with_a_reason(tmp_path: Path) -> None:
    host = machine(tmp_path)
    put(host.home / ".config" / "opencode" / "opencode.json", '{"mcp": {"jira": {"enabled": true}}}')
    assert "add it with its address" in _discover(host, "opencode")["jira"].error


def test_servers_that_a_client_switches_off_elsewhere_stay_disabled(tmp_path: Path) -> None:
    host = machine(tmp_path)
    servers = {"a": {"command": "a"}, "b": {"command": "b"}}
    settings = {"mcp": {"excluded": ["b"]}, "mcpServers": servers}
    put(host.home / ".gemini" / "settings.json", json.dumps(settings))
    project = {"mcpServers": servers, "disabledMcpServers": ["a"]}
    put(host.home / ".claude.json", json.dumps({"projects": {str(host.project_folder): project}}))
    gemini, claude = _discover(host, "gemini"), _discover(host, "claude-code")
    assert [gemini[name].entry.get("enabled", True) for name in ("a", "b")] == [True, False]
    assert [claude[name].entry.get("enabled", True) for name in ("a", "b")] == [False, True]


def test_a_header_of_goose_may_use_a_value_of_its_entry(tmp_path: Path) -> None:
    host = machine(tmp_path)
    put(
        host.home / ".config" / "goose" / "config.yaml",
        "extensions:\n  remote:\n    type: streamable_http\n    uri: https://example.com/mcp\n"
        "    envs: {TENANT: acme}\n    headers: {X-Tenant: '${TENANT}', X-Key: '$KEY and $OTHER'}\n",
    )
    remote = _discover(host, "goose")["remote"]
    assert remote.entry["headers"] == {"X-Tenant": "acme", "X-Key": "${KEY} and ${OTHER}"}
    assert remote.notes == ("not set: KEY, OTHER; set them before you start the gateway",)
