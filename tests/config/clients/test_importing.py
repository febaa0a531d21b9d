"""Discovery and import of the servers of every client."""

from __future__ import annotations

import json
from pathlib import Path, PureWindowsPath

import pytest

from tests.config.clients.client_files import machine, put, put_all
from toolcrib.config.clients.importing import discover_servers, plan_import
from toolcrib.config.clients.locations import CLIENTS, HostSystem, list_client_files
from toolcrib.config.clients.translation import DiscoveredServer
from toolcrib.config.loader import load_config
from toolcrib.config.parser import parse_config
from toolcrib.errors import InvalidConfig


def _discover(host: HostSystem, *clients: str) -> dict[str, DiscoveredServer]:
    return {one.name: one for one in discover_servers(host, clients).servers}


@pytest.fixture
def host(tmp_path: Path) -> HostSystem:
    host = machine(tmp_path)
    put_all(host)
    return host


def test_every_client_has_a_file_on_every_system(tmp_path: Path) -> None:
    home = tmp_path / "me"
    seen = {
        system: [place.path for place in list_client_files(HostSystem(system, home, {}, tmp_path))]
        for system in ("darwin", "win32", "linux")
    }
    for paths in seen.values():
        assert home / ".cursor" / "mcp.json" in paths
        assert home / ".codex" / "config.toml" in paths
        assert home / ".gemini" / "settings.json" in paths
        assert home / ".claude.json" in paths
        assert home / ".codeium" / "windsurf" / "mcp_config.json" in paths
        assert tmp_path / ".mcp.json" in paths
        assert tmp_path / ".vscode" / "mcp.json" in paths
    library = home / "Library" / "Application Support"
    assert library / "Claude" / "claude_desktop_config.json" in seen["darwin"]
    assert library / "Code" / "User" / "mcp.json" in seen["darwin"]
    roaming = home / "AppData" / "Roaming"
    assert roaming / "Claude" / "claude_desktop_config.json" in seen["win32"]
    assert roaming / "Code" / "User" / "mcp.json" in seen["win32"]
    assert any("LocalCache" in path.parts for path in seen["win32"])
    config = home / ".config"
    assert config / "Claude" / "claude_desktop_config.json" in seen["linux"]
    assert config / "Code - Insiders" / "User" / "mcp.json" in seen["linux"]
    host = HostSystem("linux", home, {}, tmp_path)
    assert {place.client for place in list_client_files(host)} == set(CLIENTS)


def test_environment_variables_change_the_locations(tmp_path: Path) -> None:
    variables = {
        "APPDATA": "/roaming",
        "LOCALAPPDATA": "/local",
        "CODEX_HOME": "/codex",
        "CLAUDE_CONFIG_DIR": "/claude",
    }
    host = HostSystem("win32", tmp_path, variables, tmp_path / "x")
    paths = [str(place.path) for place in list_client_files(host)]
    assert "/roaming/Claude/claude_desktop_config.json" in paths
    assert "/codex/config.toml" in paths
    assert "/claude/.claude.json" in paths
    assert any(path.startswith("/local/Packages/Claude_") for path in paths)
    linux = HostSystem("linux", tmp_path, {"XDG_CONFIG_HOME": "/xdg"}, tmp_path)
    assert any(str(place.path).startswith("/xdg/Code/") for place in list_client_files(linux))


def test_windows_project_is_also_searched_with_slashes() -> None:
    host = HostSystem("win32", Path("/h"), {}, PureWindowsPath("C:\\a\\b"))  # type: ignore[arg-type]
    sections = [place.section for place in list_client_files(host) if place.section[0] == "projects"]
    assert sections == [("projects", "C:\\a\\b", "mcpServers"), ("projects", "C:/a/b", "mcpServers")]


def test_vscode_profiles_are_found(tmp_path: Path) -> None:
    host = machine(tmp_path)
    text = '{"servers": {"p": {"command": "x"}}}'
    put(host.home / ".config" / "Code" / "User" / "profiles" / "-1a2b" / "mcp.json", text)
    assert list(_discover(host)) == ["p"]


