"""List the files in which MCP clients keep their servers, on every operating system."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from toolcrib.files.json_file import JsonPath

FileFormat = Literal["json", "toml", "yaml"]
FileScope = Literal["user", "project"]

CLIENTS: Mapping[str, str] = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "opencode": "opencode",
    "zed": "Zed",
    "cline": "Cline",
    "continue": "Continue",
    "lm-studio": "LM Studio",
    "goose": "Goose",
    "jetbrains": "JetBrains",
    "kiro": "Kiro",
}
SERVERS: JsonPath = ("mcpServers",)
# Version 2 of opencode keeps its servers here.
OPENCODE_2_SECTION: JsonPath = ("mcp", "servers")
# Kiro keeps the servers of installed powers here.
KIRO_POWERS_SECTION: JsonPath = ("powers", *SERVERS)
MAX_EDITOR_PROFILES = 20
MAX_CONTINUE_FILES = 100

# Claude Desktop from the Microsoft Store uses its own folders.
_STORE_PACKAGE = "Claude_pzs8sxrjxfjjc"


@dataclass(frozen=True, slots=True)
class HostSystem:
    """What determines the location of files: operating system, home, environment and project."""

    system: Literal["darwin", "win32", "linux"]
    home: Path
    environment: Mapping[str, str] = field(repr=False)
    project_folder: Path

    @classmethod
    def detect(cls) -> HostSystem:
        """Return the system that this process runs on."""
        platform: Literal["darwin", "win32", "linux"] = "linux"
        if sys.platform in ("darwin", "win32"):
            platform = "darwin" if sys.platform == "darwin" else "win32"
        return cls(platform, Path.home(), os.environ, Path.cwd())

    def folder_from_variable(self, variable: str, default: Path) -> Path:
        """Return the folder in an environment variable, or the default."""
        value = self.environment.get(variable)
        return Path(value) if value else default

    @property
    def application_folder(self) -> Path:
        """The folder for the settings of applications."""
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return self.folder_from_variable("APPDATA", self.home / "AppData" / "Roaming")
        return self.folder_from_variable("XDG_CONFIG_HOME", self.home / ".config")


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A configuration file of a client, and the path of the servers in it."""

    client: str
    path: Path
    section: JsonPath
    scope: FileScope = "user"
    format: FileFormat = "json"

    @property
    def title(self) -> str:
        """The name of the client."""
        return CLIENTS[self.client]


def list_client_files(system: HostSystem) -> list[ClientFile]:
    """Return every file in which a client may keep servers, for this user and this project."""
    return [*_iter_user_files(system), *_iter_project_files(system)]


def _iter_user_files(system: HostSystem) -> Iterator[ClientFile]:
    home, applications = system.home, system.application_folder
    desktop_name = "claude_desktop_config.json"
    yield ClientFile("claude-desktop", applications / "Claude" / desktop_name, SERVERS)
    if system.system == "win32":
        local = system.folder_from_variable("LOCALAPPDATA", home / "AppData" / "Local")
        roaming = local / "Packages" / _STORE_PACKAGE / "LocalCache" / "Roaming"
        yield ClientFile("claude-desktop", roaming / "Claude" / desktop_name, SERVERS)
    claude = system.folder_from_variable("CLAUDE_CONFIG_DIR", home) / ".claude.json"
    yield ClientFile("claude-code", claude, SERVERS)
    # Claude Code writes folders with slashes, also on Windows.
    project = system.project_folder
    for folder in dict.fromkeys((str(project), project.as_posix())):
        yield ClientFile("claude-code", claude, ("projects", folder, *SERVERS), "project")
    yield ClientFile("cursor", home / ".cursor" / "mcp.json", SERVERS)
    for edition in ("Code", "Code - Insiders"):
        user = applications / edition / "User"
        profiles = sorted(user.glob("profiles/*/mcp.json"))[:MAX_EDITOR_PROFILES]
        for path in (user / "mcp.json", *profiles):
            yield ClientFile("vscode", path, ("servers",))
        yield ClientFile("vscode", user / "settings.json", ("mcp", "servers"))
    for edition in ("windsurf", "windsurf-next"):
        yield ClientFile("windsurf", home / ".codeium" / edition / "mcp_config.json", SERVERS)
    codex = system.folder_from_variable("CODEX_HOME", home / ".codex")
    yield ClientFile("codex", codex / "config.toml", ("mcp_servers",), format="toml")
    yield ClientFile("gemini", home / ".gemini" / "settings.json", SERVERS)
    yield from _iter_other_user_files(system)


