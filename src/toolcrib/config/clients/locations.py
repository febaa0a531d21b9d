"""List the files in which MCP clients keep their servers, on every operating system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from toolcrib.files.json_file import JsonPath

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
SERVERS: JsonPath = ("mcpServers",)
MAX_EDITOR_PROFILES = 20

# Claude Desktop from the Microsoft Store uses its own folders.
_STORE_PACKAGE = "Claude_pzs8sxrjxfjjc"


@dataclass(frozen=True, slots=True)
class HostSystem:
    """What determines the location of files: operating system, home, environment and project."""

    system: Literal["darwin", "win32", "linux"]
    home: Path
    environment: Mapping[str, str] = field(repr=False)
    project_folder: Path

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