def test_claude_desktop_is_read(host: HostSystem) -> None:
    found = _discover(host, "claude-desktop")
    assert found["filesystem"].entry == {
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Desktop"],
    }
    assert found["github"].entry["env"] == {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_hush"}
    assert "hush" not in repr(found)


def test_claude_desktop_variables_are_escaped(tmp_path: Path) -> None:
    host = machine(tmp_path)
    path = host.home / ".config" / "Claude" / "claude_desktop_config.json"
    put(path, '{"mcpServers": {"a": {"command": "sh", "args": ["-c", "echo ${X}"]}}}')
    assert _discover(host)["a"].entry["args"] == ["-c", "echo $${X}"]


def test_claude_code_is_read(host: HostSystem) -> None:
    found = _discover(host, "claude-code")
    assert list(found) == ["sentry", "airtable", "local", "shared", "needy"]
    assert found["sentry"].entry == {"type": "http", "url": "https://mcp.sentry.dev/mcp"}
    assert found["airtable"].entry["env"] == {"AIRTABLE_API_KEY": "${AIRTABLE_KEY:-none}"}
    # A server of a project is started in the folder of the project.
    assert found["local"].entry == {"command": "./server.py", "args": ["--here"], "cwd": str(host.project_folder)}
    assert found["shared"].entry == {"type": "sse", "url": "${BASE_URL:-https://example.com}/sse"}
    assert "enabled" not in found["needy"].entry
    assert found["needy"].notes == ("not set: UNSET_KEY; set it before you start the gateway",)


def test_all_projects_of_claude_code_can_be_read(host: HostSystem) -> None:
    found = {one.name: one for one in discover_servers(host, ["claude-code"], all_projects=True).servers}
    assert found["elsewhere"].entry["cwd"] == "/other/project"
    assert found["local"].entry["cwd"] == str(host.project_folder)


def test_cursor_is_read(host: HostSystem) -> None:
    found = _discover(host, "cursor")
    assert found["github"].entry == {
        "url": "https://api.githubcopilot.com/mcp/",
        "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
    }
    assert found["events"].entry == {"url": "https://example.com/sse", "type": "sse"}
    assert found["files"].entry == {
        "command": "npx",
        "args": ["-y", "files", f"{host.home}/x", "$${workspaceFolder}", "costs $${5}"],
        "enabled": False,
    }
    assert found["files"].notes == (
        "${workspaceFolder} is not supported: replace it with its value",
        "envFile is not read here; put its variables into env",
        'disabled: correct this, then remove "enabled": false',
    )


def test_workspace_folder_is_known_in_project_files(tmp_path: Path) -> None:
    host = machine(tmp_path)
    text = '{"mcpServers": {"a": {"command": "${workspaceFolder}/run", "cwd": "sub"}}}'
    put(host.project_folder / ".cursor" / "mcp.json", text)
    assert _discover(host)["a"].entry == {"command": f"{host.project_folder}/run", "cwd": f"{host.project_folder}/sub"}


def test_vscode_is_read(host: HostSystem) -> None:
    found = _discover(host, "vscode")
    assert list(found) == ["perplexity", "learn", "old"]
    assert found["perplexity"].entry["env"] == {"PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}"}
    assert "enabled" not in found["perplexity"].entry
    assert found["perplexity"].notes[0] == ("the client prompts for perplexity-key: set the variable PERPLEXITY_KEY")
    assert found["learn"].entry == {"type": "http", "url": "https://learn.microsoft.com/api/mcp"}
    assert found["old"].entry == {"command": "uvx", "args": ["old-server"]}


def test_prompted_input_may_be_set_as_variable(tmp_path: Path) -> None:
    host = machine(tmp_path, PERPLEXITY_KEY="x")
    put_all(host)
    assert "enabled" not in _discover(host, "vscode")["perplexity"].entry


def test_windsurf_is_read(host: HostSystem) -> None:
    found = _discover(host, "windsurf")
    assert found["remote"].entry == {"url": "https://example.com/mcp", "headers": {"X-Key": "abc"}}
    assert found["git"].entry == {
        "command": "uvx",
        "args": ["mcp-server-git"],
        "toolsBlocked": ["git_push"],
        "enabled": False,
    }


def test_codex_is_read(host: HostSystem) -> None:
    found = _discover(host, "codex")
    assert found["context7"].entry == {
        "command": "npx",
        "args": ["-y", "@upstash/context7-mcp", "$${literally}"],
        "toolsAllowed": ["search"],
        "connectSeconds": 20,
        "callSeconds": 45,
        "env": {"MY_ENV_VAR": "MY_ENV_VALUE", "LOCAL_TOKEN": "${LOCAL_TOKEN:-}", "OTHER": "${OTHER:-}"},
    }
    assert found["figma"].entry == {
        "url": "https://mcp.figma.com/mcp",
        "enabled": False,
        "headers": {
            "X-Figma-Region": "us-east-1",
            "X-Team": "${FIGMA_TEAM}",
            "Authorization": "Bearer ${FIGMA_OAUTH_TOKEN}",
        },
    }


def test_gemini_is_read(host: HostSystem) -> None:
    found = _discover(host, "gemini")
    assert found["python"].entry == {
        "command": "python",
        "args": ["-m", "my_mcp_server", "$5"],
        "env": {"DATABASE_URL": "${DB_URL}", "API_KEY": "${DB_KEY}"},
        "cwd": "/srv/server",
        "toolsAllowed": ["safe_tool"],
        "toolsBlocked": ["rm"],
        "callSeconds": 15.0,
    }
    assert found["http"].entry == {"url": "http://localhost:3000/mcp", "callSeconds": 5.0}


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("[]", "it is not an object"),
        ("{}", 'has neither "command" nor "url"'),
        ('{"command": 1}', "must be a string, not a number"),
        ('{"command": "x", "timeout": "long"}', "must be a number of milliseconds"),
        ('{"url": "unix:/x"}', "must be a URL"),
    ],
)
def test_unusable_entry_has_an_error(tmp_path: Path, entry: str, fault: str) -> None:
    host = machine(tmp_path)
    put(host.home / ".cursor" / "mcp.json", f'{{"mcpServers": {{"a": {entry}}}}}')
    assert fault in _discover(host)["a"].error


