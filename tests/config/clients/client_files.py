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
OPENCODE = """\
{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    // Version 1 has the servers here.
    "everything": {
      "type": "local",
      "command": ["npx", "-y", "@modelcontextprotocol/server-everything"],
      "environment": {"TOKEN": "{env:GITHUB_TOKEN}", "COST": "${5}"},
      "enabled": false,
      "timeout": 5000,
    },
    "jira": {"type": "remote", "url": "https://jira.example.com/mcp", "headers": {"X-Key": "{file:~/.key}"}},
    "only-an-override": {"enabled": false},
  },
}
"""
OPENCODE_2 = """\
{
  "mcp": {
    "timeout": {"startup": 1000},
    "servers": {
      "files": {"type": "local", "command": ["bunx", "files"], "cwd": ".", "disabled": true},
      "own": {"type": "local", "command": ["toolcrib", "stdio"]}
    }
  }
}
"""
ZED = """\
{
  // Fonts
  "buffer_font_size": 15,
  "context_servers": {
    "plain": {"source": "custom", "command": "uvx", "args": ["mcp-server-git", "${HOME}"], "env": null, "timeout": 90},
    "old": {"command": {"path": "node", "args": ["server.js"], "env": {"A": "b"}}, "settings": {}},
    "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer x"}},
    "extension": {"enabled": true, "settings": {"database_url": "x"}},
  },
}
"""
CLINE = """\
{
  "mcpServers": {
    "slow": {
      "command": "node", "args": ["/srv/index.js"], "timeout": 60, "disabled": true,
      "alwaysAllow": ["read"], "env": {"KEY": "${env:DB_KEY}"}
    },
    "remote": {"type": "streamableHttp", "url": "https://example.com/mcp", "headers": {"X": "y"}}
  }
}
"""
CONTINUE = """\
name: Main
version: 1.0.0
schema: v1
models: &models []
mcpServers:
  - name: SQLite
    command: npx
    args: ["-y", "mcp-sqlite", "/data/test.db", "costs ${5}"]
    env:
      KEY: ${{ secrets.DB_KEY }}
    connectionTimeout: 20000
  - name: SQLite
    type: streamable-http
    url: https://example.com/mcp
    requestOptions:
      headers:
        Authorization: Bearer ${{ secrets.my-token }}
"""
CONTINUE_BLOCK = '{"mcpServers": {"copied": {"command": "uvx", "args": ["copied"]}}}'
LM_STUDIO = '{"mcpServers": {"hf-mcp-server": {"url": "https://huggingface.co/mcp", "headers": {"A": "Bearer x"}}}}'
GOOSE = """\
GOOSE_PROVIDER: anthropic
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    timeout: 300
    type: builtin
  github:
    args: ["-y", "@modelcontextprotocol/server-github", "$HOME"]
    available_tools: ["search"]
    bundled: null
    cmd: npx
    description: ''
    enabled: true
    env_keys: [GITHUB_TOKEN, MISSING_TOKEN]
    envs: {LOG: "${x}"}
    name: github
    timeout: 300
    type: stdio
  remote:
    enabled: false
    headers: {Authorization: "Bearer $DB_KEY"}
    name: remote
    timeout: 60
    type: streamable_http
    uri: https://example.com/mcp
  script:
    code: print(1)
    enabled: true
    name: script
    type: inline_python
"""
JUNIE = '{"mcpServers": {"ide": {"command": "npx", "args": ["ide", "${x}"], "env": {"A": "b"}}}}'
KIRO = """\
{
  "mcpServers": {
    "aws": {
      "command": "uvx", "args": ["awslabs.aws-documentation-mcp-server@latest"], "env": {"K": "${DB_KEY}"},
      "disabled": false, "autoApprove": ["read"], "disabledTools": ["write"]
    }
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


def put_others(made: HostSystem) -> dict[str, Path]:
    """Write the files of the clients that were added later."""
    home, config, project = made.home, made.home / ".config", made.project_folder
    return {
        "opencode": put(config / "opencode" / "opencode.jsonc", OPENCODE),
        "opencode project": put(project / "opencode.json", OPENCODE_2),
        "zed": put(config / "zed" / "settings.json", ZED),
        "cline": put(home / ".cline" / "data" / "settings" / "cline_mcp_settings.json", CLINE),
        "continue": put(home / ".continue" / "config.yaml", CONTINUE),
        "continue block": put(project / ".continue" / "mcpServers" / "copied.json", CONTINUE_BLOCK),
        "lm-studio": put(home / ".lmstudio" / "mcp.json", LM_STUDIO),
        "goose": put(config / "goose" / "config.yaml", GOOSE),
        "jetbrains": put(home / ".junie" / "mcp" / "mcp.json", JUNIE),
        "kiro": put(home / ".kiro" / "settings" / "mcp.json", KIRO),
    }
