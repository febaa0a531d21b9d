"""Where MCP clients keep their servers, on every system. Pure: the machine is described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from toolcrib.config.problems import JsonPath

FileFormat = Literal["json", "toml"]
FileScope = Literal["user", "project"]

CLIENTS: Mapping[str, str] = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
    "codex": "Codex",
    "gemini": "Gemini CLI",
}
CLAUDE_CODE_USER_PATH: JsonPath = ("mcpServers",)
MAX_EDITOR_PROFILES = 20

# The package of Claude Desktop from the Microsoft Store, which has folders of its own.
_STORE_PACKAGE = "Claude_pzs8sxrjxfjjc"


@dataclass(frozen=True, slots=True)
class HostSystem:
    """What decides where files are: the system, the user's folder, variables, this folder."""

    system: Literal["darwin", "win32", "linux"]
    home: Path
    environment: Mapping[str, str] = field(repr=False)
    project_folder: Path

    def folder_from_variable(self, variable: str, default: Path) -> Path:
        """The folder a variable names, or another."""
        named = self.environment.get(variable)
        return Path(named) if named else default

    @property
    def application_folder(self) -> Path:
        """Where applications keep their settings."""
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return self.folder_from_variable("APPDATA", self.home / "AppData" / "Roaming")
        return self.folder_from_variable("XDG_CONFIG_HOME", self.home / ".config")


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A file of a client, and where in it the servers are: name by name, in an object."""

    client: str
    path: Path
    section: JsonPath
    scope: FileScope = "user"
    format: FileFormat = "json"

    @property
    def title(self) -> str:
        """The client as people call it."""
        return CLIENTS[self.client]


def list_client_files(machine: HostSystem) -> list[ClientFile]:
    """Every file in which a client may keep servers, for this user and for this folder."""
    return [*_iter_user_files(machine), *_iter_project_files(machine)]


def _iter_user_files(machine: HostSystem) -> Iterator[ClientFile]:
    home, applications = machine.home, machine.application_folder
    servers: JsonPath = ("mcpServers",)
    name = "claude_desktop_config.json"
    yield ClientFile("claude-desktop", applications / "Claude" / name, servers)
    if machine.system == "win32":
        local = machine.folder_from_variable("LOCALAPPDATA", home / "AppData" / "Local")
        roaming = local / "Packages" / _STORE_PACKAGE / "LocalCache" / "Roaming"
        yield ClientFile("claude-desktop", roaming / "Claude" / name, servers)
    claude = machine.folder_from_variable("CLAUDE_CONFIG_DIR", home) / ".claude.json"
    yield ClientFile("claude-code", claude, CLAUDE_CODE_USER_PATH)
    # It writes folders with slashes, on Windows too.
    for folder in dict.fromkeys((str(machine.project_folder), machine.project_folder.as_posix())):
        yield ClientFile(
            "claude-code", claude, ("projects", folder, *CLAUDE_CODE_USER_PATH), "project"
        )
    yield ClientFile("cursor", home / ".cursor" / "mcp.json", servers)
    for edition in ("Code", "Code - Insiders"):
        user = applications / edition / "User"
        profiles = sorted(user.glob("profiles/*/mcp.json"))[:MAX_EDITOR_PROFILES]
        for path in (user / "mcp.json", *profiles):
            yield ClientFile("vscode", path, ("servers",))
        yield ClientFile("vscode", user / "settings.json", ("mcp", "servers"))
    for edition in ("windsurf", "windsurf-next"):
        yield ClientFile("windsurf", home / ".codeium" / edition / "mcp_config.json", servers)
    codex = machine.folder_from_variable("CODEX_HOME", home / ".codex")
    yield ClientFile("codex", codex / "config.toml", ("mcp_servers",), format="toml")
    yield ClientFile("gemini", home / ".gemini" / "settings.json", servers)


def _iter_project_files(machine: HostSystem) -> Iterator[ClientFile]:
    folder = machine.project_folder
    servers: JsonPath = ("mcpServers",)
    yield ClientFile("claude-code", folder / ".mcp.json", servers, "project")
    if folder == machine.home:
        # There the files of the folder are those of the user.
        return
    yield ClientFile("cursor", folder / ".cursor" / "mcp.json", servers, "project")
    yield ClientFile("vscode", folder / ".vscode" / "mcp.json", ("servers",), "project")
    codex = folder / ".codex" / "config.toml"
    yield ClientFile("codex", codex, ("mcp_servers",), "project", "toml")
    yield ClientFile("gemini", folder / ".gemini" / "settings.json", servers, "project")