def _iter_other_user_files(system: HostSystem) -> Iterator[ClientFile]:
    home, applications = system.home, system.application_folder
    # opencode, Zed and Goose use this folder on macOS too, and opencode also on Windows.
    config = system.folder_from_variable("XDG_CONFIG_HOME", home / ".config")
    yield from _list_opencode_files(config / "opencode", "user")
    if "OPENCODE_CONFIG" in system.environment:
        yield from _list_opencode_sections(Path(system.environment["OPENCODE_CONFIG"]), "user")
    zed = applications / "Zed" if system.system == "win32" else config / "zed"
    yield ClientFile("zed", zed / "settings.json", ("context_servers",))
    cline = "cline_mcp_settings.json"
    cline_home = system.folder_from_variable("CLINE_DIR", home / ".cline")
    yield ClientFile("cline", cline_home / "data" / "settings" / cline, SERVERS)
    for edition in ("Code", "Code - Insiders", "Cursor", "Windsurf"):
        extension = applications / edition / "User" / "globalStorage" / "saoudrizwan.claude-dev"
        yield ClientFile("cline", extension / "settings" / cline, SERVERS)
    yield from _list_continue_files(home / ".continue", "user")
    yield ClientFile("lm-studio", home / ".lmstudio" / "mcp.json", SERVERS)
    # Old installations keep this folder.
    yield ClientFile("lm-studio", home / ".cache" / "lm-studio" / "mcp.json", SERVERS)
    goose = applications / "Block" / "goose" / "config" if system.system == "win32" else config / "goose"
    yield ClientFile("goose", goose / "config.yaml", ("extensions",), format="yaml")
    yield ClientFile("jetbrains", home / ".junie" / "mcp" / "mcp.json", SERVERS)
    yield from _list_kiro_sections(home, "user")


def _list_opencode_files(folder: Path, scope: FileScope) -> Iterator[ClientFile]:
    for name in ("opencode.json", "opencode.jsonc", "config.json"):
        yield from _list_opencode_sections(folder / name, scope)


def _list_opencode_sections(path: Path, scope: FileScope) -> Iterator[ClientFile]:
    # Version 1 has the servers in `mcp`, version 2 in `mcp.servers`.
    yield ClientFile("opencode", path, ("mcp",), scope)
    yield ClientFile("opencode", path, OPENCODE_2_SECTION, scope)


def _list_kiro_sections(folder: Path, scope: FileScope) -> Iterator[ClientFile]:
    for section in (SERVERS, KIRO_POWERS_SECTION):
        yield ClientFile("kiro", folder / ".kiro" / "settings" / "mcp.json", section, scope)


def _list_continue_files(folder: Path, scope: FileScope) -> Iterator[ClientFile]:
    yield ClientFile("continue", folder / "config.yaml", SERVERS, scope, "yaml")
    servers = sorted(path for path in Path(folder).glob("mcpServers/*") if path.suffix in (".yaml", ".yml", ".json"))
    for path in servers[:MAX_CONTINUE_FILES]:
        yield ClientFile("continue", path, SERVERS, scope, "json" if path.suffix == ".json" else "yaml")


def _iter_project_files(system: HostSystem) -> Iterator[ClientFile]:
    folder = system.project_folder
    yield ClientFile("claude-code", folder / ".mcp.json", SERVERS, "project")
    if folder == system.home:
        # These files are the user's files, which are listed already.
        return
    yield ClientFile("cursor", folder / ".cursor" / "mcp.json", SERVERS, "project")
    yield ClientFile("vscode", folder / ".vscode" / "mcp.json", ("servers",), "project")
    codex = folder / ".codex" / "config.toml"
    yield ClientFile("codex", codex, ("mcp_servers",), "project", "toml")
    yield ClientFile("gemini", folder / ".gemini" / "settings.json", SERVERS, "project")
    yield from _list_opencode_files(folder, "project")
    yield from _list_opencode_files(folder / ".opencode", "project")
    yield ClientFile("zed", folder / ".zed" / "settings.json", ("context_servers",), "project")
    yield from _list_continue_files(folder / ".continue", "project")
    for path in (folder / ".junie" / "mcp" / "mcp.json", folder / ".air" / "mcp.json"):
        yield ClientFile("jetbrains", path, SERVERS, "project")
    yield from _list_kiro_sections(folder, "project")
