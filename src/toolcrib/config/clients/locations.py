"""Where MCP clients keep their servers, on every system. Pure: the machine is described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from toolcrib.config.problems import Steps

Format = Literal["json", "toml"]
Scope = Literal["user", "project"]

CLIENTS: Mapping[str, str] = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
    "codex": "Codex",
    "gemini": "Gemini CLI",
}
CLAUDE_CODE_USER: Steps = ("mcpServers",)
MAX_PROFILES = 20

# The package of Claude Desktop from the Microsoft Store, which has folders of its own.
_STORE_PACKAGE = "Claude_pzs8sxrjxfjjc"


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides where files are: the system, the user's folder, variables, this folder."""

    system: Literal["darwin", "win32", "linux"]
    home: Path
    environment: Mapping[str, str] = field(repr=False)
    project: Path

    def folder(self, variable: str, default: Path) -> Path:
        """The folder a variable names, or another."""
        named = self.environment.get(variable)
        return Path(named) if named else default

    @property
    def applications(self) -> Path:
        """Where applications keep their settings."""
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return self.folder("APPDATA", self.home / "AppData" / "Roaming")
        return self.folder("XDG_CONFIG_HOME", self.home / ".config")


@dataclass(frozen=True, slots=True)
class Place:
    """A file of a client, and where in it the servers are: name by name, in an object."""

    client: str
    path: Path
    section: Steps
    scope: Scope = "user"
    format: Format = "json"

    @property
    def title(self) -> str:
        """The client as people call it."""
        return CLIENTS[self.client]


def places(machine: Machine) -> list[Place]:
    """Every file in which a client may keep servers, for this user and for this folder."""
    return [*_user_places(machine), *_project_places(machine)]


def _user_places(machine: Machine) -> Iterator[Place]:
    home, applications = machine.home, machine.applications
    servers: Steps = ("mcpServers",)
    name = "claude_desktop_config.json"
    yield Place("claude-desktop", applications / "Claude" / name, servers)
    if machine.system == "win32":
        local = machine.folder("LOCALAPPDATA", home / "AppData" / "Local")
        roaming = local / "Packages" / _STORE_PACKAGE / "LocalCache" / "Roaming"
        yield Place("claude-desktop", roaming / "Claude" / name, servers)
    claude = machine.folder("CLAUDE_CONFIG_DIR", home) / ".claude.json"
    yield Place("claude-code", claude, CLAUDE_CODE_USER)
    # It writes folders with slashes, on Windows too.
    for folder in dict.fromkeys((str(machine.project), machine.project.as_posix())):
        yield Place("claude-code", claude, ("projects", folder, *CLAUDE_CODE_USER), "project")
    yield Place("cursor", home / ".cursor" / "mcp.json", servers)
    for edition in ("Code", "Code - Insiders"):
        user = applications / edition / "User"
        profiles = sorted(user.glob("profiles/*/mcp.json"))[:MAX_PROFILES]
        for path in (user / "mcp.json", *profiles):
            yield Place("vscode", path, ("servers",))
        yield Place("vscode", user / "settings.json", ("mcp", "servers"))
    for edition in ("windsurf", "windsurf-next"):
        yield Place("windsurf", home / ".codeium" / edition / "mcp_config.json", servers)
    codex = machine.folder("CODEX_HOME", home / ".codex")
    yield Place("codex", codex / "config.toml", ("mcp_servers",), format="toml")
    yield Place("gemini", home / ".gemini" / "settings.json", servers)


def _project_places(machine: Machine) -> Iterator[Place]:
    folder = machine.project
    servers: Steps = ("mcpServers",)
    yield Place("claude-code", folder / ".mcp.json", servers, "project")
    if folder == machine.home:
        # There the files of the folder are those of the user.
        return
    yield Place("cursor", folder / ".cursor" / "mcp.json", servers, "project")
    yield Place("vscode", folder / ".vscode" / "mcp.json", ("servers",), "project")
    codex = folder / ".codex" / "config.toml"
    yield Place("codex", codex, ("mcp_servers",), "project", "toml")
    yield Place("gemini", folder / ".gemini" / "settings.json", servers, "project")
