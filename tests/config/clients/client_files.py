"""Sample files of every client in their documented formats."""

from __future__ import annotations

from pathlib import Path

from toolcrib.config.clients.locations import HostSystem

CLAUDE_DESKTOP = """\
{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Desktop"]
    },
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_hush"}
    }
  }
}
"""
CLAUDE_CODE = """\
{
  "numStartups": 42,
  "mcpServers": {
    "sentry": {"type": "http", "url": "https://mcp.sentry.dev/mcp"},
    "airtable": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "airtable-mcp-server"],
      "env": {"AIRTABLE_API_KEY": "${AIRTABLE_KEY:-none}"}
    }
  },
  "projects": {
    "PROJECT": {
      "allowedTools": [],
      "mcpServers": {"local": {"command": "./server.py", "args": ["--here"]}},
      "history": [{"display": "hello"}]
    },
    "/other/project": {
      "mcpServers": {"elsewhere": {"command": "uvx", "args": ["mcp-server-git"]}}
    }
  }
}
"""
CLAUDE_CODE_PROJECT = """\
{
  "mcpServers": {
    "shared": {"type": "sse", "url": "${BASE_URL:-https://example.com}/sse"},
    "needy": {"command": "uvx", "args": ["x"], "env": {"KEY": "${UNSET_KEY}"}}
  }
}
"""
CURSOR = """\
{
  "mcpServers": {
    "github": {
      "url": "https://api.githubcopilot.com/mcp/",
      "headers": {"Authorization": "Bearer ${env:GITHUB_TOKEN}"}
    },
    "files": {
      "command": "npx",
      "args": ["-y", "files", "${userHome}${/}x", "${workspaceFolder}", "costs ${5}"],
      "envFile": ".env"
    },
    "events": {"url": "https://example.com/sse"}
  }
}
"""
VSCODE = """\
{
  // Asked for once.
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "API key", "password": true},
  ],
  "servers": {
    "perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask"],
      "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}"}
    },
    /* Documents. */
    "learn": {"type": "http", "url": "https://learn.microsoft.com/api/mcp"}, // open to all
  },
}
"""
VSCODE_SETTINGS = """\
{
  "editor.fontSize": 12, // points
  "mcp": {"servers": {"old": {"command": "uvx", "args": ["old-server"]}}}
}
"""
WINDSURF = """\
{
  "mcpServers": {
    "remote": {"serverUrl": "https://example.com/mcp", "headers": {"X-Key": "abc"}},
    "git": {"command": "uvx", "args": ["mcp-server-git"], "disabled": true,
            "disabledTools": ["git_push"]}
  }
}
"""
CODEX = """\
model = "gpt-5.5"

# Documents.
[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp", "${literally}"]
env_vars = ["LOCAL_TOKEN", { name = "OTHER", source = "remote" }]
startup_timeout_sec = 20
tool_timeout_sec = 45
enabled_tools = ["search"]
default_tools_approval_mode = "prompt"

[mcp_servers.context7.env]
MY_ENV_VAR = "MY_ENV_VALUE"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_OAUTH_TOKEN"
http_headers = { "X-Figma-Region" = "us-east-1" }
env_http_headers = { "X-Team" = "FIGMA_TEAM" }
enabled = false

[projects."/home/me/x"]
trust_level = "trusted"
"""
GEMINI = """\
{
  "theme": "Dracula",
  "mcpServers": {
    "python": {
      "command": "python",
      "args": ["-m", "my_mcp_server", "$5"],
      "env": {"DATABASE_URL": "$DB_URL", "API_KEY": "${DB_KEY}"},
      "cwd": "/srv/server",
      "timeout": 15000,
      "trust": false,
      "includeTools": ["safe_tool"],
      "excludeTools": ["rm"]
    },
    "http": {"httpUrl": "http://localhost:3000/mcp", "timeout": 5000}
  }
}
"""
ENVIRONMENT = {"GITHUB_TOKEN": "x", "DB_URL": "x", "DB_KEY": "x", "FIGMA_OAUTH_TOKEN": "x", "FIGMA_TEAM": "x"}


def machine(folder: Path, **environment: str) -> HostSystem:
    """Return a system whose home and project folders are in this folder."""
    home, project = folder / "home", folder / "work"
    home.mkdir(exist_ok=True)
    project.mkdir(exist_ok=True)
    return HostSystem("linux", home, {**ENVIRONMENT, **environment}, project)


def put(path: Path, text: str) -> Path:
    """Write a file and create its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def put_all(made: HostSystem) -> dict[str, Path]:
    """Write the files of every client."""
    home, config, project = made.home, made.home / ".config", made.project_folder
    claude_code = CLAUDE_CODE.replace("PROJECT", str(project))
    return {
        "claude-desktop": put(config / "Claude" / "claude_desktop_config.json", CLAUDE_DESKTOP),
        "claude-code": put(home / ".claude.json", claude_code),
        "claude-code project": put(project / ".mcp.json", CLAUDE_CODE_PROJECT),
        "cursor": put(home / ".cursor" / "mcp.json", CURSOR),
        "vscode": put(config / "Code" / "User" / "mcp.json", VSCODE),
        "vscode settings": put(config / "Code" / "User" / "settings.json", VSCODE_SETTINGS),
        "windsurf": put(home / ".codeium" / "windsurf" / "mcp_config.json", WINDSURF),
        "codex": put(home / ".codex" / "config.toml", CODEX),
        "gemini": put(home / ".gemini" / "settings.json", GEMINI),
    }