def test_unknown_keys_are_left_out_with_a_note(tmp_path: Path) -> None:
    host = machine(tmp_path)
    text = '{"mcpServers": {"a": {"url": "${env:GITHUB_TOKEN}", "magic": 1, "trust": true}}}'
    put(host.home / ".cursor" / "mcp.json", text)
    found = _discover(host)["a"]
    assert found.entry == {"url": "${GITHUB_TOKEN}"}
    assert found.notes == ("unknown keys were left out: magic",)


def test_toolcrib_entry_is_not_imported(tmp_path: Path) -> None:
    host = machine(tmp_path)
    servers = {
        "a": {"command": "/usr/bin/toolcrib", "args": ["stdio"]},
        "b": {"command": "C:\\bin\\toolcrib.exe"},
        "c": {"command": "python", "args": ["-m", "toolcrib", "stdio"]},
        "d": {"command": "uvx", "args": ["toolcrib", "stdio"]},
        "e": {"url": "https://example.com"},
    }
    put(host.home / ".cursor" / "mcp.json", json.dumps({"mcpServers": servers}))
    assert list(_discover(host)) == ["e"]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (".cursor/mcp.json", "{", "line 1: column 2: the text ends in the middle"),
        (".cursor/mcp.json", "[]", "mcpServers must be in an object; correct the file"),
        (".cursor/mcp.json", '{"mcpServers": 1}', "mcpServers must be an object of servers"),
        (".codex/config.toml", "[", "not valid TOML"),
    ],
)
def test_invalid_file_is_reported_and_others_are_read(host: HostSystem, name: str, text: str, fault: str) -> None:
    path = put(host.home / name, text)
    discovery = discover_servers(host)
    assert len(discovery.errors) == 1
    assert str(path) in discovery.errors[0]
    assert fault in discovery.errors[0]
    assert len(discovery.servers) > 5


def test_blank_file_has_no_servers(tmp_path: Path) -> None:
    host = machine(tmp_path)
    put(host.home / ".cursor" / "mcp.json", " \n")
    put(host.home / ".gemini" / "settings.json", "{}")
    put(host.home / ".claude.json", '{"projects": 5}')
    discovery = discover_servers(host, ["cursor", "gemini"], all_projects=True)
    assert (discovery.servers, discovery.errors, len(discovery.files)) == ((), (), 2)


def test_all_servers_are_imported_and_clashing_names_are_changed(host: HostSystem, tmp_path: Path) -> None:
    path = tmp_path / "toolcrib.json"
    merger = plan_import(path, discover_servers(host).servers, host.environment)
    path.write_bytes(merger.after)
    config = load_config(path, host.environment)
    assert list(config.servers)[:2] == ["filesystem", "github"]
    assert config.servers["github-cursor"].url == "https://api.githubcopilot.com/mcp/"
    assert {brought.outcome for brought in merger.servers} == {"added"}
    assert len(config.servers) == len(merger.servers) == 19
    source = host.home / ".cursor" / "mcp.json"
    assert config.servers["github-cursor"].imported_from == f"Cursor: {source}"
    # A second import changes nothing.
    again = plan_import(path, discover_servers(host).servers, host.environment)
    assert again.after == again.before
    assert {brought.outcome for brought in again.servers} == {"there already"}


def test_import_keeps_comments_and_existing_servers(host: HostSystem, tmp_path: Path) -> None:
    text = '\ufeff{\n  // Mine.\n  "servers": {\n    "git": {"command": "x"} // first\n  },\n  "http": {"port": 1}\n}\n'
    path = put(tmp_path / "toolcrib.json", text)
    merger = plan_import(path, discover_servers(host, ["windsurf"]).servers, host.environment)
    assert [(one.outcome, one.name) for one in merger.servers] == [("added", "remote"), ("added", "git-windsurf")]
    after = merger.after.decode()
    assert after.startswith('\ufeff{\n  // Mine.\n  "servers": {\n    "git": {"command": "x"}, // first\n')
    path.write_bytes(merger.after)
    assert list(load_config(path, {}).servers) == ["git", "remote", "git-windsurf"]


def test_third_server_of_a_name_gets_a_number(tmp_path: Path) -> None:
    host = machine(tmp_path)
    for edition, command in (("Code", "x"), ("Code - Insiders", "y")):
        path = host.home / ".config" / edition / "User" / "mcp.json"
        put(path, f'{{"servers": {{"a": {{"command": "{command}"}}}}}}')
    path = put(tmp_path / "toolcrib.json", '{"mcpServers": {"a": {"command": "z"}}}')
    merger = plan_import(path, discover_servers(host).servers, {})
    assert [one.name for one in merger.servers] == ["a-vscode", "a-vscode-2"]


def test_import_loses_no_server(tmp_path: Path) -> None:
    host = machine(tmp_path)
    entries = {
        "mail": {"command": "mail-server"},
        "off": {"command": "off-server"},
        "proxied": {"command": "docker", "args": ["exec", "toolcrib", "server"]},
    }
    put(host.home / ".cursor" / "mcp.json", json.dumps({"mcpServers": entries}))
    own = {"letters": {"command": "x", "alias": "mail"}, "off": {"command": "off-server", "enabled": False}}
    path = put(tmp_path / "toolcrib.json", json.dumps({"mcpServers": own}))
    plan = plan_import(path, discover_servers(host).servers, {})
    assert [(one.server.name, one.outcome, one.name) for one in plan.servers] == [
        ("mail", "added", "mail-cursor"),
        ("off", "skipped", ""),
        ("proxied", "added", "proxied"),
    ]
    assert "is disabled in toolcrib.json" in plan.servers[1].server.error
    assert set(parse_config(json.loads(plan.after), {}).servers) == {"letters", "off", "mail-cursor", "proxied"}


def test_import_into_invalid_file_is_rejected(host: HostSystem, tmp_path: Path) -> None:
    path = put(tmp_path / "toolcrib.json", '{\n  "mcpServer": {}\n}')
    with pytest.raises(InvalidConfig, match='line 2: mcpServer: unknown key; did you mean "mcpS'):
        plan_import(path, discover_servers(host).servers, host.environment)


def test_lone_surrogate_is_written_as_escape(tmp_path: Path) -> None:
    host = machine(tmp_path)
    text = r'{"mcpServers": {"a": {"command": "x", "args": ["\ud800"]}}}'
    put(host.home / ".cursor" / "mcp.json", text)
    merger = plan_import(tmp_path / "toolcrib.json", discover_servers(host).servers, {})
    assert rb'"\ud800"' in merger.after
